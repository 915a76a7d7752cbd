//! The grammar of the use of a policy, valid and invalid.

use crate::algorithms::fixed_window::FixedWindow;
use crate::bounds::{Cost, Leave, Limit, Period, Slots};
use crate::grammar::packed::packed_rule;
use crate::grammar::rule::{request, rule, rule_with_cost};
use crate::grammar::tests::words;
use crate::grammar::usage::*;
use crate::time::Span;

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("a name")
}

fn plain(policy: &str) -> Usage<'_> {
    Usage {
        policy: name(policy),
        variants: [None; 2],
        given: GivenOptions::default(),
        default: None,
    }
}

fn fixed(limit: u64, aligned: bool) -> Option<Rule> {
    let limit = Limit::new(limit).expect("in range");
    let window = Period::new(Span::from_us(10_000_000)).expect("in range");
    Some(Rule::FixedWindow(FixedWindow { limit, window, aligned }))
}

#[test]
fn use_takes_options_and_up_to_two_variants_and_a_default() {
    let given = |cost: Option<u64>, partial| GivenOptions {
        cost: cost.map(|units| Cost::new(units).expect("in range")),
        partial,
        leave: None,
    };
    let (acme, gold) = (Some(name("tenant:acme")), Some(name("plan:gold")));
    let all = Usage {
        given: given(Some(5), true),
        variants: [acme, gold],
        default: fixed(15, true),
        ..plain("search")
    };
    let long = "x".repeat(64);
    let rows: [(&str, Usage<'_>); 15] = [
        ("search", plain("search")),
        ("COST", plain("COST")),
        ("A.z_0:/-", plain("A.z_0:/-")),
        (&long, plain(&long)),
        ("search COST 0", Usage { given: given(Some(0), false), ..plain("search") }),
        (
            "search cost 1000000000000",
            Usage { given: given(Some(1_000_000_000_000), false), ..plain("search") },
        ),
        ("search PARTIAL", Usage { given: given(None, true), ..plain("search") }),
        (
            "search LEAVE 20%",
            Usage {
                given: GivenOptions { leave: Some(Leave::Percent(20)), ..given(None, false) },
                ..plain("search")
            },
        ),
        ("search FOR plan:gold", Usage { variants: [gold, None], ..plain("search") }),
        // The same variant twice is looked up twice.
        ("search for plan:gold FOR plan:gold", Usage { variants: [gold, gold], ..plain("search") }),
        (
            "search FOR DEFAULT",
            Usage { variants: [Some(name("DEFAULT")), None], ..plain("search") },
        ),
        ("search DEFAULT FIXED 15 10", Usage { default: fixed(15, false), ..plain("search") }),
        ("search COST 5 PARTIAL FOR tenant:acme FOR plan:gold DEFAULT FIXED 15 10 ALIGNED", all),
        ("search FOR tenant:acme partial FOR plan:gold cOST 5 default fixed 15 10s aligned", all),
        ("search PARTIAL FOR tenant:acme COST 5 For plan:gold Default FIXED 0015 10 ALIGNED", all),
    ];
    for (text, expected) in rows {
        assert_eq!(usage(&words(text)), Ok(expected), "{text}");
        let packed = format!("  uSe  {} ", text.replace(' ', "   "));
        assert_eq!(packed_usage(packed.as_bytes()), Ok(expected), "{packed}");
    }
}

#[test]
fn longest_use_fits_in_one_argument() {
    let longest = "search COST 5 PARTIAL LEAVE 20% FOR a FOR b \
                   DEFAULT QUOTA 5 week ZONE Europe/Berlin START mon";
    assert_eq!(longest.split_whitespace().count(), 18);
    let whole = usage(&words(longest));
    assert!(whole.is_ok());
    let packed = format!("USE {longest}");
    assert_eq!(packed_usage(packed.as_bytes()), whole);
    // One more word is an error, and so are words beyond those that are parsed.
    for more in [" x", " COST 1", " PARTIAL", " COST 1 PARTIAL x y z"] {
        let packed = format!("{packed}{more}");
        assert!(packed_usage(packed.as_bytes()).is_err(), "{packed}");
    }
}

#[test]
fn use_returns_the_first_error_from_the_left() {
    use crate::algorithms::Algorithm;
    use GrammarError::{
        AlgorithmOfPolicy, Arity, Burst, Cost, CostOfPolicy, MaxNotBelowForget, MissingCost,
        MissingDefault, MissingVariant, NoOption, OptionOfPolicy, OptionOfUse, PartialOfNothing,
        RepeatedCost, RepeatedFor, RepeatedPartial, RuleArity, UseArity, UsedPolicy, Variant,
    };
    let long = format!("{} x", "x".repeat(65));
    let rows: [(&str, GrammarError); 34] = [
        ("", UsedPolicy),
        ("sea@rch x", UsedPolicy),
        ("search@plan:gold", UsedPolicy),
        ("s\u{e4}rch", UsedPolicy),
        ("(other)", UsedPolicy),
        (&long, UsedPolicy),
        ("search x", OptionOfUse),
        ("search ALIGNED", OptionOfUse),
        ("search GCRA 6 10 60", OptionOfUse),
        ("search COST", MissingCost),
        ("search COST -1 x", Cost),
        ("search COST 1000000000001", Cost),
        ("search COST 1 COST 1", RepeatedCost),
        ("search PARTIAL PARTIAL", RepeatedPartial),
        ("search COST 0 PARTIAL", PartialOfNothing),
        ("search PARTIAL COST 0 FOR x", PartialOfNothing),
        ("search FOR", MissingVariant),
        ("search FOR plan@gold", Variant),
        ("search FOR  FOR x", Variant),
        ("search FOR a FOR b FOR c", RepeatedFor),
        ("search FOR a FOR b FOR", RepeatedFor),
        ("search DEFAULT", MissingDefault),
        ("search DEFAULT x", AlgorithmOfPolicy),
        ("search DEFAULT LEASE a 1 1", AlgorithmOfPolicy),
        ("search DEFAULT USE search", AlgorithmOfPolicy),
        ("search DEFAULT GCRA 6 10", RuleArity(Algorithm::Gcra)),
        ("search DEFAULT GCRA 0 10 60", Burst),
        ("search DEFAULT GCRA 6 10 60 FOR x", OptionOfPolicy),
        ("search DEFAULT GCRA 6 10 60 COST 1", CostOfPolicy),
        ("search DEFAULT FIXED 6 10 PARTIAL ALIGNED", CostOfPolicy),
        ("search DEFAULT QUOTA 6 day COST 0", CostOfPolicy),
        ("search DEFAULT GCRA 6 10 60 COST", CostOfPolicy),
        ("search DEFAULT BACKOFF 6 10 60 600 COST 1", NoOption),
        ("search DEFAULT BACKOFF 6 10 60 60", MaxNotBelowForget),
    ];
    for (text, expected) in rows {
        assert_eq!(usage(&words(text)), Err(expected), "{text}");
    }
    assert_eq!(usage(&[]), Err(Arity));
    for packed in ["USE", "use ", " Use  "] {
        assert_eq!(packed_usage(packed.as_bytes()), Err(UseArity), "{packed}");
    }
}

#[test]
fn use_in_place_of_a_rule_has_its_own_error() {
    let use_of = words("uSe search");
    assert_eq!(rule(&use_of, Slots::DEFAULT), Err(GrammarError::UseNotHere));
    assert_eq!(rule_with_cost(&use_of, Slots::DEFAULT), Err(GrammarError::UseNotHere));
    assert_eq!(packed_rule(b" USE search", Slots::DEFAULT), Err(GrammarError::UseNotHere));
    assert_eq!(packed_rule(b"USER search", Slots::DEFAULT), Err(GrammarError::Algorithm));
}

#[test]
fn variants_are_kept_in_the_order_of_the_call() {
    let variants = |text: &'static str| usage(&words(text)).expect("right").variants;
    let name = |text: &'static str| Name::new(text.as_bytes());
    assert_eq!(variants("search"), [None, None]);
    assert_eq!(variants("search FOR plan:gold"), [name("plan:gold"), None]);
    let both = "search FOR tenant:acme FOR plan:gold";
    assert_eq!(variants(both), [name("tenant:acme"), name("plan:gold")]);
}

#[test]
fn use_refuses_cost_and_partial_under_backoff() {
    let parse = |text: &str| request(Algorithm::Backoff, &words(text), Slots::DEFAULT);
    let backoff = parse("3 1 8 60").expect("right").rule;
    let fixed = fixed(15, false).expect("a rule");
    for (text, fits) in [
        ("s", true),
        ("s FOR a", true),
        ("s COST 1", false),
        ("s COST 0", false),
        ("s PARTIAL", false),
    ] {
        let words = words(text);
        let usage = usage(&words).expect("right");
        let refused = Err(GrammarError::CostOfBackoff);
        assert_eq!(usage.request(backoff).map(|_| ()), if fits { Ok(()) } else { refused });
        assert!(usage.request(fixed).is_ok());
    }
}
