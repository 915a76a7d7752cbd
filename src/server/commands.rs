//! The command table as data: what a server, a client and `redis-cli` want to know of each command.

use super::api::{Access, Description, KeyRange};
use super::arguments::*;
use super::config;
use crate::grammar::{Algorithm, ReservationVerb};
use std::ffi::CStr;

/// One command.
pub struct Command {
    /// What it says of itself.
    pub description: Description,
    /// What the handler does.
    pub action: Action,
    /// Under which names `INFO` counts what it decides; `None` when it decides nothing.
    pub counters: Option<Counters>,
}

/// The names of two fields of `INFO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// How many calls were allowed.
    pub allowed: &'static CStr,
    /// How many were denied.
    pub denied: &'static CStr,
}

/// What the handler does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Decides and stores.
    Decide(Algorithm),
    /// Decides and stores nothing.
    Peek,
    /// Takes whether or not it is there.
    Charge,
    /// Gives back.
    Refund,
    /// Holds, settles or frees for an id.
    Reserve(ReservationVerb),
    /// Decides by several rules and stores.
    DecideAll,
    /// Decides by several rules and stores nothing.
    PeekAll,
    /// Decides on a lease and stores it.
    Lease,
    /// Renews a lease.
    Renew,
    /// Gives a lease back.
    Release,
    /// Decides as redis-cell does, and stores as it does.
    Throttle,
    /// Shows the state.
    Inspect,
    /// Moves the clock.
    Debug,
}

impl Command {
    /// Whether the configuration wants it. To be asked once the settings are loaded.
    pub fn is_wanted(&self) -> bool {
        self.action != Action::Throttle || config::redis_cell()
    }

    /// What to do where another module has its name; empty where none is known to.
    pub fn hint_if_taken(&self) -> &'static str {
        match self.action {
            Action::Throttle => {
                " Take out the loadmodule line of redis-cell, or the line rl.redis-cell yes"
            }
            _ => "",
        }
    }
}

const CONSTANT: &CStr = c"O(1)";
const SINCE: &CStr = c"0.1.0";

