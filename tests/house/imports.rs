//! Reads the imports of Rust, TypeScript, Python, Java and Go files, and fails if files import each
//! other in a circle.

mod java_imports;
mod orphans;
mod rust_imports;

use super::{files, root};
use rust_imports::rust;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// The folders that contain the root of a crate, `main.rs` or `lib.rs`.
const RUST: [&str; 12] = [
    "src",
    "engine/src",
    "benches/gateway",
    "benches/instructions",
    "benches/server",
    "benches/clients/rust/src",
    "benches/pure",
    "clients/rust/redis-throttle-client/src",
    "clients/rust/tower-redis-throttle/src",
    "exporter/src",
    "gateway/src",
    "lab/src",
];
const TYPESCRIPT: &str = "clients/node/src";
/// The folders with Python files. The second one holds programs, which import each other by bare
/// names.
const PYTHON: [&str; 2] = ["clients/python/src/redis_throttle_client", "benches/clients"];
/// The folder with the modules of the client in Go, and the path of the first one. They are judged
/// by package, because a package is the unit of Go.
const GO: &str = "clients/go";
const GO_PATH: &str = "\"redis-throttle.invalid/go";
const PACKAGE: &str = "redis_throttle_client";
/// The file of a package that re-exports the public names.
const INIT: &str = "__init__";

/// The text of each file in a folder, by the name of the file. The name is the path in the folder
/// without the ending, for example `net/ioredis`.
type Sources = BTreeMap<String, String>;

/// The files that each file imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

fn sources(folder: &str, ending: &str) -> Sources {
    let name = |path: &str| Some(path.strip_prefix(folder)?.strip_suffix(ending)?.to_owned());
    let text = |name: &String| fs::read_to_string(root().join(format!("{folder}{name}{ending}")));
    // git still lists a file that is deleted but not committed.
    let named = files().into_iter().filter_map(|path| name(&path));
    named.filter_map(|name| text(&name).ok().map(|text| (name, text))).collect()
}

/// Returns a circle of files, if there is one: each file imports the next, and the last imports the
/// first.
fn circle(imports: &Imports) -> Option<Vec<String>> {
    let mut left = imports.clone();
    // A file that imports none of the remaining files is not part of a circle.
    while let Some(name) = left.iter().find(|(_, used)| used.is_empty()).map(|(name, _)| name) {
        let name = name.clone();
        left.remove(&name);
        left.values_mut().for_each(|used| used.retain(|other| *other != name));
    }
    let mut way = vec![left.keys().next()?];
    loop {
        let next = left[way[way.len() - 1]].first().expect("files without imports were removed");
        if let Some(start) = way.iter().position(|name| *name == next) {
            return Some(way[start..].iter().map(|name| (*name).clone()).collect());
        }
        way.push(next);
    }
}

/// The rooms of a client, from the ground up. A room imports only itself and the rooms before it.
const ROOMS: [&str; 6] = ["rules", "wire", "net", "calls", "holds", "web"];

/// Returns the place of a file's room. Files outside the rooms come after all of them, except the
/// limiters, which the last room imports.
fn room(name: &str) -> usize {
    let (folder, file) = name.trim_start_matches('_').split_once('/').unwrap_or(("", name));
    let at = ROOMS.iter().position(|room| *room == folder);
    // Twice the place, so that the limiters fit between the last two rooms.
    let is_limiter = folder.is_empty() && file.trim_start_matches('_').starts_with("limiter");
    at.map_or(if is_limiter { 9 } else { 12 }, |at| at * 2)
}

/// Asserts that no room of a client imports a later one.
fn assert_order_of_rooms(imports: &Imports) {
    for (name, used) in imports {
        let later: Vec<_> = used.iter().filter(|other| room(other) > room(name)).collect();
        assert!(later.is_empty(), "{name} imports {later:?} of later rooms");
    }
}

/// Asserts that the files of a folder import each other, and not in a circle.
fn assert_no_circle(folder: &str, ending: &str, read: fn(&Sources) -> Imports) {
    let imports = read(&sources(&format!("{folder}/"), ending));
    let edges: usize = imports.values().map(BTreeSet::len).sum();
    assert!(imports.len() == 1 || edges > 0, "{folder}: no import was found in {imports:?}");
    assert_eq!(circle(&imports), None, "{folder} has a circle of imports");
}

/// Builds the imports of each file from the names that `imported` finds. Ignores names of files
/// outside the folder.
fn imports_of(sources: &Sources, imported: impl Fn(&str, &str) -> Vec<String>) -> Imports {
    let of_file = |(name, text): (&String, &String)| {
        let mut used = BTreeSet::from_iter(imported(name, text));
        used.retain(|other| sources.contains_key(other) && other != name);
        (name.clone(), used)
    };
    sources.iter().map(of_file).collect()
}

