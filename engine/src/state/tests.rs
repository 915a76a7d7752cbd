//! The codec: golden bytes that must decode for ever, and the bytes that it rejects.

use crate::algorithms::window::Window;
use crate::algorithms::{Rule, backoff, bucket, gcra, sliding_window};
use crate::bounds::{Cost, Leave, Limit, Period, Slots};
use crate::call::{CallOptions, Mode};
use crate::oracle::reply::Verb;
use crate::state::*;
use proptest::prelude::*;

mod change;

pub(crate) const US: u64 = 1_700_000_000_000_000;

pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn encode_whole(state: &NewState<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(state).apply(&mut bytes);
    bytes
}

/// The bytes written for each kind, the first six since version 0.1.0. Databases hold them: a new
/// layout needs a new kind, never an edit here.
pub(crate) const GOLDEN: [(&str, &str); 17] = [
    ("fixed window", "93 ff cf00060a24181e4000 0f"),
    ("sliding window", "94 fe cf00060a24181e4000 28 cc80"),
    (
        "sliding log",
        "93 fd cf00060a24181e4000 01 000000000000 000000000002 0000000f4240 000000000005",
    ),
    ("token bucket", "94 fc cf00060a24181e4000 00 ce0098967f"),
    ("leaky bucket", "94 fb cf00060a24181e4000 cf000000e8d4a51000 00"),
    ("gcra", "93 fa cf17979d0697ee6800 24"),
    ("token bucket in debt", "94 f9 cf00060a24181e4000 02 ce0098967f"),
    ("leaky bucket in debt", "95 f8 cf00060a24181e4000 0a cf000001d1a94a2000 00"),
    ("backoff", "93 f7 cf00060a24181e4000 ceffffffff"),
    ("calendar quota", "93 f6 cf00060a24181e4000 0f"),
    ("calendar quota in debt", "93 f6 cf00060a24181e4000 cf000001d1a94a2000"),
    // Debt in the kinds of version 0.1.0, in which it is only a larger number of units.
    ("fixed window in debt", "93 ff cf00060a24181e4000 cf000001d1a94a2000"),
    ("gcra in debt", "93 fa cf17979d0ef9b2d000 25"),
    (
        "sliding log with an entry refunded",
        "93 fd cf00060a24181e4000 01 000000000000 000000000002 000000000000 000000000002",
    ),
    ("ban", "93 f3 cf00060a24181e4000 ced693a400"),
    (
        "fixed window with one reservation open and one settled",
        "93 f5 92 94 c401 61 cf00060a24181e4000 ce03938700 05 94 c402 6a31 01 cd03e8 c0
         c410 00060a24181e4000 000000000000000f",
    ),
    (
        "calendar quota with one reservation open and one settled",
        "93 f4 92 94 c401 61 cf00060a24181e4000 ce03938700 05 94 c402 6a31 01 cd03e8 c0
         c410 00060a24181e4000 000000000000000f",
    ),
];

fn golden_states<'a>(entries: &'a [RawEntry], refunded: &'a [RawEntry]) -> [State<'a>; 15] {
    let at = Instant::from_us(US);
    [
        State::FixedWindow(Window { start: at, used: 15 }),
        State::SlidingWindow(sliding_window::State { start: at, previous: 40, current: 128 }),
        State::SlidingLog(Log { base: at, slot: Span::from_us(1), entries }),
        State::TokenBucket(bucket::State { updated: at, units: 0, fraction: 9_999_999, debt: 0 }),
        State::LeakyBucket(bucket::State { updated: at, units: Limit::MAX, fraction: 0, debt: 0 }),
        State::Gcra(gcra::State { arrival_ns: 1_700_000_036_000_000_000, tolerance_log2: 36 }),
        State::TokenBucket(bucket::State { updated: at, units: 0, fraction: 9_999_999, debt: 2 }),
        State::LeakyBucket(bucket::State {
            updated: at,
            units: 10,
            fraction: 0,
            debt: 2 * Limit::MAX,
        }),
        State::Backoff(backoff::State { last: at, count: 4_294_967_295 }),
        State::CalendarQuota(Window { start: at, used: 15 }),
        State::CalendarQuota(Window { start: at, used: 2 * Limit::MAX }),
        State::FixedWindow(Window { start: at, used: 2 * Limit::MAX }),
        State::Gcra(gcra::State { arrival_ns: 1_700_000_072_000_000_000, tolerance_log2: 37 }),
        State::SlidingLog(Log { base: at, slot: Span::from_us(1), entries: refunded }),
        State::Banned(Ban { until: at, duration: Period::new(Span::from_ms(3_600_000)).unwrap() }),
    ]
}

