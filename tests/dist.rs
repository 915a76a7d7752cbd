//! Tests the files packed by `make dist` as a user installs them: checks, unpacks and installs
//! them, and loads the module with one line of configuration. `RL_DIST` is the folder of these
//! files.

// The end-to-end suite uses everything in this module; this suite uses a part of it.
#[path = "e2e/support/mod.rs"]
#[allow(dead_code, unused_imports)]
mod support;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};
use support::Server;
use tempfile::TempDir;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The packages with a program and its unit.
const SERVICES: [&str; 2] = ["redis-throttle-exporter", "redis-throttle-gateway"];
const MODULE: &str = "usr/lib/redis/modules/libredis_throttle.so";

fn dist() -> PathBuf {
    let folder = env::var_os("RL_DIST").expect("RL_DIST names what make dist has packed");
    PathBuf::from(folder).canonicalize().expect("a folder")
}

/// Runs a program that must succeed, and returns its output.
fn run(program: &str, arguments: &[&str], folder: &Path) -> String {
    let path = format!("{}:/usr/sbin:/sbin", env::var("PATH").unwrap_or_default());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).env("PATH", path);
    // Removes the variables that cargo sets for a test. With them, a cargo that the program starts
    // would run build scripts again.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_") && name != "CARGO_HOME" {
            command.env_remove(&*name);
        }
    }
    let output =
        command.output().unwrap_or_else(|error| panic!("{program} cannot be run: {error}"));
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    said
}

fn text(path: PathBuf) -> String {
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the paths of all files below a folder, relative to that folder.
fn files(folder: &Path) -> BTreeSet<String> {
    let listed = run("find", &[".", "!", "-type", "d", "-printf", "%P\\n"], folder);
    listed.lines().map(str::to_owned).collect()
}

fn tarball() -> String {
    format!("redis-throttle-{VERSION}-linux-{}", env::consts::ARCH)
}

fn deb(package: &str) -> String {
    let arch = run("dpkg", &["--print-architecture"], Path::new("/"));
    format!("{package}_{VERSION}_{}.deb", arch.trim())
}

fn unpacked() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = dist().join(tarball() + ".tar.gz");
    run("tar", &["xzf", archive.to_str().unwrap()], folder.path());
    let top = folder.path().join(tarball());
    (folder, top)
}

/// A separate root folder for dpkg, with a copy of this machine's list of installed packages.
struct Root(TempDir);

impl Root {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a folder");
        let state = root.path().join("var/lib/dpkg");
        for folder in ["info", "updates", "triggers"] {
            fs::create_dir_all(state.join(folder)).unwrap();
        }
        fs::copy("/var/lib/dpkg/status", state.join("status")).expect("a Debian");
        Self(root)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn dpkg(&self, arguments: &[&str]) -> String {
        let root = format!("--root={}", self.path().display());
        // The root has no shell, so package scripts run outside it, without a change of root.
        let forced = [root.as_str(), "--force-not-root", "--force-script-chrootless"];
        run("dpkg", &[&forced, arguments].concat(), &dist())
    }

    /// Returns the files that dpkg has installed under this root, except its own records.
    fn files(&self) -> BTreeSet<String> {
        files(self.path()).into_iter().filter(|file| !file.starts_with("var/lib/dpkg/")).collect()
    }
}

/// Starts a server whose configuration has one line for the module. Asserts that it answers calls
/// and reports its version.
fn assert_decides(module: &Path) -> Server {
    let server = Server::setup().module(module).without_debug_commands().start();
    let mut client = server.client();
    assert_eq!(client.decide("RL.GCRA user:42 6 10 60"), [1, 6, 5, 0, 6000]);
    assert_eq!(client.info("rl")["rl_version"], VERSION);
    server
}

#[test]
fn dist_holds_exactly_the_expected_files_with_valid_checksums() {
    let packages = ["redis-throttle"].into_iter().chain(SERVICES).map(deb);
    let names: Vec<_> = packages.chain([tarball() + ".tar.gz"]).collect();
    let mut expected: BTreeSet<_> = names.iter().cloned().collect();
    expected.insert("SHA256SUMS".to_owned());
    assert_eq!(files(&dist()), expected);
    let checked = run("sha256sum", &["--strict", "--check", "SHA256SUMS"], &dist());
    for name in names {
        assert!(checked.contains(&format!("{name}: OK\n")), "{checked}");
    }
}

