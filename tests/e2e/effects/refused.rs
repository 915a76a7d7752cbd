//! Calls that the server itself refuses: to a full server, and to a replica. They change nothing,
//! and all other calls are served.

use support::calls::{calls, every_command, set_policies};
use support::replicas::replica_with;
use support::{BASE_US, raw_error, wait_for_offset};

#[test]
fn full_server_refuses_the_calls_that_may_take_memory_and_serves_the_others() {
    let server = every_command().line("maxmemory-policy noeviction").start();
    let mut client = server.client();
    set_policies(&mut client);
    for call in calls() {
        // The first time, the key of most calls is new.
        for round in 1..=2 {
            let words = &call.words;
            client.ok("CONFIG SET maxmemory 1");
            let before = client.contents();
            let error = raw_error(&client.call(words)).unwrap_or_default();
            assert_eq!(error.starts_with("OOM"), call.is("grows"), "{round} {words:?}: {error}");
            if call.is("grows") {
                let error = raw_error(&client.call(&call.in_script())).unwrap_or_default();
                assert!(error.contains("OOM"), "{words:?} in a script: {error}");
                assert_eq!(client.contents(), before, "{words:?}");
            } else {
                assert_eq!(error, "", "{words:?}");
            }
            client.ok("CONFIG SET maxmemory 0");
            assert_eq!(raw_error(&client.call(words)), None, "{words:?} with memory");
        }
    }
}

#[test]
fn read_only_replica_refuses_every_call_that_decides_and_serves_every_peek() {
    let primary = every_command().with_tcp().start();
    let mut client = primary.client();
    client.freeze(BASE_US);
    set_policies(&mut client);
    for call in calls().iter().filter(|call| call.is("update")) {
        assert_eq!(raw_error(&client.call(&call.words)), None, "{:?}", call.words);
    }
    let replica = replica_with(&primary, every_command());
    wait_for_offset(&primary, &replica);
    let mut reader = replica.client();
    reader.freeze(BASE_US);
    set_policies(&mut reader);
    let before = reader.contents();
    for call in calls().iter().filter(|call| call.has_keys()) {
        let (words, scripted) = (&call.words, call.in_script());
        if call.is("read") {
            let reply = client.call(words);
            assert_eq!(raw_error(&reply), None, "{words:?}");
            assert_eq!(reader.call(words), reply, "{words:?}");
            assert_eq!(reader.call(&scripted), client.call(&scripted), "{words:?} in EVAL");
            continue;
        }
        let error = raw_error(&reader.call(words)).unwrap_or_default();
        assert!(error.starts_with("READONLY"), "{words:?}: {error}");
        reader.ok("MULTI");
        let error = raw_error(&reader.call(words)).unwrap_or_default();
        assert!(error.starts_with("READONLY"), "{words:?} in MULTI: {error}");
        reader.error("EXEC");
        let error = raw_error(&reader.call(&scripted)).unwrap_or_default();
        assert!(error.contains("READONLY"), "{words:?} in EVAL: {error}");
    }
    assert_eq!(reader.contents(), before);
}
