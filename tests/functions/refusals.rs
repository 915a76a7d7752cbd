//! The calls that the library must refuse as the module does: on a read-only server, without
//! memory, and those that need the module.

use redis::Value;

use crate::library::{Form, Library, Request, script, source};
use crate::servers::{CALLS, call_all, plain};
use support::{Server, integers, raw_error, replica_of};

#[test]
fn replica_serves_reads_and_refuses_the_other_calls() {
    let primary = plain();
    let mut client = primary.client();
    let library = Library::load(&mut client);
    client.call(&Request::line("GCRA g 6 10 60").call(Form::Function, &library));
    let replica = replica_of(&primary);
    let mut client = replica.client();
    let before = client.contents();
    for command in ["FCALL_RO", "FCALL"] {
        let reply = client.run(&format!("{command} rl_peek 1 g GCRA 6 10 60"));
        let [allowed, limit, remaining, ..] = integers(&reply).expect("a decision");
        assert_eq!((allowed, limit, remaining), (1, 6, 4), "{command}");
        let several = [command, "rl_peekall", "2", "{7}:u", "{7}:t", "GCRA 1 1 1", "FIXED 1 1"];
        assert!(matches!(client.call(&several), Value::Array(_)), "{command}");
    }
    let refused = client.error("FCALL rl_gcra 1 g 6 10 60");
    assert!(refused.starts_with("READONLY "), "{refused}");
    let peeked = client.call(&Request::line("PEEK g GCRA 6 10 60").call(Form::Script, &library));
    // The server does not send EVAL scripts to replicas.
    let is_missing = raw_error(&peeked).is_some_and(|error| error.starts_with("NOSCRIPT"));
    assert!(is_missing || integers(&peeked).is_some(), "{peeked:?}");
    let as_script = [&script(), "1", "g", "GCRA", "6", "10", "60"];
    let refused = raw_error(&client.call(&[&["EVAL"], &as_script[..]].concat()));
    assert!(refused.as_ref().is_some_and(|e| e.starts_with("READONLY ")), "{refused:?}");
    assert_eq!(client.contents(), before);
    let refused = primary.client().error("FCALL_RO rl_gcra 1 g 6 10 60");
    assert!(refused.starts_with("ERR "), "{refused}");
}

#[test]
fn without_memory_functions_are_refused_exactly_like_commands() {
    let server = Server::start();
    let mut client = server.client();
    let library = Library::load(&mut client);
    for form in [Form::Module, Form::Function] {
        for line in CALLS {
            let request = Request::line(line).with_suffix(&format!(":{form:?}"));
            client.call(&request.call(form, &library));
        }
    }
    client.ok("CONFIG SET maxmemory 1");
    let peeks = ["PEEK g GCRA 6 10 60", "REFUND f FIXED 6 60", "CHARGE f FIXED 6 60", "BLOCK f 1h"];
    for line in CALLS.iter().chain(&peeks) {
        let refused = [Form::Module, Form::Function].map(|form| {
            let request = Request::line(line).with_suffix(&format!(":{form:?}"));
            let before = client.contents();
            let error = raw_error(&client.call(&request.call(form, &library)));
            if error.is_some() {
                assert_eq!(client.contents(), before, "{line}: {error:?}");
            }
            error.map(|error| error.split(' ').next().unwrap_or_default().to_owned())
        });
        assert_eq!(refused[0], refused[1], "{line}");
        let is_decided = refused[0].is_none();
        let frees = ["RENEW", "RELEASE", "REFUND", "PEEK", "BLOCK"];
        let frees = frees.iter().any(|w| line.starts_with(w));
        assert_eq!(is_decided, frees, "{line}: {refused:?}");
    }
}

