//! The page of proofs, `docs/proofs.md`: each promise with the tests that prove it. The page is
//! generated from `tests/pages/proofs.yml`.
//!
//! ```text
//! make proofs
//! cargo test --locked --test pages proofs
//! ```
//!
//! `UPDATE=1`, which `make proofs` sets, writes the page. Without it, the page is generated in
//! memory and compared with the committed one.

use saphyr::{LoadableYamlNode as _, Yaml};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::{env, fs};

/// A suite: its name, the folder or file of its tests, and the command that runs it.
const SUITES: [(&str, &str, &str); 8] = [
    ("engine", "engine/", "make test"),
    ("e2e", "tests/e2e/", "make test-matrix"),
    ("rules", "tests/rules/", "make test-matrix"),
    ("functions", "tests/functions/", "make test-matrix"),
    ("monitoring", "tests/monitoring/", "make test-monitoring"),
    ("snippets", "tests/snippets.rs", "make test-examples"),
    ("soak", "tests/soak.rs", "make soak MINUTES=5"),
    ("fuzz", "fuzz/fuzz_targets/", "make fuzz SECONDS=20"),
];

const PREFACE: &str = "\
# Proofs

Each promise of the project, with the tests that prove it. [Guarantees](guarantees.md) explains
the promises that matter to most users. `make proofs` generates this page from
[tests/pages/proofs.yml](../tests/pages/proofs.yml). A test fails if a named test does not exist.

## Where the tests run
";

/// A part of the page: a heading, a remark, and promises with their tests.
struct Area {
    title: String,
    about: Option<String>,
    promises: Vec<(String, Vec<String>)>,
}

/// The test functions of the repository.
#[derive(Default)]
struct Tree {
    /// The files with tests. Fuzz targets and the soak are programs, and count as one test.
    files: BTreeSet<String>,
    /// The files that have a test of a name.
    tests: BTreeMap<String, Vec<String>>,
}

impl Tree {
    fn add(&mut self, path: &str, text: &str) {
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            is_test |= line == "#[test]";
            if let Some(rest) = line.strip_prefix("fn ").filter(|_| is_test) {
                let name = rest.split('(').next().expect("a name");
                self.tests.entry(name.to_owned()).or_default().push(path.to_owned());
            }
            // Attributes and comments may stand between the mark and the function.
            is_test &= line.starts_with(['#', '/']);
        }
        let starts = ["#[test]", "fuzz_target!(", "fn main() -> "];
        if text.lines().any(|line| starts.iter().any(|start| line.trim().starts_with(start))) {
            self.files.insert(path.to_owned());
        }
    }

    /// Returns the path of the file that holds a test of the data file, or an error.
    fn find(&self, test: &str) -> Result<&str, String> {
        if test.ends_with(".rs") {
            return self.files.get(test).map(|path| &**path).ok_or(format!("no tests in {test}"));
        }
        let (folder, name) = test.rsplit_once("::").unwrap_or(("", test));
        let paths = self.tests.get(name).into_iter().flatten();
        let mut paths = paths.filter(|path| path.starts_with(folder));
        match (paths.next(), paths.next()) {
            (None, _) => Err(format!("there is no test {test}")),
            (Some(path), None) => Ok(path),
            (Some(_), Some(_)) => Err(format!("several tests are named {test}")),
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(super::root().join(path)).expect(path)
}

fn rows<'yaml, 'text>(of: &'yaml Yaml<'text>) -> &'yaml [Yaml<'text>] {
    of.as_sequence().expect("a list")
}

/// Returns the areas of the data file.
fn areas(data: &str) -> Vec<Area> {
    let parsed = Yaml::load_from_str(data).expect("YAML").remove(0);
    let text = |of: &Yaml<'_>| of.as_str().map(str::to_owned);
    let promise = |row: &Yaml<'_>| {
        let tests = row.as_mapping_get("tests").map_or(&[][..], rows);
        let tests = tests.iter().map(|test| text(test).expect("the name of a test"));
        (text(&row["promise"]).expect("a promise"), tests.collect())
    };
    let area = |area: &Yaml<'_>| Area {
        title: text(&area["area"]).expect("a title"),
        about: area.as_mapping_get("about").and_then(text),
        promises: rows(&area["promises"]).iter().map(promise).collect(),
    };
    rows(&parsed).iter().map(area).collect()
}

/// Returns the errors in the areas: promises without a test, and tests that do not exist.
fn errors(areas: &[Area], tree: &Tree) -> Vec<String> {
    let promises = areas.iter().flat_map(|area| &area.promises);
    let found = promises.flat_map(|(promise, tests)| {
        let bare = tests.is_empty().then(|| format!("no test proves: {promise}"));
        let missing = tests.iter().filter_map(|test| tree.find(test).err());
        bare.into_iter().chain(missing)
    });
    found.collect()
}

