//! Log formats: nginx's `log_format` text, read into the texts between the variables.
//!
//! A variable ends where the text after it begins. Behind an opening quotation mark, it ends at the
//! next quotation mark without a backslash, as Apache writes them. A name of a user, which may have
//! any characters, and what a port follows end at the last such text before that of the next
//! variable. What follows the last text is ignored, so a format may describe the beginning of a
//! line.

use super::fields::{Field, Names, Values};
use memchr::{memchr, memrchr};

/// The format to log in, for exact times.
pub const RECOMMENDED: &str = "log_format timed '$remote_addr - $remote_user [$time_local] \
    \"$request\" $status $body_bytes_sent $msec $request_time';";

/// The most variables in a format.
pub const VARIABLES_MAX: usize = 64;

/// The longest text of a format, in bytes.
pub const TEXT_LEN_MAX: usize = 8_192;

/// The variables whose values have no space: at the end of a format, they end at a space, and a
/// line in which one has a space does not have the format.
const WITHOUT_SPACE: [&str; 15] = [
    "body_bytes_sent",
    "bytes_sent",
    "connection",
    "elb",
    "host",
    "msec",
    "pid",
    "remote_addr",
    "remote_ident",
    "remote_port",
    "request_length",
    "request_time",
    "server_port",
    "status",
    "tls_connection_creation_time",
];

/// A log format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFormat {
    /// The text before the first variable.
    lead: Vec<u8>,
    variables: Vec<Variable>,
}

/// A variable and the text after it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Variable {
    name: String,
    /// The text up to the next variable. Only that of the last variable may be empty.
    after: Vec<u8>,
    /// Whether the variable is in quotation marks.
    quoted: bool,
    /// Whether the value has no space.
    is_word: bool,
    /// Whether the value ends at the last text before that of the next variable.
    ends_last: bool,
}

/// The reason why a line does not have the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The line does not begin as the format does.
    Lead,
    /// The text after this variable is missing.
    After(usize),
    /// The value of this variable has a space.
    Space(usize),
}

impl LogFormat {
    /// Reads a format: the text of nginx's directive with or without its quotation marks, or the
    /// whole directive.
    ///
    /// # Errors
    ///
    /// A text that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > TEXT_LEN_MAX {
            return Err(format!("invalid format: expected at most {TEXT_LEN_MAX} bytes"));
        }
        let text = unquoted(text)?;
        let (lead, mut rest) = text_before_variable(&text);
        let (lead, mut variables) = (lead.as_bytes().to_vec(), Vec::new());
        let mut opens = lead.ends_with(b"\"");
        while !rest.is_empty() {
            let (name, behind) = variable(rest)?;
            let (after, behind) = text_before_variable(behind);
            if after.is_empty() && !behind.is_empty() {
                return Err(format!(
                    "invalid format: expected a text, such as a space, after ${name}"
                ));
            }
            let after = after.as_bytes().to_vec();
            let quoted = opens && after.starts_with(b"\"");
            opens = after.ends_with(b"\"");
            let is_word = WITHOUT_SPACE.contains(&name);
            let name = name.to_owned();
            variables.push(Variable { name, after, quoted, is_word, ends_last: false });
            rest = behind;
        }
        for at in 1..variables.len() {
            let [variable, next] = &mut variables[at - 1..=at] else { continue };
            let has_end = !variable.quoted && !next.quoted && !next.after.is_empty();
            let is_wide = variable.name.ends_with("user") || variable.after == b":";
            variable.ends_last = has_end && is_wide;
        }
        if variables.is_empty() {
            return Err(
                "invalid format: expected a name such as combined, json or alb, or nginx's \
                 log_format text such as '$remote_addr [$time_local] $status'"
                    .to_owned(),
            );
        }
        if variables.len() > VARIABLES_MAX {
            return Err(format!("invalid format: expected at most {VARIABLES_MAX} variables"));
        }
        Ok(Self { lead, variables })
    }

    /// Returns true if lines of this format have the field, itself or as a part of `$request`.
    pub fn has(&self, name: &str) -> bool {
        Part::of(name, self).is_some()
    }

    /// Returns the text before the first variable.
    pub fn lead(&self) -> &[u8] {
        &self.lead
    }

    /// Returns the name of the last variable.
    pub fn last(&self) -> Option<&str> {
        self.variables.last().map(|variable| variable.name.as_str())
    }

    /// Returns the variables, each with the text after it.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.variables.iter().map(|variable| (variable.name.as_str(), variable.after.as_slice()))
    }

    /// Finds the place of each field in the format.
    ///
    /// # Errors
    ///
    /// A text for the first name that the format does not have.
    pub fn bind(self, names: &Names) -> Result<BoundFormat, String> {
        let mut wanted = vec![Vec::new(); self.variables.len()];
        for (field, name) in names.all() {
            let Some((variable, part)) = Part::of(name, &self) else {
                let known: Vec<_> =
                    self.variables.iter().map(|variable| format!("${}", variable.name)).collect();
                return Err(format!(
                    "the format has no ${name}: expected one of {}; name another with --format",
                    known.join(" ")
                ));
            };
            wanted[variable].push((field, part));
        }
        // Nothing behind the last wanted variable has to be read.
        let len = wanted.iter().rposition(|fields| !fields.is_empty()).map_or(0, |last| last + 1);
        Ok(BoundFormat { len, wanted, fields: names.len(), format: self })
    }
}

