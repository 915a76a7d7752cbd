//! Reads which classes of Java use each other: `import` statements, and the simple names of classes
//! of the own package in code.
//!
//! The subclasses that a sealed class permits do not count: it names them, and does not use them.

use super::rust_imports::{is_name, tokens};
use super::{Imports, Sources, circle, edges, sources, sources_of};
use std::collections::{BTreeMap, BTreeSet};

const CLIENT: &str = "clients/java";
/// The modules of the client, each with its sources.
const MODULES: [&str; 6] = [
    "redis-throttle",
    "redis-throttle-lettuce",
    "redis-throttle-servlet",
    "redis-throttle-spring-boot-starter",
    "redis-throttle-spring-cloud-gateway",
    "redis-throttle-webflux",
];
/// The public classes that name each other in their signatures: the first one makes the second, so
/// its use of the second does not count. Only these pairs are in circles.
const PAIRS: [(&str, &str); 8] = [
    // `of` returns an item, whose `rule` returns the rule.
    ("redisthrottle/Rule", "redisthrottle/Item"),
    // A static method returns the subclass, which has options of its own.
    ("redisthrottle/Rule", "redisthrottle/FixedRule"),
    ("redisthrottle/Rule", "redisthrottle/PolicyRule"),
    ("redisthrottle/Rule", "redisthrottle/QuotaRule"),
    ("redisthrottle/Rule", "redisthrottle/SlidingLogRule"),
    // `builder` returns the builder, whose `build` returns the class.
    ("redisthrottle/Limiter", "redisthrottle/LimiterBuilder"),
    ("redisthrottle/servlet/ThrottleFilter", "redisthrottle/servlet/ThrottleFilterBuilder"),
    ("redisthrottle/webflux/ThrottleWebFilter", "redisthrottle/webflux/ThrottleWebFilterBuilder"),
];
/// The keywords before the name of a class.
const CLASSES: [&str; 4] = ["class", "enum", "interface", "record"];

/// Reads the classes that each class uses. The name of a class is its path, for example
/// `redisthrottle/Limiter`.
fn java(sources: &Sources) -> Imports {
    let of_class = |(name, text): (&String, &String)| {
        // Text in triple quotes is left out, because it may contain quotes.
        let code: String = text.split("\"\"\"").step_by(2).collect();
        let mut used = used(sources, name, &tokens(&code));
        used.remove(name);
        (name.clone(), used)
    };
    sources.iter().map(of_class).collect()
}

/// Removes the uses in pairs. Returns the pairs that do not use each other.
fn without_pairs(imports: &mut Imports) -> Vec<(&'static str, &'static str)> {
    let uses = |imports: &Imports, one: &str, other: &str| {
        imports.get(one).is_some_and(|used| used.contains(other))
    };
    let is_pair = |(one, other)| uses(imports, one, other) && uses(imports, other, one);
    let (pairs, others): (Vec<_>, Vec<_>) = PAIRS.into_iter().partition(|pair| is_pair(*pair));
    for (one, other) in pairs {
        imports.get_mut(one).expect("a class of a pair").remove(other);
    }
    others
}

/// Reads the rooms that a `package-info` lists in comments, in their order: the place of each
/// class, or of each package.
fn rooms(package_info: &str) -> BTreeMap<String, usize> {
    let mut rooms = BTreeMap::new();
    let mut room = 0;
    for line in package_info.lines().filter_map(|line| line.strip_prefix("// ")) {
        let (head, names) = line.split_once(':').unwrap_or(("", line));
        room += usize::from(!head.is_empty());
        let is_list = room > 0 && (!head.is_empty() || line.starts_with(' '));
        for name in names.split(',').map(str::trim).filter(|name| is_list && !name.is_empty()) {
            let name = name.replace('.', "/");
            let name = if name.contains('/') { name } else { format!("redisthrottle/{name}") };
            assert_eq!(rooms.insert(name.clone(), room), None, "{name} is in two rooms");
        }
    }
    rooms
}

/// Asserts that each class is in a room, and uses no class of a later one.
fn assert_order_of_rooms(imports: &Imports, rooms: &BTreeMap<String, usize>) {
    let room = |class: &str| {
        let package = class.rsplit_once('/').map_or("", |(package, _)| package);
        let room = rooms.get(class).or_else(|| rooms.get(package));
        *room.unwrap_or_else(|| panic!("{class} is in no room"))
    };
    for (class, used) in imports.iter().filter(|(class, _)| !class.ends_with("/package-info")) {
        let later: Vec<_> = used.iter().filter(|other| room(other) > room(class)).collect();
        assert!(later.is_empty(), "{class} uses {later:?} of later rooms");
    }
    let packages = imports.keys().filter_map(|class| class.rsplit_once('/')).map(|(name, _)| name);
    let known: BTreeSet<_> = packages.chain(imports.keys().map(String::as_str)).collect();
    let unknown: Vec<_> = rooms.keys().filter(|name| !known.contains(name.as_str())).collect();
    assert!(unknown.is_empty(), "{unknown:?} do not exist");
}

