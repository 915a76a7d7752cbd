//! What a row of the command table is, and what rows have in common.

use crate::api::command::{Access, Description, KeyRange};
use crate::commands::arguments::*;
use crate::{api, config};
use redis_throttle_engine::algorithms::Algorithm;
use redis_throttle_engine::grammar::reservation::ReservationVerb;
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

impl Command {
    /// Whether the configuration wants it, and the server can have it. To be asked once the
    /// settings are loaded.
    pub fn is_wanted(&self) -> bool {
        match self.action {
            Action::Throttle => config::redis_cell(),
            Action::Policy(_) => api::load::frees_subcommands(),
            _ => true,
        }
    }

    /// Whether the server is to call it: not where that finds the subcommand itself.
    pub fn has_function(&self) -> bool {
        self.action != Action::Container || !api::load::frees_subcommands()
    }

    /// What to do where another module has its name; empty where none is known to.
    pub fn hint_if_taken(&self) -> &'static str {
        match self.action {
            Action::Throttle => {
                " Remove the loadmodule line of redis-cell, or the line rl.redis-cell yes"
            }
            _ => "",
        }
    }
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
    /// Decides by a policy and stores.
    Use,
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
    /// Shows all counters.
    Metrics,
    /// Moves the clock.
    Debug,
    /// Finds the subcommand, where the server does not.
    Container,
    /// Changes the table of policies, or tells of it.
    Policy(PolicyVerb),
}

/// What an operator does with policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyVerb {
    /// Makes or replaces one.
    Set,
    /// Deletes some.
    Del,
    /// Tells what applies.
    Get,
    /// Tells all bases.
    List,
    /// Reads the file.
    Load,
    /// Writes the file.
    Save,
    /// Tells what became of the calls.
    Stats,
    /// Begins to count anew.
    ResetStat,
    /// Tells what there is.
    Help,
}

pub const CONSTANT: &CStr = c"O(1)";
/// The complexity of a rule whose key may hold reservations: their list is read as a whole.
pub const RESERVABLE_COST: &CStr = c"O(1), or O(N) with N reservations in the key, at most 1024";
/// The complexity of a call that accepts any rule that counts units.
pub const LOG_OR_RESERVABLE_COST: &CStr =
    c"O(1). SLIDINGLOG: O(log N) amortised with N entries in the log. FIXED and QUOTA: O(N) with N \
        reservations in the key, at most 1024";
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
        complexity: LOG_OR_RESERVABLE_COST,
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
        complexity: c"O(N) with N reservation ids in the key, at most 1024",
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

/// The row of a subcommand of `RL.POLICY`.
pub const fn policy(verb: PolicyVerb, description: Description) -> Command {
    Command { description, action: Action::Policy(verb), counters: None }
}
