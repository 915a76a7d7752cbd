//! Panics at every point of every command, on every path through it, and during traffic. Each panic
//! fails one call and affects nothing else.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use redis::Value;

use support::{ALGORITHMS, BASE_US, Client, Server, eventually, integers, module, raw_error, text};

const PANICKED: &str = "ERR internal error: the call was stopped and the key left as it was, \
     see the server's log";

const POINTS: [&str; 4] = ["parse", "decide", "reply", "store"];

fn start() -> Server {
    Server::setup().module(module::path_with_faults()).start()
}

fn plant(client: &mut Client, point: &str) {
    client.ok(&format!("RL.DEBUG PANIC {point}"));
}

/// Plants a panic, makes a call that reaches that point, and asserts that only this call fails.
fn assert_stopped(client: &mut Client, point: &str, call: &str) {
    let (before, changes) = (client.snapshot("k"), client.changes());
    let panics = client.info_number("rl", "rl_panics");
    plant(client, point);
    assert_eq!(client.error(call), PANICKED, "{call} at {point}");
    assert_eq!(client.snapshot("k"), before, "{call} at {point}: the key has changed");
    assert_eq!(client.changes(), changes, "{call} at {point}: something was written");
    assert_eq!(client.info_number("rl", "rl_panics"), panics + 1, "{call} at {point}");
}

#[test]
fn panic_on_any_path_through_a_command_leaves_the_key_unchanged() {
    let server = start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        client.freeze(BASE_US);
        let call = algorithm.call("k", 2, "1h");
        // In calls that create the state, change it, deny, and write nothing.
        for _ in 0..2 {
            POINTS.iter().for_each(|point| assert_stopped(&mut client, point, &call));
            assert!(client.allows(&call), "{call}");
        }
        for line in [call.clone(), format!("{call} COST 0"), format!("{call} COST 3")] {
            POINTS[..3].iter().for_each(|point| assert_stopped(&mut client, point, &line));
        }
        // In a call that repairs the state after the clock has stepped back by a year.
        client.advance_ms(-31_536_000_000);
        POINTS.iter().for_each(|point| assert_stopped(&mut client, point, &call));
        let before = client.snapshot("k");
        assert!(!client.allows(&call), "{call}");
        assert_ne!(client.snapshot("k"), before, "{call}: the repair was only put off");
        client.integer("DEL k");
    }
    server.assert_alive();
}

#[test]
fn panic_in_a_ban_or_in_a_call_that_it_denies_leaves_the_key_unchanged() {
    let server = start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for state in ["DEL k", "RL.GCRA k 5 5 1h", "RL.LEASE k a 5 1h", "RL.BLOCK k 1h"] {
        client.run(state);
        POINTS.iter().for_each(|point| assert_stopped(&mut client, point, "RL.BLOCK k 2h"));
        client.integer("DEL k");
    }
    client.ok("RL.BLOCK k 1h");
    for denied in ["RL.GCRA k 5 5 1h", "RL.LEASE k a 5 1h", "RL.CHARGE k GCRA 5 5 1h"] {
        POINTS[..3].iter().for_each(|point| assert_stopped(&mut client, point, denied));
    }
    for denied in ["RL.RENEW k a 1h", "RL.RELEASE k a"] {
        POINTS[..3].iter().for_each(|point| assert_stopped(&mut client, point, denied));
    }
    // A call that stores the re-based ban.
    client.advance_ms(-3_600_000);
    for denied in ["RL.GCRA k 5 5 1h", "RL.LEASE k a 5 1h"] {
        POINTS.iter().for_each(|point| assert_stopped(&mut client, point, denied));
    }
    // A lease in place of a ban that has ended.
    client.advance_ms(7_200_000);
    POINTS.iter().for_each(|point| assert_stopped(&mut client, point, "RL.LEASE k a 5 1h"));
    assert!(client.allows("RL.LEASE k a 5 1h"));
    server.assert_alive();
}

#[test]
fn panic_in_a_command_for_operators_is_an_error_reply() {
    let server = start();
    let mut client = server.client();
    client.freeze(BASE_US);
    assert!(client.allows("RL.GCRA k 5 5 1h"));
    for point in ["parse", "reply"] {
        assert_stopped(&mut client, point, "RL.INSPECT k");
    }
    assert_stopped(&mut client, "parse", "RL.INSPECT missing");
    for point in ["parse", "reply"] {
        for call in
            ["RL.METRICS", "RL.POLICY STATS", "RL.POLICY RESETSTAT", "RL.TOP", "RL.TOP RESET"]
        {
            assert_stopped(&mut client, point, call);
        }
    }
    assert_stopped(&mut client, "parse", "RL.DEBUG CLOCK ADVANCE 1h");
    assert_eq!(client.integer("RL.DEBUG CLOCK FREEZE"), BASE_US, "the clock has not moved");
    // A panic in a call that is itself invalid.
    assert_stopped(&mut client, "parse", "RL.GCRA k wrong wrong wrong");
    assert_stopped(&mut client, "parse", "RL.PEEK k WRONG 1 1");
    server.assert_alive();
}

