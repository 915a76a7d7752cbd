//! States that Redis 7.0 dumped when the layout was chosen. Every later version must load them.

use redis::Value;

use support::algorithms::{FIXED, GCRA, LEAKYBUCKET, QUOTA, SLIDING, SLIDINGLOG, TOKENBUCKET};
use support::server::Setup;
use support::{ALGORITHMS, Algorithm, BASE_US, Client, Reply, Server, integers, module, text};

/// A dumped state and its meaning.
struct Golden {
    algorithm: Algorithm,
    /// The output of `DUMP`, in hexadecimal.
    dump: &'static str,
    /// The numbers that `RL.INSPECT` shows, in that order.
    inspected: &'static [i64],
    /// The time of the dump: this many milliseconds and 456 microseconds after [`BASE_US`].
    at_ms: i64,
    /// The rule of the call that wrote the state.
    rule: &'static str,
    /// The state's status at that time: the reply of `PEEK ... COST 0`.
    status: Reply,
}

/// States of every kind: with small numbers, with the largest numbers, and logs that the server
/// compresses.
const GOLDEN: [Golden; 16] = [
    Golden {
        algorithm: FIXED,
        dump: "000c93ffcf00066517289a6240070a0034011d7382d6e54d",
        inspected: &[1_800_000_000_123_456, 7],
        at_ms: 123,
        rule: "100 60",
        status: [1, 100, 93, 0, 60_000],
    },
    Golden {
        algorithm: FIXED,
        dump: "001493ffcf00066517289a6240cf000000e8d4a50fff0a00c9fd86e2cd261c74",
        inspected: &[1_800_000_000_123_456, 999_999_999_999],
        at_ms: 123,
        rule: "1000000000000 366d",
        status: [1, 1_000_000_000_000, 1, 0, 31_622_400_000],
    },
    Golden {
        algorithm: SLIDING,
        dump: "000d94fecf000665172c2c070028070a00521a702550098826",
        inspected: &[1_800_000_060_000_000, 40, 7],
        at_ms: 60_123,
        rule: "100 60",
        status: [1, 100, 53, 0, 119_877],
    },
    Golden {
        algorithm: SLIDING,
        dump: "001594fecf00064a952b76000000cf000000e8d4a50fff0a00a017d9b34f9d0853",
        inspected: &[1_770_854_400_000_000, 0, 999_999_999_999],
        at_ms: 123,
        rule: "1000000000000 366d",
        status: [1, 1_000_000_000_000, 1, 0, 34_099_199_877],
    },
    Golden {
        algorithm: SLIDINGLOG,
        dump: "00c327300c93fdcf00066517289a62400100e00100400b0216e36060100004200502\
               16e7482005020000060a00acf05501398d8e6d",
        inspected: &[3, 6, 1_800_000_000_123_456, 1_800_000_001_624_456, 1],
        at_ms: 1_624,
        rule: "10 60",
        status: [1, 10, 4, 0, 60_000],
    },
    // A log whose instants are rounded up to 1/1024 of a minute: its newest instant is ahead of the
    // clock.
    Golden {
        algorithm: SLIDINGLOG,
        dump: "00c329320e93fdcf00066517289aaea6cde4e200e000000103e8400a80110107d020\
               0b020393882005020013870a00c1706a1c4a28fe5c",
        inspected: &[3, 4_999, 1_800_000_000_143_014, 1_800_000_000_377_390, 58_594],
        at_ms: 353,
        rule: "5000 60",
        status: [1, 5_000, 1, 0, 60_024],
    },
    Golden {
        algorithm: SLIDINGLOG,
        dump: "00c340e640fc0c93fdcf00066517289a62400100e001000002200a020f4240200502\
               0000042003021e88682005020000062003022dd2782005020000082003023d14b8200502\
               00000a2003024c5ae020050200000c2003025ba4f020050200000e2003026ae730200502\
               0000102003027a2d58200502000012200301897780530014200b0298b9a8200502000016\
               200302a7ffd0200502000018200301b7498053001a200b02c68c2020050200001c200302\
               d5d24820052097200301e51c8053401d02f45e9820110800002200000103a4c020090200\
               0024200b0112ee80530026200b0122314089020000280a00024a36ceaba0ee96",
        inspected: &[20, 40, 1_800_000_000_123_456, 1_800_000_019_141_456, 1],
        at_ms: 20_142,
        rule: "100 1h",
        status: [1, 100, 60, 0, 3_598_999],
    },
    Golden {
        algorithm: TOKENBUCKET,
        dump: "001194fccf0006651728ad369011ce0083ce300a009f860a2329b3f1e9",
        inspected: &[17, 8_638_000, 1_800_000_001_357_456],
        at_ms: 1_357,
        rule: "30 7 60",
        status: [1, 30, 17, 0, 110_195],
    },
    Golden {
        algorithm: TOKENBUCKET,
        dump: "001594fccf00066517289a662801cf000011ec1149c0000a0033f7733251b5b59b",
        inspected: &[1, 19_705_600_000_000, 1_800_000_000_124_456],
        at_ms: 124,
        rule: "1000000000000 1000000000000 366d",
        status: [1, 1_000_000_000_000, 1, 0, 31_622_400_000],
    },
    Golden {
        algorithm: LEAKYBUCKET,
        dump: "001194fbcf0006651728ad369004ce030fb8d00a008c6cb9e298a863ec",
        inspected: &[4, 51_362_000, 1_800_000_001_357_456],
        at_ms: 1_357,
        rule: "10 7 60",
        status: [1, 10, 5, 41_624, 41_624],
    },
    Golden {
        algorithm: GCRA,
        dump: "000c93facf18fae27966514200240a001ff455a059ca37db",
        inspected: &[1_800_000_012_123_456_000, 36],
        at_ms: 123,
        rule: "6 10 60",
        status: [1, 6, 4, 0, 12_000],
    },
    Golden {
        algorithm: GCRA,
        dump: "000c93facf44c665769f72ca003e0a00b2c97a17491a5882",
        inspected: &[4_955_760_000_123_456_000, 62],
        at_ms: 123,
        rule: "36525 1 1d",
        status: [1, 36_525, 0, 0, 3_155_760_000_000],
    },
    Golden {
        algorithm: QUOTA,
        dump: "000c93f6cf0006651073fb6000070a002cd21356e4a947bb",
        inspected: &[1_799_971_200_000_000, 7],
        at_ms: 123,
        rule: "100 day",
        status: [1, 100, 93, 0, 57_599_877],
    },
    Golden {
        algorithm: QUOTA,
        dump: "001493f6cf00064e4f07c50800cf000000e8d4a50fff0a00f617c7d24f30819d",
        inspected: &[1_774_951_200_000_000, 999_999_999_999],
        at_ms: 123,
        rule: "1000000000000 year START 4 ZONE Pacific/Kiritimati",
        status: [1, 1_000_000_000_000, 1, 0, 6_487_199_877],
    },
    // With reservations: one open and one settled; then sixteen open and one settled.
    Golden {
        algorithm: FIXED,
        dump: "00c32f40431993f59294c4056a6f622d31cf00066517289a6240ced693a40014a0160032e00\
               51602c0c410c0260000600001000c0a0098d5f17c8e3b446b",
        inspected: &[1_800_000_000_123_456, 12, 20, 1, 1],
        at_ms: 123,
        rule: "100 60",
        status: [1, 100, 68, 0, 3_600_000],
    },
    Golden {
        algorithm: QUOTA,
        dump: "00c34098418b1593f4dc001194c40130cf00066517289a6240cd03e80120100031e00610010\
               231e00722010231e009230032e008350033e008110034e008110035e006110001e007460001\
               e007450001e007440001e008430036e007540037e0031000c020320038e0031040f30039e00\
               61001407ae03600e0004f08cf00001cc2a9eb400020080e00e8d4a50c18c41000064e4f07c5\
               08201040000100010a00e8729176e0aa1140",
        inspected: &[1_774_951_200_000_000, 1, 999_999_999_015, 16, 1],
        at_ms: 123,
        rule: "1000000000000 year START 4 ZONE Pacific/Kiritimati",
        status: [1, 1_000_000_000_000, 984, 0, 31_622_400_000],
    },
];

