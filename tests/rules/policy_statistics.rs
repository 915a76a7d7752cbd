//! `RL.POLICY STATS`: exact counts of each policy's calls.

use std::collections::BTreeMap;
use std::thread;

use redis::Value;

use support::metrics::{decisions, of_policy, scrape};
use support::statistics::{FIELDS, Stats, listed};
use support::{BASE_US, Client, Random, Server, raw_error, text};

fn names(client: &mut Client) -> Vec<String> {
    listed(client, "RL.POLICY STATS").into_iter().map(|(name, _)| name).collect()
}

/// Returns the statistics of one policy; `None` if STATS does not list it.
fn stats(client: &mut Client, name: &str) -> Option<Stats> {
    let mut listed = listed(client, &format!("RL.POLICY STATS {name}"));
    assert!(listed.len() <= 1, "{listed:?}");
    listed.pop().map(|(listed, stats)| {
        assert_eq!(listed, name);
        stats
    })
}

/// Returns the seven integers of a reply to a call with a policy.
fn seven(value: &Value) -> Option<[i64; 7]> {
    let Value::Array(fields) = value else { return None };
    let numbers = fields.iter().map(|field| match field {
        Value::Int(number) => Some(*number),
        _ => None,
    });
    numbers.collect::<Option<Vec<_>>>()?.try_into().ok()
}

fn uses(client: &mut Client, line: &str) -> [i64; 7] {
    let value = client.run(line);
    seven(&value).unwrap_or_else(|| panic!("{line}: {value:?}"))
}

#[test]
fn every_field_counts_the_calls_that_its_name_says() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    client.ok("RL.POLICY SET search FIXED 10 1h");
    // A call, and the change that it makes to the expected statistics.
    type Row = (&'static str, fn(&mut Stats));
    let table: [Row; 10] = [
        ("RL.USE a search", |s| (s.allowed, s.created, s.units) = (1, 1, 1)),
        ("RL.USE a search COST 7", |s| (s.allowed, s.units) = (2, 8)), // A fifth left: not near.
        ("RL.USE a search", |s| (s.allowed, s.units, s.near_limit) = (3, 9, 1)),
        ("RL.USE a search COST 5 PARTIAL", |s| (s.allowed, s.units, s.near_limit) = (4, 10, 2)),
        ("RL.USE a search", |s| (s.denied, s.last_denied_us) = (1, BASE_US as u64)),
        ("RL.USE a search COST 11", |s| s.denied = 2), // It can never be allowed.
        ("RL.USE a search COST 3 PARTIAL", |s| s.denied = 3),
        ("RL.USE b search COST 9", |s| {
            (s.allowed, s.created, s.units, s.near_limit) = (5, 2, 19, 3)
        }),
        ("RL.CHARGE b USE search COST 4", |s| s.units = 23), // Into debt.
        ("RL.CHARGE c USE search COST 1", |s| s.units = 24), // Only RL.USE counts as created.
    ];
    let mut expected = Stats::default();
    for (call, change) in table {
        client.run(call);
        change(&mut expected);
        assert_eq!(stats(&mut client, "search"), Some(expected), "{call}");
    }
    client.advance_ms(1_500);
    client.run("RL.USE a search");
    expected.denied += 1;
    expected.last_denied_us = BASE_US as u64 + 1_500_000;
    assert_eq!(stats(&mut client, "search"), Some(expected));
}

#[test]
fn peeks_and_refunds_are_not_counted() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    client.ok("RL.POLICY SET search FIXED 2 1h");
    client.run("RL.USE a search COST 2");
    let before = listed(&mut client, "RL.POLICY STATS");
    let calls = [
        "RL.USE a search COST 0",
        "RL.USE new search COST 0",
        "RL.PEEK a USE search",
        "RL.PEEK new USE search",
        "RL.PEEK new USE unknown DEFAULT GCRA 5 5 1h",
        "RL.REFUND a USE search COST 1",
        "RL.REFUND missing USE search COST 1",
    ];
    for call in calls {
        assert!(raw_error(&client.run(call)).is_none(), "{call}");
        assert_eq!(listed(&mut client, "RL.POLICY STATS"), before, "{call}");
    }
    // An error of a read-only call is not counted either, even if the policy is unknown.
    client.error("RL.PEEK a USE unknown");
    client.error("RL.PEEK a USE search COST many");
    client.ok("SET foreign x");
    client.error("RL.USE foreign search COST 0");
    client.error("RL.USE a unknown COST 0");
    client.call(&["RL.ALL", "foreign", "USE search COST 0"]);
    client.call(&["RL.ALL", "a", "USE unknown COST 0"]);
    client.call(&["RL.PEEKALL", "a", "USE search", "b", "USE search"]);
    assert_eq!(listed(&mut client, "RL.POLICY STATS"), before);
}

