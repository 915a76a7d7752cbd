//! Runs the page about servers without the module, from the first command to the last, on two
//! servers with their own ports.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::clock::Clock;
use support::played::{on_a_line, row};
use support::{BASE_US, Client, Server};

/// A server of the page: its name in the page's rows, and its port on the page.
struct Place {
    name: &'static str,
    port: &'static str,
    server: Server,
    client: Client,
    clock: Clock,
}

impl Place {
    fn start(name: &'static str, port: &'static str, with_module: bool) -> Self {
        let setup = if with_module { Server::setup() } else { Server::setup().without_module() };
        let (server, client, clock) = Clock::start(setup.with_tcp());
        Self { name, port, server, client, clock }
    }
}

/// Sets the clocks of all servers. Zero selects the real time.
fn set_all(places: &mut [Place], unix_us: i64) {
    for Place { client, clock, .. } in places {
        clock.set(client, unix_us);
    }
}

/// Runs a block of the page, in which only the ports are replaced.
fn run(block: &str, places: &[Place]) {
    let ported = places.iter().fold(block.to_owned(), |block, place| {
        block.replace(place.port, &place.server.port().to_string())
    });
    // A block waits in loops. One that never ends must fail, and not hold up all suites.
    let output = Command::new("timeout")
        .args(["60", "sh", "-euc", &ported])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("a shell");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_well = output.status.success() && !printed.lines().any(|line| line.contains("ERR "));
    assert!(is_well, "{block}\n{printed}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn page_shows_the_replies_of_real_servers() {
    let mut places = [Place::start("", "7777", false), Place::start("new", "7778", true)];
    let mut now_us = BASE_US;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/without-the-module.md");
    let page = fs::read_to_string(path).expect("the page");
    let (mut block, mut rows, mut blocks): (Option<String>, _, _) = (None, 0, 0);
    for line in page.lines() {
        if let Some(commands) = block.take() {
            if line == "```" {
                // The clocks must run, because replication takes time.
                set_all(&mut places, 0);
                run(&commands, &places);
                set_all(&mut places, now_us);
                blocks += 1;
            } else {
                block = Some(commands + line + "\n");
            }
            continue;
        }
        if line == "```sh" {
            block = Some(String::new());
        }
        let Some(row) = row(line) else { continue };
        rows += 1;
        now_us = BASE_US + row.at_ms * 1_000;
        set_all(&mut places, now_us);
        let place = places.iter_mut().find(|place| place.name == row.server);
        let Place { client, .. } = place.expect("a server of the page");
        let call = row.call.iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(on_a_line(&client.call(&call)), row.reply, "{line}");
    }
    assert_eq!((blocks, rows), (4, 14), "all of the page is run");
}
