//! Counters: worked examples, and a comparison with a model that never reuses a place.

use crate::policy::statistics::*;
use proptest::prelude::*;
use proptest::sample::Index as Which;
use std::collections::{BTreeMap, BTreeSet};

const NOW: Instant = Instant::from_us(1_700_000_000_000_001);

/// An allowed call that took one unit of a limit.
const fn allowed(limit_units: u64, remaining_units: u64) -> Counted {
    let (ending, taken_units, created) = (Ending::Allowed, 1, false);
    Counted { ending, limit_units, remaining_units, taken_units, created }
}

const DENIED: Counted =
    Counted { ending: Ending::Denied, taken_units: 0, remaining_units: 0, ..allowed(10, 0) };

fn near_limit(call: &Counted, percent: u8) -> u64 {
    let mut statistics = Statistics::default();
    statistics.count(Key::OTHER, call, percent, NOW);
    statistics.other.near_limit
}

#[test]
fn every_field_counts_what_it_is_named_after() {
    let mut statistics = Statistics::default();
    let key = statistics.key_of_policy(b"search");
    statistics.count(key, &Counted { created: true, taken_units: 3, ..allowed(10, 7) }, 20, NOW);
    statistics.count(key, &Counted { taken_units: 6, ..allowed(10, 1) }, 20, NOW);
    statistics.count(key, &DENIED, 20, NOW);
    statistics.count(key, &Counted { ending: Ending::ShadowDenied, ..DENIED }, 20, Instant::MAX);
    statistics.charge(key, 5);
    statistics.count_error(key);
    let expected = Counters {
        allowed: 2,
        denied: 1,
        shadow_denied: 1,
        near_limit: 1,
        created: 1,
        units: 14,
        errors: 1,
        last_denied_us: NOW.as_us(),
    };
    assert_eq!(statistics.of(b"search"), Some(&expected));
    assert_eq!(statistics.all(), [(&b"search"[..], &expected)]);
}

#[test]
fn calls_near_the_limit_are_counted_exactly_to_the_unit() {
    const MOST: u64 = 1_000_000_000_000;
    // The limit, the units left, the percentage, and the number of calls near the limit.
    let table = [
        (10, 2, 20, 0), // Exactly a fifth is not less than a fifth.
        (10, 1, 20, 1),
        (1, 0, 1, 1),
        (3, 0, 33, 1),
        (3, 1, 33, 0), // A third is more than 33 per cent,
        (3, 1, 34, 1), // and less than 34.
        (MOST, MOST / 5, 20, 0),
        (MOST, MOST / 5 - 1, 20, 1),
        (10, 0, 0, 0), // Zero is not less than zero.
        (10, 9, 100, 1),
        (10, 10, 100, 0),
        (u64::MAX, u64::MAX - 1, 100, 1), // No multiplication overflows.
        (u64::MAX, u64::MAX, 100, 0),
    ];
    for (limit, left, percent, expected) in table {
        let near = near_limit(&allowed(limit, left), percent);
        assert_eq!(near, expected, "{left} of {limit} left, {percent} per cent");
    }
}

#[test]
fn only_an_allowed_call_that_took_units_is_near_the_limit() {
    assert_eq!(near_limit(&allowed(10, 0), 20), 1);
    assert_eq!(near_limit(&Counted { taken_units: 0, ..allowed(10, 0) }, 20), 0);
    assert_eq!(near_limit(&DENIED, 100), 0);
    assert_eq!(near_limit(&Counted { ending: Ending::ShadowDenied, ..allowed(10, 0) }, 100), 0);
}

#[test]
fn units_counter_stops_at_the_largest_number() {
    let mut statistics = Statistics::default();
    let key = statistics.key_of_policy(b"search");
    statistics.charge(key, u64::MAX - 1);
    statistics.count(key, &Counted { taken_units: 5, ..allowed(10, 5) }, 20, NOW);
    statistics.charge(key, 1);
    assert_eq!(statistics.of(b"search").map(|counters| counters.units), Some(u64::MAX));
}

#[test]
fn key_of_a_deleted_policy_does_not_count_for_the_next_policy() {
    let mut statistics = Statistics::default();
    let former = statistics.key_of_policy(b"former");
    statistics.forget(b"former");
    let next = statistics.key_of_policy(b"next");
    assert_eq!(former.place, next.place, "the place is used again");
    statistics.count(former, &DENIED, 20, NOW);
    statistics.charge(former, 7);
    statistics.count_error(former);
    assert_eq!(statistics.all(), [(&b"next"[..], &Counters::default())]);
    // The same policy, set again, starts at 0 with another key.
    statistics.forget(b"next");
    let again = statistics.key_of_policy(b"next");
    statistics.count(next, &DENIED, 20, NOW);
    assert_ne!(next, again);
    assert_eq!(statistics.of(b"next"), Some(&Counters::default()));
}

