//! Names, patterns of names, and the keys that a percentage enforces.

use crate::policy::definition::{Enforcement, Stance, fnv_1a};
use crate::policy::name::{FullName, Name};
use crate::policy::pattern::Pattern;
use crate::time::{Instant, Span};

fn name(text: &str) -> FullName {
    FullName::parse(text.as_bytes()).expect(text)
}

#[test]
fn name_has_1_to_64_allowed_characters() {
    let longest = "a".repeat(64);
    for good in ["a", "A-Z", "0.9", "_:/-.", "api/v2:search", &longest] {
        assert_eq!(Name::new(good.as_bytes()).map(Name::as_bytes), Some(good.as_bytes()));
    }
    let too_long = "a".repeat(65);
    for bad in ["", "a@b", "a b", "a\n", "a#", "\u{e4}", "a\0", "*", "\"a\"", "(other)", &too_long]
    {
        assert_eq!(Name::new(bad.as_bytes()), None, "{bad:?}");
    }
}

#[test]
fn full_name_starts_with_the_name_of_its_policy() {
    let longest = format!("{}@{}", "a".repeat(64), "b".repeat(64));
    for (text, policy) in [("a", "a"), ("a@b", "a"), (&*longest, &*"a".repeat(64))] {
        let name = name(text);
        assert_eq!((name.as_str(), name.policy()), (text, policy.as_bytes()));
    }
    for bad in ["@", "a@", "@b", "a@b@c", "a@@b", "a@b c"] {
        assert_eq!(FullName::parse(bad.as_bytes()), None, "{bad}");
    }
}

#[test]
fn pattern_matches_as_in_the_keys_command() {
    let rows = [
        ("*", "", true),
        ("*", "search@plan:gold", true),
        ("", "", true),
        ("", "a", false),
        ("search", "search", true),
        ("search", "Search", false),
        ("search*", "search@plan:gold", true),
        ("*@*", "search", false),
        ("*@plan:*", "search@plan:gold", true),
        ("s?arch", "search", true),
        ("s?arch", "sarch", false),
        ("?", "", false),
        ("[ab]c", "bc", true),
        ("[^ab]c", "bc", false),
        ("[^ab]c", "cc", true),
        ("[a-c]c", "bc", true),
        ("[c-a]c", "bc", true),
        ("[a-c]c", "dc", false),
        ("[a\\]]c", "]c", true),
        ("[ab", "b", true),
        ("[", "b", false),
        ("[a-]", "-", true),
        ("\\*", "*", true),
        ("\\*", "a", false),
        ("a\\", "a\\", true),
        ("*a*b*c", "xxaxxbxxc", true),
        ("*a*b*c", "xxaxxcxxb", false),
        ("**", "abc", true),
        ("*c", "abcabc", true),
        ("a*?", "a", false),
    ];
    for (pattern, name, expected) in rows {
        let found = Pattern::new(pattern.as_bytes()).expect("short").matches(name.as_bytes());
        assert_eq!(found, expected, "{pattern} and {name}");
    }
    assert!(Pattern::new(&[b'*'; 257]).is_none());
    // The worst case still ends.
    let worst = format!("{}b", "a*".repeat(127));
    assert!(!Pattern::new(worst.as_bytes()).expect("short").matches(&[b'a'; 129]));
}

#[test]
fn fnv_1a_matches_the_values_in_its_draft() {
    assert_eq!(fnv_1a(b""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(fnv_1a(b"foobar"), 0x8594_4171_f739_67e8);
}

/// Returns true if `percent` of the keys include this one.
fn is_enforced(policy: &str, subject: &str, percent: u8) -> bool {
    let now = Instant::from_us(0);
    let policy = Name::new(policy.as_bytes()).expect(policy);
    let stance = Enforcement::Percent(percent).stance(policy, subject.as_bytes(), None, now);
    match stance {
        Stance::Enforced => true,
        Stance::Shadow => false,
        other => panic!("{other:?}"),
    }
}

/// Compares with numbers from another program: the enforced keys must never change.
#[test]
fn percentage_enforces_the_same_keys_in_every_version() {
    let users: Vec<_> = (1..=100).map(|number| format!("user:{number}")).collect();
    let in_at_ten = [4, 11, 18, 22, 29, 36, 41, 52, 60, 69, 77, 96];
    let enforced: Vec<_> = (1..=100).filter(|n| is_enforced("search", &users[n - 1], 10)).collect();
    assert_eq!(enforced, in_at_ten);
    // The numbers of the three keys are 57, 24 and 35.
    for (user, lot) in users.iter().zip([57, 24, 35]) {
        assert!(!is_enforced("search", user, lot) && is_enforced("search", user, lot + 1));
    }
}

#[test]
fn percentage_enforces_about_that_share_of_the_keys_and_a_larger_one_keeps_them() {
    let counts = [
        ("search", [0, 102, 1011, 2005, 4986, 9899, 10_000]),
        ("login", [0, 101, 989, 1970, 4909, 9892, 10_000]),
        ("api/v2", [0, 92, 986, 2006, 5001, 9899, 10_000]),
    ];
    for (policy, expected) in counts {
        let mut last = Vec::new();
        for (percent, count) in [0, 1, 10, 20, 50, 99, 100].into_iter().zip(expected) {
            let subject = |number: &u32| format!("user:{number}");
            let enforced: Vec<u32> =
                (0..10_000).filter(|n| is_enforced(policy, &subject(n), percent)).collect();
            assert_eq!(enforced.len(), count, "{policy} at {percent}");
            assert!(last.iter().all(|subject| enforced.binary_search(subject).is_ok()));
            last = enforced;
        }
    }
}

#[test]
fn block_returns_the_time_until_the_policy_expires() {
    let at = Instant::from_us;
    let policy = Name::new(b"a").expect("a name");
    let stance = |ends_at| Enforcement::Block.stance(policy, b"k", ends_at, at(1_000));
    assert_eq!(stance(None), Stance::Blocked(None));
    assert_eq!(stance(Some(at(5_000))), Stance::Blocked(Some(Span::from_us(4_000))));
    let off = Enforcement::Off.stance(policy, b"k", None, at(0));
    assert_eq!(off, Stance::Off);
}
