//! Users that lack some of the permissions which the library's header lists.

use std::collections::BTreeSet;

use redis::Value;

use crate::library::{Form, Library, Request, script, source};
use crate::servers::{CALLS, plain};
use support::{Client, Server, raw_error};

/// The command that the library calls only on servers without absolute expiry times.
const ON_OLD_SERVERS: &str = "pttl";

/// Returns the commands that the library calls on servers that have functions.
fn called() -> Vec<String> {
    let source = source();
    let calls = ["call('", "attempt('"].map(|call| source.split(call).skip(1));
    let names = calls.into_iter().flatten().filter_map(|rest| rest.split_once('\''));
    let is_command = |name: &&str| name.bytes().all(|byte| byte.is_ascii_uppercase());
    let names = names.map(|(name, _)| name).filter(is_command).map(str::to_lowercase);
    names.filter(|name| name != ON_OLD_SERVERS).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Creates a user that may call these commands, functions and scripts, on the keys `app:*`.
fn user(server: &Server, admin: &mut Client, commands: &[String]) -> Client {
    let rights = commands.iter().map(|name| format!(" +{name}")).collect::<String>();
    let head = "ACL SETUSER app reset on nopass ~app:* -@all +ping +fcall +evalsha";
    admin.ok(&format!("{head}{rights}"));
    let mut client = server.client();
    client.ok("AUTH app any");
    client
}

fn on_app(line: &str) -> Request {
    Request::line(&line.replacen(' ', " app:", 1))
}

#[test]
fn header_lists_exactly_the_commands_that_the_library_calls() {
    let (source, called) = (source(), called());
    assert_eq!(source.matches("'TIME'").count(), 1);
    assert_eq!(source.matches("redis.call('TIME') -- the clock\n").count(), 1);
    let head = source.lines().take_while(|line| line.starts_with(['#', '-']));
    let head = head.map(|line| line.trim_start_matches("-- ")).collect::<Vec<_>>().join(" ");
    assert!(called.contains(&"zadd".to_owned()) && called.len() < 20, "{called:?}");
    assert!(head.contains(&format!(": {};", called.join(" "))), "{called:?}\n{head}");
    // Commands whose result is random or differs on a replica.
    let unwanted = ["math.random", "RANDOMKEY", "SRANDMEMBER", "'KEYS'", "'SCAN'"];
    assert!(!unwanted.iter().any(|word| source.contains(word)));
}

#[test]
fn user_needs_the_function_its_keys_and_the_commands_that_it_calls() {
    let server = plain();
    let mut admin = server.client();
    let library = Library::load(&mut admin);
    let mut few = user(&server, &mut admin, &[]);
    let refused = few.error("FCALL rl_gcra 1 app:1 6 10 60");
    let of_server = ["ACL failure in script", "The user executing the script can't run this"];
    assert!(of_server.iter().any(|text| refused.contains(text)), "{refused}");
    let refused = few.error("FCALL rl_gcra 1 other:1 6 10 60");
    assert!(refused.starts_with("NOPERM"), "{refused}");
    assert_eq!(admin.integer("DBSIZE"), 0);
    let mut enough = user(&server, &mut admin, &called());
    for form in [Form::Function, Form::Script] {
        admin.ok("FLUSHALL");
        for line in CALLS {
            let reply = enough.call(&on_app(line).call(form, &library));
            assert!(raw_error(&reply).is_none(), "{line}: {reply:?}");
            let stranger = Request::line(&line.replacen(' ', " other:", 1));
            let reply = enough.call(&stranger.call(form, &library));
            let refused = raw_error(&reply).expect("an error");
            assert!(refused.starts_with("NOPERM"), "{stranger:?}: {refused}");
        }
    }
    for refused in ["RL.GCRA app:1 6 10 60", "FUNCTION FLUSH", "KEYS *"] {
        assert!(raw_error(&enough.run(refused)).is_some(), "{refused}");
    }
}

/// Calls after [`CALLS`] that change the expiry, each in another way.
const LONGER: [&str; 12] = [
    "SLIDINGLOG l 6 1d",
    "REFUND l SLIDINGLOG 6 1d",
    "LEASE h job-3 3 1d",
    "RENEW h job-1 2d",
    "RENEW h job-1 60",
    "RELEASE h job-3",
    "RELEASE h job-1",
    "REFUND f FIXED 6 60 COST 9",
    "LEASE held job-1 3 1d",
    "BLOCK held 1h",
    "LEASE held job-1 3 1d",
    "BLOCK g 1h",
];

#[test]
fn call_without_a_permission_changes_its_key_completely_or_not_at_all() {
    let server = plain();
    let mut admin = server.client();
    let library = Library::load(&mut admin);
    let called = called();
    let lines = CALLS.iter().chain(&LONGER).copied().collect::<Vec<_>>();
    for missing in &called {
        let rest = called.iter().filter(|name| *name != missing).cloned().collect::<Vec<_>>();
        let mut client = user(&server, &mut admin, &rest);
        let mut refused = 0;
        for form in [Form::Function, Form::Script] {
            admin.ok("FLUSHALL");
            for line in &lines {
                let call = on_app(line).call(form, &library);
                let before = admin.contents();
                if raw_error(&client.call(&call)).is_some() {
                    refused += 1;
                    assert_eq!(admin.contents(), before, "{line} without {missing}");
                    // Makes the call as an administrator, so that the next calls find the state
                    // they expect.
                    let reply = admin.call(&call);
                    assert!(raw_error(&reply).is_none(), "{line}: {reply:?}");
                }
            }
        }
        let is_rare = missing == "zcount" || missing == "zrangebyscore";
        assert!(is_rare || refused > 0, "{missing} is called by none of these");
        assert_all_expire(&mut admin);
    }
}

#[track_caller]
fn assert_all_expire(client: &mut Client) {
    let contents = client.contents();
    assert!(contents.iter().all(|(_, _, expiry_ms)| *expiry_ms > 0), "{contents:?}");
}

#[test]
fn missing_permission_for_one_of_several_rules_allows_nothing_and_leaves_no_key_without_expiry() {
    let server = plain();
    let mut admin = server.client();
    let library = Library::load(&mut admin);
    let rules = [
        ("app:{7}:g", "GCRA 6 10 60"),
        ("app:{7}:l", "SLIDINGLOG 9 60"),
        ("app:{7}:h", "LEASE job-1 3 60"),
    ];
    let called = called();
    for missing in ["set", "setrange", "zadd", "pexpireat"] {
        let rest = called.iter().filter(|name| *name != missing).cloned().collect::<Vec<_>>();
        let mut client = user(&server, &mut admin, &rest);
        admin.ok("FLUSHALL");
        // With this state, the script only appends to a log.
        admin.call(&Request::line("SLIDINGLOG app:{7}:l 9 60").call(Form::Function, &library));
        let call = Request::several("ALL", &rules).call(Form::Function, &library);
        for _ in 0..12 {
            let reply = client.call(&call);
            let is_denied = matches!(&reply, Value::Array(fields) if fields[0] == Value::Int(0));
            assert!(is_denied || raw_error(&reply).is_some(), "without {missing}: {reply:?}");
        }
        assert_all_expire(&mut admin);
    }
}

/// Runs the script as on a server before 7.0, where it sets the state first and then the expiry,
/// and cannot check the user's permissions.
#[test]
fn without_absolute_expiry_times_no_key_remains_without_expiry() {
    let server = plain();
    let mut admin = server.client();
    let old = [("redis.REDIS_VERSION_NUM ~= nil", "false"), ("redis.acl_check_cmd", "nil")];
    let script = old.iter().fold(script(), |script, (modern, old)| {
        assert_eq!(script.matches(modern).count(), 1, "{modern}");
        script.replace(modern, old)
    });
    let library = Library::load_script(&mut admin, &script);
    let commands = called().into_iter().chain([ON_OLD_SERVERS.to_owned()]);
    let commands = commands.filter(|name| name != "pexpireat").collect::<Vec<_>>();
    let mut client = user(&server, &mut admin, &commands);
    let mut refused = 0;
    for line in CALLS.iter().chain(&LONGER) {
        let call = on_app(line).call(Form::Script, &library);
        let before = admin.contents();
        if raw_error(&client.call(&call)).is_some() {
            refused += 1;
            assert_eq!(admin.contents(), before, "{line}");
            assert!(raw_error(&admin.call(&call)).is_none(), "{line}");
        }
    }
    assert!(refused > CALLS.len() / 2, "{refused}");
    assert_all_expire(&mut admin);
}