/// Converts a state to the form to store. For a log, that is the change that sets its last entry
/// again.
fn to_store<'a>(state: &State<'a>) -> NewState<'a> {
    match *state {
        State::FixedWindow(state) => NewState::FixedWindow(state),
        State::SlidingWindow(state) => NewState::SlidingWindow(state),
        State::TokenBucket(state) => NewState::TokenBucket(state),
        State::LeakyBucket(state) => NewState::LeakyBucket(state),
        State::Gcra(state) => NewState::Gcra(state),
        State::Backoff(state) => NewState::Backoff(state),
        State::CalendarQuota(state) => NewState::CalendarQuota(state),
        State::Banned(ban) => NewState::Banned(ban),
        State::Reserved(state) => NewState::Reserved(crate::reservations::stored::Edit {
            of: state.of,
            list: ListEdit::Keep,
            count: 0,
            tidies: false,
            len_before: 0,
            window: state.window,
            stored: state.list.read(|_, _| ()).unwrap(),
            id: &[],
            ttl: Span::ZERO,
            held: None,
            committed: Cost::ZERO,
            now: Instant::from_us(0),
        }),
        State::SlidingLog(log) => NewState::SlidingLog(Edit {
            log: Some(log),
            kept: 0..log.entries.len() - 1,
            last: log.last(),
            slot: log.slot,
            rewrites: false,
        }),
    }
}

#[test]
fn golden_bytes_decode_to_their_states() {
    let at = Instant::from_us(US);
    let entry = |us, total| Entry { instant: at.after(Span::from_us(us)), total }.pack(at, 0);
    let entries = [entry(0, 2), entry(1_000_000, 5)];
    let refunded = [entry(0, 2), entry(0, 2)];
    for ((name, hex), state) in GOLDEN.iter().zip(golden_states(&entries, &refunded)) {
        let bytes = bytes(hex);
        assert_eq!(decode(&bytes), Ok(state), "{name}");
        match encode(&to_store(&state)) {
            Change::Whole(whole) => assert_eq!(whole.as_slice(), bytes, "{name}"),
            Change::Patch { offset, entry } => {
                assert_eq!([&bytes[..offset], &entry].concat(), bytes, "{name}");
            }
            // The only array that is too long for `Change::Whole`.
            Change::Rewrite(whole) => assert_eq!((name, whole), (&"leaky bucket in debt", bytes)),
            Change::Tail { .. } => panic!("{name} has not changed in front"),
        }
    }
}

#[test]
fn decode_rejects_golden_bytes_that_are_cut_or_extended() {
    for (name, hex) in GOLDEN {
        let bytes = bytes(hex);
        for len in 0..bytes.len() {
            // A log that lacks its last entry is a valid log too.
            let whole_log = name.starts_with("sliding log") && bytes.len() - len == 12;
            assert_eq!(decode(&bytes[..len]).is_ok(), whole_log, "{name} cut to {len}");
        }
        for extra in 0..=255 {
            assert_eq!(decode(&[bytes.clone(), vec![extra]].concat()), Err(NotAState), "{name}");
        }
    }
}

/// Decodes a state with its reservations, if it has any, as every call on it does.
fn decode_all(bytes: &[u8]) -> Result<State<'_>, NotAState> {
    let state = decode(bytes)?;
    if let State::Reserved(state) = state {
        state.list.read(|_, _| {})?;
    }
    Ok(state)
}

#[test]
fn flipped_bit_decodes_to_another_state_or_an_error() {
    for (name, hex) in GOLDEN {
        let golden = bytes(hex);
        let original = decode(&golden).unwrap();
        for bit in 0..golden.len() * 8 {
            let mut bytes = golden.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(state) = decode_all(&bytes) {
                assert_ne!(state, original, "{name}, bit {bit}");
                assert_written_alike(&state, &bytes);
            }
        }
    }
}

