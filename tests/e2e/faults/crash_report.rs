//! A crashing server writes a report. The module's part of it must not end the report early.

use std::os::unix::process::ExitStatusExt as _;

use support::{ALGORITHMS, Server};

/// SIGSEGV: `DEBUG SEGFAULT` raises it, and the server ends with it after its report.
const SEGFAULT: i32 = 11;

#[test]
fn crash_report_is_complete_with_the_modules_part_in_it() {
    // The server's memory test runs after the module's part of the report and writes to memory in
    // use. It can cut the report short, with or without the module.
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
    // The report's first and last lines, and the module's part in between.
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
