//! Checks the pages: links, sizes, and that they agree with the code and with each other.

#[path = "pages/english.rs"]
mod english;
#[path = "pages/figures.rs"]
mod figures;
#[path = "pages/programs.rs"]
mod programs;
#[path = "pages/proofs.rs"]
mod proofs;

use saphyr::{LoadableYamlNode as _, Yaml};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The maximum number of words of each page. A new page needs a row here.
const MAX_WORDS: [(&str, usize); 36] = [
    ("README.md", 1_500),
    ("ARCHITECTURE.md", 1_500),
    ("CONTRIBUTING.md", 1_500),
    ("SECURITY.md", 560),
    ("clients/SPEC.md", 5_500),
    ("clients/TIMELINES.md", 1_500),
    ("docs/algorithms.md", 3_000),
    ("docs/alternatives/README.md", 1_000),
    ("docs/alternatives/bucket4j.md", 500),
    ("docs/alternatives/cloud.md", 500),
    ("docs/alternatives/envoy-ratelimit.md", 500),
    ("docs/alternatives/increx.md", 500),
    ("docs/alternatives/lua.md", 500),
    ("docs/alternatives/rate-limiter-flexible.md", 500),
    ("docs/alternatives/redis-cell.md", 1_000),
    ("docs/alternatives/redis-gcra.md", 1_000),
    ("docs/clients/README.md", 2_500),
    ("docs/clients/drivers.md", 1_500),
    ("docs/clients/go.md", 1_500),
    ("docs/clients/java.md", 1_500),
    ("docs/clients/node.md", 1_500),
    ("docs/clients/python.md", 1_500),
    ("docs/clients/rust.md", 1_500),
    ("docs/commands.md", 4_000),
    ("docs/cookbook.md", 3_500),
    ("docs/format.md", 1_500),
    ("docs/gateway.md", 1_500),
    ("docs/guarantees.md", 1_000),
    ("docs/lab.md", 1_500),
    ("docs/leases.md", 1_000),
    ("docs/operations.md", 3_000),
    ("docs/performance.md", 1_500),
    ("docs/policies.md", 2_000),
    ("docs/quick-start.md", 1_000),
    ("docs/quotas-and-reservations.md", 2_000),
    ("docs/without-the-module.md", 1_000),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the text of every page of the repository, by its path from the root.
fn pages() -> BTreeMap<PathBuf, String> {
    let mut pages = BTreeMap::new();
    for folder in ["", "clients", "docs", "docs/alternatives", "docs/bench", "docs/clients"] {
        for entry in fs::read_dir(root().join(folder)).expect("a folder of the repository") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(&path).expect("a page is text");
                pages.insert(path.strip_prefix(root()).expect("below the root").to_owned(), text);
            }
        }
    }
    pages
}

/// Returns the lines of a page outside its fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Returns the anchors of a page: its headings in lower case, with words joined by hyphens.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|char| char.is_alphanumeric() || " -_".contains(*char));
        kept.map(|char| if char == ' ' { '-' } else { char }).collect()
    };
    headings.map(anchor).collect()
}

/// Returns the targets of a page's links and images.
fn targets(text: &str) -> Vec<String> {
    let lines = prose(text).flat_map(|line| line.split("](").skip(1));
    lines.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()).collect()
}

/// Resolves `..` in a path.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(plain.pop(), "{} leaves the root", path.display()),
            part => plain.push(part),
        }
    }
    plain
}

