//! `SLOTS`: valid numbers, and the errors of invalid ones.

use crate::algorithms::sliding_log::SlidingLog;
use crate::algorithms::{Algorithm, Rule};
use crate::bounds::{Cost, Limit, Period, Slots};
use crate::call::CallOptions;
use crate::grammar::error::GrammarError;
use crate::grammar::packed::packed_rule;
use crate::grammar::request::{AnyRequest, Request};
use crate::grammar::rule::request;
use crate::grammar::tests::words;
use crate::time::Span;

#[test]
fn sliding_log_takes_its_slots_in_any_order() {
    let rule = |slots, has_own_slots, cost, partial| {
        let (limit, window) =
            (Limit::new(100).unwrap(), Period::new(Span::from_ms(16_000)).unwrap());
        let slots = Slots::new(slots).unwrap();
        let rule = Rule::SlidingLog(SlidingLog { limit, window, slots, has_own_slots });
        Request {
            rule,
            options: CallOptions { cost: Cost::new(cost).unwrap(), partial, leave: None },
        }
    };
    let rows = [
        ("100 16", rule(64, false, 1, false)),
        ("100 16 COST 2", rule(64, false, 2, false)),
        ("100 16 SLOTS 16", rule(16, true, 1, false)),
        ("100 16 slots 64", rule(64, true, 1, false)),
        ("100 16 COST 2 SLOTS 065536 PARTIAL", rule(65_536, true, 2, true)),
        ("100 16 SLOTS 1024 PARTIAL COST 0003", rule(1_024, true, 3, true)),
    ];
    let of_setting = Slots::new(64).unwrap();
    for (text, expected) in rows {
        let read = request(Algorithm::SlidingLog, &words(text), of_setting);
        assert_eq!(read, Ok(expected), "{text}");
        let packed = format!("slidinglog {text}");
        let read = packed_rule(packed.as_bytes(), of_setting);
        assert_eq!(read, Ok(AnyRequest::Units(expected)), "{text}");
        // The setting changes only rules without their own slots.
        let other = Slots::new(32).unwrap();
        let changed = expected.rule.with_slots(other);
        let reread = request(Algorithm::SlidingLog, &words(text), other).map(|read| read.rule);
        assert_eq!(Ok(changed), reread, "{text}");
        assert_eq!(changed == expected.rule, text.to_lowercase().contains("slots"), "{text}");
    }
}

#[test]
fn slots_have_errors_of_their_own_and_belong_to_the_sliding_log() {
    use Algorithm::{Backoff, CalendarQuota, FixedWindow, Gcra, SlidingLog, SlidingWindow};
    let rows = [
        (SlidingLog, "6 10 SLOTS 16 PARTIAL COST 0", GrammarError::PartialOfNothing),
        (SlidingLog, "6 10 SLOTS", GrammarError::MissingSlots),
        (SlidingLog, "6 10 COST 1 SLOTS", GrammarError::MissingSlots),
        (SlidingLog, "6 10 SLOTS 15", GrammarError::Slots),
        (SlidingLog, "6 10 SLOTS 65537", GrammarError::Slots),
        (SlidingLog, "6 10 SLOTS 4294967312", GrammarError::Slots),
        (SlidingLog, "6 10 SLOTS 99999999999999999999", GrammarError::Slots),
        (SlidingLog, "6 10 SLOTS +16", GrammarError::Slots),
        (SlidingLog, "6 10 SLOTS COST 1", GrammarError::Slots),
        (SlidingLog, "6 10 SLOTS 16 slots 16", GrammarError::RepeatedSlots),
        (SlidingLog, "6 10 SLOTS 16 COST 1 COST 1", GrammarError::RepeatedCost),
        (SlidingLog, "6 10 SLOT 16", GrammarError::OptionOfLog),
        (SlidingWindow, "6 10 SLOTS 16", GrammarError::Option),
        (FixedWindow, "6 10 SLOTS 16", GrammarError::OptionOrAligned),
        (Gcra, "6 10 60 SLOTS 16", GrammarError::Option),
        (CalendarQuota, "6 day SLOTS 16", GrammarError::OptionOfQuota),
        (Backoff, "3 1s 8s 1h SLOTS 16", GrammarError::NoOption),
        (SlidingLog, "6 10 ALIGNED", GrammarError::OptionOfLog),
    ];
    for (algorithm, text, expected) in rows {
        let read = request(algorithm, &words(text), Slots::DEFAULT);
        assert_eq!(read, Err(expected), "{algorithm:?} {text}");
    }
}
