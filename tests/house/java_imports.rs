//! Reads which classes of Java use each other: `import` statements, and the simple names of classes
//! of the own package in code.
//!
//! A class and its builder count as one, because each makes the other. The subclasses that a sealed
//! class permits do not count: it names them, and does not use them.

use super::rust_imports::{is_name, tokens};
use super::{Imports, Sources};
use std::collections::BTreeSet;

/// The keywords before the name of a class.
const CLASSES: [&str; 4] = ["class", "enum", "interface", "record"];
const BUILDER: &str = "Builder";

/// Reads the classes that each class uses. The name of a class is its path, for example
/// `redisthrottle/Limiter`.
pub fn java(sources: &Sources) -> Imports {
    let mut imports = Imports::new();
    for (name, text) in sources {
        // Text in triple quotes is left out, because it may contain quotes.
        let code: String = text.split("\"\"\"").step_by(2).collect();
        let used = used(sources, name, &tokens(&code));
        let used = used.iter().map(|other| built(sources, other).to_owned());
        let name = built(sources, name);
        let of_name = imports.entry(name.to_owned()).or_default();
        of_name.extend(used.filter(|other| other != name));
    }
    imports
}

/// Returns the class that a builder builds, or the class itself.
fn built<'a>(sources: &Sources, name: &'a str) -> &'a str {
    name.strip_suffix(BUILDER).filter(|built| sources.contains_key(*built)).unwrap_or(name)
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