/// Returns the imports in `from './x.js'` (also of an `export` or an `import type`), `import
/// './x.js'` and `import('./x.js')`.
fn typescript(sources: &Sources) -> Imports {
    imports_of(sources, |name, text| {
        let text = text.replace('"', "'");
        let starts = ["from '", "import '", "import('"];
        let targets = starts.iter().flat_map(|start| text.split(start).skip(1));
        let targets = targets.filter_map(|rest| rest.split('\'').next());
        let relative = targets.filter(|target| target.starts_with('.'));
        relative.map(|target| below(name, target.trim_end_matches(".js"))).collect()
    })
}

/// Resolves a relative path in the TypeScript file `name`.
fn below(name: &str, target: &str) -> String {
    let mut parts: Vec<&str> = name.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns the imports in `from .x import y`, `from ..x import y`, `from . import x`, `import
/// package.x` and `from package.x import y`, anywhere in a file. In a folder without `__init__`,
/// also the bare `import x`.
fn python(sources: &Sources) -> Imports {
    let is_package = sources.contains_key(INIT);
    imports_of(sources, |name, text| {
        // Text in triple quotes is left out, because it contains examples.
        let code: String = text.split("\"\"\"").step_by(2).collect();
        let mut used = Vec::new();
        for line in on_one_line(&code).lines().map(str::trim_start) {
            let from = line.strip_prefix("from ").and_then(|rest| rest.split_once(" import "));
            if let Some((path, list)) = from {
                let Some(module) = module(name, path, is_package) else { continue };
                used.extend(names(list).map(|name| file_of(sources, &joined(&module, name))));
            } else if let Some(list) = line.strip_prefix("import ") {
                let modules = names(list).filter_map(|path| module(name, path, is_package));
                used.extend(modules.map(|module| file_of(sources, &module)));
            }
        }
        used
    })
}

fn joined(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// Returns the file of a module, or of a name in it: `x`, or the `__init__` of the package `x`.
fn file_of(sources: &Sources, path: &str) -> String {
    let (parent, _) = path.rsplit_once('/').unwrap_or_default();
    let files = [path, &joined(path, INIT), parent, &joined(parent, INIT)].map(str::to_owned);
    files.into_iter().find(|file| sources.contains_key(file)).unwrap_or_default()
}

/// Puts the names of each parenthesised `import` on its first line.
fn on_one_line(code: &str) -> String {
    let mut parts = code.split("import (");
    let mut lines = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (list, rest) = part.split_once(')').unwrap_or((part, ""));
        lines += &format!("import {}{rest}", list.replace('\n', " "));
    }
    lines
}

/// Returns the module that a path in the file `name` means, with a slash for each dot: empty for
/// the package itself, `None` for a module of another package.
fn module(name: &str, path: &str, is_package: bool) -> Option<String> {
    let relative = path.trim_start_matches('.');
    let dots = path.len() - relative.len();
    if dots == 0 {
        let within =
            path.strip_prefix(PACKAGE).filter(|rest| rest.is_empty() || rest.starts_with('.'));
        let within = within.or((!is_package).then_some(path))?;
        return Some(within.trim_start_matches('.').replace('.', "/"));
    }
    let mut parts: Vec<&str> = name.split('/').collect();
    parts.truncate(parts.len().saturating_sub(dots));
    parts.extend(relative.split('.').filter(|part| !part.is_empty()));
    Some(parts.join("/"))
}

/// Returns the names of a list `a, b as c`, without their aliases.
fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').filter_map(|item| item.split_whitespace().next())
}

/// Returns the packages that each package imports. Tests of a package may import any other.
fn go(sources: &Sources) -> Imports {
    let mut packages = Sources::new();
    for (name, text) in sources.iter().filter(|(name, _)| !name.ends_with("_test")) {
        let package = name.rsplit_once('/').map_or("", |(package, _)| package);
        *packages.entry(package.to_owned()).or_default() += text;
    }
    imports_of(&packages, |_, text| {
        let paths = text.split(GO_PATH).skip(1).filter_map(|rest| rest.split('"').next());
        paths.map(|path| path.trim_start_matches('/').to_owned()).collect()
    })
}

#[test]
fn rust_imports_have_no_circle_and_the_order_of_the_rooms() {
    for folder in RUST {
        assert_no_circle(folder, ".rs", rust);
    }
    let client = "clients/rust/redis-throttle-client/src/";
    assert_order_of_rooms(&rust(&sources(client, ".rs")));
}

