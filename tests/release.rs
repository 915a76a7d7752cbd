//! Checks that all files have the same version, and checks the files of deploy/ as far as possible
//! without the programs that use them.

#[path = "release/go_modules.rs"]
mod go_modules;
#[path = "release/java_modules.rs"]
mod java_modules;
#[path = "release/kubernetes.rs"]
mod kubernetes;
#[path = "release/manifests.rs"]
mod manifests;

use saphyr::{LoadableYamlNode as _, Yaml};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the rest of the first line that starts with `start`.
fn behind<'text>(text: &'text str, start: &str) -> &'text str {
    text.lines().find_map(|line| line.strip_prefix(start)).unwrap_or_else(|| panic!("no {start}"))
}

#[test]
fn changelog_has_the_version_and_its_release_date() {
    let changelog = text("CHANGELOG.md");
    let mut releases = changelog.lines().filter_map(|line| line.strip_prefix("## "));
    let first = releases.find(|title| *title != "Unreleased").expect("a release");
    let (version, date) = first.split_once(" - ").expect("a version and a date");
    assert_eq!(version, VERSION);
    let parts: Vec<_> = date.split('-').map(str::len).collect();
    let is_date = parts == [4, 2, 2] && date.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    assert!(is_date, "{date}");
}

#[test]
fn function_library_and_every_lock_file_have_the_version() {
    let mut names = 0;
    let others = [
        ("functions/redis_throttle.lua", format!("\nlocal VERSION = '{VERSION}'\n")),
        ("clients/node/package-lock.json", format!("\n  \"version\": \"{VERSION}\",\n")),
    ];
    for (file, line) in others {
        assert!(text(file).contains(&line), "{file} has another version");
    }
    for lock in ["Cargo.lock", "fuzz/Cargo.lock", "clients/rust/lowest/Cargo.lock"] {
        let text = text(lock);
        for package in text.split("[[package]]").skip(1) {
            let name = behind(package, "name = ").trim_matches('"');
            let is_third_party = name == "redis-throttle-fuzz" || !name.contains("redis-throttle");
            if !is_third_party {
                assert_eq!(
                    behind(package, "version = "),
                    format!("\"{VERSION}\""),
                    "{lock}: {name}"
                );
                names += 1;
            }
        }
    }
    assert_eq!(names, 14);
}

#[test]
fn module_list_shows_the_version_as_one_number() {
    let parts: Vec<u32> = VERSION.split('.').map(|part| part.parse().expect("a number")).collect();
    let number = parts[0] * 10_000 + parts[1] * 100 + parts[2];
    assert!(parts[1..].iter().all(|part| *part < 100), "{VERSION} has no such number");
    let entry = text("src/entry.rs");
    assert_eq!(behind(&entry, "    version: "), format!("{number},"));
}

#[test]
fn security_page_and_images_have_the_version() {
    let (minor, _) = VERSION.rsplit_once('.').expect("three numbers");
    assert!(text("SECURITY.md").contains(&format!("\n| {minor} | yes |\n")));
    let operations = text("docs/operations.md");
    assert!(operations.contains(&format!("redis-throttle_{VERSION}_amd64.deb")));
    let manifests = text("deploy/kubernetes/redis-throttle.yaml");
    let images = manifests.lines().filter(|line| line.contains("image:")).collect::<Vec<_>>();
    assert_eq!(images.len(), 2);
    for line in images {
        assert!(line.ends_with(&format!(":{VERSION}")), "{line}");
    }
}

#[test]
fn every_command_has_a_since_version_that_was_released() {
    let changelog = text("CHANGELOG.md");
    let commands = text("src/commands/table.rs") + &text("src/commands/row.rs");
    let since: Vec<_> = commands.split("c\"0.").skip(1).collect();
    assert!(since.len() > 5, "{}", since.len());
    for rest in since {
        let version = format!("0.{}", rest.split('"').next().unwrap());
        assert!(changelog.contains(&format!("\n## {version}")), "{version}");
    }
}

/// Returns every file below a folder that has one of these endings.
fn files(folder: &str, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(folder)).expect("a folder of the repository") {
        let path = entry.expect("an entry").path();
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        if path.is_dir() {
            found.extend(files(&name, endings));
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            found.push(path);
        }
    }
    found
}