/// Returns the broken relative links of the pages.
fn broken_links(pages: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let mut broken = Vec::new();
    for (page, text) in pages {
        for target in targets(text).into_iter().filter(|target| !target.contains("://")) {
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let folder = page.parent().expect("a page has a folder");
            let file = if file.is_empty() { page.clone() } else { plain(&folder.join(file)) };
            let has_anchor = |text: &String| anchor.is_empty() || anchors(text).contains(anchor);
            let is_there = match pages.get(&file) {
                Some(text) => has_anchor(text),
                None => anchor.is_empty() && root().join(&file).exists(),
            };
            if !is_there {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    broken
}

#[test]
fn every_relative_link_of_the_pages_has_a_target() {
    let pages = pages();
    let links = pages.values().map(|text| targets(text).len()).sum::<usize>();
    assert!(pages.len() > 10 && links > 50, "{} pages, {links} links", pages.len());
    assert_eq!(broken_links(&pages), Vec::<String>::new());
}

#[test]
fn broken_link_to_a_file_or_a_heading_is_found() {
    let page = "# The idea: one, `two`\n[a](README.md) [b](#the-idea-one-two)\n\
                ```\n# no heading\n```\n[c](#no-heading) [d](none.md) [e](#the-idea)\n";
    let pages = BTreeMap::from([(PathBuf::from("page.md"), page.to_owned())]);
    let broken = ["page.md: #no-heading", "page.md: none.md", "page.md: #the-idea"];
    assert_eq!(broken_links(&pages), broken);
}

#[test]
fn every_test_named_in_the_page_on_drivers_exists() {
    let page = &pages()[Path::new("docs/clients/drivers.md")];
    let code = fs::read_to_string(root().join("tests/snippets.rs")).expect("the tests of clients");
    let is_test = |name: &&str| {
        name.matches('_').count() > 4 && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
    };
    let named = page.split('`').skip(1).step_by(2).filter(is_test).collect::<Vec<_>>();
    assert!(named.len() >= 5, "{named:?}");
    for name in named {
        assert!(code.contains(&format!("fn {name}()")), "there is no test {name}");
    }
}

/// Returns the number of words outside the generated parts, as `wc -w` counts them.
fn words(text: &str) -> usize {
    let parts = text.split("written by `make figures` -->");
    let written = parts.map(|part| part.split_once("<!-- end -->").map_or(part, |(_, rest)| rest));
    written.map(|part| part.split_whitespace().count()).sum()
}

#[test]
fn every_page_stays_within_its_word_limit() {
    let mut pages = pages();
    for (page, max) in MAX_WORDS {
        let count = words(&pages.remove(Path::new(page)).expect(page));
        assert!(count <= max, "{page} has {count} words, at most {max} are allowed");
    }
    let is_generated =
        |page: &Path| page == Path::new("docs/proofs.md") || page.starts_with("docs/bench");
    let is_exempt = |page: &PathBuf| page == Path::new("CHANGELOG.md") || is_generated(page);
    let others = pages.into_keys().filter(|page| !is_exempt(page));
    assert_eq!(
        others.collect::<Vec<_>>(),
        Vec::<PathBuf>::new(),
        "pages without a row in the table"
    );
}

#[test]
fn every_command_of_the_table_has_a_heading_in_the_reference() {
    let table = fs::read_to_string(root().join("src/commands/table.rs")).expect("the table");
    let named = |start: &str| {
        let opening = format!("c\"{start}");
        let parts = table.split(&opening).skip(1);
        let ends = parts.map(|part| part.split_once('"').expect("the end of a name").0);
        ends.map(|end| format!("{start}{end}")).collect::<Vec<_>>()
    };
    let names = ["rl.", "cl.", "gcra"].map(named).concat();
    assert!(names.len() > 31, "{names:?}");
    let page = &pages()[Path::new("docs/commands.md")];
    for name in names {
        let title = name.to_uppercase().replace('|', " ");
        let has_title = |line: &str| line.trim_start_matches('#').trim_start() == title;
        let mut headings = prose(page).filter(|line| line.starts_with("##"));
        assert!(headings.any(has_title), "docs/commands.md has no heading {title}");
    }
}

/// Returns the fenced blocks of a page in a language, in order.
fn blocks<'text>(text: &'text str, language: &str) -> Vec<&'text str> {
    let fence = format!("```{language}\n");
    let found = text.split(fence.as_str()).skip(1);
    found.map(|rest| rest.split("```").next().expect("a block has an end")).collect()
}

/// Checks that README.md shows the same examples as the clients' pages, whose examples the clients'
/// own suites run.
#[test]
fn readme_shows_the_examples_of_the_clients_pages() {
    let pages = pages();
    let readme = &pages[Path::new("README.md")];
    for (language, page) in [("python", "python.md"), ("js", "node.md"), ("rust", "rust.md")] {
        let page = Path::new("docs/clients").join(page);
        let examples = blocks(readme, language);
        assert_eq!(examples.len(), 1, "README.md has one example in {language}");
        let lines = examples[0].lines().filter(|line| !line.is_empty()).count();
        assert!(lines <= 14, "the example in {language} has {lines} lines");
        assert!(pages[&page].contains(examples[0]), "{} has another one", page.display());
    }
}

#[test]
fn pages_of_the_clients_have_the_same_sections() {
    let pages = pages();
    for language in ["python", "node", "rust", "go", "java"] {
        let page = format!("docs/clients/{language}.md");
        let text = &pages[Path::new(&page)];
        let titles = text.lines().filter_map(|line| line.strip_prefix("## "));
        let expected = [
            "Install",
            "Quick start",
            "Rules and calls",
            "Options and connections",
            "When Redis is down",
            "Admissions and leases",
            "Testing",
            "Frameworks",
        ];
        assert_eq!(titles.collect::<Vec<_>>(), expected, "{page}");
    }
}

/// Checks that the configuration of Envoy on the page of the gateway has only lines of the example,
/// in the same order. Tests run the example, and the gateway's own tests load the page's limits.
#[test]
fn envoy_on_the_page_of_the_gateway_is_configured_as_in_the_example() {
    let page = &pages()[Path::new("docs/gateway.md")];
    let example = fs::read_to_string(root().join("examples/envoy/envoy.yaml")).expect("an example");
    let mut lines = example.lines().map(str::trim);
    let blocks = blocks(page, "yaml").into_iter().filter(|block| !block.starts_with("domain: "));
    let of_page: Vec<_> = blocks.flat_map(str::lines).map(str::trim).collect();
    assert!(of_page.len() >= 20, "{of_page:?}");
    for line in of_page {
        assert!(lines.any(|other| other == line), "{line}");
    }
}

/// Returns the options in the table below a heading with their defaults as JSON. `absent` is null.
fn options_in(page: &str, heading: &str) -> BTreeMap<String, String> {
    let section = page.split(&format!("\n## {heading}\n")).nth(1);
    let rows = section.and_then(|rest| rest.split("\n## ").next()).expect("options").lines();
    let cells = rows.map(|row| row.split(" | ").collect::<Vec<_>>());
    let named = cells.filter_map(|cells| {
        let names = cells[0].strip_prefix("| `")?.strip_suffix('`')?.split("`, `");
        let default = match cells[1].strip_prefix('`').and_then(|text| text.strip_suffix('`')) {
            Some(text) => format!("\"{text}\""),
            None => cells[1].replace("absent", "null"),
        };
        Some(names.map(move |name| (name.to_owned(), default.clone())))
    });
    named.flatten().collect()
}

#[test]
fn options_in_the_pages_have_the_defaults_of_the_cases() {
    let defaults = &cases_of_the_clients()["defaults"][0]["expect"];
    let mapping = defaults.as_mapping().expect("options");
    let expected = mapping.iter().map(|(name, default)| {
        let text = default.as_str().map(|text| format!("\"{text}\""));
        let number = || default.as_integer().map(|number| number.to_string());
        let truth = || default.as_bool().map(|truth| truth.to_string());
        let default = text.or_else(number).or_else(truth).unwrap_or_else(|| "null".to_owned());
        (name.as_str().expect("a name").to_owned(), default)
    });
    let (pages, expected) = (pages(), expected.collect());
    let page = |path| &pages[Path::new(path)];
    assert_eq!(options_in(page("clients/SPEC.md"), "The limiter's options"), expected);
    assert_eq!(options_in(page("docs/clients/README.md"), "Options"), expected);
}

/// Returns the cases in `clients/cases.json`, which the clients' suites check. JSON is parsed as
/// YAML.
fn cases_of_the_clients() -> Yaml<'static> {
    let text = fs::read_to_string(root().join("clients/cases.json")).expect("the cases");
    Yaml::load_from_str(text.leak()).expect("JSON").remove(0)
}

