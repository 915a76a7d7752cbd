//! A restart changes no decision: snapshots, append-only files, copies and dumps.

use std::fs;

use redis::Value;

use support::{ALGORITHMS, BASE_US, Client, Server, raw_error};

/// Takes three of five units under every algorithm, by the real clock, on a key that is named after
/// the algorithm.
fn use_some(client: &mut Client) {
    for algorithm in ALGORITHMS {
        let call = algorithm.call(algorithm.name, 5, "366d");
        for remaining in [4, 3, 2] {
            assert_eq!(client.decide(&call)[..3], [1, 5, remaining], "{call}");
        }
    }
    // Bytes in a key that could break a text format.
    client.call(&[&b"RL.GCRA"[..], b"\0 \r\n\xff", b"1", b"1", b"366d"]);
}

/// Asserts that two of five units are left, takes them, and asserts that none is left.
fn assert_two_are_left(client: &mut Client) {
    for algorithm in ALGORITHMS {
        let call = algorithm.call(algorithm.name, 5, "366d");
        for expected in [[1, 5, 1], [1, 5, 0], [0, 5, 0]] {
            assert_eq!(client.decide(&call)[..3], expected, "{call}");
        }
    }
}

#[test]
fn snapshot_survives_a_crash_and_a_restart() {
    let mut server = Server::start();
    let mut client = server.client();
    use_some(&mut client);
    let before = client.contents();
    client.ok("SAVE");
    server.start_again();
    let mut client = server.client();
    assert_eq!(client.contents(), before);
    assert_two_are_left(&mut client);
}

#[test]
fn replay_of_an_append_only_file_gives_exactly_the_same_state() {
    let mut server = Server::setup().line("appendonly yes").line("appendfsync always").start();
    let mut client = server.client();
    use_some(&mut client);
    // The append-only file must not contain denials and peeks.
    for algorithm in ALGORITHMS {
        client.decide(&format!("{} COST 5", algorithm.call(algorithm.name, 5, "366d")));
        client.decide(&algorithm.peek(algorithm.name, 5, "366d"));
    }
    let before = client.contents();
    server.start_again();
    let mut client = server.client();
    assert_eq!(client.contents(), before);
    assert_two_are_left(&mut client);
}

#[test]
fn replay_of_a_long_log_gives_exactly_the_same_state() {
    let mut server = Server::setup().line("appendonly yes").line("appendfsync always").start();
    let mut client = server.client();
    client.freeze(BASE_US);
    // Entries are added and expired ones removed, the expiry changes often, and one call repairs
    // the log.
    for step in 0..300 {
        client.decide("RL.SLIDINGLOG k 50 10");
        client.advance_ms(40 + 150 * (step % 3));
    }
    client.freeze(BASE_US);
    client.decide("RL.SLIDINGLOG k 50 10");
    let before = client.contents();
    server.start_again();
    assert_eq!(server.client().contents(), before);
}

#[test]
fn append_only_file_holds_effects_and_none_of_the_modules_commands() {
    let server = Server::setup()
        .line("appendonly yes")
        .line("appendfsync always")
        .line("aof-use-rdb-preamble no")
        .start();
    use_some(&mut server.client());
    let mut text = Vec::new();
    for entry in fs::read_dir(server.file("appendonlydir")).expect("a directory") {
        text.extend(fs::read(entry.unwrap().path()).expect("a file"));
    }
    let text = String::from_utf8_lossy(&text).to_uppercase();
    assert!(text.contains("\r\nSET\r\n") && text.contains("\r\nPXAT\r\n"), "{text}");
    assert!(!text.contains("RL."), "a decision would be taken again: {text}");
}

#[test]
fn server_without_the_module_preserves_the_states_for_one_with_it() {
    let mut server = Server::start();
    let mut client = server.client();
    use_some(&mut client);
    let before = client.contents();
    client.ok("SAVE");
    server.start_again_as(|setup| setup.without_module());
    let mut client = server.client();
    assert!(client.error("RL.GCRA k 1 1 1").contains("unknown command"));
    assert_eq!(client.contents(), before);
    client.ok("SAVE");
    server.start_again_as(|setup| setup.module(support::module::path()));
    let mut client = server.client();
    assert_eq!(client.contents(), before);
    assert_two_are_left(&mut client);
}

#[test]
fn copied_dumped_renamed_or_moved_state_decides_as_the_original() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for algorithm in ALGORITHMS {
        let call = |key: &str| algorithm.call(key, 5, "1h");
        client.decide(&format!("{} COST 3", call("k")));
        assert_eq!(client.integer("COPY k copied"), 1);
        let Value::BulkString(dump) = client.call(&["DUMP", "k"]) else { panic!("no DUMP") };
        let restored = client.call(&[&b"RESTORE"[..], b"restored", b"0", &dump]);
        assert!(raw_error(&restored).is_none(), "{restored:?}");
        client.integer("COPY k moved");
        client.ok("RENAME moved renamed");
        let expected = [client.decide(&call("k")), client.decide(&call("k"))];
        for key in ["copied", "restored", "renamed"] {
            let replies = [client.decide(&call(key)), client.decide(&call(key))];
            assert_eq!(replies, expected, "{} {key}", algorithm.name);
            assert!(client.integer(&format!("PTTL {key}")) > 0, "{} {key}", algorithm.name);
        }
        client.ok("FLUSHALL");
    }
}

#[test]
fn allowed_calls_trigger_a_save_point() {
    let server = Server::setup().line("save 1 5").start();
    let mut client = server.client();
    let saved_before = client.integer("LASTSAVE");
    for number in 0..10 {
        assert!(client.allows(&format!("RL.GCRA k:{number} 1 1 1h")));
    }
    support::eventually("ten changes make a save point of five fire", || {
        let clean = client.changes() == 0;
        (clean && client.integer("LASTSAVE") > saved_before).then_some(())
    });
}
