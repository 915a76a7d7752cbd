//! The list of reservations: golden bytes, bytes that are rejected, and a MessagePack library.

use crate::algorithms::State;
use crate::algorithms::window::Window;
use crate::bounds::{Cost, Limit, Period};
use crate::decision::StateWrite;
use crate::msgpack::NotAState;
use crate::oracle::model::Limits;
use crate::oracle::subject::Subject;
use crate::oracle::windows::{Fixed, Quotas};
use crate::reservations::one::Reservation;
use crate::reservations::stored::{Windowed, push};
use crate::reservations::window::Step;
use crate::state::tests::{GOLDEN, US, any_number, bytes};
use crate::state::{Change, decode, encode};
use crate::time::{Instant, Span};
use proptest::prelude::*;

/// `FIXED 100 60`, and `QUOTA 100 day ZONE Europe/Berlin`.
const LIMITS: Limits =
    Limits { capacity: 100, rate: 5, period_us: 60_000_001, aligned: false, slots: 16 };

#[test]
fn golden_reservations_decode_to_their_states() {
    let one = |id, since_us, ttl_us, held: Option<u64>| Reservation {
        id,
        since: Instant::from_us(since_us),
        ttl: Period::new(Span::from_us(ttl_us)).unwrap(),
        held: held.map(|held| Cost::new(held).unwrap()),
    };
    let expected = [one(b"a", US, 60_000_000, Some(5)), one(b"j1", 1, 1_000, None)];
    for ((name, hex), of) in GOLDEN.iter().rev().zip([Windowed::Quota, Windowed::Fixed]) {
        let reserved = bytes(hex);
        let Ok(State::Reserved(state)) = decode(&reserved) else { panic!("{name}") };
        let list: Vec<_> = state.list.read(|_, _| ()).unwrap().iter().collect();
        assert_eq!((state.of, &*list), (of, &expected[..]), "{name}");
        assert_eq!(state.window, Window { start: Instant::from_us(US), used: 15 }, "{name}");
        // Settling a reservation keeps the kind.
        let at = Instant::from_us(US);
        let rule = match of {
            Windowed::Fixed => Fixed::rule(&LIMITS),
            Windowed::Quota => Quotas::rule(&LIMITS),
        };
        let stored = Some(State::Reserved(state));
        let outcome = rule.take_step(stored, at, b"a", Step::Commit { cost: None }).unwrap();
        let StateWrite::Keep(next) = outcome.next else { panic!("{name}") };
        let Change::Rewrite(written) = encode(&next.state) else { panic!("{name}") };
        assert_eq!(written[1], reserved[1], "{name}");
    }
}

#[test]
fn decode_rejects_reservations_that_are_out_of_bounds_or_out_of_order_or_malformed() {
    let rows = [
        "93 f5 90 c410 0000000000000000 0000000000000000", // no reservation
        "93 f5 91 94 c400 00 cd03e8 c0 c410 0000000000000000 0000000000000000", // no id
        "93 f5 91 94 c401 61 00 cd03e7 c0 c410 0000000000000000 0000000000000000", // below 1 ms
        "93 f5 91 94 c401 61 00 cf00001cc2a9eb4001 c0 c410 0000000000000000 0000000000000000",
        "93 f5 91 94 c401 61 cf0020000000000000 cd03e8 c0 c410 0000000000000000 0000000000000000",
        "93 f5 91 94 c401 61 00 cd03e8 cf000000e8d4a51001 c410 0000000000000000 0000000000000000",
        "93 f5 91 94 c401 61 00 cd03e8 c0 c410 0000000000000001 0000000000000000", // no window
        "93 f5 91 94 c401 61 00 cd03e8 c0 c410 0000000000000000 000001d1a94a2001", // too much used
        "93 f5 91 94 c401 61 00 cd03e8 c0 c410 0020000000000000 0000000000000001", // at 2^53 us
        "93 f5 91 94 c401 61 00 cd03e8 c0 c40f 0000000000000000 00000000000000",   // short
        "93 f5 91 94 c401 61 00 cd03e8 c3 c410 0000000000000000 0000000000000000", // holds `true`
        "93 f5 92 94 c401 61 00 cd03e8 c0 94 c401 61 00 cd03e8 c0 \
         c410 0000000000000000 0000000000000000", // an id twice
        "93 f5 92 94 c401 62 00 cd03e8 c0 94 c401 61 00 cd03e8 c0 \
         c410 0000000000000000 0000000000000000", // out of order
        // A list with a long header; an id as a string, as numbers, with a long header; an amount
        // of 5 in two bytes; a window as numbers.
        "93 f5 dc0001 94 c401 61 00 cd03e8 05 c410 0000000000000000 0000000000000000",
        "93 f5 91 94 a161 00 cd03e8 05 c410 0000000000000000 0000000000000000",
        "93 f5 91 94 9161 00 cd03e8 05 c410 0000000000000000 0000000000000000",
        "93 f5 91 94 c50001 61 00 cd03e8 05 c410 0000000000000000 0000000000000000",
        "93 f5 91 94 c401 61 00 cd03e8 cc05 c410 0000000000000000 0000000000000000",
        "94 f5 91 94 c401 61 00 cd03e8 05 00 00",
    ];
    for hex in rows {
        for kind in ["f5", "f4"] {
            let hex = hex.replacen("f5", kind, 1);
            assert!(!is_read(&bytes(&hex)), "{hex}");
        }
    }
}

