//! A YAML file as a tree in which every node knows its place. Scalars stay the text of the file:
//! `404` and `1.0` are not numbers here.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::report::At;

/// The deepest nesting of a file.
const DEPTH_MAX: usize = 64;
/// The most nodes of a file. Aliases count as the nodes that they repeat.
const NODES_MAX: usize = 500_000;

/// The word whose value is merged into its mapping, unless it is in quotes.
const MERGE: &str = "<<";

/// A node with its place.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub at: At,
    pub value: Value,
}

#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// An empty scalar, `~` or `null`.
    Null,
    Scalar(String),
    Sequence(Vec<Node>),
    Mapping(Vec<Pair>),
}

/// A word of a mapping with its value.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub word: String,
    pub at: At,
    pub node: Node,
}

/// The first mistake of a file's syntax.
#[derive(Debug)]
pub(crate) struct Broken {
    pub at: At,
    pub text: String,
}

/// Parses a file with one document.
pub(crate) fn parse(text: &str) -> Result<Node, Broken> {
    let mut reader =
        Reader { parser: Parser::new_from_str(text), anchors: HashMap::new(), nodes: 0 };
    let mut root = None;
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamEnd => break,
            Event::DocumentStart(_) if root.is_some() => {
                let text = "a second document: write each domain in a file of its own";
                return Err(broken(span, text));
            }
            Event::DocumentStart(_) => {
                let (event, span) = reader.next()?;
                root = Some(reader.node(event, span, 0)?);
            }
            _ => {}
        }
    }
    let empty = Broken {
        at: At { line: 1, column: 1 },
        text: "the file is empty: expected `domain:` with `limits:` or `descriptors:`".to_owned(),
    };
    root.filter(|root| !matches!(root.value, Value::Null)).ok_or(empty)
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Broken> {
        match self.parser.next_event() {
            Some(event) => event.map_err(|error| scan_error(&error)),
            None => Ok((Event::StreamEnd, Span::empty(Marker::new(0, 1, 0)))),
        }
    }

    /// Returns the node that begins with an event.
    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, Broken> {
        self.count(1, depth, span)?;
        let (anchor, value) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                known(tag.as_deref(), span)?;
                let plain = style == ScalarStyle::Plain;
                let null = plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                (anchor, if null { Value::Null } else { Value::Scalar(text.into_owned()) })
            }
            Event::SequenceStart(anchor, tag) => {
                known(tag.as_deref(), span)?;
                (anchor, Value::Sequence(self.sequence(depth)?))
            }
            Event::MappingStart(anchor, tag) => {
                known(tag.as_deref(), span)?;
                (anchor, Value::Mapping(self.mapping(depth)?))
            }
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor) else {
                    return Err(broken(span, "an alias of a node that it is part of"));
                };
                let node = Node { at: place(span.start), ..node.clone() };
                let (nodes, height) = size(&node);
                self.count(nodes, depth + height, span)?;
                return Ok(node);
            }
            _ => return Err(broken(span, "expected a value")),
        };
        let node = Node { at: place(span.start), value };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn sequence(&mut self, depth: usize) -> Result<Vec<Node>, Broken> {
        let mut nodes = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd | Event::StreamEnd, _) => return Ok(nodes),
                (event, span) => nodes.push(self.node(event, span, depth + 1)?),
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Vec<Pair>, Broken> {
        let (mut pairs, mut lines) = (Vec::new(), HashMap::new());
        loop {
            let (word, is_merge, span) = match self.next()? {
                (Event::MappingEnd | Event::StreamEnd, _) => return Ok(pairs),
                (Event::Scalar(word, style, ..), span) => {
                    let is_merge = word == MERGE && style == ScalarStyle::Plain;
                    (word.into_owned(), is_merge, span)
                }
                (_, span) => return Err(broken(span, "expected a word before `:`")),
            };
            let at = place(span.start);
            if let Some(line) = lines.insert(word.clone(), at.line) {
                let text = format!("a second {word:?}: the first is in line {line}");
                return Err(Broken { at, text });
            }
            let (event, span) = self.next()?;
            let node = self.node(event, span, depth + 1)?;
            if is_merge {
                for pair in merged(node)? {
                    if lines.contains_key(&pair.word) {
                        let word = &pair.word;
                        let text =
                            format!("`{MERGE}` after {word:?}, which it also has: write it first");
                        return Err(Broken { at, text });
                    }
                    put(&mut pairs, pair, at)?;
                }
            } else {
                put(&mut pairs, Pair { word, at, node }, at)?;
            }
        }
    }

    /// Counts nodes, the deepest of them at `depth`.
    fn count(&mut self, nodes: usize, depth: usize, span: Span) -> Result<(), Broken> {
        self.nodes += nodes;
        if self.nodes > NODES_MAX {
            return Err(broken(span, format!("too large: expected at most {NODES_MAX} values")));
        }
        if depth > DEPTH_MAX {
            return Err(broken(span, format!("nested too deep: expected at most {DEPTH_MAX}")));
        }
        Ok(())
    }
}

