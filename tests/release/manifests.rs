//! Compares every manifest with project.toml, and the lowest versions that the manifests state with
//! the dependencies and the pages.

use super::{behind, root, text};
use saphyr::{LoadableYamlNode as _, Yaml};
use std::process::Command;

/// The crates that others depend on.
const LIBRARIES: [&str; 3] =
    ["redis-throttle-engine", "redis-throttle-client", "tower-redis-throttle"];

/// Returns a value of project.toml.
pub fn project(name: &str) -> String {
    let text = text("project.toml");
    behind(&text, &format!("{name} = ")).trim_matches('"').to_owned()
}

/// Parses JSON. JSON is parsed as YAML.
fn json(text: String) -> Yaml<'static> {
    Yaml::load_from_str(text.leak()).expect("JSON").remove(0)
}

fn string<'yaml>(yaml: &'yaml Yaml<'_>, name: &str) -> &'yaml str {
    yaml.as_mapping_get(name).and_then(Yaml::as_str).unwrap_or("")
}

/// Returns the packages of a workspace as cargo reads their manifests, with those of the lock file
/// unless `options` leave them out.
fn packages(workspace: &str, options: &[&str]) -> Vec<Yaml<'static>> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--locked", "--format-version", "1"]).args(options);
    let output = command.current_dir(root().join(workspace)).output().expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata = json(String::from_utf8(output.stdout).expect("UTF-8"));
    metadata["packages"].as_sequence().expect("packages").clone()
}

fn is_ours(package: &Yaml<'_>) -> bool {
    package["source"].is_null()
}

#[test]
fn project_has_a_version_of_three_numbers() {
    let version = project("version");
    let parts: Vec<_> = version.split('.').map(str::parse::<u32>).collect();
    assert!(parts.len() == 3 && parts.iter().all(Result::is_ok), "{version}");
    assert_eq!(version, super::VERSION);
}

#[test]
fn every_crate_has_the_version_licence_and_url_of_the_project() {
    let mut found = Vec::new();
    for package in packages("", &["--no-deps"]) {
        let name = string(&package, "name").to_owned();
        assert_eq!(string(&package, "version"), project("version"), "{name}");
        assert_eq!(string(&package, "license"), project("license"), "{name}");
        for field in ["repository", "homepage"] {
            let url = string(&package, field);
            assert!(url.is_empty() || url == project("url"), "{name}: {field} is {url}");
        }
        found.push((name, package));
    }
    assert!(found.iter().any(|(name, _)| *name == project("name")), "no {}", project("name"));
    for library in LIBRARIES {
        let (_, package) = found.iter().find(|(name, _)| name == library).expect(library);
        for field in ["description", "repository", "homepage"] {
            assert!(!string(package, field).is_empty(), "{library} has no {field}");
        }
        let of = |field: &str| package[field].as_sequence().map_or(0, Vec::len);
        assert!((3..=5).contains(&of("keywords")) && of("categories") > 0, "{library}");
    }
    for client in ["redis-throttle-client", "tower-redis-throttle"] {
        let (_, package) = found.iter().find(|(name, _)| name == client).expect(client);
        let page = format!("{}/docs/clients/rust.md", project("url"));
        assert_eq!(string(package, "documentation"), page);
        assert_eq!(package["metadata"]["docs"]["rs"]["all-features"].as_bool(), Some(true));
        // The crates of a release depend on exactly each other.
        for dependency in package["dependencies"].as_sequence().expect("dependencies") {
            let (name, kind) = (string(dependency, "name"), string(dependency, "kind"));
            if LIBRARIES.contains(&name) && kind != "dev" {
                let version = format!("={}", project("version"));
                assert_eq!(string(dependency, "req"), version, "{client}: {name}");
            }
        }
    }
}

/// Returns `1.88.0` as numbers that compare.
fn numbers(version: &str) -> Vec<u32> {
    let mut numbers: Vec<_> = version.split('.').map(|part| part.parse().expect(version)).collect();
    numbers.resize(3, 0);
    numbers
}

/// Returns the crates that the clients are built and tested from, each as `name version`.
fn crates_of_the_clients() -> Vec<String> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["tree", "--locked", "--all-features", "--target", "all", "--prefix", "none"]);
    command.args(["--no-dedupe", "--format", "{p}"]);
    command.args(LIBRARIES.iter().flat_map(|library| ["--package", library]));
    let output = command.current_dir(root()).output().expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).expect("UTF-8");
    let crates = tree.lines().filter_map(|line| {
        let mut words = line.split(' ');
        Some(format!("{} {}", words.next()?, words.next()?.trim_start_matches('v')))
    });
    crates.collect()
}

