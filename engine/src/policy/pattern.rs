//! Patterns of names, as `KEYS` takes them: `*`, `?`, `[abc]`, `[a-z]`, `[^a]`, and `\` before a
//! literal byte.

/// A pattern that is short enough to be matched against all names.
#[derive(Clone, Copy, Debug)]
pub struct Pattern<'a>(&'a [u8]);

impl<'a> Pattern<'a> {
    /// The largest length in bytes.
    pub const LEN_MAX: usize = 256;

    /// The pattern that matches every name.
    pub const ANY: Pattern<'static> = Pattern(b"*");

    /// Returns the pattern in `bytes`; `None` if they are too long.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        (bytes.len() <= Self::LEN_MAX).then_some(Self(bytes))
    }

    /// Returns true if the whole name matches. Takes at most as many steps as the product of both
    /// lengths: of several `*`, only the last one is retried.
    pub fn matches(self, name: &[u8]) -> bool {
        let (mut pattern, mut rest) = (self.0, name);
        // The pattern after the last `*`, and the bytes that this `*` has not matched.
        let mut retry: Option<(&[u8], &[u8])> = None;
        loop {
            if let [b'*', after @ ..] = pattern {
                retry = Some((after, rest));
                pattern = after;
                continue;
            }
            match (one(pattern, rest), rest) {
                (Some(after), [_, later @ ..]) => (pattern, rest) = (after, later),
                _ if pattern.is_empty() && rest.is_empty() => return true,
                _ => {
                    let Some((after, [_, later @ ..])) = retry else { return false };
                    retry = Some((after, later));
                    (pattern, rest) = (after, later);
                }
            }
        }
    }
}

/// Returns the rest of a pattern if its first part matches the first byte of `name`.
fn one<'a>(pattern: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let byte = *name.first()?;
    match pattern {
        [b'?', after @ ..] => Some(after),
        [b'[', b'^', set @ ..] => {
            in_set(set, byte).and_then(|(is_in, after)| (!is_in).then_some(after))
        }
        [b'[', set @ ..] => in_set(set, byte).and_then(|(is_in, after)| is_in.then_some(after)),
        [b'\\', literal, after @ ..] | [literal, after @ ..] => (*literal == byte).then_some(after),
        [] => None,
    }
}

/// Returns true if `byte` is in the set that `set` starts with, and returns the pattern after that
/// set. A set without `]` ends with the pattern.
fn in_set(mut set: &[u8], byte: u8) -> Option<(bool, &[u8])> {
    let mut is_in = false;
    loop {
        match set {
            [] => return Some((is_in, set)),
            [b']', after @ ..] => return Some((is_in, after)),
            [b'\\', literal, after @ ..] => {
                is_in |= *literal == byte;
                set = after;
            }
            [first, b'-', last, after @ ..] if *last != b']' => {
                is_in |= (*first.min(last)..=*first.max(last)).contains(&byte);
                set = after;
            }
            [literal, after @ ..] => {
                is_in |= *literal == byte;
                set = after;
            }
        }
    }
}
