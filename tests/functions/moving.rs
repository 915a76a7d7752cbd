//! Moves live keys from a server without the module to one with the module, and back.

use crate::clock::Clock;
use crate::library::{Form, Library, Request};
use support::{BASE_US, Client, Server, integers};

/// The calls before and after each move.
const CALLS: [&str; 12] = [
    "GCRA g 6 10 60",
    "FIXED f 6 60",
    "SLIDING s 6 60 COST 3",
    "SLIDINGLOG l 6 60",
    "SLIDINGLOG m 5000 60 COST 7",
    "TOKENBUCKET t 6 10 60",
    "LEAKYBUCKET q 6 10 60",
    "CHARGE d TOKENBUCKET 6 10 60 COST 3",
    "CHARGE e LEAKYBUCKET 6 10 60 COST 3",
    "BACKOFF b 3 1s 8s 1h",
    "LEASE h job-1 3 60",
    "REFUND f FIXED 6 60",
];

#[test]
fn module_and_function_continue_each_others_counts_to_the_millisecond() {
    let (mut server, mut client, clock) = Clock::start(Server::setup().without_module());
    Library::load(&mut client);
    clock.set(&mut client, BASE_US);
    let resets_ms = [6_000, 12_000, 18_000, 24_000, 30_000, 36_000];
    for (place, reset_ms) in (0..).zip(resets_ms) {
        let reply = client.decide("FCALL rl_gcra 1 user:42 6 10 60");
        assert_eq!(reply, [1, 6, 5 - place, 0, reset_ms]);
    }
    assert_eq!(client.decide("FCALL rl_gcra 1 user:42 6 10 60"), [0, 6, 0, 6_000, 36_000]);

    let mut client = restart(&mut server, client, true);
    clock.set(&mut client, BASE_US + 2_500_000);
    assert_eq!(client.decide("RL.GCRA user:42 6 10 60"), [0, 6, 0, 3_500, 33_500]);
    clock.set(&mut client, BASE_US + 6_000_000 - 1_000);
    assert_eq!(client.decide("RL.GCRA user:42 6 10 60"), [0, 6, 0, 1, 30_001]);
    clock.set(&mut client, BASE_US + 6_000_000);
    assert_eq!(client.decide("RL.GCRA user:42 6 10 60"), [1, 6, 0, 0, 36_000]);

    let mut client = restart(&mut server, client, false);
    clock.set(&mut client, BASE_US + 7_000_000);
    let denied = client.decide("FCALL rl_gcra 1 user:42 6 10 60");
    assert_eq!(denied, [0, 6, 0, 5_000, 35_000]);
}

/// Saves the data and restarts the server, with the module or without it.
fn restart(server: &mut Server, mut client: Client, with_module: bool) -> Client {
    client.ok("SAVE");
    server.start_again_as(|setup| {
        if with_module { setup.module(support::module::path()) } else { setup.without_module() }
    });
    server.client()
}

#[test]
fn key_that_is_moved_repeatedly_decides_as_one_that_always_had_the_module() {
    let (mut moved, mut client, clock) = Clock::start(Server::setup().without_module());
    let library = Library::load(&mut client);
    let (_stayed, mut of_stayed, other_clock) = Clock::start(Server::setup());
    let mut now_us = BASE_US;
    for leg in 0..5 {
        let form = if leg % 2 == 0 { Form::Function } else { Form::Module };
        if leg > 0 {
            client = restart(&mut moved, client, form == Form::Module);
        }
        for round in 0..4 {
            clock.set(&mut client, now_us);
            other_clock.set(&mut of_stayed, now_us);
            for line in CALLS {
                let request = Request::line(line);
                let reply = integers(&client.call(&request.call(form, &library)));
                let expected = integers(&of_stayed.call(&request.call(Form::Module, &library)));
                assert!(reply.is_some(), "{line}");
                assert_eq!(reply, expected, "{line}, leg {leg}, round {round}");
            }
            now_us += 1_700_000;
        }
    }
}
