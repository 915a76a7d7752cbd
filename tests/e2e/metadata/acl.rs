//! Access rights by key pattern, by command and by category.

use support::acl::{is_at_least, make_user, may};
use support::{ALGORITHMS, Server, text};

/// Returns a call of every command that decides, on this key.
fn updates(key: &str) -> Vec<String> {
    let with_options = format!("RL.FIXED {key} 5 60 COST 1 ALIGNED");
    let calls = ALGORITHMS.iter().map(|algorithm| algorithm.call(key, 5, "60"));
    calls.chain([with_options]).collect()
}

/// Returns a call of every command that only reads, on this key.
fn reads(key: &str) -> Vec<String> {
    let calls = ALGORITHMS.iter().map(|algorithm| algorithm.peek(key, 5, "60"));
    calls.chain([format!("RL.INSPECT {key}")]).collect()
}

#[test]
fn key_patterns_apply_to_every_command() {
    let server = Server::start();
    let mut client = server.client();
    // Each row: a user, its rules, and whether they allow an update and a read of `app:1`.
    let users = [
        ("all", "~app:* +@all", true, true),
        ("both", "%RW~app:* +@all", true, true),
        // PEEK and INSPECT need only read access. Commands that decide need read and write access.
        ("reader", "%R~app:* +@all", false, true),
        ("writer", "%W~app:* +@all", false, false),
        ("stranger", "~other:* +@all", false, false),
    ];
    for (user, rules, may_update, may_read) in users {
        make_user(&mut client, user, rules);
        for call in updates("app:1") {
            assert_eq!(may(&mut client, user, &call), may_update, "{user}: {call}");
        }
        for call in reads("app:1") {
            assert_eq!(may(&mut client, user, &call), may_read, "{user}: {call}");
        }
        for call in updates("app2:1").into_iter().chain(reads("app2:1")) {
            assert!(!may(&mut client, user, &call), "{user}: {call}");
        }
    }
}

#[test]
fn connected_user_is_limited_to_its_key_patterns_and_commands() {
    let server = Server::start();
    make_user(&mut server.client(), "app", "~app:* -@all +rl.gcra +rl.peek");
    let mut client = server.client();
    client.ok("AUTH app any");
    assert!(client.allows("RL.GCRA app:1 1 1 1h"));
    assert!(!client.allows("RL.PEEK app:1 GCRA 1 1 1h"));
    for refused in ["RL.GCRA other:1 1 1 1h", "RL.PEEK other:1 GCRA 1 1 1h", "RL.FIXED app:1 1 1h"]
    {
        assert!(client.error(refused).starts_with("NOPERM"), "{refused}");
    }
    assert_eq!(server.client().integer("DBSIZE"), 1);
}

#[test]
fn builtin_categories_apply_on_servers_that_put_module_commands_into_them() {
    let server = Server::start();
    let mut client = server.client();
    if !is_at_least(&mut client, (7, 2), (8, 0)) {
        // Redis 7.0 puts no command of a module into a category: only `+@all` grants one.
        make_user(&mut client, "all", "~* +@all");
        make_user(&mut client, "reader", "~* -@all +@read");
        assert!(may(&mut client, "all", "RL.PEEK k GCRA 1 1 1"));
        assert!(!may(&mut client, "reader", "RL.PEEK k GCRA 1 1 1"));
        return;
    }
    make_user(&mut client, "reader", "~* -@all +@read");
    make_user(&mut client, "writer", "~* -@all +@write");
    make_user(&mut client, "quick", "~* -@all +@fast");
    make_user(&mut client, "careful", "~* +@all -@dangerous");
    for call in reads("k") {
        assert!(may(&mut client, "reader", &call), "{call}");
        assert!(!may(&mut client, "writer", &call), "{call}");
        assert!(may(&mut client, "quick", &call), "{call}");
        assert!(may(&mut client, "careful", &call), "{call}");
    }
    for call in updates("k") {
        assert!(!may(&mut client, "reader", &call), "{call}");
        assert!(may(&mut client, "writer", &call), "{call}");
        let is_fast = !call.starts_with("RL.SLIDINGLOG");
        assert_eq!(may(&mut client, "quick", &call), is_fast, "{call}");
        assert!(may(&mut client, "careful", &call), "{call}");
    }
    for user in ["reader", "writer", "quick", "careful"] {
        assert!(!may(&mut client, user, "RL.DEBUG CLOCK RESUME"), "{user}");
    }
    make_user(&mut client, "admin", "-@all +@admin");
    assert!(may(&mut client, "admin", "RL.DEBUG CLOCK RESUME"));
}

#[test]
fn category_rl_holds_commands_that_decide_or_read_on_servers_that_let_modules_add_categories() {
    let server = Server::start();
    let mut client = server.client();
    let reply = client.run("ACL CAT");
    let redis::Value::Array(categories) = &reply else { panic!("{reply:?}") };
    let has_ours = categories.iter().any(|category| text(category) == "rl");
    // Modules can add a category since Redis 7.4 and Valkey 8. On older servers the module loads
    // without a category.
    assert_eq!(has_ours, is_at_least(&mut client, (7, 4), (8, 0)));
    if has_ours {
        make_user(&mut client, "limits", "~* -@all +@rl");
        for call in updates("k").into_iter().chain(reads("k")) {
            assert!(may(&mut client, "limits", &call), "{call}");
        }
        for call in ["RL.DEBUG CLOCK RESUME", "RL.METRICS", "RL.TOP", "GET k"] {
            assert!(!may(&mut client, "limits", call), "{call}");
        }
    }
}
