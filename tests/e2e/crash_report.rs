//! A crashing server reports its state, and the module's part must not stop the report.

use std::os::unix::process::ExitStatusExt as _;

use crate::support::{ALGORITHMS, Server};

/// SIGSEGV: the signal that `DEBUG SEGFAULT` raises, and that ends the server after its report.
const SEGFAULT: i32 = 11;

#[test]
fn a_crash_report_is_whole_with_the_module_in_it() {
    // The server's own test of its memory writes to memory in use. It comes after the module's part
    // and can end a report by itself, with and without the module.
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
    // From the first line to the last, with the module's part in between.
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