#[test]
fn panic_in_info_omits_only_the_modules_section() {
    let server = start();
    let mut client = server.client();
    for (done, section) in ["rl", "everything", "modules", "rl_stats"].into_iter().enumerate() {
        plant(&mut client, "info");
        let told = text(&client.run(&format!("INFO {section}")));
        assert!(!told.contains("rl_panics:"), "{section}: {told}");
        assert_eq!(told.contains("redis_version:"), section == "everything", "{told}");
        assert_eq!(client.info_number("rl", "rl_panics"), done as i64 + 1, "{section}");
    }
    plant(&mut client, "info");
    client.ok("MULTI");
    client.run("INFO everything");
    client.run("RL.GCRA k 5 5 1h");
    let Value::Array(replies) = client.run("EXEC") else { panic!("no EXEC") };
    assert!(text(&replies[0]).contains("redis_version:"));
    assert_eq!(integers(&replies[1]).expect("a decision")[..3], [1, 5, 4]);
    server.assert_alive();
}

#[test]
fn each_panic_under_load_stops_one_call_which_takes_no_unit() {
    const LIMIT: u64 = 5_000;
    const PANICS: i64 = 200;
    let server = start();
    let stop = AtomicBool::new(false);
    // Two clients make calls until the limits are used up, while a third client plants panics.
    let caller = || {
        let mut client = server.client();
        let (mut allowed, mut stopped) = (0, 0);
        loop {
            let mut denied = 0;
            for algorithm in ALGORITHMS {
                let reply = client.run(&algorithm.call(algorithm.name, LIMIT, "366d"));
                match integers(&reply) {
                    Some(reply) if reply[0] == 1 => allowed += 1,
                    Some(_) => denied += 1,
                    None => {
                        assert_eq!(raw_error(&reply).as_deref(), Some(PANICKED));
                        stopped += 1;
                    }
                }
            }
            if denied == ALGORITHMS.len() && stop.load(Relaxed) {
                return (allowed, stopped);
            }
        }
    };
    let (allowed, stopped) = thread::scope(|scope| {
        let callers = [(); 2].map(|()| scope.spawn(caller));
        let mut client = server.client();
        for round in 1..=PANICS {
            // The point `store` comes first, because no call stores anything once the limits are
            // used up.
            plant(&mut client, if round <= 10 { "store" } else { POINTS[round as usize % 3] });
            eventually("the next call panics", || {
                (client.info_number("rl", "rl_panics") == round).then_some(())
            });
        }
        stop.store(true, Relaxed);
        let counts = callers.map(|caller| caller.join().expect("no caller fails"));
        (counts[0].0 + counts[1].0, counts[0].1 + counts[1].1)
    });
    assert_eq!(allowed, LIMIT * ALGORITHMS.len() as u64, "{stopped} were stopped");
    assert_eq!(stopped, PANICS);
    server.assert_alive();
}

#[test]
fn panic_in_the_callback_of_a_setting_fails_only_that_command() {
    let server = start();
    let mut client = server.client();
    let slots = |client: &mut Client| {
        let pair = client.run("CONFIG GET rl.sliding-log-slots");
        format!("{pair:?}")
    };
    client.ok("CONFIG SET rl.sliding-log-slots 64");
    let before = slots(&mut client);

    plant(&mut client, "config_set");
    client.error("CONFIG SET rl.sliding-log-slots 128");
    assert_eq!(client.info_number("rl", "rl_panics"), 1);
    assert_eq!(slots(&mut client), before, "the setting is as it was");

    plant(&mut client, "config_get");
    assert_ne!(slots(&mut client), before, "a getter has no error: it shows the default");
    assert_eq!(client.info_number("rl", "rl_panics"), 2);
    assert_eq!(slots(&mut client), before, "and what was set once it works again");
    client.ok("CONFIG SET rl.sliding-log-slots 128");

    plant(&mut client, "config_get");
    client.run("CONFIG GET rl.debug-commands");
    assert_eq!(client.info_number("rl", "rl_panics"), 3);
    server.assert_alive();
}

#[test]
fn panic_while_loading_refuses_the_load_and_the_server_continues() {
    let server = Server::setup().without_module().environment("RL_PANIC", "load").start();
    let mut client = server.client();
    let load = format!("MODULE LOAD {}", module::path_with_faults().display());
    client.error(&load);
    assert!(server.log().contains("panicked at"), "{}", server.log());
    client.error("RL.GCRA k 1 1 1");
    client.wait_for_cron();
    // The build without fault injection ignores this variable.
    client.ok(&format!("MODULE LOAD {}", module::path().display()));
    assert!(client.allows("RL.GCRA k 1 1 1"));
    server.assert_alive();
}
