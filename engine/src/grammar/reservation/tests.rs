//! The grammar of reservations: in words, in one argument, and where they are refused.

use super::*;
use crate::bounds::{Cost, Leave};
use crate::grammar::lease::lease;
use crate::grammar::packed::packed_rule;
use crate::grammar::policy::assignment;
use crate::grammar::rule::{rule, rule_with_cost};
use crate::grammar::tests::words;
use proptest::prelude::*;

const SLOTS: Slots = Slots::DEFAULT;

/// Rules after an id and a ttl, with the cost and the units to leave.
fn rules() -> [(&'static str, Option<u64>, Option<Leave>); 12] {
    let units = |units| Leave::Units(Cost::new(units).expect("in range"));
    [
        ("FIXED 10 60", None, None),
        ("fixed 10 1m ALIGNED COST 4", Some(4), None),
        ("FIXED 10 60 LEAVE 20% COST 1", Some(1), Some(Leave::Percent(20))),
        ("QUOTA 10 month", None, None),
        ("QUOTA 10 week ZONE Europe/Berlin START mon COST 0 LEAVE 3", Some(0), Some(units(3))),
        ("USE tokens", None, None),
        ("use tokens COST 7", Some(7), None),
        ("USE COST COST 7", Some(7), None),
        ("USE tokens FOR tenant:acme FOR plan:gold LEAVE 2", None, Some(units(2))),
        ("USE tokens COST 2 DEFAULT FIXED 10 60 ALIGNED", Some(2), None),
        ("USE tokens DEFAULT QUOTA 9 week ZONE UTC START sun", None, None),
        // Only the table of policies can report that this rule does not support reservations.
        ("USE tokens DEFAULT GCRA 6 10 60", None, None),
    ]
}

#[test]
fn reservation_takes_a_rule_or_a_policy_with_options() {
    for (text, cost, leave) in rules() {
        let line = format!("job-7 30s {text}");
        let request = hold(&words(&line), SLOTS).expect(text);
        assert_eq!(request.id, b"job-7", "{text}");
        let Hold { ttl, cost: held, leave: left, is_shadow } = request.hold;
        assert_eq!((ttl.as_us(), held.units()), (30_000_000, cost.unwrap_or(1)), "{text}");
        assert_eq!((left, is_shadow), (leave, false), "{text}");
        let by_policy = matches!(request.source, RuleSource::Policy(_));
        assert_eq!(by_policy, text[..3].eq_ignore_ascii_case("use"), "{text}");
        let packed = format!("RESERVE {line}");
        assert_eq!(packed_hold(packed.as_bytes(), SLOTS), Ok(request), "{text}");
        let step = reservation(ReservationVerb::Reserve, &words(&line), SLOTS).map(|all| all.step);
        assert_eq!(step, Ok(Step::Reserve(request.hold)), "{text}");
    }
}

#[test]
fn commit_keeps_whether_its_cost_is_given_and_neither_end_takes_leave() {
    for (text, cost, leave) in rules() {
        let line = format!("job-7 {text}");
        for verb in [ReservationVerb::Commit, ReservationVerb::Cancel] {
            let request = reservation(verb, &words(&line), SLOTS);
            if leave.is_some() {
                assert_eq!(request, Err(GrammarError::LeaveNotHere), "{text}");
                continue;
            }
            let cost = cost.map(|units| Cost::new(units).expect("in range"));
            let step =
                if verb == ReservationVerb::Commit { Step::Commit { cost } } else { Step::Cancel };
            assert_eq!(request.expect(text).step, step, "{text}");
        }
    }
}

#[test]
fn wrong_reservation_in_one_argument_gets_the_error_of_its_first_wrong_word() {
    use GrammarError::{
        AlgorithmOfPolicy, CostOfPolicy, Limit, NotReservable, PartialNotHere, RepeatedFor,
        ReservationId, ReserveArity, RuleArity, Ttl, UseArity, UsedPolicy,
    };
    let long = format!("RESERVE {} 30s FIXED 10 60", "i".repeat(65));
    let rows = [
        ("RESERVE", ReserveArity),
        ("RESERVE a", ReserveArity),
        ("RESERVE a 30s", ReserveArity),
        ("RESERVE a 0s FIXED 10 60", Ttl),
        (&long, ReservationId),
        ("RESERVE a 30s FIXED", RuleArity(Algorithm::FixedWindow)),
        ("RESERVE a 30s quota 10", RuleArity(Algorithm::CalendarQuota)),
        ("RESERVE a 30s USE", UseArity),
        ("RESERVE a 30s FIXED 0 60", Limit),
        ("RESERVE a 30s FIXED 10 60 PARTIAL", PartialNotHere),
        ("RESERVE a 30s USE p PARTIAL", PartialNotHere),
        ("RESERVE a 30s USE p@gold", UsedPolicy),
        ("RESERVE a 30s USE p FOR a FOR b FOR c", RepeatedFor),
        ("RESERVE a 30s GCRA 6 10 60", NotReservable),
        ("RESERVE a 30s LEASE a 3 60", NotReservable),
        ("RESERVE a 30s RESERVE b 30s FIXED 10 60", NotReservable),
        ("RESERVE a 30s USE p DEFAULT RESERVE b 30s FIXED 10 60", AlgorithmOfPolicy),
        ("RESERVE a 30s USE p DEFAULT FIXED 10 60 COST 1", CostOfPolicy),
    ];
    for (text, error) in rows {
        assert_eq!(packed_hold(text.as_bytes(), SLOTS), Err(error), "{text}");
    }
}

#[test]
fn reservation_is_refused_as_a_plain_rule_in_a_policy_and_in_a_default() {
    let line = words("RESERVE a 30s FIXED 10 60");
    assert_eq!(rule_with_cost(&line, SLOTS), Err(GrammarError::ReserveNotHere));
    // RL.PEEK and RL.ALL read this error as a reservation.
    assert_eq!(rule(&line, SLOTS), Err(GrammarError::ReserveNotHere));
    let packed = packed_rule(b" reserve a 30s FIXED 10 60", SLOTS);
    assert_eq!(packed, Err(GrammarError::ReserveNotHere));
    let set = [&[b"p".as_slice()], line.as_slice()].concat();
    assert_eq!(assignment(&set), Err(GrammarError::PolicyRule));
    assert_eq!(
        usage(&words("p DEFAULT RESERVE a 30s FIXED 1 1")),
        Err(GrammarError::AlgorithmOfPolicy)
    );
    assert!(lease(&words("RESERVE 30 1m")).is_ok(), "a holder may have any id");
}

/// Words that may follow a reservation.
const WORDS: [&str; 14] = [
    "COST", "1", "0", "PARTIAL", "ALIGNED", "ZONE", "UTC", "START", "FOR", "a", "DEFAULT", "QUOTA",
    "LEAVE", "month",
];

proptest! {
    #![proptest_config(crate::properties::config())]

    #[test]
    fn packed_reservation_parses_like_separate_words_at_any_length(
        start in prop::sample::select(rules().map(|(text, ..)| text).to_vec()),
        more in prop::collection::vec(prop::sample::select(&WORDS[..]), 0..40),
        cut in 0..10_usize,
        spaces in 1..3_usize,
    ) {
        let mut all = vec!["RESERVE", "a", "30s"];
        all.extend(start.split(' ').chain(more));
        all.truncate(all.len() - cut.min(all.len() - 1));
        let text = all.join(&" ".repeat(spaces));
        let separate: Vec<&[u8]> = all[1..].iter().map(|word| word.as_bytes()).collect();
        let packed = packed_hold(text.as_bytes(), SLOTS);
        match hold(&separate, SLOTS) {
            Err(GrammarError::Arity) => {
                use GrammarError::{ReserveArity, RuleArity, UseArity};
                prop_assert!(matches!(packed, Err(ReserveArity | RuleArity(_) | UseArity)));
            }
            separate => prop_assert_eq!(packed, separate, "{}", text),
        }
    }
}
