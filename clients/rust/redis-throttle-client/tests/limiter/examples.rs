//! Checks that what a reader needs in the first hour has an example in its doc comment. The
//! examples run as doctests.

use std::fs;
use std::path::Path;

/// The declarations by their files. Each constructor of a rule also has an example.
const FIRST_HOUR: [(&str, &[&str]); 9] = [
    ("src/calls/several.rs", &["fn check_all("]),
    ("src/calls/state.rs", &["fn new(", "fn with_options("]),
    ("src/calls/wait.rs", &["fn wait("]),
    ("src/holds/admission.rs", &["fn settle(", "fn admit("]),
    ("src/holds/lease.rs", &["fn lease("]),
    ("src/holds/reservation.rs", &["fn commit(", "fn reserve("]),
    ("src/limiter.rs", &["fn check(", "fn peek(", "fn refund(", "fn charge("]),
    ("src/rules/options.rs", &["struct Options "]),
    ("../tower-redis-throttle/src/layer.rs", &["fn new(", "fn builder("]),
];

const CONSTRUCTORS: &str = "src/rules/rule/algorithms.rs";

/// Returns the public declarations that contain one of these texts and have no example that runs.
fn without_example(file: &str, named: &[&str]) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let source = fs::read_to_string(path).unwrap();
    let lines: Vec<_> = source.lines().map(str::trim).collect();
    let is_named = |line: &str| named.iter().any(|name| line.contains(name));
    let declares = |at: &usize| lines[*at].starts_with("pub ") && is_named(lines[*at]);
    let declarations: Vec<_> = (0..lines.len()).filter(declares).collect();
    assert!(declarations.len() >= named.len(), "{file} lacks one of {named:?}");
    let lacks_example = |at: &usize| {
        let above = lines[..*at].iter().rev();
        let comment = above.take_while(|line| line.starts_with(['/', '#']));
        let fences = comment.filter(|line| line.starts_with("/// ```"));
        // Backwards, the last one opens the first example. With a word, such as `no_run`, it does
        // not count.
        fences.last() != Some(&"/// ```")
    };
    let found = declarations.into_iter().filter(lacks_example);
    found.map(|at| format!("{file}: {}", lines[at])).collect()
}

#[test]
fn declarations_of_the_first_hour_have_examples() {
    let mut found = without_example(CONSTRUCTORS, &["fn "]);
    found.extend(FIRST_HOUR.iter().flat_map(|(file, named)| without_example(file, named)));
    assert_eq!(found, Vec::<String>::new());
}