#[test]
fn statistics_are_a_map_of_maps_sorted_by_name() {
    let server = Server::start();
    let (mut client, mut client3) = (server.client(), server.client3());
    assert_eq!(client.run("RL.POLICY STATS"), Value::Array(vec![]));
    assert_eq!(client3.run("RL.POLICY STATS"), Value::Map(vec![]));
    for name in ["search", "login", "search@plan:gold", "search-more", "Search"] {
        client.ok(&format!("RL.POLICY SET {name} GCRA 5 5 1h"));
    }
    client.run("RL.USE k new FOR plan:gold DEFAULT GCRA 5 5 1h");
    // Policies of the table that were never called are listed too; `(other)` only when it has
    // counts.
    let expected = ["Search", "login", "new", "search", "search-more", "search@plan:gold"];
    assert_eq!(names(&mut client), expected);
    assert!(client.error("RL.USE k unknown").starts_with("NOPOLICY"));
    assert_eq!(names(&mut client), [&["(other)"], &expected[..]].concat());
    let other = Stats { errors: 1, ..Stats::default() };
    assert_eq!(stats(&mut client, "(other)"), Some(other));
    for unknown in ["unknown", "search@", "search@plan", "SEARCH", "(OTHER)", "\u{e9}"] {
        assert_eq!(stats(&mut client, unknown), None, "{unknown}");
        assert_eq!(client3.call(&["RL.POLICY", "STATS", unknown]), Value::Map(vec![]));
    }
    let Value::Map(one) = client3.run("rl.policy stats new") else { panic!("no map") };
    let Value::Map(fields) = &one[0].1 else { panic!("{one:?}") };
    assert_eq!(fields.iter().map(|(name, _)| text(name)).collect::<Vec<_>>(), FIELDS);
    assert_eq!(fields[0].1, Value::Int(1));
    for call in ["RL.POLICY STATS a b", "RL.POLICY RESETSTAT a"] {
        let error = client.error(call);
        assert!(error.contains("wrong number of arguments"), "{call}: {error}");
    }
}

#[test]
fn a_pattern_selects_the_statistics_of_a_policy_and_its_variants() {
    let server = Server::start();
    let mut client = server.client();
    for name in ["api", "api@plan:gold", "api@tenant:acme", "api-2", "login"] {
        client.ok(&format!("RL.POLICY SET {name} GCRA 5 5 1h"));
    }
    client.run("RL.USE k new DEFAULT GCRA 5 5 1h");
    client.error("RL.USE k unknown");
    for (pattern, expected) in [
        ("api", &["api"][..]),
        ("api@*", &["api@plan:gold", "api@tenant:acme"]),
        ("api*", &["api", "api-2", "api@plan:gold", "api@tenant:acme"]),
        ("[ln]*", &["login", "new"]),
        ("?other?", &["(other)"]),
        ("API*", &[]),
    ] {
        let found = listed(&mut client, &format!("RL.POLICY STATS {pattern}"));
        assert_eq!(found.iter().map(|(name, _)| name).collect::<Vec<_>>(), expected, "{pattern}");
        let all = listed(&mut client, "RL.POLICY STATS");
        assert!(found.iter().all(|one| all.contains(one)), "{pattern}");
    }
    let error = client.error(&format!("RL.POLICY STATS {}", "*".repeat(257)));
    assert_eq!(error, "ERR invalid pattern: expected at most 256 bytes");
}

#[test]
fn variants_are_counted_separately_and_a_default_under_its_policy() {
    let server = Server::start();
    let mut client = server.client();
    client.ok("RL.POLICY SET search GCRA 5 5 1h");
    client.ok("RL.POLICY SET search@plan:gold GCRA 9 9 1h");
    let calls = [
        "RL.USE a search FOR tenant:acme FOR plan:gold",
        "RL.USE b search FOR plan:gold",
        "RL.USE c search FOR plan:silver",
        "RL.USE d login FOR plan:gold DEFAULT GCRA 5 5 1h",
        "RL.USE e login DEFAULT GCRA 5 5 1h",
        "RL.USE f login FOR plan:silver DEFAULT GCRA 5 5 1h",
    ];
    calls.iter().for_each(|call| assert_eq!(uses(&mut client, call)[0], 1, "{call}"));
    let allowed: Vec<_> = listed(&mut client, "RL.POLICY STATS")
        .into_iter()
        .map(|(name, stats)| (name, stats.allowed))
        .collect();
    let expected = [("login", 3), ("search", 1), ("search@plan:gold", 2)];
    assert_eq!(allowed, expected.map(|(name, allowed)| (name.to_owned(), allowed)));
}

