//! Calls from transactions, scripts and functions, and calls when the server is out of memory.

use redis::Value;

use support::{ALGORITHMS, BASE_US, Client, Server, WRONGTYPE, integers, raw_error, text};

fn exec(client: &mut Client, calls: &[String]) -> Vec<Value> {
    client.ok("MULTI");
    for call in calls {
        assert_eq!(text(&client.run(call)), "QUEUED", "{call}");
    }
    match client.run("EXEC") {
        Value::Array(replies) => replies,
        other => panic!("EXEC: {other:?}"),
    }
}

#[test]
fn transaction_decides_its_calls_one_by_one() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for algorithm in ALGORITHMS {
        let call = algorithm.call("k", 2, "1h");
        let peek = algorithm.peek("k", 2, "1h");
        let replies = exec(&mut client, &[call.clone(), call.clone(), call.clone(), peek]);
        let verdicts =
            replies.iter().map(|reply| integers(reply).expect("a decision")[..3].to_vec());
        let expected = [[1, 2, 1], [1, 2, 0], [0, 2, 0], [0, 2, 0]];
        assert!(verdicts.eq(expected.map(|row| row.to_vec())), "{call}: {replies:?}");
        client.integer("DEL k");
    }
}

#[test]
fn error_inside_a_transaction_does_not_affect_its_other_calls() {
    let server = Server::start();
    let mut client = server.client();
    client.integer("RPUSH list a");
    let calls = ["RL.GCRA a 1 1 1h", "RL.GCRA list 1 1 1h", "RL.GCRA b 0 1 1h", "RL.GCRA c 1 1 1h"];
    let replies = exec(&mut client, &calls.map(str::to_owned));
    assert_eq!(integers(&replies[0]).unwrap()[0], 1);
    assert_eq!(raw_error(&replies[1]).as_deref(), Some(WRONGTYPE));
    assert!(raw_error(&replies[2]).unwrap().starts_with("ERR invalid burst"));
    assert_eq!(integers(&replies[3]).unwrap()[0], 1);
    assert_eq!(client.integer("EXISTS a b c"), 2);
    // The server checks the number of arguments when it queues a call: the transaction is
    // discarded.
    client.ok("MULTI");
    client.run("RL.GCRA d 1 1 1h");
    client.error("RL.GCRA d");
    assert!(client.error("EXEC").starts_with("EXECABORT"));
    assert_eq!(client.integer("EXISTS d"), 0);
}

#[test]
fn discarded_transaction_takes_no_units() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        client.ok("MULTI");
        client.run(&algorithm.call("k", 1, "1h"));
        client.ok("DISCARD");
        assert!(client.allows(&algorithm.call("k", 1, "1h")), "{}", algorithm.name);
        client.integer("DEL k");
    }
}

/// A script that can make any call: its arguments are the words of the call.
const CALL: &str = "return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))";

/// Returns the words of `EVAL script 1 key command arguments...` that make an ordinary call.
fn scripted(evaluate: &str, script: &str, call: &str) -> Vec<String> {
    let mut words = call.split(' ').map(str::to_owned);
    let (command, key) = (words.next().unwrap(), words.next().unwrap());
    let start = [evaluate.to_owned(), script.to_owned(), "1".to_owned(), key, command];
    start.into_iter().chain(words).collect()
}

#[test]
fn a_script_gets_the_five_integers_as_a_table() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for algorithm in ALGORITHMS {
        for row in [1, 2] {
            let call = algorithm.call(&format!("direct{row}"), 1, "1h");
            let expected = [client.decide(&call), client.decide(&call)];
            let call = algorithm.call(&format!("scripted{row}"), 1, "1h");
            let words = scripted("EVAL", CALL, &call);
            let replies = [client.call(&words), client.call(&words)];
            assert_eq!(replies.map(|reply| integers(&reply).expect("five integers")), expected);
        }
        client.ok("FLUSHALL");
    }
    // A caller can compute HTTP's Retry-After, in whole seconds, from the reply.
    let script = "local r = redis.call('RL.GCRA', KEYS[1], 1, 1, 90) \
                  return r[1] == 1 and 'pass' or 'wait ' .. math.ceil(r[4] / 1000)";
    assert_eq!(text(&client.call(&["EVAL", script, "1", "k"])), "pass");
    assert_eq!(text(&client.call(&["EVAL", script, "1", "k"])), "wait 90");
}

#[test]
fn a_script_can_catch_the_modules_errors() {
    let server = Server::start();
    let mut client = server.client();
    client.integer("RPUSH list a");
    let script = "return redis.pcall('RL.GCRA', KEYS[1], 1, 1, 1)['err']";
    let caught = text(&client.call(&["EVAL", script, "1", "list"]));
    assert_eq!(caught, WRONGTYPE);
    let uncaught = client.call(&scripted("EVAL", CALL, "RL.GCRA list 1 1 1"));
    assert!(raw_error(&uncaught).expect("an error").starts_with(WRONGTYPE), "{uncaught:?}");
}