/// A log format that knows which fields are wanted.
#[derive(Clone, Debug)]
pub struct BoundFormat {
    format: LogFormat,
    /// The wanted fields in each variable.
    wanted: Vec<Vec<(Field, Part)>>,
    /// The number of variables to read.
    len: usize,
    /// The number of fields.
    fields: usize,
}

/// The part of a variable that a field takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// The method of a request.
    Method,
    /// The requested target.
    Uri,
    /// That without the query and the host.
    Path,
    /// The protocol.
    Protocol,
}

impl Part {
    /// Returns the place of a field in a format: the variable, and its part.
    fn of(name: &str, format: &LogFormat) -> Option<(usize, Self)> {
        let find = |wanted: &str| format.variables.iter().position(|found| found.name == wanted);
        // nginx has a longer name for some parts of the request.
        let (part, short, long) = match name {
            "method" | "request_method" => (Self::Method, "method", "request_method"),
            "uri" | "request_uri" => (Self::Uri, "uri", "request_uri"),
            "protocol" | "server_protocol" => (Self::Protocol, "protocol", "server_protocol"),
            "path" => (Self::Path, "path", "path"),
            name => return find(name).map(|variable| (variable, Self::Whole)),
        };
        if let Some(variable) = find(name).or_else(|| find(short)).or_else(|| find(long)) {
            return Some((variable, Self::Whole));
        }
        if let Some(request) = find("request") {
            return Some((request, part));
        }
        let uri = find("request_uri").or_else(|| find("uri")).filter(|_| part == Self::Path)?;
        Some((uri, Self::Path))
    }

    /// Returns the part's range in a value.
    pub fn range(self, value: &[u8]) -> std::ops::Range<usize> {
        if self == Self::Whole {
            return 0..value.len();
        }
        let first = memchr(b' ', value);
        let last = memrchr(b' ', value).filter(|last| Some(*last) != first);
        let uri = match first {
            Some(first) => first + 1..last.unwrap_or(value.len()),
            // A value without a space is a path alone, as in `$request_uri`.
            None => 0..value.len(),
        };
        match self {
            Self::Whole => 0..value.len(),
            Self::Method => 0..first.unwrap_or(0),
            Self::Uri => uri,
            Self::Path => {
                let text = value.get(uri.clone()).unwrap_or_default();
                let end = uri.start + memchr(b'?', text).unwrap_or(text.len());
                // A load balancer logs `https://host:443/path`.
                let scheme = memchr::memmem::find(text, b"://").filter(|at| *at < 8);
                let host = scheme.and_then(|at| {
                    memchr(b'/', text.get(at + 3..)?).map(|slash| uri.start + at + 3 + slash)
                });
                host.filter(|start| *start < end).unwrap_or(uri.start)..end
            }
            Self::Protocol => last.map_or(value.len(), |last| last + 1)..value.len(),
        }
    }
}

impl BoundFormat {
    /// Reads the wanted fields of a line.
    ///
    /// # Errors
    ///
    /// [`Mismatch`] if the line does not have the format.
    pub fn read(&self, line: &[u8], values: &mut Values) -> Result<(), Mismatch> {
        values.clear(self.fields);
        if !line.starts_with(&self.format.lead) {
            return Err(Mismatch::Lead);
        }
        let mut start = self.format.lead.len();
        let variables = self.format.variables.iter().zip(&self.wanted).take(self.len);
        for (at, (variable, wanted)) in variables.enumerate() {
            let rest = line.get(start..).unwrap_or_default();
            let next = self.format.variables.get(at + 1).filter(|_| variable.ends_last);
            let len = variable.len(rest, next).ok_or(Mismatch::After(at))?;
            let value = rest.get(..len).unwrap_or_default();
            if variable.is_word && value.contains(&b' ') {
                return Err(Mismatch::Space(at));
            }
            for (field, part) in wanted {
                let range = part.range(value);
                values.set(*field, start + range.start..start + range.end);
            }
            start += len + variable.after.len();
        }
        Ok(())
    }

