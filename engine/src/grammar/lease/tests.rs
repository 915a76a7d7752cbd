//! The grammar of leases, valid and invalid.

use crate::bounds::{Leave, Limit, Slots};
use crate::grammar::lease::*;
use crate::grammar::packed::packed_rule;
use crate::grammar::request::AnyRequest;
use crate::grammar::rule::{rule, rule_with_cost};
use crate::grammar::tests::words;
use crate::leases::Lease;
use crate::time::Span;

#[test]
fn lease_takes_an_id_a_limit_a_ttl_and_leave() {
    let long = "i".repeat(129);
    let leaving = |id, limit, ttl_us, leave| {
        let limit = Limit::new(limit).unwrap();
        let ttl = Period::new(Span::from_us(ttl_us)).unwrap();
        Ok(LeaseRequest { id, rule: Lease { limit, ttl }, leave })
    };
    let lease_of = |id, limit, ttl_us| leaving(id, limit, ttl_us, None);
    let half = Some(Leave::Percent(50));
    let rows: [(&str, Result<LeaseRequest<'_>, GrammarError>); 20] = [
        ("job-1 3 60s", lease_of(b"job-1", 3, 60_000_000)),
        ("\0\u{fe} 1 1ms", lease_of("\0\u{fe}".as_bytes(), 1, 1_000)),
        ("COST 1000000 366d", lease_of(b"COST", 1_000_000, 31_622_400_000_000)),
        ("job-1 3", Err(GrammarError::Arity)),
        ("", Err(GrammarError::Arity)),
        // The first error from the left.
        (" 0 0", Err(GrammarError::LeaseId)),
        (&format!("{long} 0 0"), Err(GrammarError::LeaseId)),
        ("job-1 0 0 COST", Err(GrammarError::LeaseLimit)),
        ("job-1 1000001 0", Err(GrammarError::LeaseLimit)),
        ("job-1 1.0 60", Err(GrammarError::LeaseLimit)),
        ("job-1 3 0 COST", Err(GrammarError::Ttl)),
        ("job-1 3 367d", Err(GrammarError::Ttl)),
        ("job-1 3 60 COST 1", Err(GrammarError::LeaseOption)),
        ("job-1 3 60 PARTIAL", Err(GrammarError::LeaseOption)),
        ("job-1 3 60 x", Err(GrammarError::LeaseOption)),
        ("job-1 3 60 leave 050%", leaving(b"job-1", 3, 60_000_000, half)),
        ("job-1 3 60 LEAVE", Err(GrammarError::MissingLeave)),
        ("job-1 3 60 LEAVE 101%", Err(GrammarError::Leave)),
        ("job-1 3 60 LEAVE 1 LEAVE 1", Err(GrammarError::RepeatedLeave)),
        ("job-1 3 60 LEAVE 1 COST 1", Err(GrammarError::LeaseOption)),
    ];
    for (text, expected) in rows {
        assert_eq!(lease(&words(text)), expected, "{text}");
        // A lease may stand in place of any rule, except in a charge or a refund.
        let named = [&[&b"leASE"[..]], words(text).as_slice()].concat();
        assert_eq!(rule(&named, Slots::DEFAULT), expected.map(AnyRequest::Lease), "{text}");
        assert_eq!(
            rule_with_cost(&named, Slots::DEFAULT),
            Err(GrammarError::LeaseNotHere),
            "{text}"
        );
        // In a rule that is passed as one argument, no word contains a space and no word is empty.
        let packed = match expected {
            Err(GrammarError::Arity) => Err(GrammarError::LeaseArity),
            Err(GrammarError::LeaseId) if text.starts_with(' ') => Err(GrammarError::LeaseArity),
            expected => expected.map(AnyRequest::Lease),
        };
        let rule = format!("  Lease  {text} ");
        assert_eq!(packed_rule(rule.as_bytes(), Slots::DEFAULT), packed, "{text}");
    }
    assert!(lease(&[&[b'i'; 128], b"1", b"1"]).is_ok());
}

#[test]
fn renew_takes_an_id_and_a_ttl_and_release_takes_only_an_id() {
    let minute = Period::new(Span::from_us(60_000_000)).unwrap();
    assert_eq!(renew(&words("job-1 60")), Ok((&b"job-1"[..], minute)));
    assert_eq!(renew(&words("job-1")), Err(GrammarError::Arity));
    assert_eq!(renew(&words("job-1 60 3")), Err(GrammarError::Arity));
    assert_eq!(renew(&words(" 0")), Err(GrammarError::LeaseId));
    assert_eq!(renew(&words("job-1 0")), Err(GrammarError::Ttl));
    assert_eq!(release(&words("job-1")), Ok(&b"job-1"[..]));
    assert_eq!(release(&words("")), Err(GrammarError::LeaseId));
    assert_eq!(release(&words("job-1 60")), Err(GrammarError::Arity));
}