#[test]
fn policy_in_shadow_mode_counts_the_units_it_takes_and_the_calls_it_would_have_denied() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for (name, mode) in [("shadow", "SHADOW"), ("no-key", "ENFORCE 0")] {
        client.ok(&format!("RL.POLICY SET {name} {mode} FIXED 2 1h"));
        for cost in [1, 1, 1, 3] {
            let reply = uses(&mut client, &format!("RL.USE {name} {name} COST {cost}"));
            assert_eq!(reply[0], 1);
        }
        let expected = Stats {
            allowed: 2,
            shadow_denied: 2,
            near_limit: 1,
            created: 1,
            units: 2,
            ..Stats::default()
        };
        assert_eq!(stats(&mut client, name), Some(expected), "{name}");
    }
}

#[test]
fn policy_that_is_off_allows_without_taking_units_and_blocked_policy_denies() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    client.ok("CONFIG SET rl.near-limit-percent 100");
    client.ok("RL.POLICY SET off OFF FIXED 2 1h");
    client.ok("RL.POLICY SET block BLOCK FIXED 2 1h");
    for _ in 0..3 {
        client.run("RL.USE a off COST 2");
        client.run("RL.USE b block COST 2");
    }
    client.run("RL.CHARGE a USE off COST 2");
    client.run("RL.CHARGE b USE block COST 2");
    let off = Stats { allowed: 3, ..Stats::default() };
    let block = Stats { denied: 3, last_denied_us: BASE_US as u64, ..Stats::default() };
    assert_eq!(stats(&mut client, "off"), Some(off));
    assert_eq!(stats(&mut client, "block"), Some(block));
    assert_eq!(client.integer("DBSIZE"), 0);
}

#[test]
fn errors_count_under_a_known_policy_and_otherwise_under_other() {
    let server = Server::start();
    let mut client = server.client();
    client.ok("RL.POLICY SET search GCRA 5 5 1h");
    client.ok("RL.POLICY SET login BACKOFF 3 1s 1m 1h");
    client.integer("RPUSH list a");
    // The call, how its reply begins, and the name under which it is counted.
    let table = [
        ("RL.USE list search", "WRONGTYPE", Some("search")),
        ("RL.USE a login COST 1", "ERR", Some("login")),
        ("RL.USE a login COST 2 PARTIAL", "ERR", Some("login")),
        ("RL.USE list new DEFAULT GCRA 5 5 1h", "WRONGTYPE", Some("new")),
        ("RL.USE a nothing", "NOPOLICY", Some("(other)")),
        ("RL.USE a nothing FOR plan:gold", "NOPOLICY", Some("(other)")),
        // A call with invalid arguments looks up no policy.
        ("RL.USE a search COST many", "ERR", None),
        ("RL.USE a search DEFAULT GCRA", "ERR", None),
        ("RL.USE a no@name", "ERR", None),
    ];
    let mut expected = BTreeMap::new();
    for (call, start, name) in table {
        let error = client.error(call);
        assert!(error.starts_with(start), "{call}: {error}");
        if let Some(name) = name {
            *expected.entry(name.to_owned()).or_insert(0) += 1;
        }
    }
    let all = listed(&mut client, "RL.POLICY STATS");
    for (name, stats) in &all {
        let errors = expected.get(name).copied().unwrap_or(0);
        assert_eq!(*stats, Stats { errors, ..Stats::default() }, "{name}");
    }
    assert_eq!(all.len(), expected.len());
    // If one rule of several has an error, only its policy counts it.
    let error = client.call(&["RL.ALL", "a", "USE search", "list", "USE new DEFAULT GCRA 5 5 1h"]);
    assert!(raw_error(&error).is_some_and(|error| error.starts_with("WRONGTYPE")), "{error:?}");
    assert_eq!(stats(&mut client, "search"), Some(Stats { errors: 1, ..Stats::default() }));
    assert_eq!(stats(&mut client, "new"), Some(Stats { errors: 2, ..Stats::default() }));
    let error = client.call(&["RL.ALL", "a", "USE search", "b", "USE nothing"]);
    assert!(raw_error(&error).is_some_and(|error| error.starts_with("NOPOLICY")), "{error:?}");
    assert_eq!(stats(&mut client, "search"), Some(Stats { errors: 1, ..Stats::default() }));
    assert_eq!(stats(&mut client, "(other)"), Some(Stats { errors: 3, ..Stats::default() }));
}

