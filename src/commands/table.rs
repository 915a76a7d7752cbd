//! The command table as data: the description of each command for servers, clients and `redis-cli`.

use crate::api::call::{CommandFunction, Commands, trampoline};
use crate::api::command::{Access, Description};
use crate::commands::arguments::*;
use redis_throttle_engine::algorithms::Algorithm;
use redis_throttle_engine::grammar::reservation::ReservationVerb;
use std::ffi::CStr;

pub use crate::commands::row::{Action, Command, Counters, PolicyVerb};
use crate::commands::row::{
    CONSTANT, LOG_OR_RESERVABLE_COST, RESERVABLE_COST, SINCE, deciding, ending, leasing, operating,
    reading, settling,
};

/// The name of the module's own ACL category.
pub const ACL_CATEGORY: &CStr = c"rl";

/// Builds the table from a row for each command: its action, the name of its counters if it decides
/// calls, and its description. The position of a row selects the function that the server calls,
/// and the command's counters in `INFO`.
macro_rules! commands {
    ($($id:ident($action:expr $(, $counters:literal)?): $description:expr,)*) => {
        /// A command of the table. It is as wide as an index, which saves each call a conversion.
        #[repr(usize)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum CommandId {
            $($id,)*
        }

        impl CommandId {
            /// All commands, in the order of the table.
            pub const ALL: [Self; COMMANDS_LEN] = [$(Self::$id),*];

            /// Returns the command's row in the table.
            pub fn row(self) -> &'static Command {
                &COMMANDS[self as usize]
            }
        }

        /// All commands.
        pub static COMMANDS: [Command; COMMANDS_LEN] = [$(Command {
            description: $description,
            action: $action,
            counters: counters!($($counters)?),
        }),*];

        /// Returns the function of each command, in the order of the table.
        pub const fn functions<C: Commands>() -> [CommandFunction; COMMANDS_LEN] {
            [$(trampoline::<C, { CommandId::$id as usize }>),*]
        }

        const COMMANDS_LEN: usize = [$(CommandId::$id),*].len();
    };
}

