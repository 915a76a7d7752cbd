//! Feeds any bytes as the value of a key. If the bytes decode to a state, that state must encode to
//! the same bytes, and only the state's own algorithm may decide on it. Calls under any rule of
//! that algorithm must decide as the naive model does.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redis_throttle_engine::algorithms::{NewState, State};
use redis_throttle_engine::ban::Ban;
use redis_throttle_engine::bounds::Cost;
use redis_throttle_engine::for_all_subjects;
use redis_throttle_engine::oracle::{
    AnyCall, AnySubject, CLOCK_MAX_US, Fixed, Key, Limits, Quotas, Reserved, Reserving, Share,
    Source, Step, Subject, Twin, Verb, Windows, Wrote,
};
use redis_throttle_engine::reservations::stored;
use redis_throttle_engine::reservations::stored::Windowed;
use redis_throttle_engine::state::decimal::{decode_decimal, encode_decimal};
use redis_throttle_engine::state::{Change, decode, encode};
use redis_throttle_engine::time::{Instant, Span};

/// The number of bytes that choose the calls; the rest is the value of the key.
const CALLS_LEN: usize = 40;

/// The number of calls on the key.
const CALLS: usize = 3;

fuzz_target!(|bytes: &[u8]| {
    let Some((mut calls, stored)) = bytes.split_at_checked(CALLS_LEN) else { return };
    if let Ok(state) = decode_decimal(stored) {
        // The value is a state of redis-cell in digits, so `decode`, which all other commands use,
        // must reject it.
        let Change::Whole(digits) = encode_decimal(&state) else { panic!("{state:?}") };
        assert_eq!(digits.as_slice(), stored);
        assert!(decode(stored).is_err(), "{stored:?}");
    }
    let Ok(state) = decode(stored) else { return };
    assert_eq!(written_again(state, stored), stored);
    let limits = Limits::draw(&mut calls);
    if let State::Banned(ban) = state {
        return every_algorithm_denies(ban, &limits);
    }
    only_its_own_algorithm_decides(state, &limits);
    if state.inspect(Instant::from_us(0)).is_err() {
        return;
    }
    match state {
        State::Reserved(state) => match state.of {
            Windowed::Fixed => reserve::<Fixed>(stored, state, limits, calls),
            Windowed::Quota => reserve::<Quotas>(stored, state, limits, calls),
        },
        state => call_own(state, stored, limits, calls),
    }
});

macro_rules! by_algorithm {
    ($($name:ident: $algorithm:ident => $subject:ty,)*) => {
        /// Makes calls on the key under rules of the algorithm whose state it holds.
        fn call_own(state: State<'_>, stored: &[u8], limits: Limits, calls: &[u8]) {
            match state {
                $(State::$algorithm(_) => {
                    let about_us = <$subject>::about_us(&state).expect("its own state");
                    call::<$subject>(stored, about_us, limits, calls);
                })*
                State::Reserved(_) | State::Banned(_) => unreachable!("called by its own function"),
            }
        }

        fn written_again(state: State<'_>, stored: &[u8]) -> Vec<u8> {
            let new_state = match state {
                // The encoding of a reservation list is compared by the engine's tests, not here.
                State::Reserved(_) => return stored.to_vec(),
                State::Banned(ban) => NewState::Banned(ban),
                $(State::$algorithm(state) => NewState::$algorithm(state.into()),)*
            };
            match encode(&new_state) {
                Change::Whole(bytes) => bytes.as_slice().to_vec(),
                Change::Rewrite(bytes) => bytes,
                Change::Patch { offset, entry } => [&stored[..offset], &entry].concat(),
                Change::Tail { .. } => panic!("nothing is refunded"),
            }
        }
    };
}

for_all_subjects!(by_algorithm);

/// Makes plain calls and calls on reservations, at times near that of a stored reservation.
fn reserve<S: Subject + Windows>(
    stored: &[u8],
    state: stored::State<'_>,
    limits: Limits,
    mut calls: &[u8],
) {
    let list = state.list.read(|_, _| ()).expect("a list");
    let about_us = list.iter().next().expect("one at least").since.as_us();
    call::<Reserving<S>>(stored, about_us, limits, calls);
    let key = Key { bytes: Some(stored.to_vec()), expires_at: 0 };
    let model = Reserved::try_from(State::Reserved(state)).expect("explained");
    let mut twin = Twin::<Reserving<S>> { key, model };
    let mut now = i128::from(about_us).min(CLOCK_MAX_US);
    for _ in 0..CALLS {
        let call = AnyCall::draw(&mut calls, &limits, S::span_us(&limits));
        twin.any_call(&limits, now, call).unwrap_or_else(|difference| panic!("{difference}"));
        let step = Step::draw_set(&mut calls);
        now = (now + step.us(S::span_us(&limits))).clamp(0, CLOCK_MAX_US);
    }
}

/// Makes a call of every algorithm before the end of a ban and at its end.
fn every_algorithm_denies(ban: Ban, limits: &Limits) {
    for subject in &AnySubject::ALL {
        let rule = (subject.rule)(limits);
        let decide = |stored, now| rule.decide(stored, now, Cost::ONE).expect("a decision");
        let stored = Some(State::Banned(ban));
        assert_eq!(decide(stored, ban.until), decide(None, ban.until));
        if let Some(before) = ban.until.before(Span::from_us(1)) {
            assert!(decide(stored, before).decision.verdict.is_banned());
        }
    }
}

fn only_its_own_algorithm_decides(state: State<'_>, limits: &Limits) {
    let decides = |subject: &AnySubject| {
        (subject.rule)(limits).decide(Some(state), Instant::from_us(0), Cost::ONE).is_ok()
    };
    let decided = AnySubject::ALL.iter().filter(|subject| decides(subject));
    // No algorithm decides if the list of reservations turns out to be invalid.
    let is_one = state.inspect(Instant::from_us(0)).is_ok();
    assert_eq!(decided.count(), usize::from(is_one));
}

/// Makes calls at times near the time in the state, `about_us`.
fn call<S: Subject>(stored: &[u8], about_us: u64, limits: Limits, mut calls: &[u8]) {
    let key = Key { bytes: Some(stored.to_vec()), expires_at: 0 };
    let model = S::Model::try_from(decode(stored).expect("a state")).ok();
    let mut twin = model.map(|model| Twin::<S> { key: key.clone(), model });
    let mut forged = key;
    let mut now = i128::from(about_us);
    for _ in 0..CALLS {
        let is_set = calls.below(2) == 1;
        let step = if is_set { Step::draw_set(&mut calls) } else { Step::draw_good(&mut calls) };
        now = (now + step.us(S::span_us(&limits))).clamp(0, CLOCK_MAX_US);
        let verb = S::verb(Verb::draw(&mut calls));
        let cost = S::cost(Share::draw(&mut calls).of(&limits));
        if let Some(twin) = &mut twin {
            twin.call(verb, &limits, now, cost).unwrap_or_else(|difference| panic!("{difference}"));
        }
        // A call gets a reply and leaves a valid state, even if no calls can produce the stored
        // state.
        let carried_out = forged.carry_out(verb, &S::rule(&limits), now, cost);
        let Ok((reply, wrote)) = carried_out else { continue };
        assert!((0..=limits.capacity).contains(&reply.remaining), "{reply:?}");
        assert!(reply.retry_after_ms >= -1 && reply.reset_after_ms >= 0, "{reply:?}");
        let Some(bytes) = &forged.bytes else {
            assert_eq!(wrote, Wrote::Deletion);
            break;
        };
        assert!(decode(bytes).is_ok(), "unreadable");
    }
}
