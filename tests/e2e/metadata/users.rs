//! Users with few rights. Each connection has logged in with a password.

use redis::Value;

use support::acl::is_at_least;
use support::{ALGORITHMS, Client, Server, raw_error, text};

/// Creates a user with these rules, and returns a connection that has logged in as this user.
fn login(server: &Server, name: &str, rules: &str) -> Client {
    server.client().ok(&format!("ACL SETUSER {name} reset on >secret {rules}"));
    let mut client = server.client();
    assert!(client.error(&format!("AUTH {name} guess")).starts_with("WRONGPASS"));
    client.ok(&format!("AUTH {name} secret"));
    assert_eq!(text(&client.run("ACL WHOAMI")), name);
    client
}

/// Returns true if the user may make the call. Fails the test on any other error.
fn may(client: &mut Client, call: &str) -> bool {
    match raw_error(&client.run(call)) {
        None => true,
        Some(error) if error.starts_with("NOPERM") => false,
        Some(error) => panic!("{call}: {error}"),
    }
}

/// Returns a call of every command that decides, each algorithm on its own key.
fn updates(prefix: &str) -> Vec<String> {
    let calls = ALGORITHMS
        .iter()
        .map(|algorithm| algorithm.call(&format!("{prefix}{}", algorithm.name), 1_000, "366d"));
    calls.collect()
}

/// Returns a call of every command that only reads a key.
fn reads(prefix: &str) -> Vec<String> {
    let peek = |algorithm: &support::Algorithm| {
        let key = format!("{prefix}{}", algorithm.name);
        [algorithm.peek(&key, 1_000, "366d"), format!("RL.INSPECT {key}")]
    };
    ALGORITHMS.iter().flat_map(peek).collect()
}

/// Returns true if the server lists ACL categories for the commands of modules.
fn files_module_commands(server: &Server) -> bool {
    let reply = server.client().run("COMMAND INFO RL.PEEK");
    let Value::Array(commands) = &reply else { panic!("{reply:?}") };
    let Value::Array(fields) = &commands[0] else { panic!("{reply:?}") };
    // The fields: name, arity, flags, first key, last key, step, and the categories.
    let Value::Array(categories) = &fields[6] else { panic!("{reply:?}") };
    categories.iter().any(|category| text(category) == "@read")
}

#[test]
fn key_patterns_of_a_user_apply() {
    let server = Server::start();
    // Each row: a user, its rules, and whether they allow a decision and a read on `app:...`.
    let users = [
        ("all", "~* +@all", true, true),
        ("app", "~app:* +@all", true, true),
        ("updater", "%RW~app:* +@all", true, true),
        ("reader", "%R~app:* +@all", false, true),
        ("writer", "%W~app:* +@all", false, false),
        ("stranger", "~other:* +@all", false, false),
        ("nobody", "resetkeys +@all", false, false),
        ("selector", "-@all (~app:* +@all)", true, true),
    ];
    for (name, rules, may_update, may_read) in users {
        let mut client = login(&server, name, rules);
        for call in updates("app:") {
            assert_eq!(may(&mut client, &call), may_update, "{name}: {call}");
        }
        for call in reads("app:") {
            assert_eq!(may(&mut client, &call), may_read, "{name}: {call}");
        }
        for call in updates("app2:").into_iter().chain(reads("app2:")) {
            assert_eq!(may(&mut client, &call), name == "all", "{name}: {call}");
        }
    }
}

#[test]
fn command_permissions_of_a_user_apply() {
    let server = Server::start();
    let every_call = || updates("k:").into_iter().chain(reads("k:"));
    let commands = ALGORITHMS.iter().map(|algorithm| algorithm.command);
    for command in commands.chain(["RL.PEEK", "RL.INSPECT"]) {
        let mut client = login(&server, "one", &format!("~* -@all +acl|whoami +{command}"));
        for call in every_call() {
            let is_this = call.starts_with(&format!("{command} "));
            assert_eq!(may(&mut client, &call), is_this, "+{command}: {call}");
        }
        let mut client = login(&server, "others", &format!("~* +@all -{command}"));
        for call in every_call() {
            let is_this = call.starts_with(&format!("{command} "));
            assert_eq!(may(&mut client, &call), !is_this, "-{command}: {call}");
        }
    }
}