    /// Returns the reason for a mismatch in words.
    pub fn explain(&self, mismatch: Mismatch) -> String {
        let text_of = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        let variable = |at: usize| self.format.variables.get(at);
        match mismatch {
            Mismatch::Lead => format!("expected `{}` at the beginning", text_of(&self.format.lead)),
            Mismatch::After(at) => variable(at).map_or_else(String::new, |variable| {
                format!("expected `{}` after ${}", text_of(&variable.after), variable.name)
            }),
            Mismatch::Space(at) => variable(at).map_or_else(String::new, |variable| {
                format!("expected no space in ${}", variable.name)
            }),
        }
    }
}

impl Variable {
    /// Returns the length of the variable's value at the beginning of `rest`; `None` if the text
    /// after it is missing. With a `next` variable, the value ends at the last such text before
    /// the text after that.
    fn len(&self, rest: &[u8], next: Option<&Self>) -> Option<usize> {
        if self.after.is_empty() {
            let end = if self.is_word { memchr(b' ', rest) } else { None };
            return Some(end.unwrap_or(rest.len()));
        }
        let first = self.first(rest)?;
        let Some(next) = next else { return Some(first) };
        let behind = first + self.after.len();
        let end = behind + next.first(rest.get(behind..)?)?;
        let first_byte = self.after.first()?;
        let (mut last, mut to) = (first, end);
        // Few bytes like the first one stand between the first text and the last.
        while let Some(at) = memrchr(*first_byte, rest.get(behind..to)?) {
            to = behind + at;
            if rest.get(to..end)?.starts_with(&self.after) {
                last = to;
                break;
            }
        }
        Some(last)
    }

    /// Returns the place of the first text after the variable.
    fn first(&self, rest: &[u8]) -> Option<usize> {
        let first = self.after.first()?;
        let mut from = 0;
        loop {
            let at = from + memchr(*first, rest.get(from..)?)?;
            let found = rest.get(at..)?;
            if found.starts_with(&self.after) && !(self.quoted && is_escaped(rest, at)) {
                return Some(at);
            }
            from = at + 1;
        }
    }
}

/// Returns true if the byte at `at` follows an odd number of backslashes.
fn is_escaped(text: &[u8], at: usize) -> bool {
    let before = text.get(..at).unwrap_or_default();
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// Returns the text of a format without the quotation marks of nginx's configuration.
fn unquoted(text: &str) -> Result<String, String> {
    let text = text.trim();
    let directive = text.strip_prefix("log_format ").map(str::trim_start);
    let quoted = match directive {
        // The name of the format, and its option.
        Some(named) => {
            let (_, rest) = named.split_once(char::is_whitespace).unwrap_or((named, ""));
            let rest = rest.trim_start();
            match rest.strip_prefix("escape=") {
                Some(option) => option.split_once(char::is_whitespace).map_or("", |(_, rest)| rest),
                None => rest,
            }
        }
        None if text.starts_with('\'') => text,
        None => return Ok(text.to_owned()),
    };
    let mut joined = String::new();
    let mut rest = quoted.trim_end().trim_end_matches(';').trim();
    while !rest.is_empty() {
        let quote = rest.chars().next().filter(|quote| matches!(quote, '\'' | '"'));
        let parts = quote.and_then(|quote| rest.get(1..)?.split_once(quote));
        let Some((part, behind)) = parts else {
            return Err(
                "invalid format: expected each part of log_format in quotation marks, such \
                        as '$remote_addr [$time_local]'"
                    .to_owned(),
            );
        };
        joined.push_str(part);
        rest = behind.trim_start();
    }
    Ok(joined)
}

/// Splits a text at the first variable.
fn text_before_variable(text: &str) -> (&str, &str) {
    text.split_at(text.find('$').unwrap_or(text.len()))
}

/// Splits a text that begins with a variable: its name, and what follows.
fn variable(text: &str) -> Result<(&str, &str), String> {
    let error = || {
        "invalid format: expected the name of a variable after $, such as $remote_addr".to_owned()
    };
    let name = text.strip_prefix('$').ok_or_else(error)?;
    if let Some(braced) = name.strip_prefix('{') {
        let (name, rest) = braced.split_once('}').ok_or_else(error)?;
        return if is_name(name) { Ok((name, rest)) } else { Err(error()) };
    }
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let len = name.bytes().position(|byte| !is_part(byte)).unwrap_or(name.len());
    if len == 0 { Err(error()) } else { Ok(name.split_at(len)) }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests;
