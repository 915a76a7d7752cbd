//! The policy table, for operators: valid definitions, access rights, and replies.

use std::collections::HashSet;
use std::process::Command;

use redis::Value;
use redis_throttle_engine::grammar::error::GrammarError;

use support::acl::{make_user, may};
use support::cluster::Cluster;
use support::{
    BASE_US, Client, Server, eventually, listing, raw_error, replica_of, text, wait_for_offset,
};

/// Returns the lines of `RL.POLICY LIST`.
pub fn list(client: &mut Client, pattern: &str) -> Vec<String> {
    match client.run(&format!("RL.POLICY LIST {pattern}")) {
        Value::Array(lines) => lines.iter().map(text).collect(),
        other => panic!("LIST {pattern}: {other:?}"),
    }
}

/// Returns the definition in force under a name; `None` without a policy.
pub fn get(client: &mut Client, name: &str) -> Option<String> {
    match client.run(&format!("RL.POLICY GET {name}")) {
        Value::Nil => None,
        line => Some(text(&line)),
    }
}

/// Returns the number of policies in force and their digest, as INFO shows them.
pub fn digest(client: &mut Client) -> (String, String) {
    let info = client.info("rl");
    (info["rl_policies"].clone(), info["rl_policies_digest"].clone())
}

/// Returns the log lines about changed policies. Each begins with the subcommand, such as `SET`.
fn audit(server: &Server) -> Vec<String> {
    let log = server.log();
    let lines = log.lines().filter_map(|line| line.split_once("<rl> RL.POLICY "));
    lines.map(|(_, said)| said.to_owned()).collect()
}

#[test]
fn policy_is_listed_in_the_format_of_the_file_until_it_is_deleted() {
    let server = Server::start();
    let mut client = server.client();
    client.ok("RL.POLICY SET search gcra 006 10 60");
    client.ok("rl.policy set search@plan:gold ShAdOw GCRA 60 100 60s");
    client.ok("RL.POLICY SET Search ENFORCE 10 QUOTA 5 MONTH START 15 ZONE europe/berlin");
    client.ok("RL.POLICY SET login BACKOFF 3 1 8 1h");
    let all = [
        "Search ENFORCE 10 QUOTA 5 month ZONE Europe/Berlin START 15",
        "login BACKOFF 3 1s 8s 1h",
        "search GCRA 6 10 1m",
        "search@plan:gold SHADOW GCRA 60 100 1m",
    ];
    assert_eq!(list(&mut client, ""), all);
    assert_eq!(list(&mut client, "s*"), all[2..]);
    assert_eq!(list(&mut client, "?earch"), [all[0], all[2]]);
    assert_eq!(list(&mut client, "*@*"), all[3..]);
    assert_eq!(list(&mut client, "SEARCH"), [""; 0]);
    assert_eq!(get(&mut client, "search@plan:gold").as_deref(), Some(all[3]));
    assert_eq!(get(&mut client, "search@plan:silver"), None);
    assert_eq!(client.integer("RL.POLICY DEL Search unknown search Search"), 2);
    assert_eq!(list(&mut client, "*"), [all[1], all[3]]);
    assert_eq!(client.integer("RL.POLICY DEL unknown"), 0);
    // The policy table is not part of the data, so FLUSHALL does not clear it.
    client.ok("FLUSHALL");
    assert_eq!(list(&mut client, "*"), [all[1], all[3]]);
}

