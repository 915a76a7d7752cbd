//! Checks the English of pages, comments and names: phrases that must not appear, the first word of
//! doc comments, and words that no function's name contains.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Phrases that must not appear in pages and comments, each with a replacement.
const PHRASES: [(&str, &str); 31] = [
    ("anew", "again, from the start"),
    ("answers with", "replies with, responds with"),
    ("are answered", "get a reply"),
    ("are asked", "are called, are queried"),
    ("are away", "are down, are unreachable"),
    ("are told", "get, receive"),
    ("as if it had never been", "counts as new"),
    ("asks again", "calls again"),
    ("asks the server", "calls the server"),
    ("beside it", "next to it, compared with it"),
    ("does not answer", "does not reply, is unreachable"),
    ("in the shadow", "in shadow mode"),
    ("is answered", "gets a reply"),
    ("is asked", "is called, is queried"),
    ("is away", "is down, is unreachable"),
    ("is told", "gets, receives"),
    ("no answer", "no reply, no response"),
    ("nobody asks", "no caller checks"),
    ("nobody waits", "no caller waits"),
    ("not answered", "without a reply"),
    ("not without the module", "needs the module"),
    ("of ours", "the module's"),
    ("so many", "N, a number of"),
    ("somebody else", "another client, another module"),
    ("tells whether", "reports whether"),
    ("that is none", "that is not"),
    ("to be had", "available"),
    ("told apart", "distinguished"),
    ("who asks", "a caller"),
    ("whoever", "a caller, a client"),
    ("without an answer", "without a reply, without the server"),
];

/// Words that the name of a function must not contain, each with a replacement. A function has a
/// verb or a noun of the field as its name, and a test has a sentence in the present tense.
const NAME_WORDS: [(&str, &str); 7] = [
    ("answer", "reply, response, decision"),
    ("answered", "replied, responded, decided"),
    ("answers", "replies, responds, decides"),
    ("asked", "called, sent, requested"),
    ("made", "new, build, create"),
    ("shown", "format, render, displayed"),
    ("told", "report, log"),
];

/// Functions that keep such a word in their name, because it is public: the beginning of a path,
/// and the name.
const NAME_EXCEPTIONS: [(&str, &str); 7] = [
    // A method of asyncio's protocols.
    ("benches/clients/proxy.py", "connection_made"),
    ("clients/java/redis-throttle-servlet/src/main/", "answer"),
    ("clients/java/redis-throttle-webflux/src/main/", "answer"),
    ("clients/java/redis-throttle/src/main/java/redisthrottle/FakeServer.java", "answer"),
    ("clients/node/src/testing.ts", "answer"),
    ("clients/node/src/web/express.ts", "answerDenied"),
    ("clients/node/src/web/express.ts", "answerDeniedMiddleware"),
];

/// Words with which a doc comment must not open.
const OPENERS: [&str; 8] = ["how", "what", "where", "whether", "who", "whoever", "whom", "whose"];

/// The maximum percentage of doc comments that open with one of these words.
const MAX_OPENERS_PER_CENT: usize = 3;

/// The endings of the checked files.
const ENDINGS: [&str; 11] = ["go", "java", "js", "lua", "md", "mjs", "py", "pyi", "rs", "sh", "ts"];

/// Folders of generated or fetched files.
const SKIPPED: [&str; 6] = ["__pycache__", "artifacts", "corpus", "dist", "node_modules", "target"];

/// Returns the text of the checked files, by their paths from the root.
pub fn sources() -> BTreeMap<String, String> {
    fn walk(folder: &Path, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).expect("a folder of the repository") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
            let is_hidden = name.starts_with('.') && name != ".ci";
            if is_hidden || SKIPPED.contains(&name) || path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                walk(&path, found);
                continue;
            }
            let below = path.strip_prefix(super::root()).expect("below the root");
            let below = below.to_str().expect("UTF-8").to_owned();
            let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or("sh");
            if ENDINGS.contains(&ending) && !below.starts_with("docs/bench/") {
                let text = fs::read(&path).expect("a file");
                found.insert(below, String::from_utf8_lossy(&text).into_owned());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(super::root(), &mut found);
    found
}

