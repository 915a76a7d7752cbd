//! The table: look-ups, refusals, and the changes it reports.

use crate::grammar::policy::{Assignment, assignment};
use crate::grammar::policy_file::policy_file;
use crate::policy::families::Refusal;
use crate::policy::file_set::FileSet;
use crate::policy::name::{FullName, Name};
use crate::policy::pattern::Pattern;
use crate::policy::table::{Change, Found, Policies};
use crate::time::Instant;
use proptest::prelude::*;

fn at(seconds: u64) -> Instant {
    Instant::from_us(seconds * 1_000_000)
}

fn name(text: &str) -> FullName {
    FullName::parse(text.as_bytes()).expect(text)
}

fn set(table: &mut Policies, line: &str, now: Instant) -> Result<Change, Refusal> {
    let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
    match assignment(&words).expect(line) {
        Assignment::Whole(read) => {
            table.set(&read.name, read.setting, read.lasts.map(|span| now.after(span)), now)
        }
        Assignment::Mode(read) => {
            let ends_at = read.lasts.map(|span| now.after(span));
            table.set_mode(&read.name, read.enforcement, ends_at, now)
        }
    }
}

fn bases(text: &str) -> FileSet {
    policy_file(text.as_bytes()).expect(text)
}

fn find(table: &mut Policies, text: &str, now: Instant) -> Option<Found> {
    let mut parts = text.split('@').map(|part| Name::new(part.as_bytes()).expect(text));
    table.find(parts.next().expect(text), parts.next(), now)
}

fn get(table: &mut Policies, text: &str, now: Instant) -> Option<String> {
    let line = table.get(&name(text), now);
    // `find` and `get` agree.
    assert_eq!(find(table, text, now).is_some(), line.is_some());
    line
}

#[test]
fn override_applies_until_its_end_and_the_base_applies_again_afterwards() {
    let mut table = Policies::default();
    let said = |change: Result<Change, Refusal>| {
        let change = change.expect("taken");
        (change.before, change.after)
    };
    let words = |before: &str, after: &str| (before.to_owned(), after.to_owned());
    let first = set(&mut table, "a GCRA 6 10 60", at(0));
    assert_eq!(said(first), words("none", "GCRA 6 10 1m"));
    let over = set(&mut table, "a EX 60 OFF GCRA 1 1 60", at(10));
    let text = "EX 1m OFF GCRA 1 1 1m over GCRA 6 10 1m";
    assert_eq!(said(over), words("GCRA 6 10 1m", text));
    assert_eq!(get(&mut table, "a", at(10)).as_deref(), Some("a EX 1m OFF GCRA 1 1 1m"));
    assert_eq!(get(&mut table, "a", at(69)).as_deref(), Some("a EX 1s OFF GCRA 1 1 1m"));
    assert_eq!(find(&mut table, "a", at(69)).and_then(|found| found.ends_at), Some(at(70)));
    // The override still applies a microsecond before its end; the time left is rounded up to the
    // millisecond.
    let last = Instant::from_us(69_999_999);
    assert_eq!(get(&mut table, "a", last).as_deref(), Some("a EX 1ms OFF GCRA 1 1 1m"));
    let over = table.get(&name("a"), at(70));
    assert_eq!(over.as_deref(), Some("a GCRA 6 10 1m"));
    // The list holds bases only.
    assert_eq!(table.list(Pattern::ANY), ["a GCRA 6 10 1m"]);
    // Another override replaces the first; a setting without an end replaces both.
    let text_before = "EX 30s OFF GCRA 1 1 1m over GCRA 6 10 1m";
    let again = set(&mut table, "a EX 60 BLOCK GCRA 1 1 60", at(40));
    assert_eq!(said(again), words(text_before, "EX 1m BLOCK GCRA 1 1 1m over GCRA 6 10 1m"));
    let base = set(&mut table, "a SHADOW GCRA 6 10 60", at(50));
    let text_before = "EX 50s BLOCK GCRA 1 1 1m over GCRA 6 10 1m";
    assert_eq!(said(base), words(text_before, "SHADOW GCRA 6 10 1m"));
    assert_eq!(get(&mut table, "a", at(50)).as_deref(), Some("a SHADOW GCRA 6 10 1m"));
    // An override that a call has found expired does not come back if the clock steps back.
    set(&mut table, "a EX 10 OFF GCRA 1 1 60", at(50)).expect("taken");
    assert_eq!(find(&mut table, "a", at(60)).and_then(|found| found.ends_at), None);
    assert_eq!(get(&mut table, "a", at(51)).as_deref(), Some("a SHADOW GCRA 6 10 1m"));
    // Base and override are deleted together.
    set(&mut table, "a EX 60 OFF GCRA 1 1 60", at(60)).expect("taken");
    assert_eq!(table.delete(&[name("a"), name("a"), name("b")], at(60)).len(), 1);
    assert_eq!(get(&mut table, "a", at(60)), None);
    assert_eq!(table.count_and_digest(at(60)), (0, 0));
}