#[test]
fn errors_name_the_expected_argument_and_change_nothing() {
    let server = Server::start();
    let mut client = server.client();
    client.ok("RL.POLICY SET a GCRA 6 10 60");
    client.ok("RL.POLICY SET a@x GCRA 6 10 60");
    let before = (list(&mut client, ""), digest(&mut client), audit(&server));
    let expected_rule = listing(GrammarError::PolicyRule);
    let cost = listing(GrammarError::CostOfPolicy);
    let expected_name = "ERR invalid policy: expected name or name@variant, each 1 to 64 \
         characters of A-Z a-z 0-9 . _ : / -";
    let other = "ERR invalid algorithm: a policy, its variants and its override must share one";
    let rows = [
        ("SET a@ GCRA 6 10 60", expected_name),
        ("SET a@b@c GCRA 6 10 60", expected_name),
        ("GET a@", expected_name),
        ("DEL a a@", expected_name),
        ("SET b LEASE me 5 60", expected_rule),
        ("SET b USE a x", expected_rule),
        ("SET b SHADE GCRA 6 10 60", expected_rule),
        ("SET b SHADOW EX 60", "ERR no such policy: give a rule"),
        ("SET b@x BLOCK", "ERR no such policy: give a rule"),
        (
            "SET a EX 60",
            "ERR missing rule: expected an algorithm and its limits, such as GCRA 6 10 60",
        ),
        (
            "SET b OFF BLOCK GCRA 6 10 60",
            "ERR repeated mode: expected only one of SHADOW, OFF, BLOCK and ENFORCE",
        ),
        ("SET b EX 1 EX 1 GCRA 6 10 60", "ERR repeated option: EX may be given once"),
        (
            "SET b EX 0 GCRA 6 10 60",
            "ERR invalid EX: expected a duration from 1ms to 366d, such as 60, 0.5, 500ms or 1h",
        ),
        (
            "SET b ENFORCE 101 GCRA 6 10 60",
            "ERR invalid percent: expected ENFORCE followed by an integer from 0 to 100",
        ),
        ("SET b GCRA 6 10 60 COST 2", cost),
        ("SET b GCRA 6 10 60 PARTIAL", cost),
        (
            "SET b SHADOW GCRA 6 10",
            "ERR wrong number of arguments: expected GCRA burst rate period",
        ),
        ("SET b GCRA 0 10 60", "ERR invalid burst: expected an integer from 1 to 1000000000000"),
        ("SET a FIXED 6 10 ALIGNED", other),
        ("SET a@x EX 60 FIXED 6 10", other),
        ("SET a@new OFF FIXED 6 10", other),
        (
            "LOAD",
            "ERR no policy file: set rl.policy-file in the server's configuration and restart",
        ),
        (
            "SAVE",
            "ERR no policy file: set rl.policy-file in the server's configuration and restart",
        ),
        ("LIST a b", "ERR wrong number of arguments for 'rl.policy|list' command"),
        ("GET", "ERR wrong number of arguments for 'rl.policy|get' command"),
        ("GET a b", "ERR wrong number of arguments for 'rl.policy|get' command"),
        ("DEL", "ERR wrong number of arguments for 'rl.policy|del' command"),
        ("SET b", "ERR wrong number of arguments for 'rl.policy|set' command"),
        ("SET b GCRA", "ERR wrong number of arguments: expected GCRA burst rate period"),
        ("SET b OFF", "ERR no such policy: give a rule"),
        ("SET a COST 1", expected_rule),
        ("LOAD x", "ERR wrong number of arguments for 'rl.policy|load' command"),
    ];
    let knows_subcommands = client.knows_subcommands();
    for (line, expected) in rows {
        let expected = match expected.split_once('|').and_then(|(_, name)| name.split_once('\'')) {
            Some((name, _)) if !knows_subcommands => expected.replace(&format!("|{name}"), ""),
            _ => expected.to_owned(),
        };
        assert_eq!(client.error(&format!("RL.POLICY {line}")), expected, "{line}");
    }
    assert_eq!(
        client.error(&format!("RL.POLICY DEL {}", "a ".repeat(33))),
        "ERR too many names: expected 1 to 32"
    );
    assert_eq!(
        client.error(&format!("RL.POLICY LIST {}", "a".repeat(257))),
        "ERR invalid pattern: expected at most 256 bytes"
    );
    // Arguments may have any bytes.
    for bytes in [&b"\0"[..], b"a\0", b"a\r\nb", b"\xff", b""] {
        let reply = client.call(&[b"RL.POLICY".as_slice(), b"GET", bytes]);
        assert_eq!(raw_error(&reply).as_deref(), Some(expected_name));
    }
    assert_eq!(client.error("RL.POLICY"), "ERR wrong number of arguments for 'rl.policy' command");
    let unknown = client.error("RL.POLICY EXPLODE");
    assert!(unknown.contains("unknown subcommand") && unknown.contains("HELP"), "{unknown}");
    assert_eq!((list(&mut client, ""), digest(&mut client), audit(&server)), before);
    server.assert_alive();
}

