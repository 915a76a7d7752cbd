//! `rl_keys_created_total` and `rl_keys_created`: the keys that each command creates.

use support::metrics::scrape;
use support::{BASE_US, Client, Server, raw_error};

/// Returns the commands that have created keys, each with the number of keys.
fn created(client: &mut Client) -> Vec<(String, u64)> {
    let samples = scrape(client);
    let of_command = |(sample, number): (&String, &String)| {
        let (_, command) = sample.split_once("rl_keys_created_total{command=\"")?;
        let number = number.parse().expect("a number");
        (number > 0).then(|| (command.trim_end_matches("\"}").to_owned(), number))
    };
    let created: Vec<_> = samples.iter().filter_map(of_command).collect();
    let sum = created.iter().map(|(_, number)| number).sum::<u64>();
    assert_eq!(client.info("rl")["rl_keys_created"], sum.to_string());
    created
}

#[test]
fn each_command_counts_the_keys_that_it_creates() {
    let server = Server::setup().line("rl.redis-cell yes").start();
    let mut client = server.client();
    client.freeze(BASE_US);
    client.ok("RL.POLICY SET p GCRA 2 1 60");
    client.ok("RL.POLICY SET shade SHADOW GCRA 1 1 60");
    client.ok("RL.POLICY SET off OFF GCRA 1 1 60");
    client.ok("RL.POLICY SET changed FIXED 5 60");
    // Each row: a call, and the command that counts the keys that it creates, with their number.
    let rows: [(&str, &str, u64); 49] = [
        ("RL.GCRA k1 1 1 60", "gcra", 1),
        ("RL.GCRA k1 1 1 60", "gcra", 0),
        ("RL.GCRA k2 1 1 60 COST 0", "gcra", 0),
        ("RL.GCRA k2 1 1 60 COST 2", "gcra", 0),
        ("RL.GCRA k2 9 1 60 COST 99 PARTIAL", "gcra", 1),
        ("RL.FIXED k3 2 60", "fixed", 1),
        // The key exists, with or without an expiry.
        ("PERSIST k3", "fixed", 0),
        ("RL.FIXED k3 2 60", "fixed", 0),
        ("DEL k3", "fixed", 0),
        ("RL.FIXED k3 2 60", "fixed", 1),
        ("PEXPIRE k3 0", "fixed", 0),
        ("RL.FIXED k3 2 60", "fixed", 1),
        ("RL.SLIDING k4 2 60", "sliding", 1),
        ("RL.SLIDINGLOG k5 2 60", "slidinglog", 1),
        ("RL.SLIDINGLOG k5 2 60", "slidinglog", 0),
        ("RL.TOKENBUCKET k6 2 1 60", "tokenbucket", 1),
        ("RL.LEAKYBUCKET k7 2 1 60", "leakybucket", 1),
        ("RL.BACKOFF k8 3 1s 8s 1h", "backoff", 1),
        ("RL.QUOTA k9 3 month", "quota", 1),
        ("RL.PEEK k10 GCRA 2 1 60", "peek", 0),
        ("RL.PEEKALL k10 GCRA|2|1|60", "peekall", 0),
        ("RL.USE u1 p", "use", 1),
        ("RL.USE u1 p", "use", 0),
        ("RL.USE u2 p COST 3", "use", 0),
        ("RL.USE u2 none DEFAULT GCRA 1 1 60", "use", 1),
        ("RL.USE u3 shade", "use", 1),
        ("RL.USE u3 shade", "use", 0),
        ("RL.USE u4 off", "use", 0),
        // Another algorithm's state is replaced; the key was there.
        ("RL.USE u1 changed", "use", 0),
        ("RL.CHARGE c1 GCRA 2 1 60 COST 9", "charge", 1),
        ("RL.CHARGE c1 GCRA 2 1 60 COST 9", "charge", 0),
        ("RL.CHARGE c2 USE p", "charge", 1),
        ("RL.REFUND c3 GCRA 2 1 60", "refund", 0),
        ("RL.RESERVE r1 job 30s FIXED 9 60 COST 5", "reserve", 1),
        ("RL.RESERVE r1 job-2 30s FIXED 9 60", "reserve", 0),
        ("RL.COMMIT r1 job FIXED 9 60 COST 2", "commit", 0),
        ("RL.COMMIT r2 job FIXED 9 60 COST 2", "commit", 0),
        ("RL.LEASE l1 me 1 60", "lease", 1),
        ("RL.LEASE l1 you 1 60", "lease", 0),
        ("RL.RENEW l2 me 60", "renew", 0),
        ("RL.RELEASE l1 me", "release", 0),
        ("RL.LEASE l1 me 1 60", "lease", 1),
        ("RL.BLOCK b1 1h", "block", 1),
        ("RL.BLOCK b1 1h", "block", 0),
        ("RL.GCRA b1 1 1 60", "gcra", 0),
        ("CL.THROTTLE t1 15 30 60", "throttle", 1),
        ("CL.THROTTLE t1 15 30 60", "throttle", 0),
        ("RL.ALL a1 GCRA|1|1|60 a2 LEASE|me|2|60 a3 USE|p k1 GCRA|9|1|60", "all", 3),
        // A denied call creates none of its keys.
        ("RL.ALL a1 GCRA|1|1|60 a4 FIXED|1|60 a5 LEASE|me|2|60", "all", 0),
    ];
    let mut expected: Vec<(String, u64)> = Vec::new();
    for (line, command, keys) in rows {
        let words = line.split(' ').map(|word| word.replace('|', " ")).collect::<Vec<_>>();
        let reply = client.call(&words);
        assert!(raw_error(&reply).is_none(), "{line}: {reply:?}");
        if keys > 0 {
            match expected.iter_mut().find(|(name, _)| name == command) {
                Some((_, number)) => *number += keys,
                None => expected.push((command.to_owned(), keys)),
            }
            expected.sort();
        }
        assert_eq!(created(&mut client), expected, "{line}");
    }
    // An error creates nothing, and neither does the server itself.
    client.ok("SET x 1");
    client.error("RL.GCRA x 1 1 60");
    client.error("RL.GCRA y 0 1 60");
    client.ok("FLUSHALL");
    assert_eq!(created(&mut client), expected);
}

#[test]
fn metrics_name_the_commands_that_can_create_keys_and_no_others() {
    let server = Server::start();
    let mut client = server.client();
    let samples = scrape(&mut client);
    let family = samples.keys().filter_map(|sample| {
        sample.strip_prefix("rl_keys_created_total{command=\"")?.strip_suffix("\"}")
    });
    let expected = [
        "all",
        "backoff",
        "block",
        "charge",
        "fixed",
        "gcra",
        "leakybucket",
        "lease",
        "quota",
        "reserve",
        "sliding",
        "slidinglog",
        "tokenbucket",
        "use",
    ];
    assert_eq!(family.collect::<Vec<_>>(), expected);
}
