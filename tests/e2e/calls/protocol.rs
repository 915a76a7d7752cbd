//! RESP2 and RESP3 give the same replies: five integers, the same errors, and binary keys.

use redis::Value;

use support::{ALGORITHMS, BASE_US, Client, Server, integers, raw_error};

/// Makes the same calls as every client of the test, and returns the replies for comparison.
fn conversation(client: &mut Client) -> Vec<Value> {
    client.freeze(BASE_US + 3_000_000);
    let mut replies = Vec::new();
    for algorithm in ALGORITHMS {
        let call = algorithm.call("k", 2, "10");
        let peek = algorithm.peek("k", 2, "10");
        let calls = [
            call.clone(),
            peek.clone(),
            call.clone(),
            // These calls are denied, can never be allowed, or only read the status.
            call.clone(),
            format!("{call} COST 3"),
            format!("{peek} COST 0"),
        ];
        for line in calls {
            let reply = client.run(&line);
            assert!(integers(&reply).is_some(), "{line}: no five integers: {reply:?}");
            replies.push(reply);
        }
        for line in [format!("{call} WRONG"), format!("{call} COST"), format!("{peek} COST x")] {
            let reply = client.run(&line);
            assert!(raw_error(&reply).is_some(), "{line}: no error: {reply:?}");
            replies.push(reply);
        }
        client.integer("DEL k");
    }
    client.integer("RPUSH list a");
    replies.push(client.run("RL.GCRA list 1 1 1"));
    client.integer("DEL list");
    replies.push(client.run("RL.INSPECT missing"));
    replies
}

#[test]
fn resp2_and_resp3_give_the_same_replies() {
    let server = Server::start();
    let second = conversation(&mut server.client());
    let third = conversation(&mut server.client3());
    assert_eq!(second, third);
    assert_eq!(second.len(), ALGORITHMS.len() * 9 + 2);
}

#[test]
fn keys_may_have_any_bytes() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let all: Vec<u8> = (0..=255).collect();
    let long = vec![0xfe; 100_000];
    let keys: [&[u8]; 7] = [b"", b"\0", b"a\0b", b"a\0c", b"\r\n", &all, &long];
    for algorithm in ALGORITHMS {
        let arguments = algorithm.arguments(2, "10");
        let call = |key: &[u8]| {
            let mut words = vec![algorithm.command.as_bytes().to_vec(), key.to_vec()];
            words.extend(arguments.split(' ').map(|word| word.as_bytes().to_vec()));
            words
        };
        for key in keys {
            let reply = integers(&client.call(&call(key))).expect("a decision");
            assert_eq!(reply[..3], [1, 2, 1], "{} {} bytes", algorithm.name, key.len());
        }
        // Each key is stored separately, under exactly its own bytes.
        assert_eq!(client.integer("DBSIZE"), keys.len() as i64);
        for key in keys {
            let reply = integers(&client.call(&call(key))).expect("a decision");
            assert_eq!(reply[..3], [1, 2, 0], "{} {} bytes", algorithm.name, key.len());
            assert_eq!(client.call(&[&b"DEL"[..], key]), Value::Int(1));
        }
    }
}

#[test]
fn databases_have_separate_keys() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        let call = algorithm.call("k", 1, "1h");
        for database in [0, 3, 15] {
            client.ok(&format!("SELECT {database}"));
            assert!(client.allows(&call), "{call} in database {database}");
            assert!(!client.allows(&call), "{call} in database {database}");
            client.integer("DEL k");
        }
    }
}

#[test]
fn replies_to_a_pipeline_are_in_order() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for algorithm in ALGORITHMS {
        let call = algorithm.call("k", 500, "1h");
        let words = call.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let replies = client.pipeline(&vec![words; 600]);
        let remaining = replies.iter().map(|reply| integers(reply).expect("a decision"));
        for (row, reply) in remaining.enumerate() {
            let expected = [i64::from(row < 500), 500, (499 - row as i64).max(0)];
            assert_eq!(reply[..3], expected, "{call}: reply {row}");
        }
        client.integer("DEL k");
    }
}
