//! `RL.USE`: its errors, its access rights, and that no input stops the server.

use redis::Value;
use redis_throttle_engine::grammar::error::GrammarError;

use support::cluster::Cluster;
use support::uses::{RULES, decide, set};
use support::{BASE_US, Client, Random, Server, WRONGTYPE, listing, raw_error};

const NO_POLICY: &str = "NOPOLICY no such policy";

#[test]
fn errors_name_the_wrong_argument_and_change_nothing() {
    let server = Server::start();
    let mut client = server.client();
    set(&mut client, "p GCRA 5 5 1h");
    set(&mut client, "slow BACKOFF 3 1s 8s 1h");
    let names = "expected 1 to 64 characters of A-Z a-z 0-9 . _ : / -";
    let algorithms = listing(GrammarError::AlgorithmOfPolicy);
    let option = listing(GrammarError::OptionOfUse);
    let backoff = listing(GrammarError::CostOfBackoff);
    let rows = [
        ("none", NO_POLICY.to_owned()),
        ("P", NO_POLICY.to_owned()),
        ("none COST 0 FOR a FOR b", NO_POLICY.to_owned()),
        ("p@gold", format!("ERR invalid policy: {names}")),
        ("(other)", format!("ERR invalid policy: {names}")),
        ("p FOR @", format!("ERR invalid variant: {names}")),
        ("p FOR", "ERR missing variant: expected FOR followed by a variant of the policy".into()),
        ("p FOR a FOR b FOR c", "ERR repeated option: FOR may be given at most twice".into()),
        ("p GCRA 5 5 1h", option.into()),
        ("p COST 1 COST 1", "ERR repeated option: COST may be given once".into()),
        ("p COST -1", "ERR invalid cost: expected an integer from 0 to 1000000000000".into()),
        (
            "p DEFAULT",
            "ERR missing rule: expected DEFAULT followed by an algorithm and its limits".into(),
        ),
        ("p DEFAULT LEASE a 1 1", algorithms.to_owned()),
        ("p DEFAULT USE p", algorithms.to_owned()),
        (
            "p DEFAULT GCRA 5 5",
            "ERR wrong number of arguments: expected GCRA burst rate period".into(),
        ),
        ("p DEFAULT GCRA 5 5 1h COST 1", listing(GrammarError::CostOfPolicy).into()),
        ("slow COST 1", backoff.into()),
        ("slow COST 0", backoff.into()),
        ("slow PARTIAL", backoff.into()),
        ("none COST 1 DEFAULT BACKOFF 3 1s 8s 1h", backoff.into()),
    ];
    for (words, expected) in rows {
        for call in ["RL.USE k ", "RL.PEEK k USE ", "RL.CHARGE k USE ", "RL.REFUND k USE "] {
            let line = format!("{call}{words}");
            // A charge or a refund is never partial.
            if words.contains("PARTIAL") && line.contains("RL.CHARGE") {
                assert!(client.error(&line).starts_with("ERR invalid option: PARTIAL"), "{line}");
            } else if !(words.contains("PARTIAL") && line.contains("RL.REFUND")) {
                assert_eq!(client.error(&line), expected, "{line}");
            }
        }
    }
    for call in ["RL.USE", "RL.USE k", "RL.PEEK k USE", "RL.CHARGE k USE", "RL.REFUND k USE"] {
        assert!(client.error(call).starts_with("ERR wrong number of arguments for"), "{call}");
    }
    for call in ["RL.RESERVE k id 1h USE p x", "RL.COMMIT k id USE p x", "RL.CANCEL k id USE p x"] {
        assert!(client.error(call).starts_with("ERR invalid option: expected COST n, PARTIAL"));
    }
    assert_eq!(client.integer("DBSIZE"), 0);
    // The policy's rule decides whether COST is valid, and the unused default does not.
    assert_eq!(decide(&mut client, "RL.USE k p COST 2 DEFAULT BACKOFF 3 1s 8s 1h")[2], 3);
}

#[test]
fn invalid_state_is_refused_and_left_unchanged() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    client.ok("SET text hello");
    client.ok("SET number 7");
    client.ok("SET empty x");
    client.integer("LPUSH list 1");
    client.integer("ZADD scores 1 a");
    client.decide("RL.LEASE lease me 5 1h");
    client.decide("RL.GCRA cut 5 5 1h");
    client.run("SETRANGE cut 5 \u{1}\u{1}");
    // Appends two bytes to a state of each algorithm, which makes it too long.
    for (algorithm, limits) in *RULES {
        client.decide(&format!("RL.{algorithm} long:{algorithm} {limits}"));
        client.integer(&format!("APPEND long:{algorithm} xx"));
    }
    client.decide("RL.RESERVE broken id 1h FIXED 5 1h");
    let mut bytes = client.bytes("GET broken");
    // Changes the length of a reservation's array from four, the only valid length, to five.
    bytes[3] += 1;
    client.call(&[b"SET".as_slice(), b"broken", &bytes]);
    let before = client.contents();
    for (algorithm, limits) in *RULES {
        for mode in ["", "SHADOW"] {
            set(&mut client, &format!("p {mode} {algorithm} {limits}"));
            let long = RULES.map(|(algorithm, _)| format!("long:{algorithm}"));
            let fixed = ["text", "number", "empty", "list", "scores", "lease", "broken"];
            for key in long.iter().map(String::as_str).chain(fixed) {
                for call in [
                    "RL.USE KEY p",
                    "RL.PEEK KEY USE p",
                    "RL.CHARGE KEY USE p",
                    "RL.REFUND KEY USE p",
                ] {
                    let call = call.replace("KEY", key);
                    assert_eq!(client.error(&call), WRONGTYPE, "{mode} {algorithm}: {call}");
                }
            }
            client.integer("RL.POLICY DEL p");
        }
    }
    assert_eq!(client.contents(), before);
}