/// Names the `INFO` fields that count the decisions of a command; `None` without a name.
macro_rules! counters {
    () => {
        None
    };
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
    Fixed(Action::Decide(Algorithm::FixedWindow), "fixed"): Description {
        complexity: RESERVABLE_COST,
        arguments: with_call_options![KEY, LIMIT, WINDOW; ALIGNED],
        ..deciding(c"rl.fixed", c"Decides whether a call may happen now, by a fixed window.")
    },
    Sliding(Action::Decide(Algorithm::SlidingWindow), "sliding"): deciding(
        c"rl.sliding",
        c"Decides whether a call may happen now, by a sliding-window counter.",
    ),
    SlidingLog(Action::Decide(Algorithm::SlidingLog), "slidinglog"): Description {
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
    TokenBucket(Action::Decide(Algorithm::TokenBucket), "tokenbucket"): Description {
        arity: -5,
        arguments: CAPACITY_AND_RATE,
        ..deciding(
            c"rl.tokenbucket",
            c"Decides whether a call may happen now, by a token bucket.",
        )
    },
    LeakyBucket(Action::Decide(Algorithm::LeakyBucket), "leakybucket"): Description {
        arity: -5,
        arguments: CAPACITY_AND_RATE,
        ..deciding(
            c"rl.leakybucket",
            c"Decides whether a call may join a queue, and returns how long it must wait.",
        )
    },
    Gcra(Action::Decide(Algorithm::Gcra), "gcra"): Description {
        arity: -5,
        arguments: with_call_options![KEY, BURST, RATE, PERIOD;],
        ..deciding(
            c"rl.gcra",
            c"Decides whether a call may happen now, by the generic cell rate algorithm.",
        )
    },
    Backoff(Action::Decide(Algorithm::Backoff), "backoff"): Description {
        since: c"0.2.0",
        arity: -6,
        arguments: &[KEY, ATTEMPTS, BASE, MAX, FORGET],
        ..deciding(
            c"rl.backoff",
            c"Decides whether an attempt may happen now, by growing delays.",
        )
    },
    Quota(Action::Decide(Algorithm::CalendarQuota), "quota"): Description {
        complexity: RESERVABLE_COST,
        since: c"0.2.0",
        arguments: with_call_options![KEY, LIMIT_PER_PERIOD, UNIT, ZONE, START;],
        ..deciding(
            c"rl.quota",
            c"Decides whether a call may happen now, by a quota per calendar period.",
        )
    },
    Use(Action::Use, "use"): Description {
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
    Peek(Action::Peek, "peek"): Description {
        complexity: c"O(1). SLIDINGLOG and LEASE: O(log N) with N entries or holders. FIXED \
            and QUOTA: O(N) with N reservations in the key, at most 1024",
        arity: -4,
        tips: Some(c"nondeterministic_output"),
        arguments: with_call_options![KEY, ANY_RULE;],
        ..reading(c"rl.peek", c"Returns what a rule would decide now, changing nothing.")
    },
    Charge(Action::Charge, "charge"): Description {
        flags: c"write deny-oom",
        arguments: &[KEY, RULE, COST],
        ..settling(
            c"rl.charge",
            c"Takes the actual cost of a call, going into debt if too few units are left.",
        )
    },
    Refund(Action::Refund, "refund"): Description {
        arguments: &[KEY, RULE, COST],
        ..settling(c"rl.refund", c"Gives back units that a call did not use.")
    },
    Reserve(Action::Reserve(ReservationVerb::Reserve), "reserve"): Description {
        arity: -6,
        flags: c"write deny-oom",
        categories_and_own: c"write slow rl",
        arguments: &[KEY, RESERVATION_ID, HELD_FOR, RESERVABLE, COST, LEAVE],
        ..ending(
            c"rl.reserve",
            c"Reserves the most that a call may cost, under an id, for a limited time.",
        )
    },
    Commit(Action::Reserve(ReservationVerb::Commit), "commit"): ending(
        c"rl.commit",
        c"Settles a reservation: takes the actual cost of the call and frees the rest.",
    ),
    Cancel(Action::Reserve(ReservationVerb::Cancel), "cancel"): ending(
        c"rl.cancel",
        c"Cancels a reservation and frees its units.",
    ),
    All(Action::DecideAll, "all"): Description {
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
    PeekAll(Action::PeekAll, "peekall"): Description {
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
    Lease(Action::Lease, "lease"): Description {
        arity: -5,
        flags: c"write fast deny-oom",
        arguments: &[KEY, ID, HOLDERS, TTL, LEAVE],
        ..leasing(
            c"rl.lease",
            c"Takes or renews one of a limited number of permits, until it expires.",
        )
    },
    Renew(Action::Renew, "renew"): Description {
        arity: 4,
        arguments: &[KEY, ID, TTL],
        ..leasing(c"rl.renew", c"Extends a permit that has not expired.")
    },
    Release(Action::Release, "release"): Description {
        arity: 3,
        arguments: &[KEY, ID],
        ..leasing(c"rl.release", c"Gives back a permit that has not expired.")
    },
    // A ban forgives what the key owes, so only trusted callers may use it.
    Block(Action::Block): Description {
        complexity: CONSTANT,
        since: c"0.3.0",
        arity: 3,
        arguments: &[KEY, BANNED_FOR],
        ..settling(c"rl.block", c"Bans a key: every call is denied until the ban ends.")
    },
    Throttle(Action::Throttle, "throttle"): Description {
        since: c"0.2.0",
        arity: -5,
        arguments: &[KEY, MAX_BURST, COUNT_PER_PERIOD, PERIOD_IN_SECONDS, QUANTITY],
        ..deciding(
            c"cl.throttle",
            c"Decides whether a call may happen now, as redis-cell does.",
        )
    },
    ThrottleAsRedis(Action::ThrottleAsRedis, "redis_gcra"): Description {
        since: c"0.3.0",
        arity: -5,
        arguments: &[KEY, MAX_BURST_OF_GCRA, TOKENS_PER_PERIOD, ANY_PERIOD, TOKENS],
        ..deciding(c"gcra", c"Decides whether a call may happen now, as Redis would.")
    },
    Inspect(Action::Inspect): Description {
        complexity: c"O(1). A key with leases: O(log N) with N holders. A key with \
            reservations: O(N) with N reservations, at most 1024",
        tips: Some(c"nondeterministic_output"),
        ..reading(
            c"rl.inspect",
            c"Returns the state of a key as field and value pairs, for debugging.",
        )
    },
    Metrics(Action::Metrics): Description {
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
    Top(Action::Top): Description {
        complexity: c"O(N) with N slots, rl.top-slots",
        since: c"0.3.0",
        arity: -1,
        tips: Some(c"nondeterministic_output request_policy:all_nodes"),
        arguments: &[TOP_ACTION],
        ..operating(c"rl.top", c"Returns the keys that are denied most, or called most.")
    },
    Debug(Action::Debug): Description {
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
    Policy(Action::Container): operating(c"rl.policy", c"A container for policy commands."),
    PolicySet(Action::Policy(PolicyVerb::Set)): Description {
        arity: -4,
        arguments: &[POLICY, MODE, EX, NEW_RULE],
        ..operating(
            c"rl.policy|set",
            c"Creates or replaces a policy on this server, or changes its mode.",
        )
    },
    PolicyDel(Action::Policy(PolicyVerb::Del)): Description {
        complexity: c"O(N) with N names",
        arity: -3,
        arguments: &[POLICY.multiple()],
        ..operating(c"rl.policy|del", c"Deletes policies and returns how many of them existed.")
    },
    PolicyGet(Action::Policy(PolicyVerb::Get)): Description {
        arity: 3,
        arguments: &[POLICY],
        ..operating(c"rl.policy|get", c"Returns the policy in effect under a name.")
    },
    PolicyList(Action::Policy(PolicyVerb::List)): Description {
        complexity: c"O(N log N) with N policies",
        arguments: &[PATTERN],
        ..operating(c"rl.policy|list", c"Returns the policies in the policy file's format.")
    },
    PolicyLoad(Action::Policy(PolicyVerb::Load)): Description {
        complexity: c"O(N) with N policies",
        arity: 2,
        ..operating(c"rl.policy|load", c"Reads the policy file again, all of it or nothing.")
    },
    PolicySave(Action::Policy(PolicyVerb::Save)): Description {
        complexity: c"O(N log N) with N policies",
        arity: 2,
        ..operating(c"rl.policy|save", c"Writes the policy file.")
    },
    PolicyStats(Action::Policy(PolicyVerb::Stats)): Description {
        complexity: c"O(N log N) with N policies, or O(1) for the name of one",
        arguments: &[PATTERN],
        ..operating(c"rl.policy|stats", c"Returns the call counters of policies.")
    },
    PolicyResetStat(Action::Policy(PolicyVerb::ResetStat)): Description {
        complexity: c"O(N) with N policies",
        arity: 2,
        ..operating(c"rl.policy|resetstat", c"Resets the call counters of policies.")
    },
    PolicyHelp(Action::Policy(PolicyVerb::Help)): Description {
        arity: 2,
        tips: None,
        ..operating(c"rl.policy|help", c"Describes the subcommands.")
    },
}