/// Returns the words between two marks of a text.
fn between<'text>(text: &'text str, opening: &str, closing: &str) -> &'text str {
    let rest = text.split_once(opening).expect(opening).1;
    rest.split_once(closing).expect(closing).0
}

/// Returns the servers that run a suite, as `scripts/test-matrix.sh` chooses them.
fn servers_of(suite: &str) -> String {
    let plain = |name: &str| {
        let (brand, version) = name.split_once('-').expect("a server's name");
        let brand = if brand == "redis" { "Redis" } else { "Valkey" };
        format!("{brand} {version}")
    };
    let listed: Vec<_> = match suite {
        "e2e" | "functions" => {
            let script = read("scripts/fetch-servers.sh");
            let lines = between(&script, "\nservers='\n", "'\n").lines();
            lines.map(|line| plain(line.split(' ').next().expect("a name"))).collect()
        }
        "rules" => {
            let script = read("scripts/test-matrix.sh");
            between(&script, "    all* | ", ")")
                .split(" | ")
                .map(|name| plain(&name[1..]))
                .collect()
        }
        "engine" | "fuzz" => vec!["no server".to_owned()],
        _ => vec!["the server in `SERVER`".to_owned()],
    };
    listed.join(", ")
}

/// Returns the name of the suite that runs the tests of a file.
fn suite_of(path: &str) -> &'static str {
    let suite = SUITES.iter().find(|(_, folder, _)| path.starts_with(folder));
    suite.unwrap_or_else(|| panic!("{path} belongs to no suite")).0
}

/// Returns the page.
fn page(areas: &[Area], tree: &Tree) -> String {
    let mut page = format!("{PREFACE}\n| suite | tests | servers | command |\n|---|---|---|---|\n");
    for (name, path, command) in SUITES {
        let servers = servers_of(name);
        let path = path.trim_end_matches('/');
        writeln!(page, "| {name} | [{path}](../{path}) | {servers} | `{command}` |").expect("text");
    }
    for Area { title, about, promises } in areas {
        write!(page, "\n## {title}\n\n").expect("text");
        if let Some(about) = about {
            write!(page, "{about}\n\n").expect("text");
        }
        page += "| promise | tests | suites |\n|---|---|---|\n";
        for (promise, tests) in promises {
            let paths = tests.iter().map(|test| tree.find(test).expect("a test"));
            let paths: Vec<_> = paths.collect();
            let name = |test: &String| test.rsplit("::").next().expect("a name").to_owned();
            let links = tests.iter().zip(&paths);
            let links = links.map(|(test, path)| format!("[`{}`](../{path})", name(test)));
            let links: Vec<_> = links.collect();
            let suites: BTreeSet<_> = paths.iter().map(|path| suite_of(path)).collect();
            let suites: Vec<_> = suites.into_iter().collect();
            let (links, suites) = (links.join(", "), suites.join(", "));
            writeln!(page, "| {promise} | {links} | {suites} |").expect("text");
        }
    }
    page
}

fn repository() -> (Vec<Area>, Tree) {
    let mut tree = Tree::default();
    for (path, text) in super::english::sources() {
        let is_suite = SUITES.iter().any(|(_, folder, _)| path.starts_with(folder));
        if is_suite && path.ends_with(".rs") {
            tree.add(&path, &text);
        }
    }
    (areas(&read("tests/pages/proofs.yml")), tree)
}

#[test]
fn every_promise_has_tests_and_they_exist() {
    let (areas, tree) = repository();
    assert!(areas.iter().map(|area| area.promises.len()).sum::<usize>() > 150);
    assert_eq!(errors(&areas, &tree), Vec::<String>::new());
}

#[test]
fn page_of_proofs_is_the_one_that_its_data_generate() {
    let (areas, tree) = repository();
    let generated = page(&areas, &tree);
    if env::var("UPDATE").is_ok_and(|update| update == "1") {
        fs::write(super::root().join("docs/proofs.md"), generated).expect("the page");
        return;
    }
    assert!(generated == read("docs/proofs.md"), "docs/proofs.md is out of date: `make proofs`");
}

#[test]
fn promise_without_a_test_and_with_an_unknown_or_ambiguous_one_is_found() {
    let mut tree = Tree::default();
    tree.add("tests/x.rs", "#[test]\n// A remark.\nfn a_b() {}\nfn c_d() {}\n");
    tree.add("tests/y.rs", "#[test]\nfn a_b() {}\n");
    tree.add("tests/z.rs", "fn c_d() {}\n");
    let areas = areas(
        "- area: A\n  promises:\n  - promise: P\n  - promise: Q\n    tests: [c_d, a_b, \
         'tests/x.rs::a_b', tests/z.rs, tests/w.rs]\n",
    );
    let expected = [
        "no test proves: P",
        "there is no test c_d",
        "several tests are named a_b",
        "no tests in tests/z.rs",
        "no tests in tests/w.rs",
    ];
    assert_eq!(errors(&areas, &tree), expected);
}
