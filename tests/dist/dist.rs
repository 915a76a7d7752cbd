//! Tests the files packed by `make dist` as a user installs them: checks, unpacks and installs
//! them, loads the module, and runs the programs and the clients. `RL_DIST` is the folder of these
//! files.

mod clients;
mod kubernetes;
mod packages;
mod server;

use server::Server;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};
use tempfile::TempDir;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The packages with a program and its unit.
const SERVICES: [&str; 2] = ["redis-throttle-exporter", "redis-throttle-gateway"];
/// The packages with a program.
const PROGRAMS: [&str; 3] =
    ["redis-throttle-exporter", "redis-throttle-gateway", "redis-throttle-lab"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("a folder")
}

fn dist() -> PathBuf {
    let folder = env::var_os("RL_DIST").expect("RL_DIST names what make dist has packed");
    PathBuf::from(folder).canonicalize().expect("a folder")
}

/// Runs a program that must succeed, and returns its output.
fn run(program: &str, arguments: &[&str], folder: &Path) -> String {
    run_with(&[], program, arguments, folder)
}

/// Runs a program with variables in its environment.
fn run_with(
    variables: &[(&str, &OsStr)],
    program: &str,
    arguments: &[&str],
    folder: &Path,
) -> String {
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
    command.envs(variables.iter().copied());
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

/// Returns the module of `make build`, whose bytes the tarball and the package have.
fn module() -> PathBuf {
    dist().parent().expect("a target directory").join("release/libredis_throttle.so")
}

/// Asserts that a server with this module decides calls and reports the module's version.
fn assert_decides(module: &Path) {
    let server = Server::start(module, "");
    assert_eq!(server.call(&["RL.GCRA", "user:42", "6", "10", "60"]), "1\n6\n5\n0\n6000\n");
    let info = server.call(&["INFO", "rl"]);
    assert!(info.contains(&format!("\nrl_version:{VERSION}\r\n")), "{info}");
}

#[test]
fn dist_holds_exactly_the_expected_files_with_valid_checksums() {
    let packages = ["redis-throttle"].into_iter().chain(PROGRAMS).map(deb);
    let crates = ["redis-throttle-engine", "redis-throttle-client", "tower-redis-throttle"];
    let clients = crates.map(|name| format!("clients/{name}-{VERSION}.crate")).into_iter().chain([
        format!("clients/redis-throttle-client-{VERSION}.tgz"),
        format!("clients/redis_throttle_client-{VERSION}-py3-none-any.whl"),
        format!("clients/redis_throttle_client-{VERSION}.tar.gz"),
    ]);
    let names: Vec<_> = packages.chain(clients).chain([tarball() + ".tar.gz"]).collect();
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
    let script = repository().join("scripts/dist.sh");
    run(script.to_str().unwrap(), &[&target, again.to_str().unwrap()], folder.path());
    assert_eq!(text(again.join("SHA256SUMS")), text(dist().join("SHA256SUMS")));
}

#[test]
fn server_starts_from_the_tarball_in_a_clean_folder() {
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
        "docs/commands.md",
        "docs/without-the-module.md",
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
        "kubernetes/prometheus-rule.yaml",
        "kubernetes/redis-throttle.yaml",
        "libredis_throttle.so",
        "prometheus/alerts.yml",
        "prometheus/dashboard.json",
        "prometheus/scrape.yml",
        "redis-throttle-exporter",
        "redis-throttle-gateway",
        "redis-throttle-lab",
        "redis.conf.example",
    ];
    assert_eq!(files(&top), expected.map(str::to_owned).into());
    assert_eq!(checked.lines().count(), expected.len() - 1, "{checked}");
    assert_decides(&top.join("libredis_throttle.so"));
    assert!(text(top.join("INSTALL")).contains(&format!("redis-throttle {VERSION} ")));
    for program in PROGRAMS {
        let version = run(&format!("./{program}"), &["--version"], &top);
        assert_eq!(version, format!("{program} {VERSION}\n"));
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
    for file in ["libredis_throttle.so"].into_iter().chain(PROGRAMS) {
        let symbols = run("objdump", &["-T", file], &top);
        let versions = symbols.split("GLIBC_").skip(1);
        let of_file = versions.map(|rest| number(rest.split([')', ' ']).next().unwrap())).max();
        needed = needed.max(of_file.expect("symbols of the C library"));
    }
    assert!(needed <= (2, 36), "glibc {needed:?} is newer than that of Debian 12");
    let needed = format!("{}.{}", needed.0, needed.1);
    assert!(text(top.join("INSTALL")).contains(&format!("glibc {needed} or newer")), "{needed}");
    for package in ["redis-throttle"].into_iter().chain(PROGRAMS) {
        let depends = run("dpkg-deb", &["--field", &deb(package), "Depends"], &dist());
        assert_eq!(depends.trim(), format!("libc6 (>= {needed}), libgcc-s1"));
    }
}

#[test]
fn released_files_contain_no_path_of_the_build_machine() {
    let (_folder, top) = unpacked();
    let mut unwanted = vec![repository().display().to_string()];
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
    for name in linked.into_iter().chain(["tonic v", "envoy-types v", "saphyr-parser v", "clap v"])
    {
        assert!(licences.contains(&format!("\n=== {name}")), "{name}");
    }
    for part in licences.split("\n=== ").skip(1) {
        let (title, text) = part.split_once('\n').expect("a title");
        let only_apache = title.ends_with(", Apache-2.0");
        assert!(only_apache || text.trim().len() > 40, "{title} comes without a text");
    }
}
