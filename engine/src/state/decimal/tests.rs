//! The state of a key of redis-cell: digits that decode, and bytes that are rejected.

use crate::state::decimal::*;
use crate::state::decode;

fn read(bytes: &[u8]) -> Result<u64, NotAState> {
    decode_decimal(bytes).map(|state| state.arrival_ns)
}

#[test]
fn redis_cell_key_is_digits_and_not_a_state_of_the_module() {
    for number in [0, 7, 10, 1_800_000_002_000_000_000, i64::MAX.unsigned_abs()] {
        let digits = number.to_string();
        assert_eq!(read(digits.as_bytes()), Ok(number));
        assert_eq!(decode(digits.as_bytes()), Err(NotAState));
        let Change::Whole(written) = encode_decimal(&State { arrival_ns: number }) else {
            panic!("a state of fixed size");
        };
        assert_eq!(written.as_slice(), digits.as_bytes());
    }
    assert_eq!(Array::digits(u64::MAX).as_slice(), u64::MAX.to_string().as_bytes());
}

#[test]
fn decode_decimal_rejects_all_but_the_shortest_digits_of_an_i64() {
    let none = [
        "",
        "hello",
        "-1",
        "-0",
        "+1",
        "00",
        "01",
        "1.0",
        "1e9",
        " 1",
        "1 ",
        "1\n",
        "1\0",
        "0x1",
        "9223372036854775808",
        "18446744073709551615",
        "99999999999999999999",
        "nil",
        "\u{661}",
    ];
    for text in none {
        assert_eq!(read(text.as_bytes()), Err(NotAState), "{text:?}");
    }
    assert_eq!(read(&[b'1', 0xff]), Err(NotAState));
    // No array begins with a digit.
    for kind in i8::MIN..=-1 {
        assert_eq!(read(Array::new(kind, [1, 2]).as_slice()), Err(NotAState));
    }
}
