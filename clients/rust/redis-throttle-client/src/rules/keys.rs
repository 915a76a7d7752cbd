//! Keys: `prefix:rule:subject`, encoded so that no two subjects share a key.
//!
//! `%`, `:`, `{`, `}`, space and control characters of a subject are percent-encoded. An encoded
//! subject longer than 128 bytes is replaced by a colon and a hash. With a secret, every subject is
//! replaced in this way. No other encoded subject begins with a colon.

use std::fmt::Write;
use std::sync::OnceLock;

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::{Error, HashTag};

const BYTES_MAX: usize = 128;
/// The bytes to reserve for the braces and colons between the parts of a key.
const SIGNS_BYTES: usize = 8;
const SECRET_BYTES_MIN: usize = 16;
const KEY_HASH_BYTES: usize = 8;

fn is_encoded(char: char) -> bool {
    matches!(char, '%' | ':' | '{' | '}' | ' ' | '\0'..='\x1f' | '\x7f')
}

/// Builds the keys of one limiter.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    /// The prefix with its colon; empty without a prefix.
    prefix: String,
    hash_tag: Option<HashTag>,
    secret: Option<Hmac<Sha256>>,
}

impl Keys {
    pub fn new(
        prefix: &str,
        hash_tag: Option<HashTag>,
        secret: Option<&[u8]>,
    ) -> Result<Self, Error> {
        if prefix.contains(|char| is_encoded(char) && char != ':' && char != '%') {
            let expected = "expected no braces, spaces or control characters";
            return Err(Error::invalid("prefix", expected));
        }
        if secret.is_some_and(|secret| secret.len() < SECRET_BYTES_MIN) {
            return Err(Error::invalid("hmac_secret", "expected at least 16 bytes"));
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}:") };
        Ok(Self { prefix, hash_tag, secret: secret.map(keyed_by) })
    }

    /// Returns the key of a subject under a rule, with `tag` as the hash tag for a cluster.
    pub fn key(&self, rule: &str, subject: &str, tag: Option<&str>) -> Result<String, Error> {
        let around = rule.len() + tag.map_or(0, str::len) + SIGNS_BYTES;
        let mut key = String::with_capacity(self.prefix.len() + around + subject.len());
        key.push_str(&self.prefix);
        if let Some(tag) = tag {
            key.push('{');
            self.encode(tag, "tag", &mut key)?;
            key.push_str("}:");
        }
        rule.split(':').enumerate().for_each(|(at, part)| {
            if at > 0 {
                key.push_str("%3A");
            }
            key.push_str(part);
        });
        key.push(':');
        let tagged = tag.is_none() && self.hash_tag == Some(HashTag::Subject);
        if tagged {
            key.push('{');
        }
        self.encode(subject, "subject", &mut key)?;
        if tagged {
            key.push('}');
        }
        Ok(key)
    }

    /// Appends a subject or a tag to `into`, encoded as a part of a key.
    fn encode(&self, text: &str, argument: &'static str, into: &mut String) -> Result<(), Error> {
        if text.is_empty() {
            return Err(Error::invalid(argument, "expected a text that is not empty"));
        }
        if self.secret.is_some() {
            into.push(':');
            into.push_str(&self.digest(text));
            return Ok(());
        }
        let began = into.len();
        for char in text.chars() {
            if is_encoded(char) {
                let _ = write!(into, "%{:02X}", char as u32);
            } else {
                into.push(char);
            }
        }
        if into.len() - began > BYTES_MAX {
            into.truncate(began);
            into.push(':');
            into.push_str(&self.digest(text));
        }
        Ok(())
    }

    /// Returns the SHA-256 of the text as 64 hexadecimal digits, or its HMAC if there is a secret.
    fn digest(&self, text: &str) -> String {
        match &self.secret {
            Some(secret) => hex(hmac(secret, text).as_ref()),
            None => hex(&Sha256::digest(text)),
        }
    }

    /// Returns the first 16 hexadecimal digits of the subject's HMAC, for logs and metrics. Without
    /// a secret, its key is a random one of this process: a plain hash of an address is reversed by
    /// trying every address.
    pub fn key_hash(&self, subject: &str) -> String {
        let secret = self.secret.as_ref().unwrap_or_else(|| of_process());
        hex(&hmac(secret, subject).as_ref()[..KEY_HASH_BYTES])
    }
}

fn keyed_by(secret: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(secret).expect("a key of any length")
}

/// Returns the random key of this process.
fn of_process() -> &'static Hmac<Sha256> {
    static KEY: OnceLock<Hmac<Sha256>> = OnceLock::new();
    KEY.get_or_init(|| {
        keyed_by(&[Uuid::new_v4().into_bytes(), Uuid::new_v4().into_bytes()].concat())
    })
}

fn hmac(secret: &Hmac<Sha256>, text: &str) -> impl AsRef<[u8]> {
    secret.clone().chain_update(text).finalize().into_bytes()
}

/// Returns hexadecimal digits. Each event needs some, and `format!` takes longer than the hash.
fn hex(bytes: &[u8]) -> String {
    let digit = |four_bits: u8| char::from_digit(four_bits.into(), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect()
}