#[test]
fn rust_version_of_the_clients_is_the_highest_of_their_dependencies() {
    let manifest = text("clients/rust/redis-throttle-client/Cargo.toml");
    let stated = behind(&manifest, "rust-version = ").trim_matches('"').to_owned();
    let crates = crates_of_the_clients();
    let mut of_the_clients = packages("", &["--all-features"]);
    of_the_clients.retain(|package| {
        let named = format!("{} {}", string(package, "name"), string(package, "version"));
        crates.contains(&named)
    });
    let mut highest = vec![0];
    for packages in [of_the_clients, packages("clients/rust/lowest", &["--all-features"])] {
        assert!(packages.len() > 50, "{} packages", packages.len());
        for package in packages {
            let (name, needed) = (string(&package, "name"), string(&package, "rust_version"));
            if is_ours(&package) {
                assert_eq!(needed, stated, "{name}");
            } else if !needed.is_empty() {
                let needs_more = numbers(needed) > numbers(&stated);
                assert!(!needs_more, "{name} needs Rust {needed}");
                highest = highest.max(numbers(needed));
            }
        }
    }
    assert_eq!(highest, numbers(&stated), "the clients could state a lower version");
    assert!(text("docs/clients/rust.md").contains(&format!("Rust {stated} or newer")));
}

#[test]
fn manifest_of_python_has_the_version_licence_and_urls_of_the_project() {
    let manifest = text("clients/python/pyproject.toml");
    let url = project("url");
    for (field, value) in [
        ("version", project("version")),
        ("license", project("license")),
        ("Homepage", url.clone()),
        ("Repository", url.clone()),
        ("Documentation", format!("{url}/docs/clients/python.md")),
        ("Changelog", format!("{url}/CHANGELOG.md")),
    ] {
        assert_eq!(behind(&manifest, &format!("{field} = ")), format!("\"{value}\""), "{field}");
    }
    for field in ["description", "keywords", "classifiers", "readme"] {
        behind(&manifest, &format!("{field} = "));
    }
    let lowest = behind(&manifest, "requires-python = ").trim_matches(['"', '>', '=']);
    assert!(text("docs/clients/python.md").contains(&format!("Python {lowest} or newer")));
}

#[test]
fn manifest_of_node_has_the_version_licence_and_urls_of_the_project() {
    let manifest = json(text("clients/node/package.json"));
    let url = project("url");
    assert_eq!(string(&manifest, "version"), project("version"));
    assert_eq!(string(&manifest, "license"), project("license"));
    assert_eq!(string(&manifest, "homepage"), format!("{url}/docs/clients/node.md"));
    let repository = format!("git+{url}/{}.git", project("name"));
    assert_eq!(string(&manifest["repository"], "url"), repository);
    assert!(manifest["keywords"].as_sequence().is_some_and(|keywords| keywords.len() > 4));
    let optional = manifest["peerDependenciesMeta"].as_mapping().expect("optional peers");
    for (peer, _) in manifest["peerDependencies"].as_mapping().expect("peers") {
        let is_optional = optional[peer]["optional"].as_bool();
        assert_eq!(is_optional, Some(true), "{peer:?} would be installed");
    }
    let engine = string(&manifest["engines"], "node").trim_start_matches(">=");
    // The page breaks its lines anywhere.
    let page = text("docs/clients/node.md").replace('\n', " ");
    assert!(page.contains(&format!("Node {engine} or newer")));
    for program in ["examples/express", "benches/clients/node"] {
        let program = json(text(&format!("{program}/package.json")));
        assert_eq!(string(&program["engines"], "node"), format!(">={engine}"));
    }
}

#[test]
fn packer_takes_the_version_and_the_homepage_from_the_project() {
    let packer = text("scripts/dist.sh");
    for field in ["version", "url"] {
        let read = format!("\n{field}=$(sed -n 's/^{field} = \"\\(.*\\)\"$/\\1/p' project.toml)\n");
        assert!(packer.contains(&read), "{read}");
    }
    assert!(packer.contains("\nVersion: $version\n") && packer.contains("\nHomepage: $url\n"));
}

/// The READMEs that a registry shows next to a package, each with its language and its page.
const READMES: [(&str, &str, &str); 4] = [
    ("clients/python/README.md", "python", "python.md"),
    ("clients/node/README.md", "js", "node.md"),
    ("clients/rust/redis-throttle-client/README.md", "rust", "rust.md"),
    ("clients/rust/tower-redis-throttle/README.md", "rust", "rust.md"),
];

#[test]
fn readme_of_each_package_stands_alone() {
    let url = project("url");
    for (readme, language, page) in READMES {
        let text = text(readme);
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            let path = link.strip_prefix(&format!("{url}/"));
            let is_there = path.is_some_and(|path| root().join(path).is_file());
            assert!(is_there, "{readme} links to {link}");
        }
        assert!(text.contains(&format!("]({url}/docs/clients/{page})")), "{readme}: no {page}");
        assert!(text.contains("```sh\n"), "{readme} does not say how to install");
        let programs: Vec<_> = text.split(&format!("```{language}\n")).skip(1).collect();
        assert_eq!(programs.len(), 1, "{readme}");
        let lines = programs[0].split("```").next().unwrap().lines();
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).count();
        assert!(lines <= 15, "the program of {readme} has {lines} lines");
    }
}
