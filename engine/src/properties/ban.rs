//! Bans of keys between calls under one rule or several, compared with the models of the keys.

use crate::oracle::draw::CLOCK_MAX_US;
use crate::oracle::rule_set::{AnySubject, TwinOfAny, TwinPart, call_all};
use crate::properties::{Call, NOW, any_calls, any_steps, config, limits, periods_us};
use proptest::prelude::*;

/// The number of keys.
const KEYS: usize = 3;

proptest! {
    #![proptest_config(config())]

    /// Compares verdicts, numbers, writes and promised retry times with those of the models. Draws
    /// any algorithms, bans of any length, changing limits, charges and refunds, and any clock.
    #[test]
    fn banned_keys_agree_with_their_models_under_any_rules_and_clock(
        keys in prop::collection::vec((0..AnySubject::ALL.len(), [limits(), limits()]), KEYS),
        calls in prop::collection::vec(
            (any_calls(any_steps(), 2), 1..1_usize << KEYS, prop::option::of(periods_us())),
            1..12,
        ),
    ) {
        let twin = |(subject, rules)| (TwinOfAny::new(AnySubject::ALL[subject]), rules);
        let mut twins: Vec<_> = keys.into_iter().map(twin).collect();
        let mut now = NOW;
        for (parts, chosen, ban) in calls {
            let mut together: Vec<TwinPart<'_>> = Vec::new();
            for (at, ((twin, rules), call)) in twins.iter_mut().zip(&parts).enumerate() {
                let Call { step, rule, verb, cost } = call;
                let limits = rules[*rule];
                let cost = (twin.subject.cost)(cost.of(&limits));
                now = (now + step.us((twin.subject.span_us)(&limits))).clamp(0, CLOCK_MAX_US);
                if let Some(duration_us) = ban.filter(|_| at == 0) {
                    twin.ban(now, duration_us);
                }
                let verb = (twin.subject.verb)(*verb);
                twin.call(verb, &limits, now, cost).map_err(TestCaseError::fail)?;
                if chosen >> at & 1 == 1 {
                    together.push((twin, limits, cost));
                }
            }
            if !together.is_empty() {
                call_all(&mut together, now).map_err(TestCaseError::fail)?;
            }
        }
    }
}
