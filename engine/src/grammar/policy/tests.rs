//! Definitions: valid ones with their canonical text, and the errors of invalid ones.

use crate::algorithms::Algorithm;
use crate::calendar::zone::Zone;
use crate::grammar::error::GrammarError::{self, *};
use crate::grammar::policy::{
    Assignment, Definition, ModeChange, assignment, definition, rule_of_policy,
};
use crate::policy::definition::{Enforcement, Setting};
use crate::policy::duration::duration_text;
use crate::policy::name::FullName;
use crate::time::Span;
use proptest::prelude::*;

fn read(line: &str) -> Result<Definition, GrammarError> {
    definition(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

fn parse(line: &str) -> Result<Assignment, GrammarError> {
    assignment(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

#[test]
fn equal_definitions_have_the_same_text() {
    let rows = [
        ("GCRA 6 10 60", "GCRA 6 10 1m"),
        ("gcra 006 0010 0060.000", "GCRA 6 10 1m"),
        ("Fixed 5 90 aligned", "FIXED 5 90s ALIGNED"),
        ("FIXED 5 0.5", "FIXED 5 500ms"),
        ("SLIDING 5 1.5ms", "SLIDING 5 1.5ms"),
        ("SLIDINGLOG 5 0.001001", "SLIDINGLOG 5 1.001ms"),
        ("SLIDINGLOG 5 86400", "SLIDINGLOG 5 1d"),
        ("slidinglog 5 60 slots 064", "SLIDINGLOG 5 1m SLOTS 64"),
        // The default is a setting, so the text has the number even if it is the default.
        ("SLIDINGLOG 5 60 SLOTS 1024", "SLIDINGLOG 5 1m SLOTS 1024"),
        ("TOKENBUCKET 1 1 3600s", "TOKENBUCKET 1 1 1h"),
        ("LEAKYBUCKET 1 1 5400s", "LEAKYBUCKET 1 1 90m"),
        ("BACKOFF 03 1 8s 1m", "BACKOFF 3 1s 8s 1m"),
        ("QUOTA 9 MONTH", "QUOTA 9 month"),
        ("QUOTA 9 month zone utc start 1", "QUOTA 9 month"),
        ("QUOTA 9 month START 15 ZONE europe/berlin", "QUOTA 9 month ZONE Europe/Berlin START 15"),
        ("QUOTA 9 week START Sun", "QUOTA 9 week START sun"),
        ("QUOTA 9 week START mon", "QUOTA 9 week"),
        ("QUOTA 9 year START 04", "QUOTA 9 year START 4"),
        ("ENFORCE 100 GCRA 6 10 60", "GCRA 6 10 1m"),
        ("enforce 007 GCRA 6 10 60", "ENFORCE 7 GCRA 6 10 1m"),
        ("ENFORCE 0 GCRA 6 10 60", "ENFORCE 0 GCRA 6 10 1m"),
        ("shadow GCRA 6 10 60", "SHADOW GCRA 6 10 1m"),
        ("Off GCRA 6 10 60", "OFF GCRA 6 10 1m"),
        ("BLOCK GCRA 6 10 60", "BLOCK GCRA 6 10 1m"),
    ];
    for (words, text) in rows {
        let read = read(&format!("search@plan:gold {words}")).expect(words);
        assert_eq!(&*read.setting.text, text, "{words}");
        assert_eq!((read.name.as_str(), read.lasts), ("search@plan:gold", None), "{words}");
    }
}

#[test]
fn mode_and_ex_may_come_in_either_order() {
    let rows = [
        ("EX 60 GCRA 6 10 60", Enforcement::Percent(100), 60_000_000),
        ("SHADOW EX 1m GCRA 6 10 60", Enforcement::Shadow, 60_000_000),
        ("ex 366d enforce 10 GCRA 6 10 60", Enforcement::Percent(10), 31_622_400_000_000),
        ("EX 1ms BLOCK GCRA 6 10 60", Enforcement::Block, 1_000),
    ];
    for (words, enforcement, lasts_us) in rows {
        let read = read(&format!("Search {words}")).expect(words);
        assert_eq!(read.setting.enforcement, enforcement, "{words}");
        assert_eq!(read.lasts, Some(Span::from_us(lasts_us)), "{words}");
        assert_eq!(read.name.as_str(), "Search");
    }
}

#[test]
fn mode_without_a_rule_is_an_assignment_and_no_definition() {
    let rows = [
        ("OFF", Enforcement::Off, None),
        ("EX 60 block", Enforcement::Block, Some(60_000_000)),
        ("Shadow EX 1ms", Enforcement::Shadow, Some(1_000)),
        ("ENFORCE 100", Enforcement::Percent(100), None),
    ];
    for (words, enforcement, lasts_us) in rows {
        let line = format!("search@plan:gold {words}");
        let name = FullName::parse(b"search@plan:gold").expect("a name");
        let change = ModeChange { name, enforcement, lasts: lasts_us.map(Span::from_us) };
        assert_eq!(parse(&line), Ok(Assignment::Mode(change)), "{words}");
        assert_eq!(read(&line), Err(MissingPolicyRule), "{words}");
    }
    for words in ["", " EX 60"] {
        assert_eq!(parse(&format!("search{words}")), Err(MissingPolicyRule), "{words}");
    }
}

#[test]
fn definition_returns_the_first_error_from_the_left() {
    let long = format!("{} GCRA 6 10 60", "a".repeat(65));
    let rows = [
        ("", PolicyName),
        ("a@ GCRA 6 10 60", PolicyName),
        ("@b GCRA 6 10 60", PolicyName),
        ("a@b@c GCRA 6 10 60", PolicyName),
        ("a+b GCRA 6 10 60", PolicyName),
        ("(other) GCRA 6 10 60", PolicyName),
        ("\u{e4} GCRA 6 10 60", PolicyName),
        (&long, PolicyName),
        ("a", MissingPolicyRule),
        ("a SHADOW", MissingPolicyRule),
        ("a SHADOW EX 60", MissingPolicyRule),
        ("a LEASE me 5 60", PolicyRule),
        ("a USE b", PolicyRule),
        ("a SHADOWS GCRA 6 10 60", PolicyRule),
        ("a  GCRA 6 10 60", PolicyRule),
        ("a SHADOW OFF GCRA 6 10 60", RepeatedMode),
        ("a SHADOW SHADOW GCRA 6 10 60", RepeatedMode),
        ("a ENFORCE 10 EX 60 ENFORCE 10 GCRA 6 10 60", RepeatedMode),
        ("a EX 60 EX 60 GCRA 6 10 60", RepeatedEx),
        ("a EX", Ex),
        ("a EX 0 GCRA 6 10 60", Ex),
        ("a EX -1 GCRA 6 10 60", Ex),
        ("a EX 367d GCRA 6 10 60", Ex),
        ("a EX GCRA 6 10 60", Ex),
        ("a ENFORCE", Percent),
        ("a ENFORCE 101 GCRA 6 10 60", Percent),
        ("a ENFORCE 1.5 GCRA 6 10 60", Percent),
        ("a ENFORCE 10% GCRA 6 10 60", Percent),
        ("a ENFORCE GCRA 6 10 60", Percent),
        ("a GCRA", RuleArity(Algorithm::Gcra)),
        ("a GCRA 6 10", RuleArity(Algorithm::Gcra)),
        ("a QUOTA 6", RuleArity(Algorithm::CalendarQuota)),
        ("a GCRA 0 10 60", Burst),
        ("a GCRA 6 10 60 COST 1", CostOfPolicy),
        ("a GCRA 6 10 60 PARTIAL", CostOfPolicy),
        ("a QUOTA 6 month ZONE UTC cost 0", CostOfPolicy),
        ("a BACKOFF 3 1 8 60 COST 1", NoOption),
        ("a GCRA 6 10 60 COST x", CostOfPolicy),
        ("a GCRA 6 10 60 COST", CostOfPolicy),
        ("a GCRA 6 10 60 COST 1 x", OptionOfPolicy),
        ("a FIXED 6 10 ZONE UTC", OptionOfPolicy),
        ("a QUOTA 6 month ALIGNED", OptionOfPolicy),
        ("a SLIDING 6 10 SLOTS 16", OptionOfPolicy),
        ("a SLIDINGLOG 6 10 ALIGNED", OptionOfPolicy),
        ("a SLIDINGLOG 6 10 SLOTS 16 COST 1", CostOfPolicy),
        ("a SLIDINGLOG 6 10 SLOTS 15", Slots),
        ("a SLIDINGLOG 6 10 SLOTS", MissingSlots),
        ("a SLIDINGLOG 6 10 SLOTS 16 SLOTS 16", RepeatedSlots),
        ("a GCRA 6 10 60 EX 60", OptionOfPolicy),
        ("a GCRA 6 10 60 SHADOW", OptionOfPolicy),
    ];
    for (line, expected) in rows {
        assert_eq!(read(line).err(), Some(expected), "{line}");
        let text = expected.text().expect("a text").to_str().expect("ASCII");
        assert!(text.starts_with("ERR ") && text.is_ascii(), "{text}");
    }
    assert_eq!(definition(&[]).err(), Some(Arity));
}

#[test]
fn duration_text_uses_the_largest_whole_unit() {
    let rows = [
        (1_000, "1ms"),
        (1_500, "1.5ms"),
        (1_010, "1.01ms"),
        (1_000_001, "1000.001ms"),
        (60_000_000, "1m"),
        (61_000_000, "61s"),
        (86_400_000_000, "1d"),
        (90_000_000_000, "25h"),
        (31_622_400_000_000, "366d"),
    ];
    for (us, text) in rows {
        assert_eq!(duration_text(Span::from_us(us)), text);
    }
}

/// Generates definitions of every algorithm, valid or nearly valid.
fn lines() -> impl Strategy<Value = String> {
    let number =
        || (0..4_usize, 1..2_000_u64).prop_map(|(zeros, n)| "0".repeat(zeros) + &n.to_string());
    let duration = || {
        let unit = prop::sample::select(vec!["", "s", "m", "h", "d", "ms"]);
        let decimals = prop::sample::select(vec!["", ".5", ".250", ".001", ".000001"]);
        (0..400_u64, decimals, unit).prop_map(|(n, decimals, unit)| format!("{n}{decimals}{unit}"))
    };
    let zone = (0..Zone::all().count()).prop_map(|at| Zone::all().nth(at).expect("there").name());
    let start = prop::sample::select(vec!["", " START 1", " START 12", " START 31", " START wed"]);
    let unit = prop::sample::select(vec!["day", "Week", "MONTH", "quarter", "year"]);
    let with_rate = prop::sample::select(vec!["TOKENBUCKET", "leakybucket", "Gcra"]);
    let with_window = prop::sample::select(vec!["FIXED", "sliding", "SlidingLog"]);
    let rule = prop_oneof![
        (with_rate, number(), number(), duration())
            .prop_map(|(name, a, b, c)| format!("{name} {a} {b} {c}")),
        (with_window, number(), duration(), any::<bool>()).prop_map(|(name, a, b, aligned)| {
            let option = match name {
                "FIXED" if aligned => " aligned",
                "SlidingLog" if aligned => " Slots 0100",
                _ => "",
            };
            format!("{name} {a} {b}{option}")
        }),
        (number(), duration(), duration(), duration())
            .prop_map(|(a, b, c, d)| format!("backoff {a} {b} {c} {d}")),
        (number(), unit, start, zone, any::<bool>()).prop_map(|(a, unit, start, zone, first)| {
            let zone = format!(" zone {}", zone.to_ascii_lowercase());
            let (one, two) = if first { (&*zone, start) } else { (start, &*zone) };
            format!("QUOTA {a} {unit}{one}{two}")
        }),
    ];
    let mode = prop_oneof![
        Just(String::new()),
        prop::sample::select(vec!["shadow ", "OFF ", "Block "]).prop_map(str::to_owned),
        (0..=100).prop_map(|percent| format!("enforce {percent} ")),
    ];
    ("[A-Za-z0-9._:/-]{1,64}(@[A-Za-z0-9._:/-]{1,64})?", mode, rule)
        .prop_map(|(name, mode, rule)| format!("{name} {mode}{rule}"))
}

proptest! {
    #![proptest_config(crate::properties::config())]

    /// Checks that the canonical text of a definition parses as the same policy with the same text.
    #[test]
    fn text_of_a_policy_parses_as_that_policy(line in lines()) {
        let Ok(first) = read(&line) else { return Ok(()) };
        let text = format!("{} {}", first.name.as_str(), first.setting.text);
        prop_assert_eq!(read(&text), Ok(first), "{}", text);
    }

    /// Checks that a mode without a rule gives the setting that the same mode with the rule gives.
    #[test]
    fn setting_in_another_mode_has_the_text_of_that_mode(line in lines(), percent in 0..=100_u8) {
        let Ok(first) = read(&line) else { return Ok(()) };
        let rule = first.setting.in_mode(Enforcement::Percent(100)).text;
        let percent = Enforcement::Percent(percent);
        for mode in [percent, Enforcement::Shadow, Enforcement::Off, Enforcement::Block] {
            let words = match mode {
                Enforcement::Percent(percent) => format!("ENFORCE {percent}"),
                mode => format!("{mode:?}").to_uppercase(),
            };
            let expected = read(&format!("a {words} {rule}")).map(|read| read.setting);
            prop_assert_eq!(Ok(first.setting.in_mode(mode)), expected, "{}", line);
        }
    }

    /// Checks that different policies have different texts.
    #[test]
    fn different_policies_have_different_texts(one in lines(), other in lines()) {
        let (Ok(one), Ok(other)) = (read(&one), read(&other)) else { return Ok(()) };
        let parts = |Setting { enforcement, rule, .. }: &Setting| (*enforcement, *rule);
        if one.setting.text == other.setting.text {
            prop_assert_eq!(parts(&one.setting), parts(&other.setting));
        }
    }

    /// Checks that no words cause a panic.
    #[test]
    fn any_words_parse_without_a_panic(words in prop::collection::vec(any::<Vec<u8>>(), 0..20)) {
        let words: Vec<_> = words.iter().map(Vec::as_slice).collect();
        let _ = assignment(&words);
        for algorithm in Algorithm::ALL {
            let _ = rule_of_policy(algorithm, &words);
        }
    }
}
