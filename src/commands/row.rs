//! A row of the command table, and the parts that rows share.

use crate::api::command::{Access, Description, KeyRange};
use crate::commands::arguments::*;
use crate::{api, config};
use redis_throttle_engine::algorithms::Algorithm;
use redis_throttle_engine::grammar::reservation::ReservationVerb;
use std::ffi::CStr;

/// One command.
pub struct Command {
    /// The description for servers, clients and `redis-cli`.
    pub description: Description,
    /// The action that the handler runs.
    pub action: Action,
    /// The `INFO` fields that count the command's decisions; `None` if the command decides nothing.
    pub counters: Option<Counters>,
}

impl Command {
    /// Returns true if the configuration enables the command and the server supports it. Call it
    /// after the settings are loaded.
    pub fn is_wanted(&self) -> bool {
        match self.action {
            Action::Throttle => config::redis_cell(),
            Action::ThrottleAsRedis => config::gcra(),
            Action::Policy(_) => api::load::frees_subcommands(),
            _ => true,
        }
    }

    /// Returns the name in the names of counters: `gcra` for `rl.gcra`, `redis_gcra` for `gcra`.
    pub fn short_name(&self) -> &'static str {
        let field = self.counters.map_or(self.description.name, |counters| counters.allowed);
        let field = field.to_str().unwrap_or_default();
        field.strip_suffix("_allowed").or_else(|| field.strip_prefix("rl.")).unwrap_or(field)
    }

    /// Returns true if the command stores state where no key was before.
    pub const fn creates_keys(&self) -> bool {
        match self.action {
            Action::Decide(_)
            | Action::Use
            | Action::Charge
            | Action::Reserve(ReservationVerb::Reserve)
            | Action::DecideAll
            | Action::Lease
            | Action::Block
            | Action::Throttle
            | Action::ThrottleAsRedis => true,
            Action::Peek
            | Action::Refund
            | Action::Reserve(ReservationVerb::Commit | ReservationVerb::Cancel)
            | Action::PeekAll
            | Action::Renew
            | Action::Release
            | Action::Inspect
            | Action::Metrics
            | Action::Top
            | Action::Debug
            | Action::Container
            | Action::Policy(_) => false,
        }
    }

    /// Returns true if the server calls a function for the command. A container needs no function
    /// on a server that finds the subcommands itself.
    pub fn has_function(&self) -> bool {
        self.action != Action::Container || !api::load::frees_subcommands()
    }

    /// Returns true if the module loads without the command if its name is taken: a later version
    /// of the server may have it.
    pub fn may_be_missing(&self) -> bool {
        self.action == Action::ThrottleAsRedis
    }

    /// Returns advice for the log if the command's name is taken; empty if no other module is known
    /// to have a command of that name.
    pub fn hint_if_taken(&self) -> &'static str {
        match self.action {
            Action::Throttle => {
                " Remove the loadmodule line of redis-cell, or the line rl.redis-cell yes"
            }
            _ => "",
        }
    }
}

/// The names of the two fields of `INFO` that count a command's decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// The number of allowed calls.
    pub allowed: &'static CStr,
    /// The number of denied calls.
    pub denied: &'static CStr,
}

/// An action of the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Decides a call under one rule and stores the result.
    Decide(Algorithm),
    /// Decides a call under a policy and stores the result.
    Use,
    /// Decides a call under one rule and stores nothing.
    Peek,
    /// Takes the cost of a call, even if too few units are left.
    Charge,
    /// Gives back the cost of a call.
    Refund,
    /// Makes, commits or cancels a reservation.
    Reserve(ReservationVerb),
    /// Decides a call under several rules and stores the results.
    DecideAll,
    /// Decides a call under several rules and stores nothing.
    PeekAll,
    /// Takes or renews a lease.
    Lease,
    /// Renews a live lease.
    Renew,
    /// Releases a lease.
    Release,
    /// Bans a key.
    Block,
    /// Decides a call and stores the result as redis-cell does.
    Throttle,
    /// Decides a call and stores the result as Redis' `GCRA` does.
    ThrottleAsRedis,
    /// Shows the state of a key.
    Inspect,
    /// Shows all counters.
    Metrics,
    /// Shows or forgets the keys with the highest counts.
    Top,
    /// Freezes, moves or resumes the clock.
    Debug,
    /// Finds and runs the subcommand on a server that does not do so itself.
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
    /// Shows the policy in effect under a name.
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
/// The complexity of a command on a key that may hold reservations: all of them are read.
pub const RESERVABLE_COST: &CStr = c"O(1), or O(N) with N reservations in the key, at most 1024";
/// The complexity of a call that accepts any rule that counts units.
pub const LOG_OR_RESERVABLE_COST: &CStr =
    c"O(1). SLIDINGLOG: O(log N) amortised with N entries in the log. FIXED and QUOTA: O(N) with N \
        reservations in the key, at most 1024";
pub const SINCE: &CStr = c"0.1.0";

/// Describes a command that decides a call: constant complexity, a limit and a window.
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

/// Describes a command that only reads: constant complexity.
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

/// Describes a command that settles earlier decisions. Only trusted callers may use it, so it is
/// not in the module's own ACL category.
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

/// Describes a command that ends a reservation. Only trusted callers may use it.
pub const fn ending(name: &'static CStr, summary: &'static CStr) -> Description {
    Description {
        complexity: c"O(N) with N reservation ids in the key, at most 1024",
        arity: -5,
        arguments: &[KEY, RESERVATION_ID, RESERVABLE, COST],
        ..settling(name, summary)
    }
}

/// Describes a command for operators: the container of policy commands or one of its subcommands.
/// These commands change only the server that receives them. They also run on a replica and while
/// the server loads its data.
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