#[test]
fn denied_call_with_several_rules_counts_only_under_the_rules_that_deny() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    client.ok("RL.POLICY SET wide FIXED 10 1h");
    client.ok("RL.POLICY SET narrow FIXED 1 1h");
    client.ok("RL.POLICY SET shadow SHADOW FIXED 1 1h");
    client.ok("RL.POLICY SET off OFF FIXED 1 1h");
    let call = ["RL.ALL", "w", "USE wide COST 2", "n", "USE narrow", "s", "USE shadow", "o"];
    let call = [&call[..], &["USE off", "p", "FIXED 10 1h"]].concat();
    client.call(&call);
    let taken = Stats { allowed: 1, created: 1, units: 1, near_limit: 1, ..Stats::default() };
    let wide = Stats { units: 2, near_limit: 0, ..taken };
    let off = Stats { allowed: 1, ..Stats::default() };
    let denied = Stats { denied: 1, last_denied_us: BASE_US as u64, ..taken };
    let shadow_denied = Stats { shadow_denied: 1, ..taken };
    let all = |wide, narrow, shadow, off| {
        let all = [("narrow", narrow), ("off", off), ("shadow", shadow), ("wide", wide)];
        all.map(|(name, stats)| (name.to_owned(), stats)).to_vec()
    };
    assert_eq!(listed(&mut client, "RL.POLICY STATS"), all(wide, taken, taken, off));
    client.call(&call);
    let expected = all(wide, denied, shadow_denied, off);
    assert_eq!(listed(&mut client, "RL.POLICY STATS"), expected);
    // A rule without a policy denies: the policies that would have allowed count nothing.
    client.call(&["RL.ALL", "w", "USE wide", "p", "FIXED 1 1h COST 2", "o", "USE off"]);
    assert_eq!(listed(&mut client, "RL.POLICY STATS"), expected);
    // A policy in shadow mode that would deny does not stop the other policies from taking units.
    client.call(&["RL.ALL", "w", "USE wide", "s", "USE shadow"]);
    let wide = Stats { allowed: 2, units: 3, ..wide };
    let shadow = Stats { shadow_denied: 2, ..shadow_denied };
    assert_eq!(listed(&mut client, "RL.POLICY STATS"), all(wide, denied, shadow, off));
}

#[test]
fn near_limit_follows_the_setting_at_the_time_of_the_call() {
    let server = Server::start();
    let mut client = server.client();
    client.ok("RL.POLICY SET search FIXED 10 1h");
    // Percentage, cost, and near-limit count after the call; the remaining units are 5, 4, 2 and 0.
    for (percent, cost, near) in [(50, 5, 0), (41, 1, 1), (20, 2, 1), (0, 2, 1)] {
        client.ok(&format!("CONFIG SET rl.near-limit-percent {percent}"));
        assert_eq!(uses(&mut client, &format!("RL.USE a search COST {cost}"))[0], 1);
        let counted = stats(&mut client, "search").expect("statistics");
        assert_eq!(counted.near_limit, near, "{percent} per cent");
    }
}

#[test]
fn reset_zeroes_all_counts_and_forgets_policies_known_only_from_a_default() {
    let server = Server::start();
    let mut client = server.client();
    client.ok("RL.POLICY SET search FIXED 1 1h");
    for call in ["RL.USE a search", "RL.USE a search", "RL.USE b new DEFAULT GCRA 5 5 1h"] {
        client.run(call);
    }
    client.error("RL.USE a nothing");
    assert_eq!(names(&mut client), ["(other)", "new", "search"]);
    // CONFIG RESETSTAT does not reset the statistics of policies.
    client.ok("CONFIG RESETSTAT");
    assert_eq!(names(&mut client), ["(other)", "new", "search"]);
    client.ok("RL.POLICY RESETSTAT");
    let expected = [("search".to_owned(), Stats::default())];
    assert_eq!(listed(&mut client, "RL.POLICY STATS"), expected);
    assert_eq!(client.info_number("rl", "rl_errors"), 1, "INFO has its own");
    // Calls after the reset are counted.
    client.run("RL.USE c new DEFAULT FIXED 5 1h");
    client.run("RL.USE c search COST 0");
    let expected = Stats { allowed: 1, created: 1, units: 1, ..Stats::default() };
    assert_eq!(stats(&mut client, "new"), Some(expected));
}