/// Asserts that a decoded state is encoded as the same bytes.
fn assert_written_alike(state: &State<'_>, bytes: &[u8]) {
    match encode(&to_store(state)) {
        Change::Whole(whole) => assert_eq!(whole.as_slice(), bytes),
        Change::Patch { offset, entry } => assert_eq!([&bytes[..offset], &entry].concat(), bytes),
        // Only the ends of a log are checked: entries between them may be out of order.
        Change::Rewrite(_) | Change::Tail { .. } if matches!(state, State::SlidingLog(_)) => {}
        Change::Rewrite(whole) => assert_eq!(whole, bytes),
        // For a window with reservations, only the bytes of the window are written.
        Change::Tail { offset, entries } => {
            assert_eq!([&bytes[..offset], &entries].concat(), bytes);
        }
    }
}

#[test]
fn decode_rejects_other_encodings_of_the_same_numbers() {
    let spellings = [
        "93 ff cf00060a24181e4000 cc0f",   // 15 in two bytes
        "93 ff cf00060a24181e4000 d00f",   // 15 as a signed byte
        "93 d0ff cf00060a24181e4000 0f",   // the kind as a signed byte
        "dc0003 ff cf00060a24181e4000 0f", // the array with a long header
        "93 ff d300060a24181e4000 0f",     // the time as a signed number
        "92 ff cf00060a24181e4000",        // too few fields
        "94 ff cf00060a24181e4000 0f 00",  // too many
        "93 ff 0f cb0000000000000000",     // a float
        "93 ff a3616263 0f",               // a string
        "93 ff c0 0f",                     // nil
        "93 00 cf00060a24181e4000 0f",     // an unknown kind
    ];
    for hex in spellings {
        assert_eq!(decode(&bytes(hex)), Err(NotAState), "{hex}");
    }
}

#[test]
fn decode_rejects_numbers_out_of_bounds() {
    let rows = [
        "93 ff cf0020000000000000 0f",           // starts at 2^53 us
        "93 ff 00 00",                           // nothing used
        "93 ff 00 cf000001d1a94a2001",           // more than the largest debt
        "94 fe 00 00 00",                        // nothing in the current window
        "94 fc 00 cf000000e8d4a51000 00",        // a full bucket
        "94 fc 00 00 cf00001cc2a9eba000",        // a fraction of 366 days
        "94 fb 00 00 00",                        // an empty queue
        "94 f9 00 00 00",                        // a debt of 0
        "94 f9 00 cf000001d1a94a2001 00",        // more than the largest debt
        "95 f8 00 00 01 00",                     // a debt with an empty queue
        "95 f8 00 01 00 00",                     // a debt of 0
        "94 f8 00 01 01",                        // a number too few
        "93 f7 00 00",                           // no attempts
        "93 f7 00 cf0000000100000000",           // more than are counted
        "95 f8 00 01 01 cf00001cc2a9eba000",     // a fraction of 366 days
        "93 fa cfffffffffffffffff 00",           // a time out of range
        "93 fa 00 3f",                           // a tolerance of 2^63 ns
        "93 fd 00 01",                           // a log without entries
        "93 fd 00 00 000000000000 000000000001", // slots of width 0
        "93 fd 00 01 000000000001 000000000001", // the first entry is not the base
        "93 fd 00 01 000000000000 000000000000", // the first entry has no cost
        "93 fd 00 01 000000000000 000000000002 000000000001 000000000001", // a decreasing total
        "93 fd cf001fffffffffffff 01 000000000000 000000000001 000000000001 000000000002",
        "93 f3 cf0020000000000000 cd03e8", // ends at 2^53 us
        "93 f3 00 cd03e7",                 // less than 1 ms
        "93 f3 00 cf00001cc2a9eb4001",     // more than 366 days
        "94 f3 00 cd03e8 00",              // a number too many
    ];
    for hex in rows {
        assert_eq!(decode(&bytes(hex)), Err(NotAState), "{hex}");
    }
}

