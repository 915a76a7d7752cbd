//! The fields of a line: the names that the arguments refer to, and their values in one line.

use super::formats::Aliases;
use std::ops::Range;

/// A field that the arguments refer to: an index into [`Names`] and [`Values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Field(usize);

impl Field {
    /// Returns the index.
    pub const fn index(self) -> usize {
        self.0
    }
}

/// The names of the fields that the arguments refer to. Each name has one field.
#[derive(Clone, Debug, Default)]
pub struct Names {
    list: Vec<String>,
    aliases: Aliases,
}

impl Names {
    /// Creates an empty list. A name that is an alias stands for the format's own.
    pub const fn new(aliases: Aliases) -> Self {
        Self { list: Vec::new(), aliases }
    }

    /// Returns the name that the format has for this one.
    pub fn own<'a>(&self, name: &'a str) -> &'a str {
        self.aliases.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, own)| own)
    }

    /// Returns the field with this name. Adds the name if it is new.
    pub fn field(&mut self, name: &str) -> Field {
        let name = self.own(name);
        let known = self.list.iter().position(|known| known == name);
        Field(known.unwrap_or_else(|| {
            self.list.push(name.to_owned());
            self.list.len() - 1
        }))
    }

    /// Returns the name of a field.
    pub fn name(&self, field: Field) -> &str {
        self.list.get(field.0).map_or("", String::as_str)
    }

    /// Returns all names with their fields.
    pub fn all(&self) -> impl Iterator<Item = (Field, &str)> {
        self.list.iter().enumerate().map(|(at, name)| (Field(at), name.as_str()))
    }

    /// Returns the number of names.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns true if there are no names.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// The values of one line, by field. The memory is used again for each line.
#[derive(Debug, Default)]
pub struct Values {
    places: Vec<Place>,
    copies: Vec<u8>,
}

/// The place of a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Place {
    /// The line has no such field.
    #[default]
    Missing,
    /// A part of the line.
    Line(Range<usize>),
    /// A part of the copies.
    Copy(Range<usize>),
}

impl Values {
    /// Removes all values, and makes room for `len` fields.
    pub fn clear(&mut self, len: usize) {
        self.places.clear();
        self.places.resize(len, Place::Missing);
        self.copies.clear();
    }

    /// Sets a value that is a part of the line.
    pub fn set(&mut self, field: Field, range: Range<usize>) {
        if let Some(place) = self.places.get_mut(field.0) {
            *place = Place::Line(range);
        }
    }

    /// Sets a value that is not a part of the line, such as a string with escapes.
    pub fn set_copy(&mut self, field: Field, value: &[u8]) {
        if let Some(place) = self.places.get_mut(field.0) {
            let start = self.copies.len();
            self.copies.extend_from_slice(value);
            *place = Place::Copy(start..self.copies.len());
        }
    }

    /// Returns a value; `None` if the line does not have it.
    pub fn get<'a>(&'a self, line: &'a [u8], field: Field) -> Option<&'a [u8]> {
        match self.places.get(field.0)? {
            Place::Missing => None,
            Place::Line(range) => line.get(range.clone()),
            Place::Copy(range) => self.copies.get(range.clone()),
        }
    }
}