#[test]
fn statistics_end_with_their_policy_and_with_the_server() {
    let mut server = Server::start();
    let mut client = server.client();
    let calls = |client: &mut Client| {
        client.run("RL.USE a search");
        client.run("RL.USE a search FOR plan:gold");
    };
    client.ok("RL.POLICY SET search GCRA 9 9 1h");
    client.ok("RL.POLICY SET search@plan:gold GCRA 99 99 1h");
    calls(&mut client);
    // Setting the policy again or overriding it does not reset its statistics.
    client.ok("RL.POLICY SET search SHADOW GCRA 5 5 1h");
    client.ok("RL.POLICY SET search EX 1m OFF GCRA 5 5 1h");
    calls(&mut client);
    let allowed = |client: &mut Client, name: &str| stats(client, name).map(|all| all.allowed);
    assert_eq!(allowed(&mut client, "search"), Some(2));
    assert_eq!(allowed(&mut client, "search@plan:gold"), Some(2));
    // Deleting a policy deletes its statistics, but not those of its variant.
    assert_eq!(client.integer("RL.POLICY DEL search"), 1);
    assert_eq!(allowed(&mut client, "search"), None);
    assert_eq!(allowed(&mut client, "search@plan:gold"), Some(2));
    client.ok("RL.POLICY SET other GCRA 5 5 1h");
    client.ok("RL.POLICY SET search GCRA 5 5 1h");
    assert_eq!(stats(&mut client, "search"), Some(Stats::default()));
    assert_eq!(stats(&mut client, "other"), Some(Stats::default()));
    // This policy is first known from a DEFAULT, then set, then deleted.
    client.run("RL.USE a new DEFAULT GCRA 5 5 1h");
    client.ok("RL.POLICY SET new GCRA 5 5 1h");
    client.run("RL.USE a new");
    assert_eq!(allowed(&mut client, "new"), Some(2));
    // Later calls still name the policy with a DEFAULT, so its counts are kept.
    assert_eq!(client.integer("RL.POLICY DEL new"), 1);
    client.run("RL.USE a new DEFAULT GCRA 5 5 1h");
    assert_eq!(allowed(&mut client, "new"), Some(3));
    // A restart clears all statistics.
    client.ok("SAVE");
    server.start_again();
    assert_eq!(server.client().run("RL.POLICY STATS"), Value::Array(vec![]));
}

#[test]
fn next_policy_change_drops_the_statistics_of_an_expired_override_that_has_no_base() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    client.ok("RL.POLICY SET attack EX 1m BLOCK GCRA 5 5 1h");
    client.run("RL.USE a attack");
    client.advance_ms(60_000);
    assert!(client.error("RL.USE a attack").starts_with("NOPOLICY"));
    assert_eq!(stats(&mut client, "attack").map(|all| all.denied), Some(1));
    // A policy that is also known from a DEFAULT keeps its counts.
    client.run("RL.USE a known DEFAULT GCRA 5 5 1h");
    client.ok("RL.POLICY SET known EX 1m OFF GCRA 5 5 1h");
    client.run("RL.USE a known DEFAULT GCRA 5 5 1h");
    client.advance_ms(60_000);
    client.ok("RL.POLICY SET search GCRA 5 5 1h");
    assert_eq!(names(&mut client), ["(other)", "known", "search"]);
    assert_eq!(stats(&mut client, "known").map(|all| all.allowed), Some(2));
}

#[test]
fn policy_load_keeps_the_statistics_of_policies_that_remain_and_drops_the_others() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("policies");
    let write = |lines: &str| std::fs::write(&file, lines).expect("a file");
    write("stays GCRA 5 5 1h\ngoes GCRA 5 5 1h\n");
    let server = Server::setup().line(&format!("rl.policy-file {}", file.display())).start();
    let mut client = server.client();
    client.ok("RL.POLICY SET set-later GCRA 5 5 1h");
    for name in ["stays", "goes", "set-later"] {
        client.run(&format!("RL.USE {name} {name}"));
    }
    client.run("RL.USE k default DEFAULT GCRA 5 5 1h");
    client.run("RL.USE k comes DEFAULT GCRA 5 5 1h");
    // A file with an error changes no statistics.
    let before = listed(&mut client, "RL.POLICY STATS");
    write("comes GCRA 5 5 1h\nstays GCRA 0 0 0\n");
    client.error("RL.POLICY LOAD");
    assert_eq!(listed(&mut client, "RL.POLICY STATS"), before);
    write("comes GCRA 7 7 1h\nstays GCRA 7 7 1h\n");
    client.ok("RL.POLICY LOAD");
    let one = Stats { allowed: 1, created: 1, units: 1, ..Stats::default() };
    let expected = ["comes", "default", "stays"].map(|name| {
        let created = u64::from(name != "comes");
        (name.to_owned(), Stats { created, ..one })
    });
    assert_eq!(listed(&mut client, "RL.POLICY STATS"), expected);
}