#[test]
fn new_log_is_a_header_and_one_entry() {
    let at = Instant::from_us(US);
    let edit = Edit {
        log: None,
        kept: 0..0,
        last: Entry { instant: at, total: 7 },
        slot: Span::from_us(1),
        rewrites: false,
    };
    let bytes = encode_whole(&NewState::SlidingLog(edit));
    let State::SlidingLog(log) = decode(&bytes).unwrap() else { panic!("a log") };
    assert_eq!((log.base, log.last().total, log.entries.len()), (at, 7, 1));
}

/// Generates numbers of every encoded length, and the values at the boundaries between lengths.
pub(crate) fn any_number() -> impl Strategy<Value = u64> {
    let border = prop::sample::select(vec![0x7f, 0xff, 0xffff, 0xffff_ffff, u64::MAX - 1]);
    prop_oneof![
        (any::<u64>(), 0..64_u32).prop_map(|(number, shift)| number >> shift),
        (border, 0..2_u64).prop_map(|(border, above)| border + above),
    ]
}

fn verbs() -> impl Strategy<Value = Verb> {
    let leave = Leave::Percent(40);
    let verbs = vec![Verb::Decide, Verb::PartlyLeaving(leave), Verb::Charge, Verb::Refund];
    prop::sample::select(verbs)
}

/// The first bytes of an array that holds a kind and three numbers.
const KIND: [u8; 2] = [0x94, 0xff];