#[test]
fn packing_again_gives_the_same_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let again = folder.path().join("again");
    let target = dist().parent().expect("a target directory").display().to_string();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/dist.sh");
    run(script.to_str().unwrap(), &[&target, again.to_str().unwrap()], folder.path());
    assert_eq!(text(again.join("SHA256SUMS")), text(dist().join("SHA256SUMS")));
}

#[test]
fn a_server_starts_from_the_tarball_in_a_clean_folder() {
    let (_folder, top) = unpacked();
    let checked = run("sha256sum", &["--strict", "--check", "SHA256SUMS"], &top);
    let expected = [
        "CHANGELOG.md",
        "INSTALL",
        "LICENSE",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "LICENSES-THIRD-PARTY",
        "SHA256SUMS",
        "functions/redis_throttle.lua",
        "functions/redis_throttle_script.lua",
        "gateway/Caddyfile",
        "gateway/envoy/envoy.yaml",
        "gateway/envoy/limits.yaml",
        "gateway/haproxy.cfg",
        "gateway/istio.yaml",
        "gateway/kubernetes.yaml",
        "gateway/limits.lua",
        "gateway/limits.yaml",
        "gateway/nginx.conf",
        "gateway/traefik.yaml",
        "libredis_throttle.so",
        "prometheus/alerts.yml",
        "prometheus/dashboard.json",
        "prometheus/scrape.yml",
        "redis-throttle-exporter",
        "redis-throttle-gateway",
        "redis.conf.example",
    ];
    assert_eq!(files(&top), expected.map(str::to_owned).into());
    assert_eq!(checked.lines().count(), expected.len() - 1, "{checked}");
    assert_decides(&top.join("libredis_throttle.so"));
    assert!(text(top.join("INSTALL")).contains(&format!("redis-throttle {VERSION} ")));
    for program in SERVICES {
        let version = run(&format!("./{program}"), &["--version"], &top);
        assert_eq!(version, format!("{program} {VERSION}\n"));
    }
}

/// Installs the package of a service, and returns its root and the text of its unit.
fn installed(service: &str) -> (Root, String) {
    let root = Root::new();
    root.dpkg(&["--install", &deb(service)]);
    let files = root.files();
    let unit = format!("usr/lib/systemd/system/{service}.service");
    let are_all_in_usr = files.iter().all(|file| file.starts_with("usr/"));
    assert!(files.contains(&unit) && are_all_in_usr, "{files:?}");
    let unit = text(root.path().join(unit));
    (root, unit)
}

#[test]
fn a_server_loads_the_module_that_the_package_installs() {
    let root = Root::new();
    root.dpkg(&["--install", &deb("redis-throttle")]);
    let documents = ["changelog.gz", "copyright", "redis.conf.example"];
    let mut expected =
        BTreeSet::from(documents.map(|it| format!("usr/share/doc/redis-throttle/{it}")));
    expected.insert(MODULE.to_owned());
    assert_eq!(root.files(), expected, "nothing below etc, and nothing else of its owner's");
    let module = root.path().join(MODULE);
    assert_eq!(fs::metadata(&module).unwrap().permissions().mode() & 0o777, 0o755);
    assert_decides(&module);
    root.dpkg(&["--verify", "redis-throttle"]);
    root.dpkg(&["--purge", "redis-throttle"]);
    assert_eq!(root.files(), BTreeSet::new());
}

#[test]
fn service_package_installs_a_unit_that_runs_its_binary_and_is_not_enabled() {
    for service in SERVICES {
        let (root, unit) = installed(service);
        let (_, started) = unit.split_once("\nExecStart=/").expect("a command");
        let program = root.path().join(started.split(' ').next().unwrap());
        let version = run(program.to_str().unwrap(), &["--version"], root.path());
        assert_eq!(version, format!("{service} {VERSION}\n"));
        root.dpkg(&["--purge", service]);
        assert_eq!(root.files(), BTreeSet::new());
    }
}