#[test]
fn many_invented_names_use_bounded_memory_and_every_call_is_counted() {
    const CALLS: u64 = 100_000;
    let server = Server::start();
    let mut client = server.client();
    client.run("RL.USE k search DEFAULT FIXED 1000000 366d");
    let call = |number: u64| {
        let name = format!("invented:{number}:{}", "x".repeat(40));
        ["RL.USE", "k", &name, "DEFAULT", "FIXED", "1000000", "366d"].map(str::to_owned).to_vec()
    };
    // The first calls use up the 1,024 names; the rest follow.
    client.pipeline(&(0..2_000).map(call).collect::<Vec<_>>());
    let used = |client: &mut Client| client.info_number("memory", "used_memory_dataset");
    let before = used(&mut client);
    let replies = client.pipeline(&(2_000..CALLS).map(call).collect::<Vec<_>>());
    assert!(replies.iter().all(|reply| seven(reply).is_some_and(|reply| reply[0] == 1)));
    let grown = used(&mut client) - before;
    assert!(grown < 100_000, "98,000 names took {grown} bytes");
    let all = listed(&mut client, "RL.POLICY STATS");
    assert_eq!(all.len(), 1_024 + 1);
    assert_eq!(all[0].0, "(other)");
    assert_eq!(all[0].1.allowed, CALLS + 1 - 1_024);
    assert_eq!(all.iter().map(|(_, stats)| stats.allowed).sum::<u64>(), CALLS + 1);
    assert_eq!(all.iter().map(|(_, stats)| stats.units).sum::<u64>(), CALLS + 1);
    assert_eq!(stats(&mut client, "search").map(|all| all.allowed), Some(1));
    // The table has its own 10,000 names, so a policy that is set later has its own counts.
    let late = format!("invented:{}:{}", CALLS - 1, "x".repeat(40));
    client.ok(&format!("RL.POLICY SET {late} FIXED 5 1h"));
    client.run(&format!("RL.USE k {late}"));
    assert_eq!(stats(&mut client, &late).map(|all| all.allowed), Some(0));
    assert_eq!(stats(&mut client, &late).map(|all| all.denied), Some(1));
}

/// The outcomes that a client received, by the policy under which they should be counted.
#[derive(Debug, Default)]
struct Seen(BTreeMap<String, Stats>);

impl Seen {
    /// Counts a call from the seven integers of its reply.
    fn count(&mut self, name: &str, reply: [i64; 7], cost: u64, partial: bool, is_off: bool) {
        let stats = self.0.entry(name.to_owned()).or_default();
        let [allowed, limit, remaining, _, _, decided, _] = reply;
        match (allowed, decided) {
            (0, _) => stats.denied += 1,
            (_, 0) => stats.shadow_denied += 1,
            _ => {
                stats.allowed += 1;
                if !is_off {
                    stats.units += if partial { decided as u64 } else { cost };
                    stats.near_limit += u64::from(remaining * 100 < limit * 20);
                }
            }
        }
    }

    fn add(&mut self, other: Self) {
        for (name, seen) in other.0 {
            let sum = self.0.entry(name).or_default();
            sum.allowed += seen.allowed;
            sum.denied += seen.denied;
            sum.shadow_denied += seen.shadow_denied;
            sum.near_limit += seen.near_limit;
            sum.units += seen.units;
            sum.errors += seen.errors;
        }
    }
}

/// The policies of the mixed traffic: name, setting, and whether the setting is OFF.
const MIXED: [(&str, &str, bool); 9] = [
    ("search", "FIXED 300 1h", false),
    ("search@plan:gold", "FIXED 900 1h", false),
    ("login", "GCRA 40 40 366d", false),
    ("upload", "SLIDINGLOG 200 1h", false),
    ("tried", "SHADOW TOKENBUCKET 60 1 366d", false),
    ("rolled-out", "ENFORCE 50 SLIDING 80 24h", false),
    ("off", "OFF LEAKYBUCKET 5 1 1h", true),
    ("blocked", "BLOCK FIXED 5 1h", false),
    ("failed", "BACKOFF 20 1s 1m 1h", false),
];

