//! Reads the imports of Rust files: `use` statements, and paths in code.
//!
//! An import counts as one of the file that defines the item, even if another module re-exports it.
//! A glob counts as an import of its module's file. Modules under `#[cfg(test)]` are ignored,
//! because test code may use any module.

use super::{Imports, Sources};
use std::collections::{BTreeMap, BTreeSet};

/// The keywords before the name of an item.
const ITEMS: [&str; 7] = ["const", "enum", "fn", "static", "struct", "trait", "type"];

/// The imports and definitions of one file.
#[derive(Default)]
struct File<'a> {
    /// The path of the file's module from the root of the crate.
    module: Vec<&'a str>,
    /// The names that the file imports, each with its path.
    bound: BTreeMap<&'a str, Vec<&'a str>>,
    /// The names that the file defines, outside of any braces.
    defined: BTreeSet<&'a str>,
    /// The paths that the file uses.
    used: BTreeSet<Vec<&'a str>>,
    /// The submodules that are compiled only for tests.
    tests: Vec<Vec<&'a str>>,
}

/// The files of a crate by name, and the name of each module's file.
struct Crate<'a> {
    files: BTreeMap<&'a str, File<'a>>,
    modules: BTreeMap<Vec<&'a str>, &'a str>,
}

/// Reads the imports of a crate. `sources` includes the crate's root, `main` or `lib`.
pub fn rust(sources: &Sources) -> Imports {
    let mut files: BTreeMap<&str, File<'_>> =
        sources.iter().map(|(name, text)| (&**name, File::read(name, text))).collect();
    let tests: Vec<_> = files.values().flat_map(|file| file.tests.clone()).collect();
    files.retain(|_, file| !tests.iter().any(|test| file.module.starts_with(test)));
    let modules = files.iter().map(|(name, file)| (file.module.clone(), *name)).collect();
    let all = Crate { files, modules };
    let of_file = |(name, file): (&&str, &File<'_>)| {
        let definers = file.used.iter().filter_map(|path| all.definer(file, path, 0));
        let others = definers.filter(|other| other != name);
        ((*name).to_owned(), others.map(str::to_owned).collect())
    };
    all.files.iter().map(of_file).collect()
}

/// The maximum number of re-exports that are followed. The limit ends the search if a name refers
/// to itself: `use itoa::itoa`.
const MOST_HOPS: usize = 9;

impl<'a> Crate<'a> {
    /// Finds the file that defines the item which `path` names in `file`. Returns `None` for a name
    /// outside the crate, and for a whole module, because only the use of its items counts.
    fn definer(&self, file: &File<'a>, path: &[&'a str], hops: usize) -> Option<&'a str> {
        let (first, rest) = path.split_first().filter(|_| hops < MOST_HOPS)?;
        let mut module = [&file.module[..], &[first]].concat();
        if *first == "crate" {
            module.clear();
        } else if !self.modules.contains_key(&module) {
            return self.definer(file, &[file.bound.get(first)?, rest].concat(), hops + 1);
        }
        for (at, name) in rest.iter().enumerate() {
            let child = [&module[..], &[name]].concat();
            if self.modules.contains_key(&child) {
                module = child;
                continue;
            }
            let found = self.modules.get(&module)?;
            let parent = &self.files[found];
            // A function of the module may have the same name as a module that its file imports.
            let bound = parent.bound.get(name).filter(|_| !parent.defined.contains(name));
            return match bound {
                Some(bound) => self.definer(parent, &[bound, &rest[at + 1..]].concat(), hops + 1),
                None => Some(found),
            };
        }
        None
    }
}

impl<'a> File<'a> {
    fn read(name: &'a str, text: &'a str) -> Self {
        let module = name.split('/').filter(|part| !["main", "lib", "mod"].contains(part));
        let mut file = Self { module: module.collect(), ..Self::default() };
        let tokens = file.without_tests(&tokens(text));
        let (mut handed_on, mut words) = (Vec::new(), BTreeSet::new());
        // The current module; for each module inside the file, the number of open braces before it;
        // the open braces.
        let (mut here, mut inline, mut braces) = (file.module.clone(), Vec::new(), 0);
        let mut at = 0;
        while let Some(&token) = tokens.get(at) {
            let next = tokens.get(at + 1).copied().unwrap_or_default();
            match token {
                "mod" if tokens.get(at + 2) == Some(&"{") => {
                    inline.push(braces);
                    here.push(next);
                }
                "mod" => at += 1,
                "{" => braces += 1,
                "}" => {
                    braces -= 1;
                    if inline.last() == Some(&braces) {
                        inline.pop();
                        here.pop();
                    }
                }
                "use" if next != "<" => {
                    let is_public = at > 0 && ["pub", ")"].contains(&tokens[at - 1]);
                    let mut found = Vec::new();
                    at += 1;
                    use_tree(&tokens, &mut at, Vec::new(), &mut found);
                    for (path, name) in found {
                        let path = absolute(&here, path);
                        if name != "*" {
                            file.bound.insert(name, path.clone());
                        }
                        if name != "*" && is_public {
                            handed_on.push((name, path));
                        } else {
                            file.used.insert(path);
                        }
                    }
                }
                _ if next == "::" && is_name(token) && (at == 0 || tokens[at - 1] != "::") => {
                    let mut path = vec![token];
                    words.insert(token);
                    while tokens.get(at + 1) == Some(&"::") && is_name(tokens[at + 2]) {
                        path.push(tokens[at + 2]);
                        at += 2;
                    }
                    file.used.insert(absolute(&here, path));
                }
                _ => {
                    let is_defined = at > 0 && ITEMS.contains(&tokens[at - 1]);
                    file.defined.extend((is_defined && braces == inline.len()).then_some(token));
                    words.insert(token);
                }
            }
            at += 1;
        }
        // A re-exported name counts as an import only if the file also uses it.
        let used = handed_on.into_iter().filter(|(name, _)| words.contains(name));
        file.used.extend(used.map(|(_, path)| path));
        file
    }

