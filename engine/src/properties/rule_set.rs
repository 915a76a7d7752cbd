//! Several rules for one call, compared with the models of their keys.

use crate::oracle::draw::CLOCK_MAX_US;
use crate::oracle::model::Limits;
use crate::oracle::rule_set::{AnySubject, TwinOfAny, TwinPart, call_all};
use crate::properties::{Call, NOW, any_calls, any_steps, config, limits};
use proptest::prelude::*;

/// Generates four keys with two limits each.
fn rules() -> impl Strategy<Value = Vec<(usize, [Limits; 2])>> {
    let key = (0..AnySubject::ALL.len(), [limits(), limits()]);
    prop::collection::vec(key, 4)
}

proptest! {
    #![proptest_config(config())]

    /// Compares the rows, the deciding rule, the writes and the promised retry time with those of
    /// the models. Draws any combination of algorithms, changing limits, charges and refunds
    /// between the calls, and any clock.
    #[test]
    fn several_rules_agree_with_their_models_and_take_all_or_nothing(
        keys in rules(),
        calls in prop::collection::vec((any_calls(any_steps(), 2), 1..16_usize), 1..8),
    ) {
        let twin = |(subject, rules)| (TwinOfAny::new(AnySubject::ALL[subject]), rules);
        let mut twins: Vec<_> = keys.into_iter().map(twin).collect();
        let mut now = NOW;
        for (parts, chosen) in calls {
            let mut together: Vec<TwinPart<'_>> = Vec::new();
            for (at, ((twin, rules), call)) in twins.iter_mut().zip(&parts).enumerate() {
                let Call { step, rule, verb, cost } = call;
                let limits = rules[*rule];
                let cost = (twin.subject.cost)(cost.of(&limits));
                if at == 0 {
                    now = (now + step.us((twin.subject.span_us)(&limits))).clamp(0, CLOCK_MAX_US);
                }
                if chosen >> at & 1 == 1 {
                    together.push((twin, limits, cost));
                } else if *rule == 1 {
                    let verb = (twin.subject.verb)(*verb);
                    twin.call(verb, &limits, now, cost).map_err(TestCaseError::fail)?;
                }
            }
            if !together.is_empty() {
                call_all(&mut together, now).map_err(TestCaseError::fail)?;
            }
        }
    }
}