#[test]
fn typescript_imports_have_no_circle_and_the_order_of_the_rooms() {
    assert_no_circle(TYPESCRIPT, ".ts", typescript);
    assert_order_of_rooms(&typescript(&sources(&format!("{TYPESCRIPT}/"), ".ts")));
}

#[test]
fn python_imports_have_no_circle_and_the_order_of_the_rooms() {
    for folder in PYTHON {
        assert_no_circle(folder, ".py", python);
    }
    assert_order_of_rooms(&python(&sources(&format!("{}/", PYTHON[0]), ".py")));
}

#[test]
fn go_imports_have_no_circle() {
    assert_no_circle(GO, ".go", go);
}

/// Builds sources from pairs of name and text.
fn sources_of(files: &[(&str, &str)]) -> Sources {
    files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

/// Returns the imports as lines `a > b`, for comparison.
fn edges(imports: &Imports) -> Vec<String> {
    let of_file = |(name, used): (&String, &BTreeSet<String>)| {
        used.iter().map(|other| format!("{name} > {other}")).collect::<Vec<_>>()
    };
    imports.iter().flat_map(of_file).collect()
}

#[test]
fn circle_of_imports_is_found() {
    let imports = |pairs: &[(&str, &[&str])]| -> Imports {
        let used = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        pairs.iter().map(|(name, names)| ((*name).to_owned(), used(names))).collect()
    };
    let straight = imports(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])]);
    assert_eq!(circle(&straight), None);
    let round = imports(&[("a", &["b"]), ("b", &["c"]), ("c", &["d"]), ("d", &["b"]), ("e", &[])]);
    assert_eq!(circle(&round), Some(["b", "c", "d"].map(str::to_owned).to_vec()));
}

#[test]
fn typescript_reads_imports_of_every_form() {
    let files = [
        ("a", "import type {\n  X,\n} from './b.js';\nimport './c.js';\n"),
        ("b", "export { Y } from './deep/d.js';\nimport net from 'node:net';\n"),
        ("c", "const late = await import('./b');\n"),
        ("deep/d", "import { type Z } from \"../a.js\";\nimport type { E } from './e.js';\n"),
        ("deep/e", ""),
    ];
    let imports = typescript(&sources_of(&files));
    let expected = ["a > b", "a > c", "b > deep/d", "c > b", "deep/d > a", "deep/d > deep/e"];
    assert_eq!(edges(&imports), expected);
    assert_eq!(circle(&imports), Some(["a", "b", "deep/d"].map(str::to_owned).to_vec()));
}

#[test]
fn python_reads_imports_of_every_form() {
    let files = [
        ("__init__", "from ._a import A\n"),
        ("_a", "if TYPE_CHECKING:\n    from ._b import (\n        B,\n    )\n"),
        ("_b", "def late() -> None:\n    import redis_throttle_client._c as c, limits\n"),
        ("_c", "from . import (\n    _a,\n    _d as d,\n)\nfrom limits import _b\n"),
        ("_d", "\"\"\"Shows\n\n    from redis_throttle_client import A\n\"\"\"\n"),
        ("_e", "from redis_throttle_client import A\nfrom redis_throttle_client._d import D\n"),
        ("limits", ""),
    ];
    let imports = python(&sources_of(&files));
    let expected =
        ["__init__ > _a", "_a > _b", "_b > _c", "_c > _a", "_c > _d", "_e > __init__", "_e > _d"];
    assert_eq!(edges(&imports), expected);
    assert_eq!(circle(&imports), Some(["_a", "_b", "_c"].map(str::to_owned).to_vec()));
}

#[test]
fn python_reads_imports_between_packages() {
    let files = [
        ("__init__", "from ._calls.steps import Calls\n"),
        ("_calls/__init__", ""),
        (
            "_calls/local",
            "from redis_throttle_client import _rules\nfrom .._rules.rule import (\n    R,\n)\n",
        ),
        ("_calls/steps", "from . import local\nfrom .._rules import rule, F\n"),
        ("_rules/__init__", "F = 1\n"),
        ("_rules/rule", "from .. import asgi, VERSION\nfrom redis_throttle_client_too import x\n"),
        ("asgi", "import redis_throttle_client._calls.steps\n"),
    ];
    let expected = [
        "__init__ > _calls/steps",
        "_calls/local > _rules/__init__",
        "_calls/local > _rules/rule",
        "_calls/steps > _calls/local",
        "_calls/steps > _rules/__init__",
        "_calls/steps > _rules/rule",
        "_rules/rule > __init__",
        "_rules/rule > asgi",
        "asgi > _calls/steps",
    ];
    assert_eq!(edges(&python(&sources_of(&files))), expected);
}

