//! Changes applied to the stored bytes of a key.

use super::US;
use crate::algorithms::sliding_log::RawEntry;
use crate::msgpack::Array;
use crate::state::Change;

#[test]
fn change_replaces_the_bytes_from_its_offset_on() {
    let array = Array::new(-1, [US, 15]);
    let entry = RawEntry::default();
    let after = |change: Change, bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        change.apply(&mut bytes);
        bytes
    };
    // The stored value is missing, longer than the new one, or shorter.
    for stored in [&[][..], &[7; 40], &[7; 2]] {
        assert_eq!(after(Change::Whole(array), stored), array.as_slice());
        assert_eq!(after(Change::Rewrite(vec![1, 2, 3]), stored), [1, 2, 3]);
    }
    // The change starts at the last entry, or after it.
    for offset in [8, 20] {
        let patched = after(Change::Patch { offset, entry }, &[7; 20]);
        assert_eq!(patched, [vec![7; offset], entry.to_vec()].concat());
        let tail = after(Change::Tail { offset, entries: vec![9; 36] }, &[7; 20]);
        assert_eq!(tail, [vec![7; offset], vec![9; 36]].concat());
    }
}

#[test]
#[should_panic(expected = "a patch leaves no old bytes")]
fn change_that_would_shorten_the_value_panics_in_a_debug_build() {
    Change::Tail { offset: 4, entries: vec![9; 12] }.apply(&mut vec![7; 20]);
}

#[test]
#[should_panic(expected = "a patch leaves no gap")]
fn change_that_would_leave_a_gap_panics_in_a_debug_build() {
    Change::Tail { offset: 21, entries: vec![9; 12] }.apply(&mut vec![7; 20]);
}