#[test]
fn read_only_scripts_may_peek_and_inspect_but_not_decide() {
    let server = Server::start();
    let mut client = server.client();
    let flagged = format!("#!lua flags=no-writes\n{CALL}");
    for algorithm in ALGORITHMS {
        let call = algorithm.call("k", 2, "1h");
        assert!(client.allows(&call));
        let before = client.snapshot("k");
        for (evaluate, script) in [("EVAL_RO", CALL), ("EVAL", flagged.as_str())] {
            let peek = algorithm.peek("k", 2, "1h");
            let words = scripted(evaluate, script, &peek);
            let seen = integers(&client.call(&words)).expect("PEEK works");
            assert_eq!(seen[..3], [1, 2, 0], "{evaluate} {peek}");
            let inspected = client.call(&scripted(evaluate, script, "RL.INSPECT k"));
            assert!(matches!(inspected, Value::Array(_)), "{evaluate}: {inspected:?}");
            let refused = client.call(&scripted(evaluate, script, &call));
            let error = raw_error(&refused).expect("an error");
            assert!(error.contains("read-only scripts"), "{evaluate} {call}: {error}");
        }
        assert_eq!(client.snapshot("k"), before, "{call}");
        client.integer("DEL k");
    }
}

#[test]
fn functions_call_like_scripts() {
    let server = Server::start();
    let mut client = server.client();
    let library = "#!lua name=limits\n\
         local function take(keys, args) \
           return redis.call(args[1], keys[1], unpack(args, 2)) \
         end\n\
         redis.register_function('take', take)\n\
         redis.register_function{function_name='look', callback=take, flags={'no-writes'}}";
    assert_eq!(text(&client.call(&["FUNCTION", "LOAD", library])), "limits");
    for algorithm in ALGORITHMS {
        let (call, peek) = (algorithm.call("k", 1, "1h"), algorithm.peek("k", 1, "1h"));
        let mut verdict = |evaluate: &str, function: &str, call: &str| {
            integers(&client.call(&scripted(evaluate, function, call))).map(|reply| reply[0])
        };
        assert_eq!(verdict("FCALL", "take", &call), Some(1), "{call}");
        assert_eq!(verdict("FCALL", "take", &call), Some(0), "{call}");
        assert_eq!(verdict("FCALL_RO", "look", &peek), Some(0), "{peek}");
        assert_eq!(verdict("FCALL", "look", &call), None, "{call}: a reader must not decide");
        client.integer("DEL k");
    }
}

/// Asserts that both calls have the same time on servers that cache the time during a script. On
/// other servers, asserts that the time of the second call is not earlier.
#[test]
fn calls_of_one_script_happen_at_one_instant() {
    let server = Server::setup().without_debug_commands().start();
    let mut client = server.client();
    let one_instant = client.info("rl")["rl_clock_source"] == "server";
    // The loop takes milliseconds between the two calls.
    let script = "redis.call('RL.TOKENBUCKET', KEYS[1], 5, 1, '1h') \
         for i = 1, 1000000 do end \
         return redis.call('RL.TOKENBUCKET', KEYS[2], 5, 1, '1h')";
    assert!(integers(&client.call(&["EVAL", script, "2", "a", "b"])).is_some());
    let mut updated_us = |key: &str| match client.run(&format!("RL.INSPECT {key}")) {
        Value::Array(fields) => match fields.last() {
            Some(Value::Int(number)) => *number,
            other => panic!("{key}: {other:?}"),
        },
        other => panic!("{key}: {other:?}"),
    };
    let (first, second) = (updated_us("a"), updated_us("b"));
    if one_instant {
        assert_eq!(first, second);
    } else {
        assert!(first <= second, "{first} {second}");
    }
}

#[test]
fn script_may_pass_a_duration_as_a_string_and_a_number_is_exact_or_refused() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let script = |period| format!("return redis.call('RL.GCRA', KEYS[1], 2, 1, {period})");
    // Lua 5.1 formats the number 0.1 with seventeen digits. Some servers pass all of these digits
    // to the module, which then refuses the call and never decides it with another duration.
    let number = client.call(&["EVAL", &script("0.1"), "1", "number"]);
    match raw_error(&number) {
        Some(error) => assert!(error.contains("invalid period"), "{error}"),
        None => assert_eq!(integers(&number), Some([1, 2, 1, 0, 100])),
    }
    let string = client.call(&["EVAL", &script("'0.1'"), "1", "string"]);
    assert_eq!(integers(&string), Some([1, 2, 1, 0, 100]));
}