fn text_of<'yaml>(of: &'yaml Yaml<'_>, name: &str) -> &'yaml str {
    of[name].as_str().unwrap_or_else(|| panic!("{name} is a text"))
}

#[test]
fn page_on_http_agrees_with_the_cases_that_the_clients_check() {
    let page = &pages()[Path::new("docs/clients/README.md")];
    let cases = cases_of_the_clients();
    let problems = cases["problems"].as_sequence().expect("problems");
    assert!(problems.len() >= 5, "{}", problems.len());
    for problem in problems {
        let body = &problem["expect"]["body"];
        let status = body["status"].as_integer().expect("a status");
        let row = page.lines().find(|line| line.contains(&format!(" | {status}")));
        let title = format!("`{}`", text_of(body, "title"));
        assert!(row.is_some_and(|row| row.contains(&title)), "{status} {title}");
    }
    let example = Yaml::load_from_str(blocks(page, "json")[0]).expect("JSON").remove(0);
    assert_eq!(example, problems[0]["expect"]["body"]);

    let headers = cases["headers"].as_sequence().expect("headers");
    for at in [0, 1] {
        for name in ["RateLimit-Policy", "RateLimit"] {
            let field = format!("{name}: {}", text_of(&headers[at]["expect"], name));
            assert!(page.contains(&field), "{field}");
        }
    }
}
