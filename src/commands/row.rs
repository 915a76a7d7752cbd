//! A row of the command table, and the parts that rows share.

use crate::api::command::{Access, Description, KeyRange};
use crate::commands::arguments::*;
use crate::{api, config};
use redis_throttle_engine::algorithms::Algorithm;
use redis_throttle_engine::grammar::reservation::ReservationVerb;
use std::ffi::CStr;

/// One command.
pub struct Command {
    /// Its description.
    pub description: Description,
    /// The handler's action.
    pub action: Action,
    /// The `INFO` fields that count its decisions; `None` if it decides nothing.
    pub counters: Option<Counters>,
}

impl Command {
    /// Returns true if the configuration enables the command and the server supports it. Call it
    /// after the settings are loaded.
    pub fn is_wanted(&self) -> bool {
        match self.action {
            Action::Throttle => config::redis_cell(),
            Action::Policy(_) => api::load::frees_subcommands(),
            _ => true,
        }
    }

    /// Returns true if the server calls a function for it. It does not for a container whose
    /// subcommands the server finds itself.
    pub fn has_function(&self) -> bool {
        self.action != Action::Container || !api::load::frees_subcommands()
    }

    /// Returns advice for the case that another module has its name; empty if none is known to.
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
    /// The number of allowed calls.
    pub allowed: &'static CStr,
    /// The number of denied calls.
    pub denied: &'static CStr,
}

/// The handler's action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Decides by one rule and stores the result.
    Decide(Algorithm),
    /// Decides by a policy and stores the result.
    Use,
    /// Decides by one rule and stores nothing.
    Peek,
    /// Takes a cost unconditionally.
    Charge,
    /// Gives back a cost.
    Refund,
    /// Reserves, commits or cancels for an id.
    Reserve(ReservationVerb),
    /// Decides by several rules and stores the results.
    DecideAll,
    /// Decides by several rules and stores nothing.
    PeekAll,
    /// Takes or renews a lease.
    Lease,
    /// Renews a live lease.
    Renew,
    /// Releases a lease.
    Release,
    /// Decides and stores as redis-cell does.
    Throttle,
    /// Shows the state of a key.
    Inspect,
    /// Shows all counters.
    Metrics,
    /// Freezes, moves or resumes the clock.
    Debug,
    /// Finds the subcommand, if the server does not.
    Container,
    /// Changes or shows policies.
    Policy(PolicyVerb),
}

/// A subcommand of `RL.POLICY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyVerb {
    /// Creates or replaces a policy.
    Set,
    /// Deletes policies.
    Del,
    /// Shows the policy in effect.
    Get,
    /// Lists all policies, without overrides.
    List,
    /// Reads the policy file.
    Load,
    /// Writes the policy file.
    Save,
    /// Shows the call counters.
    Stats,
    /// Resets the call counters.
    ResetStat,
    /// Shows the help.
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

/// Describes a command that decides: constant complexity, a limit and a window.
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

/// Describes a command that reads: constant complexity.
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

/// Describes a command that settles earlier decisions. It is for trusted callers, so it is not in
/// the module's own ACL category.
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

/// Describes a command on a lease.
pub const fn leasing(name: &'static CStr, summary: &'static CStr) -> Description {
    Description {
        complexity: c"O(log N) with N holders",
        since: c"0.2.0",
        flags: c"write fast",
        ..deciding(name, summary)
    }
}

/// Describes a command that ends a reservation. It is for trusted callers.
pub const fn ending(name: &'static CStr, summary: &'static CStr) -> Description {
    Description {
        complexity: c"O(N) with N reservation ids in the key, at most 1024",
        arity: -6,
        arguments: &[KEY, RESERVATION_ID, RESERVABLE, COST],
        ..settling(name, summary)
    }
}

/// Describes a command for operators: the container of policy commands or one of its subcommands.
/// They work on each server separately, also on a replica or while the server loads its data.
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

/// Creates the row of a subcommand of `RL.POLICY`.
pub const fn policy(verb: PolicyVerb, description: Description) -> Command {
    Command { description, action: Action::Policy(verb), counters: None }
}