fn from_hex(digits: &str) -> Vec<u8> {
    let pairs = (0..digits.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits")).collect()
}

impl Golden {
    /// Restores the payload under `key`, with this Unix time as its expiry.
    fn restore(&self, client: &mut Client, key: &str, expiry_ms: i64) {
        let (dump, expiry_ms) = (from_hex(self.dump), expiry_ms.to_string());
        let words = [b"RESTORE", key.as_bytes(), expiry_ms.as_bytes(), &dump, b"ABSTTL"];
        assert_eq!(client.call(&words), Value::Okay, "{}", self.dump);
    }

    /// Asserts the numbers and the status of the state under `key`, at the time of its dump.
    fn assert_means_the_same(&self, client: &mut Client, key: &str) {
        let Value::Array(fields) = client.run(&format!("RL.INSPECT {key}")) else {
            panic!("{}: no state", self.dump);
        };
        let name = text(&fields[1]);
        let numbers = fields[2..].chunks(2).map(|pair| match pair[1] {
            Value::Int(number) => number,
            ref other => panic!("{}: {other:?}", self.dump),
        });
        assert_eq!(name, self.algorithm.name, "{}", self.dump);
        assert_eq!(numbers.collect::<Vec<_>>(), self.inspected, "{}", self.dump);
        client.freeze(BASE_US + self.at_ms * 1_000 + 456);
        let peek = format!("RL.PEEK {key} {name} {} COST 0", self.rule);
        assert_eq!(client.decide(&peek), self.status, "{}", self.dump);
    }
}

/// Returns the Unix time one hour from now, by the real clock.
fn in_an_hour_ms(client: &mut Client) -> i64 {
    client.server_time_us() / 1_000 + 3_600_000
}

#[test]
fn payload_of_redis_7_0_loads_with_its_original_meaning() {
    let server = Server::start();
    let mut client = server.client();
    for golden in &GOLDEN {
        let expiry_ms = in_an_hour_ms(&mut client);
        golden.restore(&mut client, "k", expiry_ms);
        golden.assert_means_the_same(&mut client, "k");
        assert_eq!(client.integer("PEXPIRETIME k"), expiry_ms, "{}", golden.dump);
        // The key allows exactly the remaining units.
        let call = format!("{} k {} COST", golden.algorithm.command, golden.rule);
        let left = golden.status[2];
        assert_eq!(client.decide(&format!("{call} {}", left + 1))[0], 0, "{call}");
        if left > 0 {
            assert_eq!(client.decide(&format!("{call} {left}"))[..3], [1, golden.status[1], 0]);
        }
        client.integer("DEL k");
    }
}

#[test]
fn same_calls_still_write_the_same_payload() {
    // Compares the stored values and not the payloads, which depend on the server that dumps them.
    let server = Server::start();
    let mut client = server.client();
    let expiry_ms = in_an_hour_ms(&mut client);
    const YEAR: &str = "QUOTA 1000000000000 year START 4 ZONE Pacific/Kiritimati";
    let seventeen = (0..16).map(|id| format!("RL.RESERVE k {id} 1ms {YEAR}"));
    let longest = format!("RL.RESERVE k {} 366d {YEAR} COST 999999999000", "z".repeat(64));
    let seventeen = seventeen.chain([longest, format!("RL.COMMIT k 7 {YEAR}")]).collect();
    let one = |call: &str| vec![call.to_owned()];
    let calls: [(usize, Vec<String>); 9] = [
        (0, one("RL.FIXED k 100 60 COST 7")),
        (1, one("RL.FIXED k 1000000000000 366d COST 999999999999")),
        (3, one("RL.SLIDING k 1000000000000 366d COST 999999999999")),
        (10, one("RL.GCRA k 6 10 60 COST 2")),
        (11, one("RL.GCRA k 36525 1 1d COST 36525")),
        (12, one("RL.QUOTA k 100 day COST 7")),
        (
            13,
            one("RL.QUOTA k 1000000000000 year START 4 ZONE Pacific/Kiritimati COST 999999999999"),
        ),
        (
            14,
            [
                "RL.FIXED k 100 60 COST 7",
                "RL.RESERVE k job-2 1h FIXED 100 60 COST 30",
                "RL.RESERVE k job-1 1h FIXED 100 60 COST 20",
                "RL.COMMIT k job-2 FIXED 100 60 COST 5",
            ]
            .map(str::to_owned)
            .into(),
        ),
        (15, seventeen),
    ];
    client.freeze(BASE_US + 123_456);
    for (index, calls) in calls {
        for call in &calls {
            assert!(client.allows(call), "{call}");
        }
        GOLDEN[index].restore(&mut client, "golden", expiry_ms);
        assert_eq!(client.bytes("GET k"), client.bytes("GET golden"), "{calls:?}");
        client.integer("DEL k golden");
    }
}

#[test]
fn every_kind_has_a_payload_that_survives_a_save_and_a_server_without_the_module() {
    for algorithm in ALGORITHMS {
        assert!(GOLDEN.iter().any(|golden| golden.algorithm == algorithm), "{}", algorithm.name);
    }
    let mut server = Server::setup().without_module().start();
    let mut client = server.client();
    let expiry_ms = in_an_hour_ms(&mut client);
    for (number, golden) in GOLDEN.iter().enumerate() {
        golden.restore(&mut client, &format!("k{number}"), expiry_ms);
    }
    client.ok("SAVE");
    server.start_again_as(|setup: Setup| setup.module(module::path()));
    let mut client = server.client();
    for (number, golden) in GOLDEN.iter().enumerate() {
        golden.assert_means_the_same(&mut client, &format!("k{number}"));
    }
}

#[test]
fn server_refuses_a_damaged_payload_and_creates_no_key() {
    let server = Server::start();
    let mut client = server.client();
    for golden in &GOLDEN {
        let whole = from_hex(golden.dump);
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            let reply = client.call(&[&b"RESTORE"[..], b"k", b"0", &damaged]);
            assert!(matches!(reply, Value::ServerError(_)), "byte {at} of {}", golden.dump);
        }
        let peek = format!("RL.PEEK k {} {}", golden.algorithm.name, golden.rule);
        let untouched = integers(&client.run(&peek)).expect("a decision");
        assert_eq!(untouched[0], 1, "{peek}");
    }
    assert_eq!(client.integer("DBSIZE"), 0);
    server.assert_alive();
}