#[test]
fn yaml_and_json_files_parse() {
    let mut all = files("deploy", &[".yml", ".yaml", ".json"]);
    all.extend(files(".github", &[".yml", ".yaml"]));
    assert!(all.len() >= 6, "{all:?}");
    for path in all {
        let text = fs::read_to_string(&path).unwrap();
        let documents = Yaml::load_from_str(&text);
        let documents = documents.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(documents[0].is_non_empty_collection(), "{} is empty", path.display());
    }
}

#[test]
fn release_workflow_runs_the_usual_checks_on_a_tag_and_uses_no_secret() {
    let workflow = text(".github/workflows/release.yml");
    let used: Vec<_> = workflow.lines().filter_map(|line| line.split_once("uses: ")).collect();
    assert!(!used.is_empty());
    for (_, action) in used {
        let (_, pin) = action.split_once('@').expect(action);
        let commit = pin.split(' ').next().unwrap();
        let is_commit = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(is_commit, "{action} is not pinned to a commit");
    }
    assert!(!workflow.contains("secrets"));
    assert!(workflow.contains("tags: [\"v*\"]") && workflow.contains(".ci/run\n"));
    assert!(text(".ci/run").contains("\nstep make dist\n"), "the packages are tested everywhere");
}

/// Runs a maintainer script of the exporter's and the gateway's packages as on a machine with
/// systemd. Returns the service actions that the script takes.
fn services_touched(script: &str, arguments: &[&str], root_of_dpkg: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let adapted = text(script)
        .replace("/run/systemd/system", &path(""))
        .replace("systemctl ", &format!("{} ", path("systemctl")));
    fs::write(path("script"), adapted).unwrap();
    // Replaces systemctl with a program that always fails, so that a failure which the script does
    // not handle is found.
    fs::write(path("systemctl"), format!("#!/bin/sh\necho $* >>{}\nexit 1\n", path("log")))
        .unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.env("DPKG_ROOT", root_of_dpkg).env("DPKG_MAINTSCRIPT_PACKAGE", "the-package");
        let status = command.args(arguments).status();
        assert!(status.expect(program).success(), "{script} {arguments:?}");
    };
    run("chmod", &["755", &path("systemctl")]);
    run("sh", &[&[path("script").as_str()], arguments].concat());
    fs::read_to_string(path("log")).unwrap_or_default()
}

#[test]
fn upgrade_restarts_a_running_service_and_removal_stops_it() {
    let (postinst, prerm) = ("deploy/debian/service/postinst", "deploy/debian/service/prerm");
    let reload = "--system daemon-reload\n";
    let restart = format!("{reload}try-restart the-package.service\n");
    let stop = "stop the-package.service\n";
    for (script, arguments, expected) in [
        (postinst, ["configure", ""].as_slice(), reload),
        (postinst, &["configure", "0.1.0"], &restart),
        (postinst, &["abort-upgrade", "0.1.0"], ""),
        (prerm, &["remove"], stop),
        (prerm, &["upgrade", "0.2.0"], ""),
    ] {
        assert_eq!(services_touched(script, arguments, ""), expected, "{script} {arguments:?}");
        assert_eq!(services_touched(script, arguments, "/elsewhere"), "");
    }
    let packer = text("scripts/dist.sh");
    assert!(packer.contains("install -D -m 755 -t \"$root/DEBIAN\" deploy/debian/service/*"));
}

#[test]
fn module_package_prints_its_hint_only_when_it_is_configured_and_never_fails() {
    let script = root().join("deploy/debian/module/postinst");
    let run = |arguments: &[&str]| {
        let output = Command::new("sh").arg(&script).args(arguments).output().expect("sh");
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    assert_eq!(run(&["configure", ""]).lines().count(), 3);
    for action in ["abort-upgrade", "abort-remove", "triggered"] {
        assert_eq!(run(&[action, "0.2.0"]), "");
    }
    // A terminal that is gone is no failure of the installation.
    let closed = Command::new("sh")
        .args(["-c", "exec sh \"$1\" configure >&-", "sh"])
        .arg(&script)
        .stderr(std::process::Stdio::null())
        .status();
    assert!(closed.expect("sh").success());
}