#[test]
fn read_category_permits_only_reads_on_servers_that_put_module_commands_into_categories() {
    let server = Server::start();
    let files = files_module_commands(&server);
    assert_eq!(files, is_at_least(&mut server.client(), (7, 2), (8, 0)), "as its version can");
    // Each row: a user, its rules, and whether they allow a decision and a read on such a server.
    let users = [
        ("reader", "~* -@all +acl|whoami +@read", false, true),
        ("writer", "~* -@all +acl|whoami +@write", true, false),
        ("both", "~* -@all +acl|whoami +@read +@write", true, true),
        ("unread", "~* +@all -@read", true, false),
        ("unwritten", "~* +@all -@write", false, true),
    ];
    for (name, rules, may_update, may_read) in users {
        let mut client = login(&server, name, rules);
        // Without these categories only `+@all` permits the commands, whatever other categories are
        // added or removed.
        let all = rules.contains("+@all");
        for call in updates("k:") {
            let expected = if files { may_update } else { all };
            assert_eq!(may(&mut client, &call), expected, "{name}: {call}");
        }
        for call in reads("k:") {
            let expected = if files { may_read } else { all };
            assert_eq!(may(&mut client, &call), expected, "{name}: {call}");
        }
    }
}

#[test]
fn call_refused_by_acl_takes_nothing_and_appears_in_the_acl_log() {
    let server = Server::start();
    let mut admin = server.client();
    for call in updates("app:") {
        assert!(admin.allows(&call));
    }
    let before = admin.contents();
    let mut client = login(&server, "reader", "%R~app:* +@all -rl.inspect");
    for call in updates("app:") {
        assert!(!may(&mut client, &call), "{call}");
        client.ok("MULTI");
        assert!(!may(&mut client, &call), "{call} in MULTI");
        assert!(client.error("EXEC").starts_with("EXECABORT"), "{call}");
        let refused = client.run_in_script(&call);
        assert!(raw_error(&refused).is_some(), "{call} in a script: {refused:?}");
    }
    assert_eq!(admin.contents(), before);
    let Value::Array(refusals) = admin.run("ACL LOG") else { panic!("no log") };
    assert!(!refusals.is_empty(), "a refusal is written down");
}

#[test]
fn debug_clock_works_only_if_the_configuration_enables_it() {
    let server = Server::setup().without_debug_commands().start();
    let mut client = server.client();
    let disabled = "ERR RL.DEBUG is disabled";
    let actions = ["FREEZE", "FREEZE 0", "ADVANCE 1h", "ADVANCE -1h", "RESUME"];
    for action in actions {
        let call = format!("RL.DEBUG CLOCK {action}");
        assert!(client.error(&call).starts_with(disabled), "{call}");
        client.ok("MULTI");
        client.run(&call);
        let reply = client.run("EXEC");
        let Value::Array(replies) = &reply else { panic!("{call}: {reply:?}") };
        assert!(raw_error(&replies[0]).expect("an error").starts_with(disabled), "{call}");
        let script = format!("return redis.call('RL.DEBUG', 'CLOCK', '{}')", action);
        assert!(raw_error(&client.call(&["EVAL", script.as_str(), "0"])).is_some(), "{call}");
    }
    client.error("CONFIG SET rl.debug-commands yes");
    assert!(client.error("RL.DEBUG CLOCK FREEZE").starts_with(disabled));
    assert_eq!(client.info("rl")["rl_clock_frozen"], "0");
}

#[test]
fn configured_debug_clock_needs_admin_permission() {
    let server = Server::start();
    let files = files_module_commands(&server);
    let travel = "RL.DEBUG CLOCK RESUME";
    assert!(may(&mut login(&server, "all", "~* +@all"), travel));
    assert!(may(&mut login(&server, "named", "-@all +acl|whoami +rl.debug"), travel));
    for (name, rules) in [
        ("limits", "~* -@all +acl|whoami +rl.gcra +rl.peek"),
        ("reader", "~* -@all +acl|whoami +@read +@write +@fast"),
        ("without", "~* +@all -rl.debug"),
    ] {
        assert!(!may(&mut login(&server, name, rules), travel), "{name}");
    }
    let mut careful = login(&server, "careful", "~* +@all -@admin +acl|whoami");
    assert_eq!(may(&mut careful, travel), !files, "without categories all means all");
}
