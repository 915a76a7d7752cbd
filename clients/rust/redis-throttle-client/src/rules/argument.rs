//! Checks of the arguments of rules and options.

use crate::Error;

/// The largest number of units of a rule.
pub(crate) const UNITS_MAX: u64 = 1_000_000_000_000;
/// The maximum number of permits that one call fetches.
pub(crate) const PREFETCH_MAX: u64 = 10_000;

/// Returns an error unless this number of permits can be fetched at once.
pub(crate) fn checked_prefetch(permits: u64) -> Result<(), Error> {
    units(permits, "prefetch", PREFETCH_MAX).map(drop)
}

/// Returns the number as text, if the server accepts it.
pub(crate) fn units(value: u64, argument: &'static str, most: u64) -> Result<String, Error> {
    if (1..=most).contains(&value) {
        return Ok(value.to_string());
    }
    Err(Error::invalid(argument, format!("expected an integer from 1 to {most}")))
}

/// Returns an error unless the text is a name of a rule or a policy.
pub(crate) fn checked_name(name: &str, argument: &'static str) -> Result<(), Error> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/-".contains(&byte);
    if (1..=64).contains(&name.len()) && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(Error::invalid(argument, "expected 1 to 64 of A-Z a-z 0-9 . _ : / -"))
}
