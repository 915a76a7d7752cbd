//! Lines of JSON: one object a line, of which the wanted fields are read. A field of an object in
//! the object is named with a point, such as `request.remote_ip`.

use super::fields::{Field, Names, Values};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// The most names in the name of a field, such as the two of `request.remote_ip`. Each one is an
/// object in an object, which is read by recursion.
pub const DEPTH_MAX: usize = 16;

/// A reader of JSON lines that knows which fields are wanted.
#[derive(Clone, Debug)]
pub struct JsonLines {
    wanted: Vec<(Field, String)>,
}

/// The line is not a JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnObject;

impl JsonLines {
    /// Creates a reader of these fields.
    pub fn new(names: &Names) -> Self {
        Self { wanted: names.all().map(|(field, name)| (field, name.to_owned())).collect() }
    }

    /// Reads the wanted fields of a line. The value of `null` is empty, that of a
    /// number, an array or an object is its text.
    ///
    /// # Errors
    ///
    /// [`NotAnObject`] if the line is not one object.
    pub fn read(&self, line: &[u8], values: &mut Values) -> Result<(), NotAnObject> {
        values.clear(self.wanted.len());
        let mut deserializer = serde_json::Deserializer::from_slice(line);
        let object = Object { wanted: &self.wanted, prefix: "", values };
        object.deserialize(&mut deserializer).map_err(|_| NotAnObject)?;
        deserializer.end().map_err(|_| NotAnObject)
    }
}

/// An object, and the names of the objects around it.
struct Object<'a> {
    wanted: &'a [(Field, String)],
    /// The beginning of the names of this object's fields: empty, or such as `request.`.
    prefix: &'a str,
    values: &'a mut Values,
}

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Object { wanted, prefix, values } = self;
        while let Some(name) = map.next_key_seed(Name { wanted, prefix })? {
            let (field, inner) = match name {
                Found::Nothing => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                Found::Names { field, inner } => (field, inner),
            };
            let value = map.next_value::<&RawValue>()?.get();
            if let Some(field) = field {
                set(values, field, value).map_err(A::Error::custom)?;
            }
            if let Some(prefix) = inner.filter(|_| value.starts_with('{')) {
                let mut inner = serde_json::Deserializer::from_str(value);
                let object = Object { wanted, prefix, values: &mut *values };
                object.deserialize(&mut inner).map_err(A::Error::custom)?;
            }
        }
        Ok(())
    }
}

/// The name of a field in an object.
struct Name<'a> {
    wanted: &'a [(Field, String)],
    prefix: &'a str,
}

/// The wanted fields with a name.
enum Found<'a> {
    /// No field.
    Nothing,
    /// The field of that name, and the beginning of the names of fields inside it.
    Names { field: Option<Field>, inner: Option<&'a str> },
}

impl<'de, 'a> DeserializeSeed<'de> for Name<'a> {
    type Value = Found<'a>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Name<'a> {
    type Value = Found<'a>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Found<'a>, E> {
        let (mut field, mut inner) = (None, None);
        for (wanted, full) in self.wanted {
            let Some(rest) = full.strip_prefix(self.prefix) else { continue };
            match rest.strip_prefix(name) {
                Some("") => field = Some(*wanted),
                Some(rest) if rest.starts_with('.') => {
                    inner = full.get(..full.len() - rest.len() + 1);
                }
                _ => {}
            }
        }
        let is_wanted = field.is_some() || inner.is_some();
        Ok(if is_wanted { Found::Names { field, inner } } else { Found::Nothing })
    }
}

/// Sets a value from its JSON text.
///
/// # Errors
///
/// The error of a string that is not valid Unicode, such as one with half a surrogate pair.
fn set(values: &mut Values, field: Field, text: &str) -> serde_json::Result<()> {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    match inner {
        _ if text == "null" => values.set_copy(field, b""),
        None => values.set_copy(field, text.as_bytes()),
        Some(plain) if !plain.contains('\\') => values.set_copy(field, plain.as_bytes()),
        Some(_) => {
            // Only strings with escapes are copied once more.
            let unescaped = serde_json::from_str::<String>(text)?;
            values.set_copy(field, unescaped.as_bytes());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(names: &[&str], line: &str) -> Result<Vec<Option<String>>, NotAnObject> {
        let mut known = Names::default();
        let fields: Vec<_> = names.iter().map(|name| known.field(name)).collect();
        let mut values = Values::default();
        JsonLines::new(&known).read(line.as_bytes(), &mut values)?;
        let text = |field: &Field| {
            let value = values.get(line.as_bytes(), *field)?;
            Some(String::from_utf8_lossy(value).into_owned())
        };
        Ok(fields.iter().map(text).collect())
    }

    #[test]
    fn fields_of_objects_in_objects_are_read_by_their_path() {
        let line = r#"{"ts":1.5,"request":{"ip":"::1","tls":{"v":2}},"ip":"x\u0041","n":null}"#;
        let names = ["ts", "request.ip", "request.tls.v", "ip", "n", "missing"];
        let text = |text: &str| Some(text.to_owned());
        let expected = [text("1.5"), text("::1"), text("2"), text("xA"), text(""), None];
        assert_eq!(read(&names, line).unwrap(), expected);
    }

    #[test]
    fn lines_that_are_not_one_object_are_refused() {
        for line in ["", "[]", "7", "{\"a\":1", "{\"a\":1} x", "{\"a\" 1}", "\u{0}"] {
            assert_eq!(read(&["a"], line), Err(NotAnObject), "{line}");
        }
    }

    #[test]
    fn lines_with_half_a_surrogate_pair_in_a_wanted_string_are_refused() {
        for line in [r#"{"a":"\ud800"}"#, r#"{"o":{"b":"\udc00x"}}"#] {
            assert_eq!(read(&["a", "o.b"], line), Err(NotAnObject), "{line}");
        }
        let whole = read(&["a"], r#"{"a":"\ud83d\ude00"}"#).unwrap();
        assert_eq!(whole, [Some("\u{1f600}".to_owned())]);
    }

    #[test]
    fn values_nested_a_hundred_thousand_times_are_read_without_recursion() {
        let nested = |open: &str, close: &str| {
            format!("{{\"a\":{}1{}}}", open.repeat(100_000), close.repeat(100_000))
        };
        assert!(read(&["a"], &nested("[", "]")).is_ok_and(|values| values[0].is_some()));
        assert!(read(&["b"], &nested("{\"a\":", "}")).is_ok_and(|values| values[0].is_none()));
    }
}