#[test]
fn expired_override_without_a_base_leaves_no_policy() {
    let mut table = Policies::default();
    set(&mut table, "a EX 60 GCRA 6 10 60", at(0)).expect("taken");
    assert_eq!(table.list(Pattern::ANY), [""; 0]);
    assert_eq!(table.count_and_digest(at(59)).0, 1);
    assert_eq!(set(&mut table, "a@x FIXED 5 60", at(59)), Err(Refusal::OtherAlgorithm));
    assert_eq!((get(&mut table, "a", at(60)), table.count_and_digest(at(60))), (None, (0, 0)));
    // After it has expired, the override no longer restricts the algorithm, takes no place, and
    // cannot be deleted.
    assert!(table.delete(&[name("a")], at(60)).is_empty());
    let change = set(&mut table, "a@x FIXED 5 60", at(60)).expect("taken");
    assert_eq!(change.before, "none");
    // The override stays expired if the clock steps back.
    assert_eq!(get(&mut table, "a", at(1)), None);
}

#[test]
fn mode_without_a_rule_takes_the_rule_of_its_base_or_of_its_policy() {
    let mut table = Policies::default();
    let none = Err(Refusal::NoRule);
    let take = |table: &mut Policies, line, now| set(table, line, now).map(|change| change.after);
    assert_eq!(take(&mut table, "a OFF", at(0)), none);
    take(&mut table, "a@x SHADOW GCRA 3 1 60", at(0)).expect("the first");
    // A policy does not take the rule of its variant.
    assert_eq!(take(&mut table, "a OFF", at(0)), none);
    assert_eq!(take(&mut table, "a@y OFF", at(0)), none);
    take(&mut table, "a ENFORCE 10 GCRA 6 10 60", at(0)).expect("the same algorithm");
    let rows = [
        ("a@x BLOCK", "BLOCK GCRA 3 1 1m"),
        ("a@y BLOCK", "BLOCK GCRA 6 10 1m"),
        ("a EX 60 OFF", "EX 1m OFF GCRA 6 10 1m over ENFORCE 10 GCRA 6 10 1m"),
        // A variant takes the rule of the base, not of its override.
        ("a@x EX 60 GCRA 9 9 9", "EX 1m GCRA 9 9 9s over BLOCK GCRA 3 1 1m"),
        ("a@x EX 30 SHADOW", "EX 30s SHADOW GCRA 3 1 1m over BLOCK GCRA 3 1 1m"),
        ("a SHADOW", "SHADOW GCRA 6 10 1m"),
        ("a ENFORCE 100", "GCRA 6 10 1m"),
        ("a@z EX 60 OFF", "EX 1m OFF GCRA 6 10 1m"),
    ];
    for (line, after) in rows {
        assert_eq!(take(&mut table, line, at(0)).as_deref(), Ok(after), "{line}");
    }
    // An override without a base gives no rule, also while it applies.
    take(&mut table, "b EX 60 GCRA 6 10 60", at(0)).expect("taken");
    assert_eq!(take(&mut table, "b EX 60 OFF", at(30)), none);
    assert_eq!(take(&mut table, "b@x OFF", at(30)), none);
    assert_eq!(get(&mut table, "b", at(30)).as_deref(), Some("b EX 30s GCRA 6 10 1m"));
    // A mode for a name that is not in the table yet needs a place.
    let all: String = (0..10_000).map(|number| format!("p{number} GCRA 6 10 60\n")).collect();
    table.load(bases(&all), at(60));
    assert_eq!(take(&mut table, "p0@x OFF", at(60)), Err(Refusal::TooMany));
    take(&mut table, "p0 OFF", at(60)).expect("it is there");
}