#[test]
fn override_expires_by_the_clock_and_the_base_applies_again() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    client.ok("RL.POLICY SET search GCRA 2 1 60");
    let base = digest(&mut client);
    client.ok("RL.POLICY SET search EX 1m OFF GCRA 2 1 60");
    let overridden = digest(&mut client);
    assert!(base.0 == "1" && overridden.0 == "1" && base.1 != overridden.1, "{base:?}");
    assert_eq!(get(&mut client, "search").as_deref(), Some("search EX 1m OFF GCRA 2 1 1m"));
    assert_eq!(list(&mut client, ""), ["search GCRA 2 1 1m"]);
    client.advance_ms(59_999);
    assert_eq!(get(&mut client, "search").as_deref(), Some("search EX 1ms OFF GCRA 2 1 1m"));
    assert_eq!(digest(&mut client), overridden);
    client.advance_ms(1);
    assert_eq!(get(&mut client, "search").as_deref(), Some("search GCRA 2 1 1m"));
    assert_eq!(digest(&mut client), base);
    // When an override without a base expires, no policy is left.
    client.ok("RL.POLICY SET attack@ip:7 EX 5s BLOCK FIXED 1 1");
    assert_eq!(digest(&mut client).0, "2");
    client.advance_ms(5_000);
    assert_eq!((get(&mut client, "attack@ip:7"), digest(&mut client)), (None, base));
    // SET accepts the reply of GET.
    client.ok("RL.POLICY SET search EX 90m SHADOW GCRA 1 1 60");
    let line = get(&mut client, "search").expect("it is there");
    client.ok(&format!("RL.POLICY SET {line}"));
    assert_eq!(get(&mut client, "search"), Some(line));
}

#[test]
fn mode_without_a_rule_keeps_the_rule_and_ends_an_override() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    client.ok("RL.POLICY SET api TOKENBUCKET 10 10 60");
    client.ok("RL.POLICY SET api@plan:gold SHADOW TOKENBUCKET 100 100 60");
    // An override for an hour, of a policy, of a variant, and of a variant without its own rule.
    let rows = [
        ("api EX 1h OFF", "api EX 1h OFF TOKENBUCKET 10 10 1m"),
        ("api@plan:gold BLOCK EX 60", "api@plan:gold EX 1m BLOCK TOKENBUCKET 100 100 1m"),
        ("api@tenant:acme EX 1h block", "api@tenant:acme EX 1h BLOCK TOKENBUCKET 10 10 1m"),
    ];
    for (line, expected) in rows {
        client.ok(&format!("RL.POLICY SET {line}"));
        let name = line.split(' ').next().expect("a name");
        assert_eq!(get(&mut client, name).as_deref(), Some(expected), "{line}");
    }
    assert_eq!(client.run("RL.USE t api FOR tenant:acme"), {
        let blocked = [0, 10, 0, 3_600_000, 3_600_000, 0, 3_600_000];
        Value::Array(blocked.map(Value::Int).to_vec())
    });
    // The bases have their old modes.
    let bases = ["api TOKENBUCKET 10 10 1m", "api@plan:gold SHADOW TOKENBUCKET 100 100 1m"];
    assert_eq!(list(&mut client, ""), bases);
    // Without EX, the mode becomes that of the base, and the override ends.
    client.ok("RL.POLICY SET api ENFORCE 10");
    assert_eq!(get(&mut client, "api").as_deref(), Some("api ENFORCE 10 TOKENBUCKET 10 10 1m"));
    client.ok("RL.POLICY SET api@plan:gold ENFORCE 100");
    client.ok("RL.POLICY SET api@tenant:evil BLOCK");
    let bases = [
        "api ENFORCE 10 TOKENBUCKET 10 10 1m",
        "api@plan:gold TOKENBUCKET 100 100 1m",
        "api@tenant:evil BLOCK TOKENBUCKET 10 10 1m",
    ];
    assert_eq!(list(&mut client, ""), bases);
    let said = "SET by default: api: EX 1h OFF TOKENBUCKET 10 10 1m over TOKENBUCKET 10 10 1m \
         -> ENFORCE 10 TOKENBUCKET 10 10 1m";
    assert!(audit(&server).iter().any(|line| line == said), "{:?}", audit(&server));
    // An override without a base has no rule to give.
    client.ok("RL.POLICY SET once EX 60 GCRA 6 10 60");
    let expected = "ERR no such policy: give a rule";
    for line in ["once OFF", "once EX 1h OFF", "once@x SHADOW", "never BLOCK"] {
        assert_eq!(client.error(&format!("RL.POLICY SET {line}")), expected, "{line}");
    }
}