#[test]
fn name_known_from_a_default_keeps_its_counters_when_its_policy_is_set() {
    let mut statistics = Statistics::default();
    let key = statistics.key_of_default(b"search");
    statistics.count(key, &DENIED, 20, NOW);
    assert_eq!(statistics.key_of_policy(b"search"), key);
    // The name no longer counts towards DEFAULTS_MAX, and RESETSTAT no longer forgets it.
    assert_eq!(statistics.defaults, 0);
    assert_eq!(statistics.key_of_default(b"search"), key);
    assert_eq!(statistics.of(b"search").map(|counters| counters.denied), Some(1));
    statistics.reset();
    assert_eq!(statistics.all(), [(&b"search"[..], &Counters::default())]);
    assert_eq!(statistics.key_of_default(b"search"), key);
}

#[test]
fn names_known_only_from_a_default_are_counted_together_beyond_1024() {
    let mut statistics = Statistics::default();
    let policy = statistics.key_of_policy(b"search");
    for invented in 0..100_000 {
        let key = statistics.key_of_default(format!("invented-{invented}").as_bytes());
        statistics.count(key, &DENIED, 20, NOW);
    }
    statistics.count(policy, &DENIED, 20, NOW);
    assert_eq!(statistics.places.len(), DEFAULTS_MAX + 1);
    assert_eq!(statistics.by_name.len(), DEFAULTS_MAX + 1);
    let all = statistics.all();
    assert_eq!(all.len(), DEFAULTS_MAX + 2);
    assert_eq!(all.iter().map(|(_, counters)| counters.denied).sum::<u64>(), 100_001);
    let other = all.first().copied().expect("the first by name");
    assert_eq!((other.0, other.1.denied), (OTHER.as_bytes(), 100_000 - DEFAULTS_MAX as u64));
    // The table still has room for its own policies, and an early name keeps its own counters.
    let set_later = statistics.key_of_policy(b"invented-99999");
    assert_ne!(set_later, Key::OTHER);
    assert_ne!(statistics.key_of_default(b"invented-0"), Key::OTHER);
    statistics.reset();
    assert_eq!(statistics.by_name.len(), 2);
    assert!(statistics.of(OTHER.as_bytes()).is_none());
    assert_ne!(statistics.key_of_default(b"invented-5000"), Key::OTHER, "there is room again");
}

#[test]
fn other_is_not_a_policy_name_and_is_listed_after_it_counted_a_call() {
    assert!(crate::policy::name::FullName::parse(OTHER.as_bytes()).is_none());
    let mut statistics = Statistics::default();
    assert!(statistics.all().is_empty());
    statistics.count_error(Key::OTHER);
    let expected = Counters { errors: 1, ..Counters::default() };
    assert_eq!(statistics.all(), [(OTHER.as_bytes(), &expected)]);
}

#[test]
fn repeated_set_and_delete_reuse_the_same_places() {
    let mut statistics = Statistics::default();
    for round in 0..10_000 {
        let name = format!("policy-{round}");
        statistics.key_of_policy(name.as_bytes());
        statistics.forget(name.as_bytes());
        statistics.forget(b"unknown");
    }
    assert_eq!((statistics.places.len(), statistics.free.len()), (1, 1));
    assert!(statistics.by_name.is_empty());
}

/// A change to the statistics. Names and keys are picked from the existing ones.
#[derive(Clone, Debug)]
enum Step {
    Policy(u16),
    Default(u16),
    Forget(u16),
    Reset,
    Count(Which, Counted, u8, u64),
    Charge(Which, u64),
    Error(Which),
}

fn calls() -> impl Strategy<Value = Counted> {
    let endings = prop_oneof![
        3 => Just(Ending::Allowed),
        1 => Just(Ending::Denied),
        1 => Just(Ending::ShadowDenied),
    ];
    let units = || prop_oneof![4 => 0..20_u64, 1 => 0..=1_000_000_000_000_u64];
    (endings, units(), units(), units(), any::<bool>()).prop_map(
        |(ending, limit_units, remaining_units, taken_units, created)| Counted {
            ending,
            limit_units,
            remaining_units,
            taken_units,
            created,
        },
    )
}

fn steps() -> impl Strategy<Value = Step> {
    let key = any::<Which>;
    prop_oneof![
        4 => (0..12_u16).prop_map(Step::Policy),
        4 => (0..12_u16).prop_map(Step::Default),
        3 => (0..12_u16).prop_map(Step::Forget),
        1 => Just(Step::Reset),
        8 => (key(), calls(), 0..=100_u8, 0..1_000_u64)
            .prop_map(|(key, call, percent, now)| Step::Count(key, call, percent, now)),
        1 => (key(), 0..1_000_u64).prop_map(|(key, units)| Step::Charge(key, units)),
        1 => (key(), Just(())).prop_map(|(key, ())| Step::Error(key)),
    ]
}