    /// Drops the items under `#[cfg(test)]`, and collects the modules among them.
    fn without_tests(&mut self, tokens: &[&'a str]) -> Vec<&'a str> {
        let mut kept = Vec::new();
        let mut rest = tokens;
        while let Some((token, after)) = rest.split_first() {
            let is_test =
                [&["#", "[", "cfg", "(", "test"][..], &["#", "[", "cfg", "(", "all", "(", "test"]];
            if !is_test.iter().any(|start| rest.starts_with(start)) {
                kept.push(*token);
                rest = after;
                continue;
            }
            let mut depth = 0;
            let end = rest.iter().position(|token| {
                depth += i32::from(*token == "{") - i32::from(*token == "}");
                depth < 0 || depth == 0 && ["}", ";"].contains(token)
            });
            let (item, after) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
            if let [.., "mod", name, ";"] = item {
                self.tests.push([&self.module[..], &[name]].concat());
            }
            rest = after;
        }
        kept
    }
}

/// Reads one `use` up to its end, and collects each path with the name that it introduces.
fn use_tree<'a>(
    tokens: &[&'a str],
    at: &mut usize,
    mut path: Vec<&'a str>,
    found: &mut Vec<(Vec<&'a str>, &'a str)>,
) {
    while let Some(&token) = tokens.get(*at) {
        *at += 1;
        match token {
            "::" => {}
            "{" => {
                while !["}", ";"].contains(&tokens[*at]) {
                    use_tree(tokens, at, path.clone(), found);
                    *at += usize::from(tokens[*at] == ",");
                }
                *at += 1;
                return;
            }
            name => {
                let is_self = name == "self" && !path.is_empty();
                path.extend((!is_self).then_some(name));
                if tokens[*at] == "::" {
                    continue;
                }
                let mut name = path[path.len() - 1];
                if tokens[*at] == "as" {
                    name = tokens[*at + 1];
                    *at += 2;
                }
                found.push((path, name));
                return;
            }
        }
    }
}

/// Resolves `self` and `super` at the start of a path that is used in the module `here`.
fn absolute<'a>(here: &[&'a str], path: Vec<&'a str>) -> Vec<&'a str> {
    let up = path.iter().take_while(|name| ["self", "super"].contains(name)).count();
    if up == 0 {
        return path;
    }
    let supers = path[..up].iter().filter(|name| **name == "super").count();
    [&["crate"], &here[..here.len().saturating_sub(supers)], &path[up..]].concat()
}

pub fn is_name(token: &str) -> bool {
    token.starts_with(|char: char| char.is_alphabetic() || char == '_')
}

/// Splits a source of Rust or Java into names, `::` and single characters. Drops comments and
/// literals.
pub fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        let after = |end: &str| rest[1..].find(end).map_or(rest.len(), |at| at + 1 + end.len());
        let name = rest.find(|char: char| !char.is_alphanumeric() && char != '_');
        let name = name.unwrap_or(rest.len());
        let skipped = if rest.starts_with("//") {
            after("\n")
        } else if rest.starts_with("/*") {
            after("*/")
        } else if let Some(length) = literal(rest) {
            length
        } else if name > 0 {
            tokens.push(&rest[..name]);
            name
        } else if rest.starts_with("::") {
            tokens.push(&rest[..2]);
            2
        } else {
            let length = char.len_utf8();
            tokens.extend((!char.is_whitespace()).then_some(&rest[..length]));
            length
        };
        rest = &rest[skipped..];
    }
    tokens
}

/// Returns the length of the text or character literal at the start of `rest`.
fn literal(rest: &str) -> Option<usize> {
    let raw = rest.trim_start_matches(['b', 'c']);
    if let Some(raw) = raw.strip_prefix('r') {
        let quoted = raw.trim_start_matches('#');
        let end = format!("\"{}", &raw[..raw.len() - quoted.len()]);
        let body = quoted.strip_prefix('"')?;
        let start = rest.len() - body.len();
        return Some(body.find(&end).map_or(rest.len(), |at| start + at + end.len()));
    }
    let body = raw.strip_prefix(['"', '\''])?;
    let quote = raw.chars().next()?;
    // `'a` without a closing quote is a lifetime.
    if quote == '\'' && !body.starts_with('\\') && body.chars().nth(1) != Some('\'') {
        return None;
    }
    let mut escaped = false;
    let end = body.find(|char: char| {
        let is_end = char == quote && !escaped;
        escaped = char == '\\' && !escaped;
        is_end
    });
    end.map(|end| rest.len() - body.len() + end + 1)
}
