//! Finds source files that no other file names: Rust files that no `mod` reaches, which are not
//! compiled, and Go files that are missing in the list of `doc.go`.

use super::rust_imports::tokens;
use super::{GO, RUST, Sources, joined, sources, sources_of};

/// Returns the modules that a file declares in files of their own, without the ending of the files.
fn declared(name: &str, text: &str) -> Vec<String> {
    let (parent, file) = name.rsplit_once('/').unwrap_or(("", name));
    let is_root = ["main", "lib", "mod"].contains(&file);
    // The folder of the modules that are declared in the file, and in each open brace.
    let mut folders = vec![if is_root { parent } else { name }.to_owned()];
    let mut declared = Vec::new();
    let tokens = tokens(text);
    for at in 0..tokens.len() {
        let folder = folders.last().expect("each brace that closes was opened");
        match tokens[..=at] {
            [.., "mod", module, "{"] => folders.push(joined(folder, module)),
            [.., "mod", module, ";"] => declared.push(joined(folder, module)),
            [.., "{"] => folders.push(folder.clone()),
            [.., "}"] => drop(folders.pop()),
            _ => {}
        }
    }
    declared
}

/// Returns the Rust files that no `mod` reaches from `main` or `lib`.
fn unreached(mut sources: Sources) -> Vec<String> {
    let mut next = ["main", "lib"].map(str::to_owned).to_vec();
    while let Some(name) = next.pop() {
        if let Some(text) = sources.remove(&name) {
            let modules = declared(&name, &text);
            next.extend(modules.into_iter().flat_map(|path| [joined(&path, "mod"), path]));
        }
    }
    sources.into_keys().collect()
}

/// Returns the files in the list at the end of `doc.go`, by rooms.
fn listed(doc: &str) -> Vec<&str> {
    let (_, list) = doc.split_once("// The files by the rooms").expect("the list");
    let lines = list.lines().filter_map(|line| line.strip_prefix("//\t"));
    // A line begins with the name of a room, or with spaces.
    let lists = lines.filter_map(|line| line.split_once("  ")).map(|(_, names)| names);
    let names = lists.flat_map(|names| names.split(',')).map(str::trim);
    names.filter(|name| !name.is_empty()).collect()
}

#[test]
fn every_rust_file_is_reached_by_a_mod() {
    for folder in RUST {
        let orphans = unreached(sources(&format!("{folder}/"), ".rs"));
        assert_eq!(orphans, Vec::<String>::new(), "no `mod` reaches these files of {folder}");
    }
}

#[test]
fn every_go_file_is_once_in_the_list_of_rooms() {
    let sources = sources(&format!("{GO}/"), ".go");
    let mut listed = listed(&sources["doc"]);
    listed.sort_unstable();
    let is_listed = |name: &&str| {
        let is_test = name.ends_with("_test");
        !is_test && !name.contains('/') && *name != "doc"
    };
    let files: Vec<_> = sources.keys().map(String::as_str).filter(is_listed).collect();
    assert_eq!(listed, files, "{GO}/doc.go lists the files of its package");
}

#[test]
fn rust_file_without_a_mod_is_found() {
    let files = [
        ("lib", "mod a;\nmod in_lib {\n    pub mod e;\n}\npub(crate) mod b;\n"),
        ("a", "// mod gone;\nconst TEXT: &str = \"mod gone;\";\nfn f() {}\n#[cfg(test)]\nmod c;\n"),
        ("a/c", ""),
        ("b/mod", "mod d;\n"),
        ("b/d", ""),
        ("c", ""),
        ("gone", "mod too;\n"),
        ("gone/too", ""),
        ("in_lib", ""),
        ("in_lib/e", ""),
    ];
    assert_eq!(unreached(sources_of(&files)), ["c", "gone", "gone/too", "in_lib"]);
}