/// The counters of all names, past and present, under numbers that are never reused. The number of
/// [`OTHER`] is 0.
#[derive(Default)]
struct Model {
    known: BTreeMap<String, (usize, bool)>,
    named_by_default: BTreeSet<String>,
    counters: Vec<Counters>,
}

impl Model {
    fn id(&mut self, name: &str, is_default: bool) -> usize {
        let next = self.counters.len();
        let id = self.known.entry(name.into()).or_insert((next, is_default));
        id.1 &= is_default;
        let id = id.0;
        if id == next {
            self.counters.push(Counters::default());
        }
        id
    }

    /// Picks a key, and its counters if it still belongs to the same policy.
    fn pick(&mut self, keys: &[(Key, usize)], which: Which) -> (Key, Option<&mut Counters>) {
        let (key, id) = keys[which.index(keys.len())];
        (key, self.live(id))
    }

    /// Returns the counters with the number `id` if a name still refers to them.
    fn live(&mut self, id: usize) -> Option<&mut Counters> {
        let is_live = id == 0 || self.known.values().any(|(known, _)| *known == id);
        is_live.then(|| &mut self.counters[id])
    }

    fn all(&self) -> Vec<(String, Counters)> {
        let known = self.known.iter().map(|(name, (id, _))| (name.clone(), *id));
        let all = known.map(|(name, id)| (name, self.counters[id].clone()));
        let other = (OTHER.to_owned(), self.counters[0].clone());
        // A parenthesis sorts before every byte of a name.
        [other].into_iter().filter(|(_, other)| *other != Counters::default()).chain(all).collect()
    }
}

proptest! {
    #[test]
    fn statistics_match_a_model_that_never_reuses_a_place(
        steps in prop::collection::vec(steps(), 1..120),
    ) {
        let mut statistics = Statistics::default();
        let mut model = Model { counters: vec![Counters::default()], ..Model::default() };
        let mut keys = vec![(Key::OTHER, 0)];
        for step in steps {
            match step {
                Step::Count(index, call, percent, now) => {
                    let (key, counters) = model.pick(&keys, index);
                    statistics.count(key, &call, percent, Instant::from_us(now));
                    let Some(counters) = counters else { continue };
                    match call.ending {
                        Ending::Allowed => counters.allowed += 1,
                        Ending::Denied => counters.denied += 1,
                        Ending::ShadowDenied => counters.shadow_denied += 1,
                    }
                    if call.ending == Ending::Denied {
                        counters.last_denied_us = now;
                    }
                    // An integer is below a fraction exactly if it is below the fraction rounded
                    // up.
                    let edge = (call.limit_units * u64::from(percent)).div_ceil(100);
                    let is_near = call.remaining_units < edge;
                    let took = call.ending == Ending::Allowed && call.taken_units > 0;
                    counters.near_limit += u64::from(took && is_near);
                    counters.created += u64::from(call.created);
                    counters.units += call.taken_units;
                }
                Step::Charge(index, units) => {
                    let (key, counters) = model.pick(&keys, index);
                    statistics.charge(key, units);
                    if let Some(counters) = counters { counters.units += units; }
                }
                Step::Error(index) => {
                    let (key, counters) = model.pick(&keys, index);
                    statistics.count_error(key);
                    if let Some(counters) = counters { counters.errors += 1; }
                }
                Step::Policy(name) => {
                    let name = format!("policy-{name}");
                    let key = statistics.key_of_policy(name.as_bytes());
                    keys.push((key, model.id(&name, false)));
                }
                Step::Default(name) => {
                    let name = format!("policy-{name}");
                    let key = statistics.key_of_default(name.as_bytes());
                    keys.push((key, model.id(&name, true)));
                    model.named_by_default.insert(name);
                }
                Step::Forget(name) => {
                    let name = format!("policy-{name}");
                    statistics.forget(name.as_bytes());
                    let of_table = model.known.get_mut(&name).filter(|(_, is_default)| !is_default);
                    match of_table {
                        Some((_, is_default)) if model.named_by_default.contains(&name) => {
                            *is_default = true;
                        }
                        _ => {
                            model.known.remove(&name);
                            model.named_by_default.remove(&name);
                        }
                    }
                }
                Step::Reset => {
                    statistics.reset();
                    model.known.retain(|_, (_, is_default)| !*is_default);
                    model.named_by_default.clear();
                    model.counters.fill(Counters::default());
                }
            }
            let all = statistics.all().into_iter();
            let named = |(name, counters): (&[u8], &Counters)| {
                (String::from_utf8(name.to_vec()).unwrap(), counters.clone())
            };
            prop_assert_eq!(all.map(named).collect::<Vec<_>>(), model.all());
            let defaults = model.known.values().filter(|(_, is_default)| *is_default).count();
            prop_assert_eq!(statistics.defaults, defaults);
            prop_assert_eq!(statistics.places.len(), model.known.len() + statistics.free.len());
        }
    }
}