#[test]
fn policy_and_its_variants_have_one_algorithm() {
    let mut table = Policies::default();
    let other = Err(Refusal::OtherAlgorithm);
    let take = |table: &mut Policies, line| set(table, line, at(0)).map(|change| change.after);
    take(&mut table, "a GCRA 6 10 60").expect("the first");
    // `SET` may change the algorithm of a policy without variants, but an override may not.
    assert_eq!(take(&mut table, "a EX 60 FIXED 5 60"), other);
    take(&mut table, "a FIXED 5 60").expect("no other policy has it");
    take(&mut table, "a@x FIXED 6 60").expect("the same");
    for line in ["a GCRA 6 10 60", "a@x GCRA 6 10 60", "a@y GCRA 6 10 60", "a@x EX 60 GCRA 6 10 60"]
    {
        assert_eq!(take(&mut table, line), other, "{line}");
    }
    // Other names are not affected.
    take(&mut table, "ab GCRA 6 10 60").expect("another policy");
    // The remaining variant determines the algorithm.
    table.delete(&[name("a")], at(0));
    assert_eq!(take(&mut table, "a GCRA 6 10 60"), other);
    take(&mut table, "a@x GCRA 6 10 60").expect("alone");
    take(&mut table, "a GCRA 6 10 60").expect("the same");
    // An override without a base may be replaced by one with another algorithm.
    take(&mut table, "c EX 60 GCRA 6 10 60").expect("the first");
    take(&mut table, "c EX 60 FIXED 5 60").expect("alone");
    take(&mut table, "c FIXED 5 60").expect("the same");
    // The bases of a file replace everything.
    table.load(bases("a FIXED 5 60\nc QUOTA 1 day"), at(0));
    assert_eq!(take(&mut table, "a@x GCRA 6 10 60"), other);
    take(&mut table, "ab FIXED 5 60").expect("it is gone");
}

#[test]
fn expired_override_leaves_no_entry_when_the_clock_steps_back() {
    for ends_seen in [at(60), at(61)] {
        let mut table = Policies::default();
        set(&mut table, "a EX 60 GCRA 6 10 60", at(0)).expect("taken");
        set(&mut table, "b EX 90 GCRA 6 10 60", at(0)).expect("taken");
        assert_eq!(find(&mut table, "a", ends_seen), None);
        // The clock is before the override's end again, but the name is free for another algorithm.
        set(&mut table, "a@x FIXED 5 60", at(30)).expect("the first of its name");
        assert!(table.delete(&[name("a")], at(30)).is_empty());
        // An override that has not ended stays.
        assert_eq!(get(&mut table, "b", at(30)).as_deref(), Some("b EX 1m GCRA 6 10 1m"));
        assert_eq!(table.count_and_digest(at(30)).0, 2);
        assert_eq!(get(&mut table, "b", at(90)), None);
    }
}

#[test]
fn table_is_empty_when_no_policy_applies() {
    let mut table = Policies::default();
    assert!(table.is_empty(at(0)));
    set(&mut table, "a EX 60 GCRA 6 10 60", at(0)).expect("taken");
    assert_eq!([59, 60].map(|seconds| table.is_empty(at(seconds))), [false, true]);
    let added = set(&mut table, "b GCRA 6 10 60", at(60)).expect("taken");
    assert!(!table.is_empty(at(60)) && added.is_addition() && !added.is_removal());
    let removed = table.delete(&[name("b")], at(60));
    assert!(table.is_empty(at(60)) && removed[0].is_removal() && !removed[0].is_addition());
}