/// Returns the part of a changelog before its released versions.
fn unreleased(text: &str) -> &str {
    let is_released = |(at, _): &(usize, &str)| !text[at + 4..].starts_with("Unreleased");
    let end = text.match_indices("\n## ").find(is_released).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

/// Returns each line of a comment with its number and without its marks. In a page, returns every
/// line. Text in a literal is not a comment.
fn comments(path: &str, text: &str) -> Vec<(usize, String)> {
    let ending = path.rsplit_once('.').map_or("sh", |(_, ending)| ending);
    let mark = match ending {
        "md" => "",
        "go" | "java" | "rs" | "js" | "mjs" | "ts" => "//",
        "lua" => "--",
        _ => "#",
    };
    let (opens, closes) = match ending {
        "java" | "rs" | "js" | "mjs" | "ts" => ("/*", "*/"),
        "py" | "pyi" => ("\"\"\"", "\"\"\""),
        _ => ("\0", "\0"),
    };
    let mut is_block = false;
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let opened = !is_block && trimmed.trim_start_matches(['r', 'f']).starts_with(opens);
        let rest =
            if opened { trimmed.split_once(opens).map_or("", |(_, rest)| rest) } else { line };
        let comment = if opened || is_block {
            is_block = !rest.contains(closes);
            Some(rest.trim_start().trim_start_matches(['*', '"']))
        } else if let Some(rest) = trimmed.strip_prefix(mark) {
            Some(rest.trim_start_matches(['/', '!', '-', '#']))
        } else {
            let behind = line.rsplit_once(&format!(" {mark} "));
            let is_text = |before: &str| before.matches(['"', '\'', '`']).count() % 2 == 1;
            behind.filter(|(before, _)| !is_text(before)).map(|(_, comment)| comment)
        };
        if let Some(comment) = comment {
            found.push((at + 1, comment.trim().to_owned()));
        }
    }
    found
}

/// Returns the unwanted phrases in the comments of a file, each as `path:line: phrase`. A phrase
/// may continue on the next line.
fn phrases(path: &str, text: &str) -> Vec<String> {
    let plain = |text: &str| {
        let lower = text.to_lowercase();
        let is_word = |char: char| char.is_alphanumeric() || char == '_';
        let words = lower.split(|char: char| !is_word(char)).filter(|word| !word.is_empty());
        words.fold(" ".to_owned(), |joined, word| joined + word + " ")
    };
    let lines: Vec<_> = comments(path, text).iter().map(|(at, line)| (*at, plain(line))).collect();
    let mut found = Vec::new();
    for (index, (at, line)) in lines.iter().enumerate() {
        let next = lines.get(index + 1).filter(|(next, _)| *next == at + 1);
        let both = line.clone() + next.map_or("", |(_, next)| next.trim_start());
        for (phrase, instead) in PHRASES {
            let phrase = format!(" {phrase} ");
            let in_next = next.is_some_and(|(_, next)| next.contains(&phrase));
            if line.contains(&phrase) || both.contains(&phrase) && !in_next {
                found.push(format!("{path}:{at}:{phrase}(write: {instead})"));
            }
        }
    }
    found
}

/// Returns the number of doc comments in a Rust file, and those that open with an unwanted word. A
/// field of type `bool` may open with "Whether".
fn openings(path: &str, text: &str) -> (usize, Vec<String>) {
    let is_doc = |line: &&str| line.starts_with("///") && !line.starts_with("////");
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let (mut count, mut bad) = (0, Vec::new());
    for (at, line) in lines.iter().enumerate() {
        let mark = if line.starts_with("//!") { "//!" } else { "///" };
        let is_first = at == 0 || !lines[at - 1].starts_with(mark);
        if !is_first || !line.starts_with(mark) || mark == "///" && !is_doc(line) {
            continue;
        }
        count += 1;
        let opening = line[3..].trim_start();
        let word = opening.split(|char: char| !char.is_alphabetic()).next().unwrap_or_default();
        let item = lines[at..].iter().find(|line| !is_doc(line) && !line.starts_with("#["));
        let is_bool = item.is_some_and(|item| {
            let field = item.split_once(": ").filter(|_| !item.contains("fn "));
            field.is_some_and(|(_, kind)| kind.contains("bool") || kind.contains("AtomicBool"))
        });
        let word = word.to_lowercase();
        if OPENERS.contains(&word.as_str()) && !(word == "whether" && is_bool) {
            bad.push(format!("{path}:{}: {opening}", at + 1));
        }
    }
    (count, bad)
}