#[test]
fn only_the_owner_of_the_key_decides_in_a_cluster() {
    let cluster = Cluster::start();
    let mut clients = cluster.nodes.iter().map(|node| node.client()).collect::<Vec<_>>();
    for client in &mut clients {
        set(client, "p FIXED 5 366d");
        set(client, "off OFF FIXED 5 366d");
        set(client, "block BLOCK FIXED 5 366d");
    }
    for key in ["a", "user:1", "{user:1}:login", "p", "off"] {
        let owner = cluster.settled_owner(key);
        let moved =
            format!("MOVED {} 127.0.0.1:{}", cluster.slot(key), cluster.nodes[owner].port());
        for policy in ["p", "off", "block"] {
            for call in ["RL.USE KEY", "RL.PEEK KEY USE", "RL.CHARGE KEY USE", "RL.REFUND KEY USE"]
            {
                let call = format!("{} {policy} FOR b", call.replace("KEY", key));
                for (node, client) in clients.iter_mut().enumerate() {
                    let error = raw_error(&client.run(&call));
                    assert_eq!(error, (node != owner).then(|| moved.clone()), "{call} at {node}");
                }
            }
        }
    }
}

#[test]
fn random_arguments_never_stop_the_server_and_refused_calls_change_nothing() {
    let server = Server::start();
    let mut client = server.client();
    let mut random = Random::new(112);
    set(&mut client, "p GCRA 5 5 1h");
    set(&mut client, "p@a SHADOW GCRA 5 5 1h");
    let words: [&[u8]; 24] = [
        b"p",
        b"none",
        b"COST",
        b"cost",
        b"PARTIAL",
        b"FOR",
        b"DEFAULT",
        b"GCRA",
        b"QUOTA",
        b"day",
        b"USE",
        b"LEASE",
        b"5",
        b"0",
        b"1h",
        b"1000000000001",
        b"",
        b"p@a",
        b"a",
        b"\0",
        b"\xff\xfe",
        b"BACKOFF",
        b"60",
        b"18446744073709551616",
    ];
    let (mut refused, mut decided) = (0, 0);
    for _ in 0..20_000 {
        let count = random.below(14) as usize;
        let mut call: Vec<&[u8]> = match random.below(4) {
            0 => vec![b"RL.PEEK", b"k", b"USE"],
            1 => vec![b"RL.CHARGE", b"k", b"USE"],
            _ => vec![b"RL.USE", b"k"],
        };
        if random.below(2) == 0 {
            call.push(b"p");
        }
        call.extend((0..count).map(|_| words[random.below(words.len() as u64) as usize]));
        match client.call(&call) {
            Value::ServerError(_) => refused += 1,
            Value::Array(_) => decided += 1,
            other => panic!("{call:?}: {other:?}"),
        }
    }
    assert!(refused > 1_000 && decided > 500, "{refused} refused, {decided} decided");
    // Calls with very long arguments, and calls with very many.
    let long = "x".repeat(1 << 20);
    for call in [
        vec!["RL.USE", "k", &long],
        vec!["RL.USE", "k", "p", "FOR", &long],
        vec!["RL.ALL", "k", &format!("USE {long}")],
        [vec!["RL.USE", "k", "p"], vec!["FOR"; 10_000]].concat(),
        [vec!["RL.USE", "k", "p", "DEFAULT", "GCRA", "1", "1", "1"], vec!["COST"; 10_000]].concat(),
    ] {
        assert!(raw_error(&client.call(&call)).is_some(), "{:?}", &call[..2]);
    }
    assert_eq!(client.info_number("rl", "rl_panics"), 0);
    server.assert_alive();
}

#[test]
fn info_counts_calls_with_a_policy_by_their_reply() {
    let server = Server::start();
    let mut client: Client = server.client();
    set(&mut client, "p SHADOW FIXED 1 1h");
    set(&mut client, "block BLOCK FIXED 1 1h");
    for _ in 0..3 {
        decide(&mut client, "RL.USE k p");
    }
    decide(&mut client, "RL.USE k block");
    decide(&mut client, "RL.PEEK k USE block");
    decide(&mut client, "RL.PEEK k USE p");
    client.error("RL.USE k none");
    let counted = |client: &mut Client, field: &str| client.info_number("rl", field);
    for (field, expected) in [
        ("rl_use_allowed", 3),
        ("rl_use_denied", 1),
        ("rl_peek_allowed", 1),
        ("rl_peek_denied", 1),
        ("rl_errors", 1),
    ] {
        assert_eq!(counted(&mut client, field), expected, "{field}");
    }
}
