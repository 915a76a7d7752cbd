//! A server that crashes tells what it knows, and the module's part of that must not stop it.

use std::os::unix::process::ExitStatusExt as _;

use crate::support::{ALGORITHMS, Server};

/// SIGSEGV: the signal that `DEBUG SEGFAULT` raises, and that the server ends by once it has told.
const SEGFAULT: i32 = 11;

#[test]
fn a_crash_report_is_whole_with_the_module_in_it() {
    // The server's own test of its memory writes to what it uses meanwhile. It comes after our part
    // and can end a report by itself, with and without us.
    let setup = Server::setup().line("enable-debug-command yes");
    let mut server = setup.line("crash-memcheck-enabled no").start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        assert!(client.allows(&algorithm.call(algorithm.name, 5, "1h")));
    }
    client.error("RL.GCRA k 0 1 1");
    assert!(client.try_call(&["DEBUG", "SEGFAULT"]).is_err(), "the server is gone");
    let status = server.wait_for_end();
    let log = server.log();
    assert_eq!(status.signal(), Some(SEGFAULT), "{log}");
    // From the first line to the last, and our part between them.
    for line in [
        "BUG REPORT START",
        "rl_version:",
        "rl_gcra_allowed:1",
        "rl_errors:1",
        "rl_panics:0",
        "BUG REPORT END",
    ] {
        assert!(log.contains(line), "the report lacks {line}:\n{log}");
    }
    for trouble in ["munmap_chunk", "invalid pointer", "double free", "crashed by signal: 6"] {
        assert!(!log.contains(trouble), "{trouble}:\n{log}");
    }
}
