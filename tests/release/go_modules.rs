//! Compares the modules in Go with project.toml and with each other.

use super::{VERSION, behind, files, manifests::project, root, text};
use std::path::Path;

/// A module file, split into the parts that are compared.
struct Module {
    /// The file's path from the root of the repository.
    file: String,
    path: String,
    go: String,
    /// The modules of this project that it requires, each with its version.
    required: Vec<(String, String)>,
    /// The replaced modules, each with the folder that replaces it.
    replaced: Vec<(String, String)>,
}

/// Returns the path that each module of this project begins with.
fn base() -> String {
    format!("{}/go", project("url").trim_start_matches("https://"))
}

fn modules() -> Vec<Module> {
    let paths =
        ["clients/go", "examples/nethttp", "benches/clients"].map(|it| files(it, &[".mod"]));
    let relative = |path: &Path| path.strip_prefix(root()).unwrap().display().to_string();
    let read = |path: &Path| {
        let file = relative(path);
        let text = text(&file);
        let mut module = Module {
            path: behind(&text, "module ").to_owned(),
            go: behind(&text, "go ").to_owned(),
            file,
            required: Vec::new(),
            replaced: Vec::new(),
        };
        for line in text.lines() {
            let words: Vec<_> =
                line.split_whitespace().skip_while(|it| !it.starts_with(&base())).collect();
            match words[..] {
                [name, "=>", folder] => module.replaced.push((name.into(), folder.into())),
                [name, version] => module.required.push((name.into(), version.into())),
                _ => {}
            }
        }
        module
    };
    let modules: Vec<_> = paths.iter().flatten().map(|path| read(path)).collect();
    assert!(modules.len() > 6, "only {} module files", modules.len());
    modules
}

#[test]
fn module_paths_in_go_follow_from_the_url_of_the_project() {
    for module in modules() {
        let (folder, _) = module.file.rsplit_once('/').expect("a folder");
        // A program of the repository has any path, because no other module requires it.
        let of_client = folder.strip_prefix("clients/go").map(|rest| base() + rest);
        assert!(of_client.is_none_or(|path| path == module.path), "{}", module.file);
        for (name, target) in &module.replaced {
            let replacement = text(&format!("{folder}/{target}/go.mod"));
            assert_eq!(behind(&replacement, "module "), name, "{}", module.file);
        }
        for (name, version) in &module.required {
            // A user's build ignores `replace` lines, so a release requires its own version.
            assert_eq!(*version, format!("v{VERSION}"), "{}: {name}", module.file);
            let is_replaced = module.replaced.iter().any(|(replaced, _)| replaced == name);
            assert!(is_replaced, "{} does not replace {name}", module.file);
        }
    }
}

#[test]
fn every_module_in_go_needs_the_same_go() {
    let scripts = text("scripts/clients.sh");
    let fetched = behind(&scripts, "go_version=");
    let stated = behind(&text("clients/go/go.mod"), "go ").to_owned();
    for module in modules() {
        if module.file.ends_with("/go.mod") {
            assert_eq!(module.go, stated, "{}", module.file);
        } else {
            // The newest driver and the tools may need as much as the script fetches.
            let (minor, _) = fetched.rsplit_once('.').expect("three numbers");
            assert!(module.go.starts_with(minor), "{} needs {}", module.file, module.go);
        }
    }
    let page = text("docs/clients/go.md").replace('\n', " ");
    assert!(page.contains(&format!("Go {} or newer", stated.trim_end_matches(".0"))));
}

#[test]
fn release_has_a_tag_for_each_module_in_go() {
    let guide = text("CONTRIBUTING.md");
    for module in modules() {
        // The module of the pages' programs is not released.
        let Some(folder) = module.file.strip_suffix("/go.mod") else { continue };
        if folder.starts_with("clients/go") && !folder.ends_with("/pages") {
            assert!(guide.contains(&format!("`{folder}/vVERSION`")), "{folder}");
        }
    }
}
