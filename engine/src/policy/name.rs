//! The names of policies and their variants.
//!
//! `search` is a policy, `search@plan:gold` its variant `plan:gold`. Neither part may contain `@`,
//! so a full name determines its policy.

/// The name of a policy, or that of a variant: 1 to 64 characters of `A-Z a-z 0-9 . _ : / -`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// The largest length in bytes.
    pub const LEN_MAX: usize = 64;

    /// Returns the name in `bytes`; `None` if it is invalid.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let fits = (1..=Self::LEN_MAX).contains(&bytes.len());
        (fits && bytes.iter().all(|byte| is_in_a_name(*byte))).then_some(Self(bytes))
    }

    /// Returns the bytes, which are ASCII.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

const fn is_in_a_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'/' | b'-')
}

/// The byte between a policy and its variant.
const SEPARATOR: u8 = b'@';

/// The name of a policy, or of a policy and a variant, as the table stores them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FullName {
    bytes: [u8; Self::LEN_MAX],
    len: u8,
    base_len: u8,
}

impl FullName {
    /// The largest length in bytes.
    pub const LEN_MAX: usize = 2 * Name::LEN_MAX + 1;

    /// Makes the name of a policy, or of a variant of it.
    pub fn new(policy: Name<'_>, variant: Option<Name<'_>>) -> Self {
        let mut name = Self { bytes: [0; Self::LEN_MAX], len: 0, base_len: 0 };
        name.append(policy.as_bytes());
        name.base_len = name.len;
        if let Some(variant) = variant {
            name.append(&[SEPARATOR]);
            name.append(variant.as_bytes());
        }
        name
    }

    /// Parses a name; `None` if it is invalid.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut parts = bytes.splitn(2, |byte| *byte == SEPARATOR).map(Name::new);
        let policy = parts.next()??;
        match parts.next() {
            None => Some(Self::new(policy, None)),
            Some(variant) => Some(Self::new(policy, Some(variant?))),
        }
    }

    /// Returns the name as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len.into()).unwrap_or_default()
    }

    /// Returns the policy's part of the name.
    pub fn policy(&self) -> &[u8] {
        self.bytes.get(..self.base_len.into()).unwrap_or_default()
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        // A name is ASCII.
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    fn append(&mut self, part: &[u8]) {
        let start = usize::from(self.len);
        let end = start + part.len();
        // There is room: both parts are names.
        if let Some(place) = self.bytes.get_mut(start..end) {
            place.copy_from_slice(part);
            self.len = end as u8;
        }
    }
}