/// Generates a kind and three numbers, each number in any of its MessagePack encodings.
fn spelled_somehow() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec((any_number(), 0..6_usize), 3).prop_map(|numbers| {
        let mut bytes = KIND.to_vec();
        for (number, spelling) in numbers {
            let all = number.to_be_bytes();
            match spelling {
                0 => bytes.extend([&[0xcc], &all[7..]].concat()),
                1 => bytes.extend([&[0xcd], &all[6..]].concat()),
                2 => bytes.extend([&[0xce], &all[4..]].concat()),
                3 => bytes.extend([&[0xcf], &all[..]].concat()),
                4 => bytes.extend([&[0xd3], &all[..]].concat()),
                _ => bytes.extend(rmp_serde::to_vec(&number).unwrap()),
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(crate::properties::config())]

    #[test]
    fn fixed_size_states_decode_as_they_were_encoded(
        us in 0..=Instant::MAX.as_us(),
        count in prop_oneof![0..300_u64, 0..Limit::MAX],
        fraction in 0..Period::MAX.as_us(),
        arrival_ns in 0..=gcra::State::ARRIVAL_MAX_NS,
        tolerance_log2 in 0..=gcra::State::TOLERANCE_LOG2_MAX,
    ) {
        let at = Instant::from_us(us);
        let states = [
            State::FixedWindow(Window { start: at, used: count + 1 }),
            State::SlidingWindow(sliding_window::State {
                start: at,
                previous: fraction,
                current: count + 1,
            }),
            State::TokenBucket(bucket::State { updated: at, units: count, fraction, debt: 0 }),
            State::Banned(Ban {
                until: at,
                duration: Period::new(Span::from_us(fraction.max(1_000))).unwrap(),
            }),
            State::LeakyBucket(bucket::State { updated: at, units: count + 1, fraction, debt: 0 }),
            State::TokenBucket(bucket::State { updated: at, units: 0, fraction, debt: count + 1 }),
            State::LeakyBucket(bucket::State {
                updated: at,
                units: count + 1,
                fraction,
                debt: 2 * Limit::MAX - count,
            }),
            State::Gcra(gcra::State { arrival_ns, tolerance_log2 }),
            State::Backoff(backoff::State { last: at, count: arrival_ns % 0xffff_ffff + 1 }),
            State::CalendarQuota(Window { start: at, used: count + 1 }),
        ];
        for state in states {
            let bytes = encode_whole(&to_store(&state));
            prop_assert_eq!(decode(&bytes), Ok(state));
        }
    }

    /// Compares the hand-written array with the one of a MessagePack library, number by number.
    #[test]
    fn array_is_encoded_as_a_messagepack_library_encodes_it(
        kind in -10_i8..0,
        numbers in prop::array::uniform4(any_number()),
    ) {
        let [a, b, c, d] = numbers;
        let two = Array::new(kind, [a, b]);
        let three = Array::new(kind, [a, b, c]);
        prop_assert_eq!(two.as_slice(), rmp_serde::to_vec(&(kind, a, b)).unwrap());
        prop_assert_eq!(three.as_slice(), rmp_serde::to_vec(&(kind, a, b, c)).unwrap());
        prop_assert_eq!(long_array(kind, numbers), rmp_serde::to_vec(&(kind, a, b, c, d)).unwrap());
    }

    /// Checks that bytes decode if and only if a MessagePack library reads them and writes the same
    /// bytes again.
    #[test]
    fn array_decodes_as_a_messagepack_library_decodes_it(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40).prop_map(|tail| [&KIND, &*tail].concat()),
            spelled_somehow(),
        ],
    ) {
        let library = rmp_serde::from_slice::<(i8, u64, u64, u64)>(&bytes).ok().and_then(|read| {
            let rest = bytes.strip_prefix(rmp_serde::to_vec(&read).unwrap().as_slice())?;
            Some(([read.1, read.2, read.3], rest))
        });
        prop_assert_eq!(split_numbers(&bytes).ok(), library);
    }

    /// Checks that a state stored over a log with a forged middle decodes again.
    #[test]
    fn state_written_over_a_forged_log_decodes_again(
        entries in prop::collection::vec((0..4_000_u64, 0..200_u64), 1..12),
        slot_us in 1..2_000_u64,
        limits in (1..300_u64, 1..4_u64),
        calls in prop::collection::vec((-9_000..9_000_i64, 0..9_u64, verbs()), 1..6),
    ) {
        let at = |ms: u64| Instant::from_us(US + ms * 1_000);
        let mut forged = Array::new(SLIDING_LOG, [US, slot_us]).as_slice().to_vec();
        for (index, (ms, total)) in entries.iter().enumerate() {
            let instant = if index == 0 { at(0) } else { at(*ms) };
            forged.extend_from_slice(&Entry { instant, total: *total }.pack(at(0), 0));
        }
        let (limit, seconds) = limits;
        let rule = Rule::SlidingLog(SlidingLog {
            limit: Limit::new(limit).unwrap(),
            window: Period::new(Span::from_ms(seconds * 1_000)).unwrap(),
            slots: Slots::new(16).unwrap(),
            has_own_slots: false,
        });
        let mut bytes = forged;
        for (ms, cost, verb) in calls {
            let Ok(state) = decode(&bytes) else { break };
            let now = Instant::from_us(US.checked_add_signed(ms * 1_000).unwrap());
            let cost = Cost::new(cost).unwrap();
            let outcome = match verb {
                Verb::Charge => rule.charge(Some(state), now, cost).unwrap(),
                Verb::Refund => rule.refund(Some(state), now, cost).unwrap(),
                _ => {
                    let partial = verb.is_partial();
                    let options = CallOptions { cost, partial, leave: verb.leave() };
                    rule.decide_call(Mode::Take, Some(state), now, options).unwrap()
                }
            };
            let Some(next) = outcome.next.kept() else { continue };
            let change = encode(&next.state);
            prop_assert!(!matches!(change, Change::Whole(_)), "a log is no fixed-size state");
            change.apply(&mut bytes);
            prop_assert!(decode(&bytes).is_ok(), "{:02x?}", bytes);
        }
    }

    #[test]
    fn arbitrary_bytes_decode_to_a_state_or_an_error(
        head in prop::sample::select(vec![vec![], vec![0x93, 0xff], vec![0x94, 0xfe],
            vec![0x93, 0xfd], vec![0x94, 0xfc], vec![0x94, 0xfb], vec![0x93, 0xfa],
            vec![0x94, 0xf9], vec![0x95, 0xf8], vec![0x93, 0xf7], vec![0x93, 0xf6]]),
        tail in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let bytes = [head, tail].concat();
        if let Ok(state) = decode(&bytes) {
            assert_written_alike(&state, &bytes);
        }
    }
}