/// Makes the calls of one client of the mixed traffic. Each key begins with the name of its policy,
/// so policies share no key.
fn mixed_calls(client: &mut Client, seed: u64, calls: usize) -> Seen {
    let mut random = Random::new(seed);
    let mut seen = Seen::default();
    for _ in 0..calls {
        let (name, _, is_off) = *random.pick(&MIXED);
        let (policy, variant) = name.split_once('@').unwrap_or((name, ""));
        let usage = if variant.is_empty() {
            policy.to_owned()
        } else {
            format!("{policy} FOR unknown FOR {variant}")
        };
        let key = format!("{name}:{}", random.below(7));
        let cost = if name == "failed" { 1 } else { 1 + random.below(4) };
        let words = if name == "failed" { String::new() } else { format!(" COST {cost}") };
        match random.below(20) {
            0 => {
                client.run(&format!("RL.PEEK {key} USE {usage}{words}"));
            }
            1 => {
                // A cost of 0 is not counted. Under BACKOFF it is an error, which is not counted
                // either.
                client.run(&format!("RL.USE {key} {usage} COST 0"));
            }
            2 if name == "search" => {
                // This call, or an earlier one, creates the state, so the charge does not create
                // it.
                let line = format!("RL.USE {key} {usage}{words}");
                seen.count(name, uses(client, &line), cost, false, is_off);
                client.decide(&format!("RL.CHARGE {key} USE {usage} COST {cost}"));
                seen.0.entry(name.to_owned()).or_default().units += cost;
            }
            3 if !["off", "blocked"].contains(&name) => {
                assert!(client.error(&format!("RL.USE list {usage}{words}")).starts_with("WRONG"));
                seen.0.entry(name.to_owned()).or_default().errors += 1;
            }
            4 => {
                assert!(client.error(&format!("RL.USE {key} unknown")).starts_with("NOPOLICY"));
                seen.0.entry("(other)".to_owned()).or_default().errors += 1;
            }
            5..=7 if name != "failed" => {
                let line = format!("RL.USE {key} {usage}{words} PARTIAL");
                seen.count(name, uses(client, &line), cost, true, is_off);
            }
            8..=10 => {
                let line = format!("RL.USE new:{key} new DEFAULT FIXED 500 1h");
                seen.count("new", uses(client, &line), 1, false, false);
            }
            11..=13 => {
                let rules = [format!("USE {usage}{words}"), "USE login COST 1".to_owned()];
                let other = format!("login:{}", random.below(7));
                if key == other {
                    continue;
                }
                let reply = client.call(&["RL.ALL", &key, &rules[0], &other, &rules[1]]);
                let Value::Array(reply) = reply else { panic!("{reply:?}") };
                let is_allowed = reply[0] == Value::Int(1);
                let rows = [(name, cost, is_off, &reply[6]), ("login", 1, false, &reply[7])];
                for (name, cost, is_off, row) in rows {
                    let row = seven(row).expect("seven integers");
                    // A denied call is counted only under the rules that deny, or would deny.
                    if is_allowed || row[5] == 0 {
                        seen.count(name, row, cost, false, is_off);
                    }
                }
            }
            _ => {
                let line = format!("RL.USE {key} {usage}{words}");
                seen.count(name, uses(client, &line), cost, false, is_off);
            }
        }
    }
    seen
}

#[test]
fn statistics_equal_the_sum_of_what_sixteen_clients_received() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for (name, setting, _) in MIXED {
        client.ok(&format!("RL.POLICY SET {name} {setting}"));
    }
    client.integer("RPUSH list a");
    let mut seen = Seen::default();
    thread::scope(|scope| {
        let callers = (1..=16).map(|seed| {
            let server = &server;
            scope.spawn(move || mixed_calls(&mut server.client(), seed, 1_000))
        });
        let callers: Vec<_> = callers.collect();
        callers.into_iter().for_each(|caller| seen.add(caller.join().expect("no caller fails")));
    });
    for (name, counted) in listed(&mut client, "RL.POLICY STATS") {
        let mut expected = seen.0.remove(&name).unwrap_or_default();
        // Each key was created once, and no key of another policy has this prefix.
        let Value::Array(keys) = client.run(&format!("KEYS {name}:*")) else { panic!("no keys") };
        expected.created = keys.len() as u64;
        if expected.denied > 0 {
            expected.last_denied_us = BASE_US as u64;
        }
        assert_eq!(counted, expected, "{name}");
        assert!(name == "(other)" || counted.allowed + counted.denied > 100, "{name}: {counted:?}");
    }
    assert!(seen.0.is_empty(), "they are not counted: {seen:?}");
    server.assert_alive();
}

