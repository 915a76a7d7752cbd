//! What a policy is called, and its variants.
//!
//! `search` is a policy, `search@plan:gold` its variant `plan:gold`. Neither part can hold the `@`
//! between them, so that a whole name says which policy it belongs to.

/// The name of a policy, or that of a variant: 1 to 64 of `A-Z a-z 0-9 . _ : / -`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// The longest name.
    pub const LEN_MAX: usize = 64;

    /// The name that `bytes` are; `None` when they are none.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let fits = (1..=Self::LEN_MAX).contains(&bytes.len());
        (fits && bytes.iter().all(|byte| is_in_a_name(*byte))).then_some(Self(bytes))
    }

    /// Its bytes, which are ASCII.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

const fn is_in_a_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'/' | b'-')
}

/// Between a policy and its variant.
const SEPARATOR: u8 = b'@';

/// The name of a policy and perhaps of a variant of it, as the table knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FullName {
    bytes: [u8; Self::LEN_MAX],
    len: u8,
    base_len: u8,
}

impl FullName {
    /// The longest.
    pub const LEN_MAX: usize = 2 * Name::LEN_MAX + 1;

    /// A policy itself, or a variant of it.
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

    /// The name that is written as `bytes`; `None` when it is none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut parts = bytes.splitn(2, |byte| *byte == SEPARATOR).map(Name::new);
        let policy = parts.next()??;
        match parts.next() {
            None => Some(Self::new(policy, None)),
            Some(variant) => Some(Self::new(policy, Some(variant?))),
        }
    }

    /// How it is written.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len.into()).unwrap_or_default()
    }

    /// The policy's part of it.
    pub fn policy(&self) -> &[u8] {
        self.bytes.get(..self.base_len.into()).unwrap_or_default()
    }

    /// The same as a text.
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
