//! `RESERVE` as a rule of `RL.ALL` in transactions, scripts and replicas, and after a panic.

use redis::Value;
use support::several::{answer, call};
use support::{BASE_US, Client, Server, module, raw_error, replica_of, wait_for_offset};

fn error(client: &mut Client, command: &str, pairs: &[(&str, &str)]) -> String {
    let value = client.call(&call(command, pairs));
    raw_error(&value).unwrap_or_else(|| panic!("{pairs:?}: no error: {value:?}"))
}

#[test]
fn reservation_is_made_in_a_transaction_and_from_a_script_and_reaches_a_replica() {
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
    let left = replies.iter().map(|reply| answer(reply).expect("an answer").rows[0][2]);
    assert_eq!(left.collect::<Vec<_>>(), [8, 6]);
    let script = "return redis.call('RL.ALL', KEYS[1], ARGV[1], KEYS[2], ARGV[2])";
    let value = client.call(&["EVAL", script, "2", "{k}", "{k}:g", &c, "GCRA 9 1 60"]);
    assert_eq!(answer(&value).expect("an answer").rows[0], [1, 10, 4, 0, 30_000]);
    wait_for_offset(&server, &replica);
    assert_eq!(reader.contents(), client.contents());
    // A replica answers a peek, and denies a write.
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

#[test]
fn panic_at_any_point_of_the_call_changes_none_of_its_keys() {
    let server = Server::setup().module(module::path_with_faults()).start();
    let mut client = server.client();
    client.freeze(BASE_US);
    client.ok("RL.POLICY SET p FIXED 10 60");
    let pairs = [
        ("a", "RESERVE j 30s FIXED 10 60 COST 2"),
        ("b", "RESERVE j 30s USE p COST 2"),
        ("c", "GCRA 9 1 60"),
    ];
    for point in ["parse", "decide", "reply", "store"] {
        let before = client.contents();
        client.ok(&format!("RL.DEBUG PANIC {point}"));
        assert!(error(&mut client, "RL.ALL", &pairs).starts_with("ERR internal error"), "{point}");
        assert_eq!(client.contents(), before, "{point}");
        for call in
            ["RL.RESERVE b k 30s USE p", "RL.COMMIT b k USE p", "RL.PEEK b RESERVE k 30s USE p"]
        {
            if point == "store" && !call.starts_with("RL.RES") {
                continue;
            }
            client.ok(&format!("RL.DEBUG PANIC {point}"));
            assert!(client.error(call).starts_with("ERR internal error"), "{call} at {point}");
            assert_eq!(client.contents(), before, "{call} at {point}");
        }
    }
    assert_eq!(ask_numbers(&mut client, &pairs), 1);
    server.assert_alive();
}

/// Returns the first integer of a reply whose rows may have seven integers.
fn ask_numbers(client: &mut Client, pairs: &[(&str, &str)]) -> i64 {
    match client.call(&call("RL.ALL", pairs)) {
        Value::Array(fields) => match fields[0] {
            Value::Int(number) => number,
            ref other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}