#[test]
fn python_reads_bare_imports_of_programs() {
    let files = [("run", "import json, report\nfrom server import Server\n"), ("report", "")];
    let files = [&files[..], &[("server", "import report\n")]].concat();
    let expected = ["run > report", "run > server", "server > report"];
    assert_eq!(edges(&python(&sources_of(&files))), expected);
}

#[test]
fn rust_reads_uses_and_paths_in_code() {
    let files = [
        ("lib", "pub mod a;\nmod b;\nfn f() { b::a() }\n"),
        ("a/mod", "mod c;\npub mod d;\nuse crate::b::{self, G as H};\n"),
        ("a/c", "use super::d::{x::{Y}, Z};\nfn f() -> super::super::b::G { self::own() }\n"),
        ("a/d", "// crate::a::c::F\nconst TEXT: &str = \"crate::a::c::F {\";\n"),
        ("b", "use crate::a;\npub fn a(_: &'static str) -> char { a::d::g('{') }\n"),
    ];
    let imports = rust(&sources_of(&files));
    let expected = ["a/c > a/d", "a/c > b", "a/mod > b", "b > a/d", "lib > b"];
    assert_eq!(edges(&imports), expected);
}

#[test]
fn rust_attributes_a_re_exported_name_to_the_file_that_defines_it() {
    let files = [
        ("lib", "mod a;\nmod b;\n"),
        ("a/mod", "mod c;\nmod d;\npub use c::{Cost, Limit as Max};\npub use d::D;\nfn f(_: D) {}"),
        ("a/c", "use super::D;\n"),
        ("a/d", ""),
        ("b", "use crate::a::{self, Max};\nfn f() -> a::Cost { a::f() }\n"),
        ("e", "use crate::a;\nfn f() -> a::Max {}\n"),
    ];
    let expected = ["a/c > a/d", "a/mod > a/d", "b > a/c", "b > a/mod", "e > a/c"];
    assert_eq!(edges(&rust(&sources_of(&files))), expected);
}

#[test]
fn rust_finds_a_circle_and_ignores_code_for_tests() {
    let files = [
        ("main", "mod a;\nmod b;\n#[cfg(test)]\nmod tests;\n"),
        ("a", "use crate::b::B;\nmod inner {\n    use super::A;\n}\n"),
        ("b", "#[cfg(test)]\nmod tests {\n    use crate::a::{A};\n}\nuse std::fmt;\n"),
        ("tests", "use crate::a::A;\n"),
        ("tests/deep", "use crate::b::B;\n"),
    ];
    let imports = rust(&sources_of(&files));
    assert_eq!(edges(&imports), ["a > b"]);
    let mut planted = files;
    planted[2].1 = "struct B;\nimpl B {\n    fn f() { crate::a::f() }\n}\n";
    let planted = circle(&rust(&sources_of(&planted)));
    assert_eq!(planted, Some(["a", "b"].map(str::to_owned).to_vec()));
}

#[test]
#[should_panic(expected = "rules/rule imports [\"calls/steps\"] of later rooms")]
fn room_that_imports_a_later_one_is_found() {
    let files = [
        ("lib", "pub use calls::steps::Limiter;\n"),
        ("calls", "pub mod steps;\n"),
        ("rules", "pub mod rule;\n"),
        ("calls/steps", "use crate::rules::rule::Rule;\nuse crate::calls::wait::W;\n"),
        ("calls/wait", "use crate::rules::rule::Rule;\n"),
        ("rules/rule", "use crate::Limiter;\n"),
        ("testing", "use crate::Limiter;\n"),
    ];
    assert_order_of_rooms(&rust(&sources_of(&files)));
}

#[test]
fn go_reads_imports_of_packages() {
    let files = [
        ("limiter", "import (\n\t\"context\"\n\n\t\"redis-throttle.invalid/go/internal/a\"\n)\n"),
        ("web/limit", "import throttle \"redis-throttle.invalid/go\"\n"),
        ("web/limit_test", "import _ \"redis-throttle.invalid/go/internal/b\"\n"),
        ("internal/a/a", "import \"redis-throttle.invalid/go/internal/b\"\n"),
        ("internal/b/b", ""),
    ];
    let imports = go(&sources_of(&files));
    let expected = [" > internal/a", "internal/a > internal/b", "web > "];
    assert_eq!(edges(&imports), expected);
    assert_eq!(circle(&imports), None);
    let mut planted = files;
    planted[4].1 = "import \"redis-throttle.invalid/go/internal/a\"\n";
    let planted = circle(&go(&sources_of(&planted)));
    assert_eq!(planted, Some(["internal/a", "internal/b"].map(str::to_owned).to_vec()));
}