#[test]
fn digests_are_equal_when_the_same_policies_apply() {
    let (one, other) = (Server::start(), Server::start());
    let (mut one, mut other) = (one.client(), other.client());
    assert_eq!(digest(&mut one), ("0".to_owned(), "0000000000000000".to_owned()));
    for line in ["a GCRA 6 10 60", "b SHADOW FIXED 5 90", "a@x GCRA 6 10 60"] {
        one.ok(&format!("RL.POLICY SET {line}"));
    }
    for line in ["b OFF FIXED 5 90", "a@x GCRA 06 10 1m", "a GCRA 6 10 60s", "b SHADOW FIXED 5 90s"]
    {
        assert_ne!(digest(&mut one), digest(&mut other), "before {line}");
        other.ok(&format!("RL.POLICY SET {line}"));
    }
    let same = digest(&mut one);
    assert_eq!(same, digest(&mut other));
    assert_eq!((same.0.as_str(), same.1.len()), ("3", 16));
    other.ok("RL.POLICY SET a@x GCRA 6 10 61");
    assert_ne!(digest(&mut one), digest(&mut other));
}

#[test]
fn every_policy_change_is_logged_with_its_user() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    client.ok("RL.POLICY SET a GCRA 6 10 60");
    make_user(&mut client, "alice", "+@all");
    let mut alice = server.client();
    alice.ok("AUTH alice any");
    alice.ok("RL.POLICY SET a EX 60 OFF GCRA 6 10 60");
    // Control characters in a user name neither end the log line nor forge another.
    assert_eq!(
        client.call(&["ACL", "SETUSER", "e\u{1}vil\u{1b}[", "on", "nopass", "+@all"]),
        Value::Okay
    );
    let mut evil = server.client();
    assert_eq!(evil.call(&["AUTH", "e\u{1}vil\u{1b}[", "any"]), Value::Okay);
    evil.ok("MULTI");
    evil.ok_queued(&["RL.POLICY", "DEL", "unknown", "a"]);
    evil.run("EXEC");
    // A command that changes nothing logs nothing.
    client.integer("RL.POLICY DEL a");
    client.error("RL.POLICY SET a GCRA");
    list(&mut client, "");
    let expected = [
        "SET by default: a: none -> GCRA 6 10 1m",
        "SET by alice: a: GCRA 6 10 1m -> EX 1m OFF GCRA 6 10 1m over GCRA 6 10 1m",
        "DEL by e\\x01vil\\x1b[: a: EX 1m OFF GCRA 6 10 1m over GCRA 6 10 1m -> none",
    ];
    assert_eq!(audit(&server), expected);
}

#[test]
fn policies_are_not_replicated_and_a_replica_has_its_own() {
    let primary = Server::setup().with_tcp().start();
    let replica = replica_of(&primary);
    let (mut one, mut other) = (primary.client(), replica.client());
    one.ok("RL.POLICY SET a GCRA 6 10 60");
    one.ok("SET k v");
    wait_for_offset(&primary, &replica);
    assert_eq!(one.changes(), 1, "a policy is no change of the data");
    assert_eq!(list(&mut other, ""), [""; 0]);
    other.ok("RL.POLICY SET b GCRA 6 10 60");
    other.ok("RL.POLICY SET c EX 60 GCRA 6 10 60");
    assert_eq!(other.integer("RL.POLICY DEL c"), 1);
    assert_eq!(
        (list(&mut one, ""), list(&mut other, "")),
        (vec!["a GCRA 6 10 1m".to_owned()], vec!["b GCRA 6 10 1m".to_owned()],)
    );
    // Policies can also be set on a replica that has lost its primary and refuses reads.
    other.ok("CONFIG SET replica-serve-stale-data no");
    drop(one);
    drop(primary);
    eventually("the replica is stale", || raw_error(&other.run("GET k")));
    other.ok("RL.POLICY SET b SHADOW GCRA 6 10 60");
    assert_eq!(list(&mut other, ""), ["b SHADOW GCRA 6 10 1m"]);
}

#[test]
fn policy_command_runs_in_a_transaction_and_not_in_a_script() {
    let server = Server::start();
    let mut client = server.client();
    client.ok("MULTI");
    client.ok_queued(&["RL.POLICY", "SET", "a", "GCRA", "6", "10", "60"]);
    client.ok_queued(&["RL.POLICY", "GET", "a"]);
    let replies = client.run("EXEC");
    assert_eq!(
        replies,
        Value::Array(vec![Value::Okay, Value::BulkString(b"a GCRA 6 10 1m".to_vec())])
    );
    for call in ["'SET', 'b', 'GCRA', '6', '10', '60'", "'LIST'", "'DEL', 'a'"] {
        let script = format!("return redis.call('RL.POLICY', {call})");
        let reply = client.call(&["EVAL", &script, "0"]);
        let error = raw_error(&reply).expect("an error");
        assert!(error.contains("not allowed from script"), "{call}: {error}");
    }
    assert_eq!(list(&mut client, ""), ["a GCRA 6 10 1m"]);
}