/// On the oldest servers a script has no flags, so a write is refused only when the script makes
/// it.
#[test]
fn without_memory_the_script_allows_no_call_that_it_cannot_store() {
    let server = plain();
    let mut client = server.client();
    let library = Library::load(&mut client);
    call_all(&mut client, &library, Form::Script);
    client.ok("CONFIG SET maxmemory 1");
    let before = client.contents();
    for line in CALLS.iter().filter(|line| !line.starts_with("RELEASE")) {
        let reply = client.call(&Request::line(line).call(Form::Script, &library));
        let is_refused = raw_error(&reply).is_some_and(|error| error.starts_with("OOM "));
        let is_denied = matches!(&reply, Value::Array(five) if five[0] == Value::Int(0));
        assert!(is_refused || is_denied, "{line}: {reply:?}");
    }
    let peeked = client.call(&Request::line("PEEK g GCRA 6 10 60").call(Form::Script, &library));
    assert!(integers(&peeked).is_some(), "{peeked:?}");
    let banned = client.call(&Request::line("BLOCK g 1h").call(Form::Script, &library));
    assert!(raw_error(&banned).is_some_and(|error| error.starts_with("OOM ")), "{banned:?}");
    assert_eq!(client.contents(), before);
    let released = client.call(&Request::line("RELEASE h job-1").call(Form::Script, &library));
    assert_eq!(released, Value::Int(1), "a full server makes no holder keep what it gives back");
}

#[test]
fn denied_peeked_and_invalid_calls_change_and_send_nothing() {
    let server = plain();
    let mut client = server.client();
    let library = Library::load(&mut client);
    let rules = [
        "GCRA k 1 1 1h",
        "FIXED k 1 1h",
        "SLIDING k 1 1h",
        "SLIDINGLOG k 1 1h",
        "TOKENBUCKET k 1 1 1h",
        "LEAKYBUCKET k 1 1 1h",
        "BACKOFF k 1 1h 2h 3h",
    ];
    let mut stream = server.replication_stream();
    for form in [Form::Function, Form::Script] {
        for line in rules {
            client.run("DEL k {k} {k}:2");
            let request = Request::line(line);
            let allowed = client.call(&request.call(form, &library));
            assert_eq!(integers(&allowed).map(|five| five[0]), Some(1), "{line}");
            stream.effects(&mut client);
            let before = (client.snapshot("k"), client.changes());
            let rule = line.replacen(" k ", " ", 1);
            let quiet = [
                request.clone(),
                Request::line(&format!("PEEK k {rule}")),
                Request::line(&format!("{line} COST")),
                Request::several("PEEKALL", &[("{k}:2", "GCRA 1 1 1h"), ("k", &rule)]),
                Request::several("ALL", &[("{k}:2", "GCRA 1 1 1h"), ("k", &rule)]),
            ];
            for request in quiet {
                let reply = client.call(&request.call(form, &library));
                let denied = matches!(&reply, Value::Array(five) if five[0] == Value::Int(0));
                assert!(denied || raw_error(&reply).is_some(), "{request:?}: {reply:?}");
                assert_eq!((client.snapshot("k"), client.changes()), before, "{request:?}");
            }
            assert_eq!(stream.effects(&mut client), Vec::<Vec<Vec<u8>>>::new(), "{line}");
            assert_eq!(client.integer("EXISTS {k}:2"), 0, "{line}");
        }
    }
}

