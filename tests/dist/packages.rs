//! Tests the Debian packages: installs them into a root of their own, and runs what they install.

use super::clients::block;
use super::server::{Server, free_port};
use super::{SERVICES, VERSION, assert_decides, deb, dist, files, run, run_with, text};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const MODULE: &str = "usr/lib/redis/modules/libredis_throttle.so";

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

/// Returns the version that a program of a package prints.
fn version(root: &Root, program: &str) -> String {
    run(root.path().join(program).to_str().unwrap(), &["--version"], root.path())
}

#[test]
fn module_package_installs_the_library_pages_and_examples_and_its_module_loads() {
    let root = Root::new();
    let said = root.dpkg(&["--install", &deb("redis-throttle")]);
    let documents = [
        "changelog.gz",
        "commands.md",
        "copyright",
        "examples/kubernetes/prometheus-rule.yaml",
        "examples/kubernetes/redis-throttle.yaml",
        "redis.conf.example",
        "without-the-module.md",
    ];
    let mut expected =
        BTreeSet::from(documents.map(|it| format!("usr/share/doc/redis-throttle/{it}")));
    for library in ["redis_throttle.lua", "redis_throttle_script.lua"] {
        expected.insert(format!("usr/share/redis-throttle/functions/{library}"));
    }
    expected.insert(MODULE.to_owned());
    assert_eq!(root.files(), expected, "nothing below etc");
    let module = root.path().join(MODULE);
    assert_eq!(fs::metadata(&module).unwrap().permissions().mode() & 0o777, 0o755);
    assert_decides(&module);
    for hint in [format!("    loadmodule /{MODULE}\n"), "RL.GCRA user:42 6 10 60\n".to_owned()] {
        assert!(said.contains(&hint), "{said}");
    }
    root.dpkg(&["--verify", "redis-throttle"]);
    root.dpkg(&["--purge", "redis-throttle"]);
    assert_eq!(root.files(), BTreeSet::new());
}

/// Writes a program that stands for `sudo` or apt, and runs its arguments on this root.
fn stand_in(folder: &Path, name: &str, script: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\nset -e\n{script}\n")).expect("a program");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("an owner");
}

#[test]
fn three_commands_of_the_page_install_the_package_and_decide_a_call() {
    let root = Root::new();
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port();
    let block = block("docs/quick-start.md", "sh", "apt install")
        .replace("/usr/lib", &format!("{}/usr/lib", root.path().display()))
        .replace("7777", &port.to_string());
    let commands: Vec<_> = block.lines().map(|line| line.split(" #").next().unwrap()).collect();
    let [install, start, call] = commands[..] else { panic!("{commands:?}") };

    // The test may not install packages on this machine: apt installs the file into the root, and
    // the server is the machine's own.
    stand_in(folder.path(), "sudo", "exec \"$@\"");
    let dpkg = format!(
        "[ \"$1 $3 $4\" = 'install redis-server ' ]\n\
         dpkg --root='{}' --force-not-root --force-script-chrootless --install \"$2\"",
        root.path().display()
    );
    stand_in(folder.path(), "apt", &dpkg);
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}:/usr/sbin:/sbin", folder.path().display());
    let variables = [("PATH", path.as_ref())];
    run_with(&variables, "sh", &["-ec", install], &dist());

    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec {start}")]);
    let _server = Server::spawn(command, port, &[], tempfile::tempdir().expect("a folder"));
    let said = run_with(&variables, "sh", &["-ec", call], &dist());
    assert_eq!(said, "1\n6\n5\n0\n6000\n");
}

#[test]
fn lab_package_installs_one_program() {
    let root = Root::new();
    root.dpkg(&["--install", &deb("redis-throttle-lab")]);
    let documents = ["changelog.gz", "copyright"];
    let mut expected =
        BTreeSet::from(documents.map(|it| format!("usr/share/doc/redis-throttle-lab/{it}")));
    expected.insert("usr/bin/redis-throttle-lab".to_owned());
    assert_eq!(root.files(), expected);
    let version = version(&root, "usr/bin/redis-throttle-lab");
    assert_eq!(version, format!("redis-throttle-lab {VERSION}\n"));
}

#[test]
fn service_package_installs_a_unit_that_runs_its_binary_and_is_not_enabled() {
    for service in SERVICES {
        let (root, unit) = installed(service);
        let (_, started) = unit.split_once("\nExecStart=/").expect("a command");
        let version = version(&root, started.split(' ').next().unwrap());
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