#[test]
fn policy_command_needs_permission_by_command_or_category() {
    let server = Server::start();
    let mut client = server.client();
    let calls = ["SET a GCRA 6 10 60", "DEL a", "GET a", "LIST", "LOAD", "SAVE", "HELP"];
    let has_category = text(&client.run("ACL DRYRUN default PING")) == "OK"
        && !matches!(client.run("ACL CAT rl"), Value::ServerError(_));
    make_user(&mut client, "app", "~* +@all -rl.policy");
    make_user(&mut client, "reader", "~* -@all +rl.policy|get +rl.policy|list");
    make_user(&mut client, "operator", "-@all +rl.policy");
    make_user(&mut client, "safe", "~* +@all -@dangerous");
    for call in calls {
        let line = format!("RL.POLICY {call}");
        assert!(!may(&mut client, "app", &line), "{line}");
        let reads = call.starts_with("GET") || call.starts_with("LIST");
        assert_eq!(may(&mut client, "reader", &line), reads, "{line}");
        assert!(may(&mut client, "operator", &line), "{line}");
        // Redis 7.0 puts no command of a module into a category.
        assert_eq!(may(&mut client, "safe", &line), !has_category, "{line}");
    }
    if has_category {
        make_user(&mut client, "limited", "~* -@all +@rl");
        assert!(!may(&mut client, "limited", "RL.POLICY GET a"));
        assert!(may(&mut client, "limited", "RL.GCRA k 6 10 60"));
    }
}

#[test]
fn help_lists_every_subcommand() {
    let server = Server::start();
    let mut client = server.client();
    let Value::Array(lines) = client.run("RL.POLICY HELP") else { panic!("no lines") };
    let lines: Vec<_> = lines.iter().map(text).collect();
    let names = ["SET", "DEL", "GET", "LIST", "LOAD", "SAVE", "STATS", "RESETSTAT", "HELP"]
        .map(str::to_owned);
    if client.knows_subcommands() {
        let listed = client.run("COMMAND LIST FILTERBY PATTERN rl.policy|*");
        let Value::Array(listed) = listed else { panic!("no names") };
        let listed = listed.iter().map(|name| text(name).replace("rl.policy|", "").to_uppercase());
        assert_eq!(listed.collect::<HashSet<_>>(), HashSet::from(names.clone()));
    }
    for name in names {
        assert!(lines.iter().any(|line| line.split(' ').next() == Some(&name)), "{name}");
    }
}

#[test]
fn cluster_nodes_with_one_policy_file_have_one_digest_and_one_call_sets_a_policy_on_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("policies");
    std::fs::write(&file, "a GCRA 6 10 60\na@x SHADOW GCRA 60 100 60\n").expect("written");
    let mut cluster = Cluster::start();
    let line = format!("rl.policy-file {}", file.display());
    for node in &mut cluster.nodes {
        node.start_again_as(|setup| setup.line(&line));
    }
    let digests = |cluster: &Cluster| -> Vec<_> {
        cluster.nodes.iter().map(|node| digest(&mut node.client())).collect()
    };
    let of_file = digests(&cluster);
    assert!(of_file.iter().all(|digest| *digest == of_file[0] && digest.0 == "2"), "{of_file:?}");
    let call_all = |words: &[&str]| {
        let address = format!("127.0.0.1:{}", cluster.nodes[0].port());
        eventually("the nodes know each other again and take the call", || {
            let output = Command::new(cli())
                .args(["--cluster", "call", &address])
                .args(words)
                .output()
                .expect("the client runs");
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            (said.lines().filter(|line| line.ends_with(": OK")).count() == 3).then_some(())
        });
    };
    // An emergency: one call sets an override on all nodes.
    call_all(&["RL.POLICY", "SET", "a", "EX", "1h", "OFF", "GCRA", "6", "10", "60"]);
    let overridden = digests(&cluster);
    assert!(overridden.iter().all(|digest| *digest == overridden[0]), "{overridden:?}");
    assert_ne!(overridden[0], of_file[0]);
    // A deployment: the file is changed first, then every node reads it.
    std::fs::write(&file, "a GCRA 7 10 60\n").expect("written");
    call_all(&["RL.POLICY", "LOAD"]);
    let deployed = digests(&cluster);
    assert!(
        deployed.iter().all(|digest| *digest == deployed[0] && digest.0 == "1"),
        "{deployed:?}"
    );
}

/// Returns the name of the command-line client installed on this machine.
fn cli() -> &'static str {
    let runs = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    ["redis-cli", "valkey-cli"].into_iter().find(runs).expect("redis-cli or valkey-cli")
}
