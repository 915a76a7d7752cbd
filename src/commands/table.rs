//! The command table as data: the description of each command for servers, clients and `redis-cli`.

use crate::api::call::{CommandFunction, Commands, trampoline};
use crate::api::command::{Access, Description};
use crate::commands::arguments::*;
use redis_throttle_engine::algorithms::Algorithm;
use redis_throttle_engine::grammar::reservation::ReservationVerb;
use std::ffi::CStr;

pub use crate::commands::row::{Action, Command, Counters, PolicyVerb};
use crate::commands::row::{
    BLOCK, CONSTANT, LOG_OR_RESERVABLE_COST, RESERVABLE_COST, SINCE, TOP, deciding, ending,
    leasing, operating, policy, reading, settling,
};

/// The name of the module's own ACL category.
pub const ACL_CATEGORY: &CStr = c"rl";

/// Builds the table from a row for each command. The position of a row is the command's index: it
/// selects the function that the server calls, and the command's counters in `INFO`.
macro_rules! commands {
    ($($id:ident: $row:expr,)*) => {
        /// The index of each command in the table.
        #[derive(Clone, Copy)]
        enum Id {
            $($id,)*
        }

        /// All commands.
        pub static COMMANDS: [Command; COMMANDS_LEN] = [$($row),*];

        /// Returns the function of each command, in the order of the table.
        pub const fn functions<C: Commands>() -> [CommandFunction; COMMANDS_LEN] {
            [$(trampoline::<C, { Id::$id as usize }>),*]
        }

        const COMMANDS_LEN: usize = [$(Id::$id),*].len();
    };
}

/// Names the `INFO` fields that count the decisions of a command.
macro_rules! counters {
    ($name:literal) => {
        Some(Counters {
            allowed: c_text(concat!($name, "_allowed\0")),
            denied: c_text(concat!($name, "_denied\0")),
        })
    };
}

const fn c_text(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a name ends with its only NUL"),
    }
}