#[test]
fn calls_that_need_the_module_say_so_and_change_nothing() {
    let server = Server::start();
    let mut client = server.client();
    let library = Library::load(&mut client);
    client.decide("RL.RESERVE held job-1 60 FIXED 10 60 COST 3");
    client.decide("RL.QUOTA month 10 month");
    client.decide("RL.RESERVE planned job-1 60 QUOTA 10 month COST 3");
    let before = client.contents();
    let rows = [
        ("QUOTA", "QUOTA k 10 day"),
        ("USE", "USE k search"),
        ("RESERVE", "RESERVE k job-1 60 FIXED 10 60"),
        ("COMMIT", "COMMIT k job-1 FIXED 10 60"),
        ("CANCEL", "CANCEL k job-1 FIXED 10 60"),
        ("POLICY", "POLICY k"),
        ("INSPECT", "INSPECT k"),
        ("METRICS", "METRICS k"),
        ("QUOTA", "PEEK k QUOTA 10 day"),
        ("USE", "PEEK k USE search"),
        ("RESERVE", "PEEK k RESERVE job-1 60 FIXED 10 60"),
        ("QUOTA", "CHARGE k QUOTA 10 day"),
        ("QUOTA", "REFUND k QUOTA 10 day"),
        // The module counts reserved units, and the library would not.
        ("a key with reservations", "FIXED held 10 60"),
        ("a key with reservations", "PEEK held FIXED 10 60"),
        ("a key with reservations", "CHARGE held FIXED 10 60"),
        ("a key with reservations", "REFUND held FIXED 10 60"),
        ("a key with reservations", "BLOCK held 1h"),
        ("a key with reservations", "BLOCK planned 1h"),
    ];
    let rows = rows.map(|(what, line)| (what, Request::line(line)));
    let several = [
        ("rule 2: QUOTA", "QUOTA 10 day"),
        ("rule 2: USE", "USE search"),
        ("rule 2: RESERVE", "RESERVE job-1 60 FIXED 10 60"),
    ];
    let several = several.map(|(what, rule)| {
        (what, Request::several("ALL", &[("{k}", "GCRA 6 10 60"), ("{k}:2", rule)]))
    });
    for (what, request) in rows.into_iter().chain(several) {
        for form in [Form::Function, Form::Script] {
            let refused = raw_error(&client.call(&request.call(form, &library)));
            let expected = format!("ERR {what} needs the redis-throttle module");
            assert_eq!(refused, Some(expected), "{request:?}");
        }
    }
    let foreign = client.error("FCALL rl_fixed 1 month 10 60");
    assert_eq!(foreign, support::WRONGTYPE);
    assert_eq!(client.contents(), before);
    client.ok("FCALL rl_block 1 month 1h");
    assert_eq!(client.decide("RL.QUOTA month 10 month")[..3], [0, 10, 0]);
}

#[test]
fn call_with_the_wrong_number_of_keys_is_an_error() {
    let server = plain();
    let mut client = server.client();
    let library = Library::load(&mut client);
    for line in ["FCALL rl_gcra 0 6 10 60", "FCALL rl_gcra 2 a b 6 10 60", "FCALL rl_all 0"] {
        assert!(client.error(line).starts_with("ERR wrong number of "), "{line}");
    }
    for keys in [&[][..], &["a", "b"]] {
        let keys = keys.iter().map(|key| key.as_bytes().to_vec()).collect::<Vec<_>>();
        let request = Request { keys, ..Request::line("GCRA k 6 10 60") };
        let refused = raw_error(&client.call(&request.call(Form::Script, &library)));
        assert!(refused.is_some_and(|e| e.starts_with("ERR wrong number of ")), "{request:?}");
    }
    let unknown = Request::line("NOTHING k 1").call(Form::Script, &library);
    assert!(raw_error(&client.call(&unknown)).is_some_and(|e| e.starts_with("ERR unknown ")));
    assert_eq!(client.integer("DBSIZE"), 0);
}

/// FUNCTION KILL may end a call at any line. Here an error ends it at the most harmful line.
#[test]
fn killed_call_leaves_no_rule_partly_cached() {
    let counted = "      tolerance_us, tolerance_ns = intervals(its_burst)\n";
    let killed = format!("      if its_burst == 77 then error('killed') end\n{counted}");
    let source = source();
    assert_eq!(source.matches(counted).count(), 1, "the line that is looked for");
    let server = plain();
    let mut client = server.client();
    client.call(&["FUNCTION", "LOAD", &source.replace(counted, &killed)]);
    assert_eq!(client.decide("FCALL rl_gcra 1 a 1 1 60")[..3], [1, 1, 0]);
    assert!(client.error("FCALL rl_gcra 1 b 77 1000 1").contains("killed"));
    assert_eq!(client.decide("FCALL rl_gcra 1 c 1 1 60")[..3], [1, 1, 0]);
    assert_eq!(client.decide("FCALL rl_gcra 1 c 1 1 60")[..3], [0, 1, 0]);
}