#[test]
fn table_holds_at_most_ten_thousand_policies() {
    let mut table = Policies::default();
    let all: String = (0..9_999).map(|number| format!("p{number} GCRA 6 10 60\n")).collect();
    assert_eq!(table.load(bases(&all), at(0)).len(), 9_999);
    set(&mut table, "last EX 60 GCRA 6 10 60", at(0)).expect("the last one");
    assert_eq!(set(&mut table, "more GCRA 6 10 60", at(59)), Err(Refusal::TooMany));
    assert_eq!(set(&mut table, "p0@v GCRA 6 10 60", at(59)), Err(Refusal::TooMany));
    // Existing names can still be changed, and an expired override makes room.
    set(&mut table, "p0 SHADOW GCRA 6 10 60", at(59)).expect("it is there");
    set(&mut table, "more GCRA 6 10 60", at(60)).expect("there is room");
    assert_eq!(table.count_and_digest(at(60)).0, 10_000);
}

#[test]
fn load_replaces_everything_and_returns_the_changes() {
    let mut table = Policies::default();
    table.load(bases("a GCRA 6 10 60\nb GCRA 6 10 60\nc GCRA 6 10 60"), at(0));
    set(&mut table, "c EX 60 OFF GCRA 1 1 1", at(0)).expect("taken");
    set(&mut table, "d EX 60 OFF GCRA 1 1 1", at(0)).expect("taken");
    let changes = table
        .load(bases("c GCRA 6 10 60\nb GCRA 6 10 1m\nz FIXED 1 1\na OFF GCRA 6 10 60"), at(30));
    let said: Vec<_> = changes
        .iter()
        .map(|Change { name, before, after }| format!("{}: {before} -> {after}", name.as_str()))
        .collect();
    let expected = [
        "a: GCRA 6 10 1m -> OFF GCRA 6 10 1m",
        "c: EX 30s OFF GCRA 1 1 1s over GCRA 6 10 1m -> GCRA 6 10 1m",
        "d: EX 30s OFF GCRA 1 1 1s -> none",
        "z: none -> FIXED 1 1s",
    ];
    assert_eq!(said, expected);
    assert_eq!(table.load(bases("z FIXED 1 1"), at(30)).len(), 3);
    assert!(table.load(bases("z FIXED 1 1000ms"), at(30)).is_empty());
}

#[test]
fn policy_keeps_its_counters_while_it_is_defined_and_gets_new_ones_after_a_removal() {
    let mut table = Policies::default();
    table.load(bases("a GCRA 6 10 60\nb GCRA 6 10 60"), at(0));
    let key = |table: &mut Policies, text| find(table, text, at(0)).map(|found| found.statistics);
    let (a, b) = (key(&mut table, "a"), key(&mut table, "b"));
    set(&mut table, "a SHADOW GCRA 1 1 1", at(0)).expect("taken");
    assert_eq!(key(&mut table, "a"), a);
    table.load(bases("b FIXED 1 1\nc FIXED 1 1"), at(0));
    assert_eq!((key(&mut table, "a"), key(&mut table, "b")), (None, b));
    table.load(bases("a FIXED 1 1\nb FIXED 1 1"), at(0));
    assert_ne!(key(&mut table, "a"), a, "what was counted of the one before is not its own");
}

#[test]
fn digest_of_the_same_policies_never_changes() {
    let mut table = Policies::default();
    table.load(bases("search GCRA 6 10 60\nsearch@plan:gold SHADOW GCRA 60 100 60"), at(0));
    // Computed by another program.
    assert_eq!(table.count_and_digest(at(0)), (2, 0x0f6b_f906_4498_5521));
}

