//! Lines of columns, as CloudFront and IIS write them: a comment, `#Fields:`, names the columns.

use super::fields::{Field, Names, Values};
use memchr::memchr;

/// A reader of columns that knows which fields are wanted.
#[derive(Clone, Debug)]
pub struct Columns {
    wanted: Vec<(Field, String)>,
    /// The wanted field in each column.
    places: Vec<Option<Field>>,
    default: &'static str,
    /// The names that the last comment gave, or the default.
    named: Vec<u8>,
    /// Whether lines were read with these names.
    is_used: bool,
    changed: bool,
}

/// The line has fewer columns than were named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFew;

const FIELDS: &[u8] = b"#Fields:";

impl Columns {
    /// Creates a reader of these fields. The columns are the default ones until a line names
    /// others.
    pub fn new(names: &Names, default: &'static str) -> Self {
        let wanted = names.all().map(|(field, name)| (field, name.to_owned())).collect();
        let (places, named) = (Vec::new(), default.as_bytes().to_vec());
        let mut columns = Self { wanted, places, default, named, is_used: false, changed: false };
        columns.name(default.as_bytes());
        columns
    }

    /// Reads the names of the columns from a comment; does nothing for other comments.
    pub fn comment(&mut self, line: &[u8]) {
        if let Some(names) = line.strip_prefix(FIELDS)
            && self.named.trim_ascii() != names.trim_ascii()
        {
            self.changed |= self.is_used;
            self.named = names.to_vec();
            self.name(names);
        }
    }

    /// Returns to the default columns.
    pub fn forget(&mut self) {
        self.named = self.default.as_bytes().to_vec();
        self.name(self.default.as_bytes());
        (self.is_used, self.changed) = (false, false);
    }

    /// Returns true if other columns were named after lines were read.
    pub const fn changed(&self) -> bool {
        self.changed
    }

    fn name(&mut self, names: &[u8]) {
        let names = names.split(u8::is_ascii_whitespace).filter(|name| !name.is_empty());
        let field = |name: &[u8]| {
            let wanted = self.wanted.iter().find(|(_, wanted)| wanted.as_bytes() == name);
            wanted.map(|(field, _)| *field)
        };
        self.places = names.map(field).collect();
    }

    /// Reads the wanted fields of a line. A line with a tab is separated by tabs.
    ///
    /// # Errors
    ///
    /// [`TooFew`] if the line has fewer columns than were named.
    pub fn read(&mut self, line: &[u8], values: &mut Values) -> Result<(), TooFew> {
        values.clear(self.wanted.len());
        self.is_used = true;
        let separator = if memchr(b'\t', line).is_some() { b'\t' } else { b' ' };
        let mut start = 0;
        for (at, field) in self.places.iter().enumerate() {
            let rest = line.get(start..).ok_or(TooFew)?;
            let len = memchr(separator, rest);
            if len.is_none() && at + 1 < self.places.len() {
                return Err(TooFew);
            }
            let end = start + len.unwrap_or(rest.len());
            if let Some(field) = field {
                values.set(*field, start..end);
            }
            start = end + 1;
        }
        Ok(())
    }
}
