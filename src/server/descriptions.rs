//! What kinds of commands have in common in the table of `commands`, so that a row says only what is
//! its own.

use super::api::{Access, Description, KeyRange};
use super::arguments::*;
use std::ffi::CStr;

/// What most commands cost.
pub const CONSTANT: &CStr = c"O(1)";
/// The first version.
pub const SINCE: &CStr = c"0.1.0";

/// A command that decides: of constant cost, with a limit and a window.
pub const fn deciding(name: &'static CStr, summary: &'static CStr) -> Description {
    Description {
        name,
        summary,
        complexity: CONSTANT,
        since: SINCE,
        arity: -4,
        flags: c"write fast deny-oom",
        categories: c"write fast",
        categories_and_own: c"write fast rl",
        keys: Some((KeyRange::FIRST, Access::Update)),
        tips: None,
        arguments: LIMIT_PER_WINDOW,
    }
}

/// A command that reads: of constant cost.
pub const fn reading(name: &'static CStr, summary: &'static CStr) -> Description {
    Description {
        arity: 2,
        flags: c"readonly fast",
        categories: c"read fast",
        categories_and_own: c"read fast rl",
        keys: Some((KeyRange::FIRST, Access::Read)),
        arguments: &[KEY],
        ..deciding(name, summary)
    }
}

/// A command of a trusted caller, which settles what was decided: it is not in the module's own
/// category.
pub const fn settling(name: &'static CStr, summary: &'static CStr) -> Description {
    Description {
        complexity: c"O(1), for SLIDINGLOG O(log N) with N entries in the log, amortised",
        since: c"0.2.0",
        arity: -4,
        flags: c"write",
        categories: c"write slow",
        categories_and_own: c"write slow",
        ..deciding(name, summary)
    }
}

/// A command of who holds a lease, or wants to.
pub const fn leasing(name: &'static CStr, summary: &'static CStr) -> Description {
    Description {
        complexity: c"O(log N) with N holders",
        since: c"0.2.0",
        flags: c"write fast",
        ..deciding(name, summary)
    }
}

/// A command of a trusted caller, which ends a reservation.
pub const fn ending(name: &'static CStr, summary: &'static CStr) -> Description {
    Description {
        complexity: c"O(N) with N ids that are remembered, at most 1024",
        arity: -6,
        arguments: &[KEY, RESERVATION_ID, RESERVABLE, COST],
        ..settling(name, summary)
    }
}

/// A subcommand of an operator, or the container of them all. They work on every server by itself,
/// a replica and one that loads among them.
pub const fn operating(name: &'static CStr, summary: &'static CStr) -> Description {
    Description {
        since: c"0.2.0",
        arity: -2,
        flags: c"admin deny-script allow-loading allow-stale",
        categories: c"admin slow dangerous",
        categories_and_own: c"admin slow dangerous",
        keys: None,
        tips: Some(c"request_policy:all_nodes"),
        arguments: &[],
        ..deciding(name, summary)
    }
}