commands! {
    Fixed: Command {
        description: Description {
            complexity: RESERVABLE_COST,
            arguments: with_call_options![KEY, LIMIT, WINDOW; ALIGNED],
            ..deciding(c"rl.fixed", c"Decides whether a call may happen now, by a fixed window.")
        },
        action: Action::Decide(Algorithm::FixedWindow),
        counters: counters!("fixed"),
    },
    Sliding: Command {
        description: deciding(
            c"rl.sliding",
            c"Decides whether a call may happen now, by a sliding-window counter.",
        ),
        action: Action::Decide(Algorithm::SlidingWindow),
        counters: counters!("sliding"),
    },
    SlidingLog: Command {
        description: Description {
            complexity: c"O(log N) with N entries in the log, amortised",
            flags: c"write deny-oom",
            categories: c"write slow",
            categories_and_own: c"write slow rl",
            arguments: with_call_options![KEY, LIMIT, WINDOW; SLOTS],
            ..deciding(
                c"rl.slidinglog",
                c"Decides whether a call may happen now, by an exact sliding window.",
            )
        },
        action: Action::Decide(Algorithm::SlidingLog),
        counters: counters!("slidinglog"),
    },
    TokenBucket: Command {
        description: Description {
            arity: -5,
            arguments: CAPACITY_AND_RATE,
            ..deciding(
                c"rl.tokenbucket",
                c"Decides whether a call may happen now, by a token bucket.",
            )
        },
        action: Action::Decide(Algorithm::TokenBucket),
        counters: counters!("tokenbucket"),
    },
    LeakyBucket: Command {
        description: Description {
            arity: -5,
            arguments: CAPACITY_AND_RATE,
            ..deciding(
                c"rl.leakybucket",
                c"Decides whether a call may join a queue, and returns how long it must wait.",
            )
        },
        action: Action::Decide(Algorithm::LeakyBucket),
        counters: counters!("leakybucket"),
    },
    Gcra: Command {
        description: Description {
            arity: -5,
            arguments: with_call_options![KEY, BURST, RATE, PERIOD;],
            ..deciding(
                c"rl.gcra",
                c"Decides whether a call may happen now, by the generic cell rate algorithm.",
            )
        },
        action: Action::Decide(Algorithm::Gcra),
        counters: counters!("gcra"),
    },
    Backoff: Command {
        description: Description {
            since: c"0.2.0",
            arity: -6,
            arguments: &[KEY, ATTEMPTS, BASE, MAX, FORGET],
            ..deciding(
                c"rl.backoff",
                c"Decides whether an attempt may happen now, by growing delays.",
            )
        },
        action: Action::Decide(Algorithm::Backoff),
        counters: counters!("backoff"),
    },
    Quota: Command {
        description: Description {
            complexity: RESERVABLE_COST,
            since: c"0.2.0",
            arguments: with_call_options![KEY, LIMIT_PER_PERIOD, UNIT, ZONE, START;],
            ..deciding(
                c"rl.quota",
                c"Decides whether a call may happen now, by a quota per calendar period.",
            )
        },
        action: Action::Decide(Algorithm::CalendarQuota),
        counters: counters!("quota"),
    },
    Use: Command {
        description: Description {
            complexity: LOG_OR_RESERVABLE_COST,
            since: c"0.2.0",
            arity: -3,
            flags: c"write deny-oom",
            categories: c"write slow",
            categories_and_own: c"write slow rl",
            arguments: with_call_options![KEY, USED_POLICY; VARIANTS, DEFAULT_RULE],
            ..deciding(
                c"rl.use",
                c"Decides whether a call may happen now, by a named policy.",
            )
        },
        action: Action::Use,
        counters: counters!("use"),
    },
    Peek: Command {
        description: Description {
            complexity: c"O(1). SLIDINGLOG and LEASE: O(log N) with N entries or holders. FIXED \
                and QUOTA: O(N) with N reservations in the key, at most 1024",
            arity: -4,
            tips: Some(c"nondeterministic_output"),
            arguments: with_call_options![KEY, ANY_RULE;],
            ..reading(c"rl.peek", c"Returns what a rule would decide now, changing nothing.")
        },
        action: Action::Peek,
        counters: counters!("peek"),
    },
    Charge: Command {
        description: Description {
            flags: c"write deny-oom",
            arguments: &[KEY, RULE, COST],
            ..settling(
                c"rl.charge",
                c"Takes the actual cost of a call, going into debt if too few units are left.",
            )
        },
        action: Action::Charge,
        counters: counters!("charge"),
    },
    Refund: Command {
        description: Description {
            arguments: &[KEY, RULE, COST],
            ..settling(c"rl.refund", c"Gives back units that a call did not use.")
        },
        action: Action::Refund,
        counters: counters!("refund"),
    },
    Reserve: Command {
        description: Description {
            arity: -6,
            flags: c"write deny-oom",
            categories_and_own: c"write slow rl",
            arguments: &[KEY, RESERVATION_ID, HELD_FOR, RESERVABLE, COST, LEAVE],
            ..ending(
                c"rl.reserve",
                c"Reserves the most that a call may cost, under an id, for a limited time.",
            )
        },
        action: Action::Reserve(ReservationVerb::Reserve),
        counters: counters!("reserve"),
    },
    Commit: Command {
        description: ending(
            c"rl.commit",
            c"Settles a reservation: takes the actual cost of the call and frees the rest.",
        ),
        action: Action::Reserve(ReservationVerb::Commit),
        counters: counters!("commit"),
    },
    Cancel: Command {
        description: ending(c"rl.cancel", c"Cancels a reservation and frees its units."),
        action: Action::Reserve(ReservationVerb::Cancel),
        counters: counters!("cancel"),
    },
    All: Command {
        description: Description {
            complexity:
                c"O(N) with N rules, plus O(log M) for each SLIDINGLOG or LEASE with M entries or \
                holders, plus O(M) for each FIXED or QUOTA with M reservations, at most 1024",
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
        counters: counters!("all"),
    },
    PeekAll: Command {
        description: Description {
            complexity:
                c"O(N) with N rules, plus O(log M) for each SLIDINGLOG or LEASE with M entries or \
                holders, plus O(M) for each FIXED or QUOTA with M reservations, at most 1024",
            since: c"0.2.0",
            arity: -3,
            tips: Some(c"nondeterministic_output"),
            keys: Some((PAIRS, Access::Read)),
            arguments: KEYS_AND_RULES,
            ..reading(
                c"rl.peekall",
                c"Returns what several rules would decide together now, changing nothing.",
            )
        },
        action: Action::PeekAll,
        counters: counters!("peekall"),
    },
    Lease: Command {
        description: Description {
            arity: -5,
            flags: c"write fast deny-oom",
            arguments: &[KEY, ID, HOLDERS, TTL, LEAVE],
            ..leasing(
                c"rl.lease",
                c"Takes or renews one of a limited number of permits, until it expires.",
            )
        },
        action: Action::Lease,
        counters: counters!("lease"),
    },
    Renew: Command {
        description: Description {
            arity: 4,
            arguments: &[KEY, ID, TTL],
            ..leasing(c"rl.renew", c"Extends a permit that has not expired.")
        },
        action: Action::Renew,
        counters: counters!("renew"),
    },
    Release: Command {
        description: Description {
            arity: 3,
            arguments: &[KEY, ID],
            ..leasing(c"rl.release", c"Gives back a permit that has not expired.")
        },
        action: Action::Release,
        counters: counters!("release"),
    },
    Block: BLOCK,
    Throttle: Command {
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
        counters: counters!("throttle"),
    },
    ThrottleAsRedis: Command {
        description: Description {
            since: c"0.3.0",
            arity: -5,
            arguments: &[KEY, MAX_BURST_OF_GCRA, TOKENS_PER_PERIOD, ANY_PERIOD, TOKENS],
            ..deciding(c"gcra", c"Decides whether a call may happen now, as Redis would.")
        },
        action: Action::ThrottleAsRedis,
        counters: counters!("redis_gcra"),
    },
    Inspect: Command {
        description: Description {
            complexity: c"O(1). A key with leases: O(log N) with N holders. A key with \
                reservations: O(N) with N reservations, at most 1024",
            tips: Some(c"nondeterministic_output"),
            ..reading(
                c"rl.inspect",
                c"Returns the state of a key as field and value pairs, for debugging.",
            )
        },
        action: Action::Inspect,
        counters: None,
    },
    Metrics: Command {
        description: Description {
            complexity: c"O(N log N) with N policies that were used",
            since: c"0.2.0",
            arity: 1,
            flags: c"readonly allow-loading allow-stale",
            categories: c"read slow",
            categories_and_own: c"read slow",
            keys: None,
            tips: Some(c"nondeterministic_output"),
            arguments: &[],
            ..reading(c"rl.metrics", c"Returns all counters in the text format of Prometheus.")
        },
        action: Action::Metrics,
        counters: None,
    },
    Top: TOP,
    Debug: Command {
        description: Description {
            name: c"rl.debug",
            summary: c"Stops and moves the module's clock, for tests.",
            complexity: CONSTANT,
            since: SINCE,
            arity: -3,
            flags: c"admin",
            categories: c"admin slow dangerous",
            categories_and_own: c"admin slow dangerous",
            keys: None,
            tips: Some(c"nondeterministic_output"),
            arguments: &[CLOCK_ACTION],
        },
        action: Action::Debug,
        counters: None,
    },
    Policy: Command {
        description: operating(c"rl.policy", c"A container for policy commands."),
        action: Action::Container,
        counters: None,
    },
    PolicySet: policy(
        PolicyVerb::Set,
        Description {
            arity: -4,
            arguments: &[POLICY, MODE, EX, NEW_RULE],
            ..operating(
                c"rl.policy|set",
                c"Creates or replaces a policy on this server, or changes its mode.",
            )
        },
    ),
    PolicyDel: policy(
        PolicyVerb::Del,
        Description {
            complexity: c"O(N) with N names",
            arity: -3,
            arguments: &[POLICY.multiple()],
            ..operating(c"rl.policy|del", c"Deletes policies and returns how many of them existed.")
        },
    ),
    PolicyGet: policy(
        PolicyVerb::Get,
        Description {
            arity: 3,
            arguments: &[POLICY],
            ..operating(c"rl.policy|get", c"Returns the policy in effect under a name.")
        },
    ),
    PolicyList: policy(
        PolicyVerb::List,
        Description {
            complexity: c"O(N log N) with N policies",
            arguments: &[PATTERN],
            ..operating(c"rl.policy|list", c"Returns the policies in the policy file's format.")
        },
    ),
    PolicyLoad: policy(
        PolicyVerb::Load,
        Description {
            complexity: c"O(N) with N policies",
            arity: 2,
            ..operating(c"rl.policy|load", c"Reads the policy file again, all of it or nothing.")
        },
    ),
    PolicySave: policy(
        PolicyVerb::Save,
        Description {
            complexity: c"O(N log N) with N policies",
            arity: 2,
            ..operating(c"rl.policy|save", c"Writes the policy file.")
        },
    ),
    PolicyStats: policy(
        PolicyVerb::Stats,
        Description {
            complexity: c"O(N log N) with N policies, or O(1) for the name of one",
            arguments: &[PATTERN],
            ..operating(c"rl.policy|stats", c"Returns the call counters of policies.")
        },
    ),
    PolicyResetStat: policy(
        PolicyVerb::ResetStat,
        Description {
            complexity: c"O(N) with N policies",
            arity: 2,
            ..operating(c"rl.policy|resetstat", c"Resets the call counters of policies.")
        },
    ),
    PolicyHelp: policy(
        PolicyVerb::Help,
        Description {
            arity: 2,
            tips: None,
            ..operating(c"rl.policy|help", c"Describes the subcommands.")
        },
    ),
}