/// Returns the identifier with which a text begins, if `follows` accepts the text after it.
fn identifier(text: &str, follows: impl Fn(&str) -> bool) -> Option<&str> {
    let text = text.trim_start();
    let is_part = |char: char| char.is_alphanumeric() || char == '_';
    let end = text.find(|char| !is_part(char)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    (!name.is_empty() && follows(rest)).then_some(name)
}

/// Returns the name of the method that a line of Java, TypeScript or JavaScript declares. Such a
/// line has a type or a modifier before the name, or, in a script, a body after the parameters.
fn method<'line>(line: &'line str, ending: &str) -> Option<&'line str> {
    const STATEMENTS: [&str; 8] =
        ["assert", "await", "case", "else", "new", "return", "throw", "yield"];
    let (before, rest) = line.split_once('(')?;
    let is_declared = |word: &str| {
        let may = |char: char| char.is_alphanumeric() || "_<>[],.?@&#*".contains(char);
        word.chars().all(may) && !STATEMENTS.contains(&word)
    };
    let mut words: Vec<_> = before.split_whitespace().collect();
    let last = words.pop()?.trim_start_matches(['#', '*']);
    let name = last.split('<').next()?;
    let is_name = identifier(name, str::is_empty).is_some();
    let has_body = rest.trim_end().ends_with('{') && !rest.contains("=>");
    let is_method = if ending == "java" { !words.is_empty() } else { has_body };
    (is_name && is_method && words.into_iter().all(is_declared)).then_some(name)
}

/// Returns the names of the functions and methods that a file declares, each with its line.
fn functions<'text>(path: &str, text: &'text str) -> Vec<(usize, &'text str)> {
    let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending);
    let keyword = match ending {
        "rs" => "fn ",
        "py" | "pyi" => "def ",
        "go" => "func ",
        "js" | "mjs" | "ts" => "function",
        "java" => "\0",
        _ => return Vec::new(),
    };
    let opens = |rest: &str| rest.starts_with(['(', '<', '[']);
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with(['*', '#', '/']) {
            continue;
        }
        let mut names: Vec<_> = line
            .match_indices(keyword)
            .filter(|(start, _)| !line[..*start].ends_with(|char: char| char.is_alphanumeric()))
            .filter_map(|(start, _)| {
                let rest = &line[start + keyword.len()..];
                if !keyword.ends_with(' ') && !rest.starts_with([' ', '*']) {
                    return None;
                }
                let rest = rest.trim_start_matches('*');
                // A method in Go has its receiver before the name.
                let receiver = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
                identifier(receiver.map_or(rest, |(_, rest)| rest), opens)
            })
            .collect();
        if names.is_empty() && ["java", "js", "mjs", "ts"].contains(&ending) {
            names.extend(method(line, ending));
        }
        found.extend(names.into_iter().map(|name| (at + 1, name)));
    }
    found
}