#[test]
fn digest_includes_an_override_until_it_expires() {
    let mut table = Policies::default();
    let mut other = Policies::default();
    set(&mut table, "a GCRA 6 10 60", at(0)).expect("taken");
    let before = table.count_and_digest(at(0));
    set(&mut table, "a EX 60 OFF GCRA 1 1 1", at(0)).expect("taken");
    set(&mut other, "a EX 90 OFF GCRA 1 1 1", at(0)).expect("taken");
    // The digests are equal while both overrides apply, for any time left, and differ from that of
    // a base.
    assert_eq!(table.count_and_digest(at(59)), other.count_and_digest(at(59)));
    set(&mut other, "a OFF GCRA 1 1 1", at(0)).expect("taken");
    assert_ne!(table.count_and_digest(at(59)), other.count_and_digest(at(59)));
    assert_eq!(table.count_and_digest(at(60)), before);
}

/// Generates changes of a few names, one second apart.
fn changes() -> impl Strategy<Value = Vec<(u8, u8, u8, bool)>> {
    prop::collection::vec((0..4_u8, 0..6_u8, 0..4_u8, any::<bool>()), 0..24)
}

/// Returns the settings of all names.
fn settings(table: &Policies, now: Instant) -> Vec<String> {
    let names = ["a", "a@x", "b", "a@y"];
    let found = names.iter().filter_map(|text| {
        let line = table.get(&name(text), now)?;
        // Removes the time left from the text.
        let words: Vec<_> = line.split(' ').collect();
        Some(if words[1] == "EX" { [&words[..2], &words[3..]].concat() } else { words }.join(" "))
    });
    found.collect()
}

fn play(changes: &[(u8, u8, u8, bool)]) -> (Policies, Instant) {
    let mut table = Policies::default();
    for (second, (which, what, lasts, all)) in (0..).zip(changes) {
        let name = ["a", "a@x", "b", "a@y"][usize::from(*which)];
        let ends = if *lasts > 0 { format!("EX {lasts} ") } else { String::new() };
        let line = match what {
            0 => {
                table.delete(&[self::name(name)], at(second));
                continue;
            }
            1 if *all => {
                table.load(bases("b GCRA 1 1 1\na GCRA 1 1 1"), at(second));
                continue;
            }
            1 => format!("{name} {ends}GCRA 1 1 1"),
            2 => format!("{name} {ends}GCRA 2 1 1"),
            3 => format!("{name} {ends}OFF GCRA 1 1 1"),
            4 => format!("{name} {ends}FIXED 1 1"),
            5 if *all => format!("{name} {ends}BLOCK"),
            _ => format!("{name} {ends}SHADOW FIXED 1 1"),
        };
        let _ = set(&mut table, &line, at(second));
    }
    (table, at(changes.len() as u64))
}

proptest! {
    #![proptest_config(crate::properties::config())]

    /// Checks that two tables have the same digest exactly if the same settings apply, whatever
    /// their history, and that all settings of one policy have one algorithm.
    #[test]
    fn digests_are_equal_when_the_same_settings_apply(one in changes(), other in changes()) {
        let ((one, now), (other, then)) = (play(&one), play(&other));
        let (settings_one, settings_other) = (settings(&one, now), settings(&other, then));
        let (count, digest) = one.count_and_digest(now);
        prop_assert_eq!(count, settings_one.len());
        prop_assert_eq!(digest == other.count_and_digest(then).1, settings_one == settings_other);
        let of_a = settings_one.iter().filter(|line| line.starts_with('a'));
        let fixed = of_a.clone().filter(|line| line.contains("FIXED")).count();
        prop_assert!(fixed == 0 || fixed == of_a.count(), "{:?}", settings_one);
    }

    /// Checks that the list of a table loads as a policy file that gives the same list.
    #[test]
    fn list_loads_as_a_file(changes in changes()) {
        let (table, now) = play(&changes);
        let lines = table.list(Pattern::ANY);
        let mut other = Policies::default();
        other.load(bases(&lines.join("\n")), now);
        prop_assert_eq!(other.list(Pattern::ANY), lines);
    }
}