/// Returns true if the bytes decode to a state with a valid list of reservations.
fn is_read(bytes: &[u8]) -> bool {
    match decode(bytes) {
        Ok(State::Reserved(state)) => state.list.read(|_, _| ()).is_ok(),
        Ok(_) | Err(NotAState) => false,
    }
}

/// Encodes a whole state whose list is already encoded.
fn encode_around(kind: i8, count: usize, list: &[u8], window: [u64; 2]) -> Vec<u8> {
    // Cuts the header off an array of `count` zeros, each of which is one byte.
    let mut header = rmp_serde::to_vec(&vec![0_u8; count]).unwrap();
    header.truncate(header.len() - count);
    let window = window.map(u64::to_be_bytes).concat();
    [&[0x93, kind as u8], &*header, list, &[0xc4, 16], &window].concat()
}

proptest! {
    #![proptest_config(crate::properties::config())]

    /// Checks that reservations decode if and only if a MessagePack library reads them and writes
    /// the same bytes again, even with a flipped bit.
    #[test]
    fn reservations_decode_as_a_messagepack_library_decodes_them(
        ids in prop::collection::btree_map(
            prop::collection::vec(any::<u8>(), 1..=66),
            (any_number(), any_number(), prop::option::of(any_number()), 0..8_usize),
            1..40,
        ),
        window in (0..3_u64, 0..3_u64),
        kind in -12..=-11_i8,
        flipped in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let (mut list, mut valid, count) = (Vec::new(), true, ids.len());
        for (id, (since_us, ttl_us, held, wild)) in &ids {
            // Mostly within bounds; otherwise hardly any list would be valid.
            let bound = |number: &u64, max: u64, wild_at| {
                if *wild == wild_at { *number } else { *number % max }
            };
            let since = bound(since_us, Instant::MAX.as_us(), 0);
            let ttl = bound(ttl_us, Period::MAX.as_us() - 1_000, 1).saturating_add(1_000);
            let held = held.map(|held| bound(&held, Limit::MAX, 2));
            valid &= since <= Instant::MAX.as_us() && id.len() <= 64;
            valid &= ttl <= Period::MAX.as_us() && held.is_none_or(|held| held <= Limit::MAX);
            list.extend([0x94, 0xc4, id.len() as u8]);
            list.extend(id);
            list.extend(rmp_serde::to_vec(&since).unwrap());
            list.extend(rmp_serde::to_vec(&ttl).unwrap());
            list.extend(rmp_serde::to_vec(&held).unwrap());
        }
        let (start_us, used) = window;
        let mut bytes = encode_around(kind, count, &list, [start_us, used]);
        prop_assert_eq!(is_read(&bytes), valid && (used > 0 || start_us == 0));
        if let Some(flipped) = flipped {
            let bit = flipped.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let Ok(State::Reserved(state)) = decode(&bytes) else { return Ok(()) };
        let mut lens = Vec::new();
        let Ok(stored) = state.list.read(|_, len| lens.push(len)) else { return Ok(()) };
        type Read<'a> = (i8, Vec<(&'a [u8], u64, u64, Option<u64>)>, &'a [u8]);
        let (kind, read, window): Read = rmp_serde::from_slice(&bytes).unwrap();
        // A flipped bit may turn one kind into the other.
        let kinds = [(Windowed::Fixed, -11), (Windowed::Quota, -12)];
        prop_assert!(kinds.contains(&(state.of, kind)));
        prop_assert_eq!(window, &bytes[bytes.len() - 16..]);
        let own: Vec<_> = stored.iter().map(|one| {
            (one.id, one.since.as_us(), one.ttl.as_us(), one.held.map(Cost::units))
        }).collect();
        prop_assert_eq!(&own, &read);
        let mut again = Vec::new();
        for (one, len) in stored.iter().zip(lens) {
            let start = again.len();
            push(&mut again, Some(one));
            prop_assert_eq!(again.len() - start, len);
        }
        let numbers = [state.window.start.as_us(), state.window.used];
        prop_assert_eq!(encode_around(kind, own.len(), &again, numbers), bytes);
    }
}
