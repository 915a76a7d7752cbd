//! The effects of reservations on replicas, files and a full server, and the rights they need.

use redis::Value;

use support::reservations::inspected;
use support::several::decision_of;
use support::{BASE_US, Client, Random, Server, replica_of, wait_for_offset};

#[test]
fn effects_are_absolute_and_a_plain_call_sends_16_bytes_with_any_number_of_ids() {
    let server = Server::start();
    let mut client = server.client();
    let mut stream = server.replication_stream();
    for number in 0..200 {
        client.decide(&format!("RL.RESERVE k job-{number:040} 1h FIXED 1000 1h COST 2"));
    }
    client.decide("RL.RESERVE k last 2h FIXED 1000 1h COST 2");
    let sent = stream.effects(&mut client);
    assert_eq!(sent.len(), 201);
    let last = sent.last().unwrap();
    assert_eq!((last[0].as_slice(), last.len()), (&b"SET"[..], 5));
    assert_eq!(last[2], client.bytes("GET k"), "the state is the primary's");
    assert_eq!(last[4], client.integer("PEXPIRETIME k").to_string().as_bytes());
    let length = client.integer("STRLEN k");
    let calls = [
        "RL.FIXED k 1000 1h COST 100",
        "RL.FIXED k 1000 1h",
        "RL.REFUND k FIXED 1000 1h COST 100",
        "RL.CHARGE k FIXED 1000 1h COST 5000",
        "RL.REFUND k FIXED 1000 1h COST 9999",
    ];
    for call in calls {
        client.decide(call);
        let effects = stream.effects(&mut client);
        assert_eq!(effects.len(), 1, "{call}: {effects:?}");
        let offset = (length - 16).to_string().into_bytes();
        let tail = client.bytes("GET k")[length as usize - 16..].to_vec();
        assert_eq!(effects[0], [b"SETRANGE".to_vec(), b"k".to_vec(), offset, tail], "{call}");
        assert_eq!(client.integer("STRLEN k"), length, "{call}");
    }
    // The call opens a window that ends after all reservations, so the expiry moves.
    client.decide("RL.FIXED k 1000 3h");
    let effects = stream.effects(&mut client);
    let names: Vec<_> = effects.iter().map(|effect| text_of(&effect[0])).collect();
    assert!(names.contains(&"SETRANGE".into()) && names.contains(&"PEXPIREAT".into()), "{names:?}");
    // Cancelling the last reservation deletes the key.
    client.decide("RL.RESERVE only a 1h FIXED 10 60");
    stream.effects(&mut client);
    client.decide("RL.CANCEL only a FIXED 10 60");
    let effects = stream.effects(&mut client);
    assert_eq!(effects, [[b"DEL".to_vec(), b"only".to_vec()]]);
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Makes random calls with reservations on a few keys. The server refuses some of them.
fn random_traffic(client: &mut Client, random: &mut Random, calls: usize) {
    for _ in 0..calls {
        let key = random.below(4);
        let id = random.below(9);
        let cost = random.below(5);
        let rule = match key {
            0 => "FIXED 30 5 ALIGNED",
            1 => "QUOTA 30 day ZONE America/Los_Angeles",
            _ => "FIXED 30 20",
        };
        let call = match random.below(9) {
            0..3 => format!("RL.RESERVE k{key} {id} {} {rule} COST {cost}", 1 + random.below(40)),
            3 => format!("RL.COMMIT k{key} {id} {rule}"),
            4 => format!("RL.COMMIT k{key} {id} {rule} COST {cost}"),
            5 => format!("RL.CANCEL k{key} {id} {rule}"),
            6 => format!("RL.CHARGE k{key} {rule} COST {cost}"),
            7 => format!("RL.REFUND k{key} {rule} COST {cost}"),
            _ => format!("RL.{}", rule.replacen(' ', &format!(" k{key} "), 1)),
        };
        client.run(&call);
        if random.below(10) == 0 {
            client.advance_ms(random.below(5_000) as i64);
        }
    }
}

#[test]
fn replicas_and_files_hold_the_primarys_bytes_even_after_a_power_cut() {
    let mut primary = Server::setup()
        .with_tcp()
        .line("appendonly yes")
        .line("appendfsync always")
        .line("auto-aof-rewrite-percentage 0")
        .start();
    let replica = replica_of(&primary);
    let mut client = primary.client();
    let mut random = Random::new(7);
    // In Los Angeles, midnight is soon after [`BASE_US`].
    client.freeze(BASE_US - 100_000_000);
    for _ in 0..20 {
        random_traffic(&mut client, &mut random, 100);
        wait_for_offset(&primary, &replica);
        assert_eq!(replica.client().contents(), client.contents());
    }
    client.decide("RL.RESERVE kept a 1h FIXED 10 60 COST 4");
    client.decide("RL.FIXED kept 10 60 COST 3");
    client.decide("RL.RESERVE day a 1h QUOTA 10 day COST 4");
    client.decide("RL.QUOTA day 10 day COST 3");
    let before = client.contents();
    drop(replica);
    primary.crash();
    primary.start_again();
    let mut client = primary.client();
    assert_eq!(client.contents(), before, "from the AOF");
    client.ok("CONFIG SET appendonly no");
    client.ok("SAVE");
    client.freeze(BASE_US + 10_000_000_000);
    assert_eq!(inspected(&mut client, "kept")[1..], [3, 0, 0, 0]);
    client.freeze(BASE_US);
    // The reserved units return exactly when the reservation ends.
    client.decide("RL.RESERVE frozen a 1h FIXED 10 60 COST 10");
    client.advance_ms(3_599_999);
    assert_eq!(client.decide("RL.FIXED frozen 10 60"), [0, 10, 0, 1, 1]);
    client.advance_ms(1);
    assert_eq!(client.decide("RL.FIXED frozen 10 60")[..3], [1, 10, 9]);
    primary.assert_alive();
}

#[test]
fn reservation_of_a_transaction_and_of_a_script_reaches_a_replica() {
    let server = Server::setup().with_tcp().start();
    let replica = replica_of(&server);
    let (mut client, mut reader) = (server.client(), replica.client());
    client.freeze(BASE_US);
    reader.freeze(BASE_US);
    let rule = |id: &str| format!("RESERVE {id} 30s FIXED 10 60 COST 2");
    let (a, b, c) = (rule("a"), rule("b"), rule("c"));
    client.ok("MULTI");
    client.ok_queued(&["RL.ALL", "{k}", &a, "{k}:g", "GCRA 9 1 60"]);
    client.ok_queued(&["RL.ALL", "{k}", &b, "{k}:g", "GCRA 9 1 60"]);
    let Value::Array(replies) = client.run("EXEC") else { panic!("a transaction") };
    let left = replies.iter().map(|reply| decision_of(reply).expect("a decision").rows[0][2]);
    assert_eq!(left.collect::<Vec<_>>(), [8, 6]);
    let script = "return redis.call('RL.ALL', KEYS[1], ARGV[1], KEYS[2], ARGV[2])";
    let value = client.call(&["EVAL", script, "2", "{k}", "{k}:g", &c, "GCRA 9 1 60"]);
    assert_eq!(decision_of(&value).expect("a decision").rows[0], [1, 10, 4, 0, 30_000]);
    wait_for_offset(&server, &replica);
    assert_eq!(reader.contents(), client.contents());
    // A replica serves a peek, and refuses a write.
    let peek = ["RL.PEEKALL", "{k}", &a, "{k}:g", "GCRA 9 1 60"];
    assert_eq!(reader.call(&peek), client.call(&peek));
    let peek = format!("RL.PEEK {{k}} {}", rule("d"));
    assert_eq!(reader.decide(&peek), [1, 10, 2, 0, 30_000]);
    assert!(reader.error("RL.RESERVE {k} d 30s FIXED 10 60").starts_with("READONLY"));
    for (id, cost) in [("a", 1), ("b", 3)] {
        assert!(client.allows(&format!("RL.COMMIT {{k}} {id} FIXED 10 60 COST {cost}")));
    }
    wait_for_offset(&server, &replica);
    assert_eq!(reader.contents(), client.contents());
}