/// Returns the pairs of a node behind `<<`. Of several mappings, the first comes last.
fn merged(node: Node) -> Result<Vec<Pair>, Broken> {
    let nodes = match node.value {
        Value::Sequence(nodes) => nodes,
        value => vec![Node { at: node.at, value }],
    };
    let mut pairs = Vec::new();
    for node in nodes.into_iter().rev() {
        let Value::Mapping(more) = node.value else {
            let text = format!("`{MERGE}` needs a mapping, or a list of mappings");
            return Err(Broken { at: node.at, text });
        };
        pairs.extend(more);
    }
    Ok(pairs)
}

/// Adds a pair, which replaces a merged one of its word. YAML replaces a merged mapping as a whole,
/// and envoyproxy/ratelimit its words one by one, so the new one must have all of them.
fn put(pairs: &mut Vec<Pair>, pair: Pair, at: At) -> Result<(), Broken> {
    let Some(old) = pairs.iter_mut().find(|old| old.word == pair.word) else {
        pairs.push(pair);
        return Ok(());
    };
    if let Some(lacking) = lacking(&pair.node, &old.node) {
        let (word, lost, line) = (&pair.word, &lacking.word, lacking.at.line);
        let text =
            format!("{word:?} lacks {lost:?}, which the merged one has in line {line}: add it");
        return Err(Broken { at, text });
    }
    *old = pair;
    Ok(())
}

/// Returns a word of the old mapping that the new one lacks.
fn lacking<'a>(new: &Node, old: &'a Node) -> Option<&'a Pair> {
    let (Value::Mapping(new), Value::Mapping(old)) = (&new.value, &old.value) else { return None };
    old.iter().find_map(|old| match new.iter().find(|new| new.word == old.word) {
        Some(new) => lacking(&new.node, &old.node),
        None => Some(old),
    })
}

/// Returns the number of nodes in a node, and the number of levels below it.
fn size(node: &Node) -> (usize, usize) {
    let of_all = |sizes: &mut dyn Iterator<Item = (usize, usize)>| {
        sizes.fold((1, 0), |(nodes, height), (more, below)| (nodes + more, height.max(below + 1)))
    };
    match &node.value {
        Value::Null | Value::Scalar(_) => (1, 0),
        Value::Sequence(nodes) => of_all(&mut nodes.iter().map(size)),
        Value::Mapping(pairs) => of_all(&mut pairs.iter().map(|pair| size(&pair.node))),
    }
}

/// Refuses the tags that change what a value is.
fn known(tag: Option<&Tag>, span: Span) -> Result<(), Broken> {
    match tag {
        Some(tag) if !tag.is_yaml_core_schema() || tag.suffix == "binary" => {
            Err(broken(span, format!("unknown tag {:?}: write the value without it", tag.suffix)))
        }
        _ => Ok(()),
    }
}

fn place(marker: Marker) -> At {
    At { line: marker.line(), column: marker.col() + 1 }
}

fn broken(span: Span, text: impl Into<String>) -> Broken {
    Broken { at: place(span.start), text: text.into() }
}

fn scan_error(error: &ScanError) -> Broken {
    Broken { at: place(*error.marker()), text: format!("invalid YAML: {}", error.info()) }
}