/// A command that decides: of constant cost, with a limit and a window.
const fn deciding(name: &'static CStr, summary: &'static CStr) -> Description {
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
const fn reading(name: &'static CStr, summary: &'static CStr) -> Description {
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
const fn settling(name: &'static CStr, summary: &'static CStr) -> Description {
    Description {
        complexity: c"O(1), for SLIDINGLOG O(log N) with N entries in the log, amortised",
        since: c"0.2.0",
        arity: -5,
        flags: c"write",
        categories: c"write slow",
        categories_and_own: c"write slow",
        ..deciding(name, summary)
    }
}

/// A command of who holds a lease, or wants to.
const fn leasing(name: &'static CStr, summary: &'static CStr) -> Description {
    Description {
        complexity: c"O(log N) with N holders",
        since: c"0.2.0",
        flags: c"write fast",
        ..deciding(name, summary)
    }
}

/// A command of a trusted caller, which ends a reservation.
const fn ending(name: &'static CStr, summary: &'static CStr) -> Description {
    Description {
        complexity: c"O(N) with N ids that are remembered, at most 1024",
        arity: -6,
        arguments: &[KEY, RESERVATION_ID, RESERVABLE, COST],
        ..settling(name, summary)
    }
}

/// The name of the module's own ACL category.
pub const ACL_CATEGORY: &CStr = c"rl";

/// All commands. The counters of `INFO` go by their place in this table.
pub static COMMANDS: [Command; 22] = [
    Command {
        description: Description {
            arguments: &[KEY, LIMIT, WINDOW, COST, PARTIAL, ALIGNED],
            ..deciding(c"rl.fixed", c"Decides whether a call may happen now, by a fixed window.")
        },
        action: Action::Decide(Algorithm::FixedWindow),
        counters: Some(Counters { allowed: c"fixed_allowed", denied: c"fixed_denied" }),
    },
    Command {
        description: deciding(
            c"rl.sliding",
            c"Decides whether a call may happen now, by a sliding-window counter.",
        ),
        action: Action::Decide(Algorithm::SlidingWindow),
        counters: Some(Counters { allowed: c"sliding_allowed", denied: c"sliding_denied" }),
    },
    Command {
        description: Description {
            complexity: c"O(log N) with N entries in the log, amortised",
            flags: c"write deny-oom",
            categories: c"write slow",
            categories_and_own: c"write slow rl",
            ..deciding(
                c"rl.slidinglog",
                c"Decides whether a call may happen now, by an exact sliding window.",
            )
        },
        action: Action::Decide(Algorithm::SlidingLog),
        counters: Some(Counters { allowed: c"slidinglog_allowed", denied: c"slidinglog_denied" }),
    },
    Command {
        description: Description {
            arity: -5,
            arguments: CAPACITY_AND_RATE,
            ..deciding(
                c"rl.tokenbucket",
                c"Decides whether a call may happen now, by a token bucket.",
            )
        },
        action: Action::Decide(Algorithm::TokenBucket),
        counters: Some(Counters { allowed: c"tokenbucket_allowed", denied: c"tokenbucket_denied" }),
    },
    Command {
        description: Description {
            arity: -5,
            arguments: CAPACITY_AND_RATE,
            ..deciding(
                c"rl.leakybucket",
                c"Decides whether a call may join a queue, and tells how long it has to wait.",
            )
        },
        action: Action::Decide(Algorithm::LeakyBucket),
        counters: Some(Counters { allowed: c"leakybucket_allowed", denied: c"leakybucket_denied" }),
    },
    Command {
        description: Description {
            arity: -5,
            arguments: &[KEY, BURST, RATE, PERIOD, COST, PARTIAL],
            ..deciding(
                c"rl.gcra",
                c"Decides whether a call may happen now, by the generic cell rate algorithm.",
            )
        },
        action: Action::Decide(Algorithm::Gcra),
        counters: Some(Counters { allowed: c"gcra_allowed", denied: c"gcra_denied" }),
    },
    Command {
        description: Description {
            since: c"0.2.0",
            arity: -6,
            arguments: &[KEY, ATTEMPTS, BASE, MAX, FORGET],
            ..deciding(
                c"rl.backoff",
                c"Decides whether an attempt may happen now, by delays that grow.",
            )
        },
        action: Action::Decide(Algorithm::Backoff),
        counters: Some(Counters { allowed: c"backoff_allowed", denied: c"backoff_denied" }),
    },
    Command {
        description: Description {
            since: c"0.2.0",
            arguments: &[KEY, LIMIT_PER_PERIOD, UNIT, ZONE, START, COST, PARTIAL],
            ..deciding(
                c"rl.quota",
                c"Decides whether a call may happen now, by an allowance of a calendar period.",
            )
        },
        action: Action::Decide(Algorithm::CalendarQuota),
        counters: Some(Counters { allowed: c"quota_allowed", denied: c"quota_denied" }),
    },
    Command {
        description: Description {
            complexity: c"O(1), for SLIDINGLOG and LEASE O(log N) with N entries or holders",
            arity: -5,
            tips: Some(c"nondeterministic_output"),
            arguments: &[KEY, ANY_RULE, COST, PARTIAL],
            ..reading(c"rl.peek", c"Tells what an algorithm would decide now, changing nothing.")
        },
        action: Action::Peek,
        counters: Some(Counters { allowed: c"peek_allowed", denied: c"peek_denied" }),
    },
    Command {
        description: Description {
            flags: c"write deny-oom",
            arguments: &[KEY, RULE, COST],
            ..settling(
                c"rl.charge",
                c"Takes what a call has cost, whether or not it is there: debt.",
            )
        },
        action: Action::Charge,
        counters: Some(Counters { allowed: c"charge_allowed", denied: c"charge_denied" }),
    },
    Command {
        description: Description {
            arguments: &[KEY, RULE, COST],
            ..settling(c"rl.refund", c"Gives back what a call has not cost after all.")
        },
        action: Action::Refund,
        counters: Some(Counters { allowed: c"refund_allowed", denied: c"refund_denied" }),
    },
    Command {
        description: Description {
            arity: -7,
            flags: c"write deny-oom",
            categories_and_own: c"write slow rl",
            arguments: &[KEY, RESERVATION_ID, HELD_FOR, RESERVABLE, COST],
            ..ending(c"rl.reserve", c"Holds for an id what a call may cost, for a while.")
        },
        action: Action::Reserve(ReservationVerb::Reserve),
        counters: Some(Counters { allowed: c"reserve_allowed", denied: c"reserve_denied" }),
    },
    Command {
        description: ending(
            c"rl.commit",
            c"Takes what a call has cost for which an id holds something, and settles the id.",
        ),
        action: Action::Reserve(ReservationVerb::Commit),
        counters: Some(Counters { allowed: c"commit_allowed", denied: c"commit_denied" }),
    },
    Command {
        description: ending(c"rl.cancel", c"Frees what an id holds."),
        action: Action::Reserve(ReservationVerb::Cancel),
        counters: Some(Counters { allowed: c"cancel_allowed", denied: c"cancel_denied" }),
    },
    Command {
        description: Description {
            complexity: c"O(N) with N rules, for SLIDINGLOG and LEASE times a logarithm",
            since: c"0.2.0",
            arity: -3,
            flags: c"write deny-oom",
            categories: c"write slow",
            categories_and_own: c"write slow rl",
            keys: Some((PAIRS, Access::Update)),
            arguments: KEYS_AND_RULES,
            ..deciding(
                c"rl.all",
                c"Decides whether a call may happen now, by several rules: takes from all or none.",
            )
        },
        action: Action::DecideAll,
        counters: Some(Counters { allowed: c"all_allowed", denied: c"all_denied" }),
    },
    Command {
        description: Description {
            complexity: c"O(N) with N rules, for SLIDINGLOG and LEASE times a logarithm",
            since: c"0.2.0",
            arity: -3,
            tips: Some(c"nondeterministic_output"),
            keys: Some((PAIRS, Access::Read)),
            arguments: KEYS_AND_RULES,
            ..reading(
                c"rl.peekall",
                c"Tells what several rules would decide together now, changing nothing.",
            )
        },
        action: Action::PeekAll,
        counters: Some(Counters { allowed: c"peekall_allowed", denied: c"peekall_denied" }),
    },
    Command {
        description: Description {
            arity: -5,
            flags: c"write fast deny-oom",
            arguments: &[KEY, ID, HOLDERS, TTL],
            ..leasing(c"rl.lease", c"Takes or renews one of so many permits, until it lapses.")
        },
        action: Action::Lease,
        counters: Some(Counters { allowed: c"lease_allowed", denied: c"lease_denied" }),
    },
    Command {
        description: Description {
            arity: 4,
            arguments: &[KEY, ID, TTL],
            ..leasing(c"rl.renew", c"Keeps a permit for longer, if it has not lapsed.")
        },
        action: Action::Renew,
        counters: Some(Counters { allowed: c"renew_allowed", denied: c"renew_denied" }),
    },
    Command {
        description: Description {
            arity: 3,
            arguments: &[KEY, ID],
            ..leasing(c"rl.release", c"Gives a permit back, if it has not lapsed.")
        },
        action: Action::Release,
        counters: Some(Counters { allowed: c"release_allowed", denied: c"release_denied" }),
    },
    Command {
        description: Description {
            since: c"0.2.0",
            arity: -5,
            arguments: &[KEY, MAX_BURST, COUNT_PER_PERIOD, PERIOD_IN_SECONDS, QUANTITY],
            ..deciding(
                c"cl.throttle",
                c"Decides whether a call may happen now, as redis-cell does.",
            )
        },
        action: Action::Throttle,
        counters: Some(Counters { allowed: c"throttle_allowed", denied: c"throttle_denied" }),
    },
    Command {
        description: Description {
            complexity: c"O(1), of a key with leases O(log N) with N holders",
            tips: Some(c"nondeterministic_output"),
            ..reading(
                c"rl.inspect",
                c"Shows the state behind a key as field and value pairs, for people.",
            )
        },
        action: Action::Inspect,
        counters: None,
    },
    Command {
        description: Description {
            name: c"rl.debug",
            summary: c"Stops and moves the module's clock, for tests.",
            complexity: CONSTANT,
            since: SINCE,
            arity: -3,
            flags: c"admin",
            categories: c"admin slow dangerous",
            categories_and_own: c"admin slow dangerous rl",
            keys: None,
            tips: Some(c"nondeterministic_output"),
            arguments: &[CLOCK_ACTION],
        },
        action: Action::Debug,
        counters: None,
    },
];
