//! Keys that hold other values: every command replies WRONGTYPE and does not change them.

use support::{ALGORITHMS, BASE_US, Client, Server, WRONGTYPE, raw_error};

const INSPECT_WRONGTYPE: &str = "WRONGTYPE the key does not hold a rate limiter's state";

/// Creates a key of every core type, with strings in every encoding. Returns the keys.
fn make_foreign_keys(client: &mut Client) -> Vec<&'static str> {
    let commands = [
        "RPUSH list a b c",
        "SADD set a b c",
        "SADD intset 1 2 3",
        "ZADD zset 1 a 2 b",
        "HSET hash field value",
        "XADD stream 1-1 field value",
        "SET integer 12345",
        "SET shared 7",
        "SET short word",
        "APPEND raw word",
        "SETBIT bitmap 100 1",
        "PFADD hyperloglog a b c",
        "GEOADD geo 13.4 52.5 berlin",
    ];
    for command in commands {
        assert!(raw_error(&client.run(command)).is_none(), "{command}");
    }
    client.call(&["SET", "empty", ""]);
    client.call(&["SET", "long", &"x".repeat(4000)]);
    // A MessagePack array that is not a state, and an array with one of the module's kinds but
    // without the fields of that kind.
    client.call(&[&b"SET"[..], b"msgpack", b"\x93\x01\x02\x03"]);
    client.call(&[&b"SET"[..], b"kind-only", b"\x91\xfa"]);
    let keys = commands.map(|command| command.split(' ').nth(1).unwrap());
    let more = ["empty", "long", "msgpack", "kind-only"];
    keys.into_iter().chain(more).collect()
}

#[test]
fn key_of_any_other_type_is_refused_and_left_unchanged() {
    let server = Server::start();
    let mut client = server.client();
    let keys = make_foreign_keys(&mut client);
    for (row, key) in keys.into_iter().enumerate() {
        // Half of the keys have an expiry, which must not change either.
        if row % 2 == 0 {
            assert_eq!(client.integer(&format!("PEXPIRE {key} 86400000")), 1, "{key}");
        }
        let before = client.snapshot(key);
        let changes = client.changes();
        for algorithm in ALGORITHMS {
            let call = algorithm.call(key, 5, "60");
            let calls = [
                call.clone(),
                format!("{call} COST 0"),
                format!("{call} COST 6"),
                algorithm.peek(key, 5, "60"),
                format!("{} COST 0", algorithm.peek(key, 5, "60")),
            ];
            for call in calls {
                assert_eq!(client.error(&call), WRONGTYPE, "{call}");
            }
        }
        assert_eq!(client.error(&format!("RL.INSPECT {key}")), INSPECT_WRONGTYPE, "{key}");
        assert_eq!(client.snapshot(key), before, "{key} was touched");
        assert_eq!(client.changes(), changes, "{key} was touched");
    }
    server.assert_alive();
}

#[test]
fn state_of_another_algorithm_is_refused_and_left_unchanged() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for owner in ALGORITHMS {
        assert!(client.allows(&owner.call("k", 5, "60")));
        let before = client.snapshot("k");
        let changes = client.changes();
        for other in ALGORITHMS.into_iter().filter(|other| *other != owner) {
            for call in [other.call("k", 5, "60"), other.peek("k", 5, "60")] {
                assert_eq!(client.error(&call), WRONGTYPE, "{call} on {}", owner.name);
            }
        }
        assert_eq!(client.snapshot("k"), before, "{} was touched", owner.name);
        assert_eq!(client.changes(), changes, "{} was touched", owner.name);
        // The algorithm that wrote the state still reads it.
        assert_eq!(client.decide(&owner.call("k", 5, "60"))[2], 3, "{}", owner.name);
        client.integer("DEL k");
    }
}

#[test]
fn wrong_argument_is_reported_before_a_wrong_type() {
    let server = Server::start();
    let mut client = server.client();
    client.integer("RPUSH list a");
    let error = client.error("RL.GCRA list 0 1 60");
    assert_eq!(error, "ERR invalid burst: expected an integer from 1 to 1000000000000");
}

#[test]
fn deleting_a_foreign_key_makes_its_name_usable_for_a_limiter() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        client.integer("RPUSH k a");
        assert_eq!(client.error(&algorithm.call("k", 1, "60")), WRONGTYPE);
        assert_eq!(client.integer("DEL k"), 1);
        assert!(client.allows(&algorithm.call("k", 1, "60")), "{}", algorithm.name);
        assert_eq!(client.integer("DEL k"), 1);
        // Deleting a key of the module also deletes its used units.
        assert!(client.allows(&algorithm.call("k", 1, "60")), "{}", algorithm.name);
        assert_eq!(client.integer("DEL k"), 1);
    }
}