/// Returns the words of a name in snake or camel case, in lower case.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for char in name.chars() {
        if char == '_' || char.is_uppercase() && was_lower {
            words.push(String::new());
        }
        was_lower = char.is_lowercase() || char.is_numeric();
        if char != '_' {
            words.last_mut().expect("a word").extend(char.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn names_of_functions_contain_no_unwanted_word() {
    let (mut count, mut found) = (0, Vec::new());
    let mut unused: Vec<_> = NAME_EXCEPTIONS.into();
    for (path, text) in &sources() {
        for (at, name) in functions(path, text) {
            count += 1;
            let words = words_of(name);
            let Some((word, instead)) =
                NAME_WORDS.into_iter().find(|(word, _)| words.iter().any(|found| found == word))
            else {
                continue;
            };
            let is_it = |(folder, kept): &(&str, &str)| path.starts_with(folder) && name == *kept;
            unused.retain(|exception| !is_it(exception));
            if !NAME_EXCEPTIONS.iter().any(is_it) {
                found.push(format!("{path}:{at}: {name}: {word} (write: {instead})"));
            }
        }
    }
    assert!(count > 10_000, "{count}");
    assert!(found.is_empty(), "{} names:\n{}", found.len(), found.join("\n"));
    assert!(unused.is_empty(), "no such function: {unused:?}");
}

#[test]
fn pages_and_comments_contain_no_unwanted_phrase() {
    let sources = sources();
    assert!(sources.len() > 300, "{}", sources.len());
    let found = sources.iter().flat_map(|(path, text)| {
        let text = if path == "CHANGELOG.md" { unreleased(text) } else { text };
        phrases(path, text)
    });
    let found: Vec<_> = found.collect();
    assert!(found.is_empty(), "{} phrases:\n{}", found.len(), found.join("\n"));
}

#[test]
fn doc_comments_open_with_a_verb_or_a_noun_phrase() {
    let (mut count, mut bad) = (0, Vec::new());
    for (path, text) in sources().iter().filter(|(path, _)| path.ends_with(".rs")) {
        let (more, found) = openings(path, text);
        count += more;
        bad.extend(found);
    }
    assert!(count > 1_000, "{count}");
    let most = count * MAX_OPENERS_PER_CENT / 100;
    assert!(bad.len() <= most, "{} of {count}, not {most}:\n{}", bad.len(), bad.join("\n"));
}

#[test]
fn phrases_are_found_in_comments_and_not_in_literals() {
    let rust = "/// It begins\n/// anew.\nlet a = \"whoever\"; // of ours\nlet anew = 1;\n";
    let found = |path, text| phrases(path, text).iter().map(|line| at(line)).collect::<Vec<_>>();
    fn at(line: &str) -> String {
        line.split_once(" (").expect("a replacement").0.to_owned()
    }
    assert_eq!(found("a.rs", rust), ["a.rs:2: anew", "a.rs:3: of ours"]);
    let split = "# So\n# many, and so\n\n# many.\n";
    assert_eq!(found("a.sh", split), ["a.sh:1: so many"]);
    let python = "x = 'anew'  # anew\n\"\"\"One.\n\nWhoever.\n\"\"\"\nanew = 1\n";
    assert_eq!(found("a.py", python), ["a.py:1: anew", "a.py:4: whoever"]);
    let script = "/**\n * Anew.\n */\nanew(); // 'anew'\n";
    assert_eq!(found("a.ts", script), ["a.ts:2: anew", "a.ts:4: anew"]);
    assert_eq!(found("a.go", "// anew\nvar a = \"// anew\"\n"), ["a.go:1: anew"]);
    assert_eq!(found("a.lua", "anew() -- anew\n"), ["a.lua:1: anew"]);
    assert_eq!(found("a.md", "A word\nof ours\n"), ["a.md:2: of ours"]);
}

#[test]
fn openings_are_counted_and_only_bool_fields_may_open_with_whether() {
    let text = "//! What.\n//! How.\n\n/// Whether.\n#[x]\npub a: bool,\n/// Whether.\n\
                fn f(a: bool) {}\n/// Returns.\n/// Where.\nfn g() {}\n// Who.\n";
    let (count, bad) = openings("a.rs", text);
    assert_eq!(count, 4);
    assert_eq!(bad, ["a.rs:1: What.", "a.rs:7: Whether."]);
}

#[test]
fn functions_are_found_in_every_language_and_calls_are_not() {
    let names = |path: &str, text: &str| {
        let found = functions(path, text).into_iter().map(|(_, name)| name.to_owned());
        found.collect::<Vec<_>>().join(" ")
    };
    let rust = "// fn no()\npub const fn a<T>() {}\nfn b(c: fn(u8)) { d(); }\n";
    assert_eq!(names("a.rs", rust), "a b");
    assert_eq!(names("a.py", "async def a(b):\n    c(d)\n    def e(): pass\n"), "a e");
    let go = "func a(b int) {\n\tc()\n}\nfunc (r *R[T]) d() {}\nfunc e[T any](f T) {}\n";
    assert_eq!(names("a.go", go), "a d e");
    let script = "function* a(b) {\n  c(d);\n}\nconst e = (f) => {\n  async g(h) {\n  i(() => {\n";
    assert_eq!(names("a.ts", script), "a g");
    let java = "  void a(int b) {\n    return c(b);\n    int d = e(b);\n    f.g(b);\n  \
                private static Map<String, T> h(\n    new I(b);\n  A i() {}\n";
    assert_eq!(names("A.java", java), "a h i");
    assert_eq!(
        words_of("TestOne_twoThree_HTTP4Five"),
        ["test", "one", "two", "three", "http4", "five"]
    );
}

#[test]
fn unreleased_part_of_the_changelog_ends_before_the_first_version() {
    assert_eq!(unreleased("# A\n## Unreleased\nnew\n## 1.0\nold"), "# A\n## Unreleased\nnew");
}
