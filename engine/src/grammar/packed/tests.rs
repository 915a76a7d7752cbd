//! A packed rule parses like its separate words, for any number of words and spaces.

use super::{PackedRules, packed_rule, split};
use crate::bounds::Slots;
use crate::grammar::error::GrammarError;
use crate::grammar::name::named;
use crate::grammar::rule::rule;
use crate::grammar::usage::{packed_usage, usage};
use proptest::prelude::*;

/// Beginnings of rules. Each is valid as far as it goes.
const STARTS: [&str; 6] = [
    "GCRA 6 10 1m",
    "fixed 6 1m",
    "BACKOFF 3 1s 8s 1h",
    "QUOTA 6 year",
    "LEASE id 6 1m",
    "USE p FOR a FOR b COST 1 PARTIAL DEFAULT QUOTA 6 year",
];

/// Words that may follow a beginning.
const WORDS: [&str; 12] = [
    "COST", "1", "0", "PARTIAL", "ALIGNED", "ZONE", "UTC", "START", "FOR", "a", "DEFAULT", "QUOTA",
];

proptest! {
    #![proptest_config(crate::properties::config())]

    #[test]
    fn packed_words_parse_like_separate_words_at_any_length(
        start in prop::sample::select(&STARTS[..]),
        more in prop::collection::vec(prop::sample::select(&WORDS[..]), 0..40),
        cut in 0..8_usize,
        spaces in 1..3_usize,
    ) {
        let mut words: Vec<&str> = start.split(' ').chain(more).collect();
        words.truncate(words.len() - cut.min(words.len() - 1));
        let text = words.join(&" ".repeat(spaces));
        for text in [text.clone(), format!("  {text}"), format!("{text} ")] {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            let separate = rule(&words, Slots::DEFAULT).map_err(|error| match error {
                GrammarError::Arity => {
                    named(words[0]).map_or(GrammarError::LeaseArity, GrammarError::RuleArity)
                }
                error => error,
            });
            prop_assert_eq!(packed_rule(text.as_bytes(), Slots::DEFAULT), separate, "{}", text);
            let separate = usage(&words[1..]).map_err(|error| match error {
                GrammarError::Arity => GrammarError::UseArity,
                error => error,
            });
            prop_assert_eq!(packed_usage(text.as_bytes()), separate, "{}", text);
        }
    }

    #[test]
    fn rule_parses_the_same_after_any_other_rules(
        calls in prop::collection::vec(
            (prop::sample::select(&STARTS[..]), 0..9_usize, 0..50_usize, 16..19_u32),
            1..300,
        ),
    ) {
        let mut rules = PackedRules::NONE;
        for (start, cut, spaces, slots) in calls {
            let text = start[..start.len() - cut].to_owned() + &" ".repeat(spaces);
            let slots = Slots::new(slots).unwrap_or(Slots::DEFAULT);
            let expected = packed_rule(text.as_bytes(), slots);
            prop_assert_eq!(rules.read(text.as_bytes(), slots), expected, "{:?}", text);
        }
    }

    #[test]
    fn split_finds_the_words_between_spaces_in_any_bytes(
        text in prop::collection::vec(prop_oneof![Just(b' '), any::<u8>()], 0..60),
        room in 0..30_usize,
    ) {
        let mut words = vec![&b""[..]; room];
        let len = split(&text, &mut words);
        let expected: Vec<&[u8]> =
            text.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).take(room).collect();
        prop_assert_eq!(&words[..len], &expected[..]);
    }
}

#[test]
fn cache_of_packed_rules_does_not_confuse_rules_with_similar_texts() {
    let mut rules = PackedRules::NONE;
    let texts: Vec<_> = (1..=2_000).map(|limit| format!("SLIDINGLOG {limit} 10d")).collect();
    for text in texts.iter().chain(&texts).flat_map(|text| [text, text]) {
        let expected = packed_rule(text.as_bytes(), Slots::DEFAULT);
        assert_eq!(rules.read(text.as_bytes(), Slots::DEFAULT), expected, "{text}");
    }
    let kept = rules.0.iter().flatten().count();
    assert_eq!(kept, super::KEPT_MAX, "every place is used");
}
