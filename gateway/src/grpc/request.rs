//! Reads a request, within bounds.

use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;

use crate::config::Unit;
use crate::decider::Hits;
use crate::matching::{Descriptor, OwnLimit};

const DESCRIPTORS_MAX: usize = 64;
const ENTRIES_MAX: usize = 16;
const DOMAIN_BYTES_MAX: usize = 255;
const KEY_BYTES_MAX: usize = 256;
/// More than Envoy takes in all header fields by default, 60 KiB: its client chooses values.
const VALUE_BYTES_MAX: usize = 64 * 1024;

/// The reason that the descriptors of a request are not read.
#[derive(Debug)]
pub(super) enum Unread {
    /// The request exceeds a bound, which its sender's client may have brought about.
    TooLarge,
    /// A limit in a descriptor has no known unit.
    UnknownUnit,
}

/// Returns the descriptors of a request.
pub(super) fn descriptors(request: &RateLimitRequest) -> Result<Vec<Descriptor<'_>>, Unread> {
    if request.domain.len() > DOMAIN_BYTES_MAX || request.descriptors.len() > DESCRIPTORS_MAX {
        return Err(Unread::TooLarge);
    }
    request.descriptors.iter().map(descriptor).collect()
}

fn descriptor(one: &RateLimitDescriptor) -> Result<Descriptor<'_>, Unread> {
    if one.entries.len() > ENTRIES_MAX {
        return Err(Unread::TooLarge);
    }
    let mut entries = Vec::with_capacity(one.entries.len());
    for entry in &one.entries {
        if entry.key.len() > KEY_BYTES_MAX || entry.value.len() > VALUE_BYTES_MAX {
            return Err(Unread::TooLarge);
        }
        entries.push((entry.key.as_str(), entry.value.as_str()));
    }
    let limit = match &one.limit {
        None => None,
        Some(limit) => {
            let unit = unit(limit.unit).ok_or(Unread::UnknownUnit)?;
            Some(OwnLimit { requests: limit.requests_per_unit, unit })
        }
    };
    Ok(Descriptor { entries, limit })
}

fn unit(number: i32) -> Option<Unit> {
    match RateLimitUnit::try_from(number).ok()? {
        RateLimitUnit::Unknown => None,
        RateLimitUnit::Second => Some(Unit::Second),
        RateLimitUnit::Minute => Some(Unit::Minute),
        RateLimitUnit::Hour => Some(Unit::Hour),
        RateLimitUnit::Day => Some(Unit::Day),
        RateLimitUnit::Month => Some(Unit::Month),
        RateLimitUnit::Year => Some(Unit::Year),
    }
}

/// Returns the hits of a descriptor: its own, else those of the request, of which 0 is unset.
pub(super) fn hits(request: &RateLimitRequest, descriptor: &RateLimitDescriptor) -> Hits {
    let own = descriptor.hits_addend.as_ref().map(|hits| hits.value);
    let given = own.or(Some(request.hits_addend).filter(|hits| *hits > 0).map(u64::from));
    match (given, descriptor.is_negative_hits) {
        (hits, true) => Hits::Back(hits.unwrap_or(1)),
        (Some(hits), false) => Hits::Given(hits),
        (None, false) => Hits::Unset,
    }
}

/// Reads a `grpc-timeout`: up to 8 digits and a unit.
pub(super) fn patience(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_read_as_grpc_writes_it() {
        let ms = |ms| Some(Duration::from_millis(ms));
        let table = [
            ("20m", ms(20)),
            ("1S", ms(1000)),
            ("2M", ms(120_000)),
            ("1H", ms(3_600_000)),
            ("20000u", ms(20)),
            ("99999999n", Some(Duration::from_nanos(99_999_999))),
            ("", None),
            ("m", None),
            ("+1m", None),
            ("20", None),
            ("123456789m", None),
            ("1ä", None),
        ];
        for (text, expected) in table {
            assert_eq!(patience(text), expected, "{text}");
        }
    }
}
