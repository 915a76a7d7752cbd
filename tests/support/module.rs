//! The module under test: given by the environment, or built once.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const LIBRARY: &str = "libredis_throttle.so";

/// Returns the path of the module under test: `RL_MODULE`, or a release build of this repository.
pub fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| match env::var_os("RL_MODULE") {
        Some(path) => absolute(path.into()),
        None => build("release", &["--release"]),
    })
}

/// Returns the path of a build with `RL.DEBUG PANIC`: `RL_MODULE_FAULTS`, or a build with the
/// profile of the tests, whose crates it shares.
pub fn path_with_faults() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| match env::var_os("RL_MODULE_FAULTS") {
        Some(path) => absolute(path.into()),
        None => build("debug", &["--features", "fault-injection"]),
    })
}

/// Returns the path of another module to load as well, if `NEIGHBOUR` gives one.
pub fn neighbour() -> Option<PathBuf> {
    env::var_os("NEIGHBOUR").filter(|path| !path.is_empty()).map(|path| absolute(path.into()))
}

/// Makes a path absolute, because the server starts in its own directory.
fn absolute(path: PathBuf) -> PathBuf {
    path.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("the repository")
}

fn target_directory() -> PathBuf {
    root().join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

fn build(folder: &str, options: &[&str]) -> PathBuf {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--locked", "--lib"])
        .args(options)
        .current_dir(root())
        .status()
        .expect("cargo can be run");
    assert!(status.success(), "the module does not build");
    target_directory().join(folder).join(LIBRARY)
}