#[test]
fn metrics_equal_the_statistics_and_omit_policies_without_calls() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US + 42);
    for (name, setting, _) in MIXED {
        client.ok(&format!("RL.POLICY SET {name} {setting}"));
    }
    client.ok("RL.POLICY SET untouched FIXED 5 1h");
    client.ok("RL.POLICY SET search@untouched FIXED 5 1h");
    client.integer("RPUSH list a");
    mixed_calls(&mut client, 7, 3_000);
    let text = text(&client.run("RL.METRICS"));
    let samples = scrape(&mut client);
    let all = listed(&mut client, "RL.POLICY STATS");
    assert_eq!(samples["rl_policies"], (MIXED.len() + 2).to_string());
    let (mut touched, mut denied) = (0, 0);
    for (name, stats) in &all {
        let (policy, variant) = name.split_once('@').unwrap_or((name, ""));
        let of = |family: &str| of_policy(&samples, family, policy, variant);
        let outcome = |outcome: &str| decisions(&samples, policy, variant, outcome);
        let label = format!("policy=\"{policy}\",variant=\"{variant}\"");
        if name.ends_with("untouched") {
            assert!(!text.contains(&label), "{name} was never touched");
            continue;
        }
        touched += 1;
        assert_eq!(outcome("allowed"), Some(stats.allowed), "{name}");
        assert_eq!(outcome("denied"), Some(stats.denied), "{name}");
        assert_eq!(outcome("shadow_denied"), Some(stats.shadow_denied), "{name}");
        assert_eq!(of("near_limit_total"), Some(stats.near_limit), "{name}");
        assert_eq!(of("created_total"), Some(stats.created), "{name}");
        assert_eq!(of("units_total"), Some(stats.units), "{name}");
        assert_eq!(of("errors_total"), Some(stats.errors), "{name}");
        let last = format!("rl_policy_last_denied_timestamp_seconds{{{label}}}");
        let expected = (stats.denied > 0).then_some("1800000000.000042");
        assert_eq!(samples.get(&last).map(String::as_str), expected, "{name}");
        denied += usize::from(stats.denied > 0);
    }
    assert!(touched == MIXED.len() + 2 && denied >= 4, "{all:?}");
    let of_policies = text.lines().filter(|line| line.starts_with("rl_policy_")).count();
    assert_eq!(of_policies, touched * 7 + denied, "policies have no other metrics");
    // No key, and no part of a key, appears as a label.
    assert!(!text.contains("new:") && !text.contains("list") && !text.contains(":1"), "{text}");
    client.ok("RL.POLICY RESETSTAT");
    assert!(!self::text(&client.run("RL.METRICS")).contains("rl_policy_"));
}

#[test]
fn metrics_of_10_000_policies_with_the_longest_names_are_bounded_and_fast() {
    const POLICIES: usize = 10_000;
    let server = Server::start();
    let mut client = server.client();
    let name = |number: usize| format!("{:p>64}@{:v>64}", number / 10, number);
    let set = |number| {
        let name = name(number);
        ["RL.POLICY", "SET", &name, "FIXED", "1", "1h"].map(str::to_owned).to_vec()
    };
    let replies = client.pipeline(&(0..POLICIES).map(set).collect::<Vec<_>>());
    assert!(replies.iter().all(|reply| *reply == Value::Okay));
    let call = |number| {
        let name = name(number);
        let (policy, variant) = name.split_once('@').expect("a variant");
        let key = format!("subject:{policy}");
        ["RL.USE", &key, policy, "FOR", variant].map(str::to_owned).to_vec()
    };
    client.pipeline(&(0..POLICIES).map(call).collect::<Vec<_>>());
    let default = |number: usize| {
        let name = format!("{number:d>64}");
        ["RL.USE", "k", &name, "DEFAULT", "FIXED", "1", "1h"].map(str::to_owned).to_vec()
    };
    client.pipeline(&(0..2_000).map(default).collect::<Vec<_>>());
    client.ok("CONFIG RESETSTAT");
    let text = text(&client.run("RL.METRICS"));
    let micros = client.info("commandstats")["cmdstat_rl.metrics"].clone();
    eprintln!("{} bytes: {micros}", text.len());
    assert!(text.len() < 32 << 20, "{} bytes", text.len());
    let decided = text.lines().filter(|line| line.starts_with("rl_policy_decisions_total")).count();
    assert_eq!(decided, (POLICIES + 1_024 + 1) * 3);
    let micros = micros.split("usec=").nth(1).and_then(|rest| rest.split(',').next());
    let micros: u64 = micros.expect("a number").parse().expect("a number");
    assert!(micros < 1_000_000, "the server stood still for {micros} us");
    assert_eq!(listed(&mut client, "RL.POLICY STATS").len(), POLICIES + 1_024 + 1);
}