fn used(sources: &Sources, name: &str, tokens: &[&str]) -> BTreeSet<String> {
    let package = name.rsplit_once('/').map_or("", |(package, _)| package);
    let declared: BTreeSet<_> =
        tokens.windows(2).filter(|pair| CLASSES.contains(&pair[0])).map(|pair| pair[1]).collect();
    let mut used = BTreeSet::new();
    let mut rest = tokens;
    let mut before = "";
    while let [token, after @ ..] = rest {
        rest = after;
        if *token == "import" {
            let end = after.iter().position(|token| *token == ";").unwrap_or(after.len());
            let mut path: Vec<_> = after[..end].iter().filter(|token| is_name(token)).collect();
            path.retain(|part| ***part != *"static");
            // The last parts may be those of a member of the class.
            let prefixes = (1..=path.len())
                .map(|parts| path[..parts].iter().map(|part| **part).collect::<Vec<_>>().join("/"));
            used.extend(prefixes.filter(|class| sources.contains_key(class)));
            rest = &after[end..];
        } else if *token == "permits" {
            let end = after.iter().position(|token| *token == "{").unwrap_or(after.len());
            rest = &after[end..];
        } else if before != "." && !declared.contains(token) {
            let class = format!("{package}/{token}");
            used.extend(sources.contains_key(&class).then_some(class));
        }
        before = token;
    }
    used
}

#[test]
fn java_classes_have_no_circle_and_the_order_of_the_rooms() {
    let mut without_circle = Vec::new();
    for module in MODULES {
        let sources = sources(&format!("{CLIENT}/{module}/src/main/java/"), ".java");
        let mut imports = java(&sources);
        let uses: usize = imports.values().map(BTreeSet::len).sum();
        assert!(uses > 0, "{module}: no use was found in {imports:?}");
        without_circle.push(without_pairs(&mut imports));
        assert_eq!(circle(&imports), None, "{module} has a circle of classes");
        if let Some(package_info) = sources.get("redisthrottle/package-info") {
            let rooms = rooms(package_info);
            assert!(rooms.values().any(|room| *room == 7), "{module}: {rooms:?}");
            assert_order_of_rooms(&imports, &rooms);
        }
    }
    let is_unused = |pair| without_circle.iter().all(|pairs| pairs.contains(pair));
    let unused: Vec<_> = PAIRS.iter().filter(|pair| is_unused(*pair)).collect();
    assert!(unused.is_empty(), "{unused:?} are no circles");
}

#[test]
fn java_reads_imports_and_names_of_the_own_package_in_code() {
    let files = [
        ("a/Rule", "import static b.Deep.Inner.of;\nsealed interface Rule permits Fixed {\n}\n"),
        ("a/Fixed", "// Limiter\nrecord Fixed(Rule rule) implements Rule { Rule.Item x; }\n"),
        ("a/Limiter", "import b.Deep;\nclass Limiter { LimiterBuilder of() {} }\n"),
        ("a/LimiterBuilder", "class LimiterBuilder { void build() { new Fixed(null); } }\n"),
        ("a/Item", "class Item { /* Rule */ String t = \"Rule\" + \"\"\"\n Rule \"\n\"\"\"; }\n"),
        ("a/Own", "class Own { record Rule() {}\n Rule rule; b.Item item; Item::of; }\n"),
        ("b/Deep", "class Deep { Rule rule; }\n"),
    ];
    let imports = java(&sources_of(&files));
    let expected = [
        "a/Fixed > a/Rule",
        "a/Limiter > a/LimiterBuilder",
        "a/Limiter > b/Deep",
        "a/LimiterBuilder > a/Fixed",
        "a/Own > a/Item",
        "a/Rule > b/Deep",
    ];
    assert_eq!(edges(&imports), expected);
    assert_eq!(circle(&imports), None);
    let mut planted = files;
    planted[6].1 = "import a.Rule;\nclass Deep { Rule rule; }\n";
    let planted = circle(&java(&sources_of(&planted)));
    assert_eq!(planted, Some(["a/Rule", "b/Deep"].map(str::to_owned).to_vec()));
}

#[test]
fn java_ignores_the_pairs_alone() {
    let files = [
        ("redisthrottle/Rule", "class Rule { Item item; Other other; FixedRule fixed; }\n"),
        ("redisthrottle/Item", "class Item { Rule rule; }\n"),
        ("redisthrottle/FixedRule", "class FixedRule {}\n"),
        ("redisthrottle/Other", "class Other { Rule rule; }\n"),
    ];
    let mut imports = java(&sources_of(&files));
    let unused = without_pairs(&mut imports);
    let circle = circle(&imports).expect("a circle");
    assert_eq!(circle, ["redisthrottle/Rule", "redisthrottle/Other"]);
    assert_eq!(unused.len(), PAIRS.len() - 1);
}

#[test]
#[should_panic(expected = "redisthrottle/Rule uses [\"redisthrottle/Limiter\"] of later rooms")]
fn java_class_that_uses_a_later_room_is_found() {
    let text = "// The rooms, in order.\n//\n// rules: Rule,\n//   Item\n// limiter: Limiter\n\
                // web: redisthrottle.web\n";
    let files = [
        ("redisthrottle/Rule", "class Rule { Limiter limiter; Item item; }\n"),
        ("redisthrottle/Item", "class Item {}\n"),
        ("redisthrottle/Limiter", "class Limiter { Rule rule; }\n"),
        ("redisthrottle/web/Filter", "class Filter { redisthrottle.Rule rule; }\n"),
    ];
    assert_order_of_rooms(&java(&sources_of(&files)), &rooms(text));
}