/// Bans set at 123,456 us after [`BASE_US`]: their length, the output of `DUMP`, and their end.
const BANS: [(&str, &str, i64); 2] = [
    ("1h", "001093f3cf00066517ff2e0640ced693a4000a0025c209e17d20f0ce", 1_800_003_600_123_456),
    (
        "366d",
        "001493f3cf000681d9d285a240cf00001cc2a9eb40000a0019a015e83be21684",
        1_831_622_400_123_456,
    ),
];

#[test]
fn ban_of_redis_7_0_loads_and_is_still_written_with_the_same_payload() {
    let server = Server::start();
    let mut client = server.client();
    for (length, dump, until_us) in BANS {
        client.freeze(BASE_US + 123_456);
        client.call(&[&b"RESTORE"[..], b"k", b"3600000", &from_hex(dump)]);
        let left_ms = (until_us - BASE_US - 123_456) / 1_000;
        assert_eq!(client.decide("RL.PEEK k GCRA 5 5 60"), [0, 5, 0, left_ms, left_ms], "{dump}");
        let inspected = client.run("RL.INSPECT k");
        let Value::Array(fields) = &inspected else { panic!("{inspected:?}") };
        assert_eq!(fields[3], Value::Int(until_us), "{dump}");
        client.ok(&format!("RL.BLOCK new {length}"));
        assert_eq!(client.bytes("GET new"), client.bytes("GET k"), "{dump}");
        client.freeze(until_us);
        assert!(client.allows("RL.GCRA k 5 5 60"), "{dump}");
        client.integer("DEL k new");
    }
}