#[test]
fn gateway_of_the_package_accepts_the_examples_with_the_arguments_of_its_unit() {
    let (root, unit) = installed("redis-throttle-gateway");
    let joined = unit.replace("\\\n", "");
    let (_, command) = joined.split_once("\nExecStart=/").expect("a command");
    let mut words = command.lines().next().unwrap().split_whitespace();
    let program = root.path().join(words.next().unwrap());
    let examples = root.path().join("usr/share/doc/redis-throttle-gateway/examples");
    for (example, domain) in [("limits.yaml", "web"), ("envoy/limits.yaml", "api")] {
        let file = examples.join(example);
        let file = file.to_str().unwrap();
        let named = words.clone().map(|word| match word {
            "/etc/redis-throttle-gateway" => file,
            other => other,
        });
        let arguments: Vec<_> = ["--check"].into_iter().chain(named).collect();
        assert!(arguments.contains(&file), "{unit}");
        let said = run(program.to_str().unwrap(), &arguments, root.path());
        assert!(said.lines().count() >= 3, "{said}");
        assert!(said.lines().all(|line| line.starts_with(&format!("{domain} ("))), "{said}");
    }
}

#[test]
fn packages_depend_on_the_c_library_version_that_their_files_need() {
    let (_folder, top) = unpacked();
    let number = |version: &str| -> (u32, u32) {
        let (major, minor) = version.split_once('.').expect(version);
        (major.parse().unwrap(), minor.split('.').next().unwrap().parse().unwrap())
    };
    let mut needed = (0, 0);
    for file in ["libredis_throttle.so"].into_iter().chain(SERVICES) {
        let symbols = run("objdump", &["-T", file], &top);
        let versions = symbols.split("GLIBC_").skip(1);
        let of_file = versions.map(|rest| number(rest.split([')', ' ']).next().unwrap())).max();
        needed = needed.max(of_file.expect("symbols of the C library"));
    }
    assert!(needed <= (2, 36), "glibc {needed:?} is newer than that of Debian 12");
    let needed = format!("{}.{}", needed.0, needed.1);
    assert!(text(top.join("INSTALL")).contains(&format!("glibc {needed} or newer")), "{needed}");
    for package in ["redis-throttle"].into_iter().chain(SERVICES) {
        let depends = run("dpkg-deb", &["--field", &deb(package), "Depends"], &dist());
        assert_eq!(depends.trim(), format!("libc6 (>= {needed}), libgcc-s1"));
    }
}

#[test]
fn released_files_contain_no_path_of_the_build_machine() {
    let (_folder, top) = unpacked();
    let mut unwanted = vec![env!("CARGO_MANIFEST_DIR").to_owned()];
    unwanted.extend(["HOME", "CARGO_HOME"].map(|name| env::var(name).unwrap_or_default()));
    unwanted.retain(|folder| folder.len() > 1);
    for file in files(&top) {
        let bytes = fs::read(top.join(&file)).unwrap();
        for folder in &unwanted {
            let name = format!("{folder}/");
            let found = bytes.windows(name.len()).any(|window| window == name.as_bytes());
            assert!(!found, "{file} names {folder}");
        }
    }
}

#[test]
fn every_linked_crate_is_listed_with_its_licence() {
    let (_folder, top) = unpacked();
    let licences = text(top.join("LICENSES-THIRD-PARTY"));
    let linked = ["redis-module v", "jiff v", "rmp-serde v", "redis v", "rustls v", "ring v"];
    for name in linked.into_iter().chain(["tonic v", "envoy-types v", "saphyr-parser v"]) {
        assert!(licences.contains(&format!("\n=== {name}")), "{name}");
    }
    for part in licences.split("\n=== ").skip(1) {
        let (title, text) = part.split_once('\n').expect("a title");
        let only_apache = title.ends_with(", Apache-2.0");
        assert!(only_apache || text.trim().len() > 40, "{title} comes without a text");
    }
}
