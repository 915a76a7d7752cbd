//! The command table as data: what a server, a client and `redis-cli` want to know of each command.

use crate::grammar::Algorithm;
use std::ffi::CStr;

/// One command.
pub struct Command {
    /// Its name.
    pub name: &'static CStr,
    /// What it is for, in a sentence.
    pub summary: &'static CStr,
    /// What it costs.
    pub complexity: &'static CStr,
    /// Since which version of the module.
    pub since: &'static CStr,
    /// How many arguments with the name; negative: at least so many.
    pub arity: i32,
    /// The server's command flags.
    pub flags: &'static CStr,
    /// ACL categories that every server with such knows.
    pub categories: &'static CStr,
    /// The same and the module's own.
    pub categories_and_own: &'static CStr,
    /// What it does to its key.
    pub access: Access,
    /// Tips for proxies and clients.
    pub tips: Option<&'static CStr>,
    /// Its arguments.
    pub arguments: &'static [Argument],
    /// What the handler does.
    pub action: Action,
}

/// What a command does to argument 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is not a key.
    None,
    /// It reads it.
    Read,
    /// It reads it and writes what follows from that.
    Update,
}

/// What the handler does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Decides and stores.
    Decide(Algorithm),
    /// Decides and stores nothing.
    Peek,
    /// Shows the state.
    Inspect,
    /// Moves the clock.
    Debug,
}

/// One argument, as `COMMAND DOCS` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Its name.
    pub name: &'static CStr,
    /// What it is.
    pub kind: Kind,
    /// The word that stands for it or in front of it.
    pub token: Option<&'static CStr>,
    /// What it means.
    pub summary: Option<&'static CStr>,
    /// Whether it may be left out.
    pub optional: bool,
}

/// The kinds of arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The key.
    Key,
    /// A whole number.
    Integer,
    /// Anything else.
    Text,
    /// A word that stands for itself.
    Token,
    /// One of several.
    OneOf(&'static [Argument]),
    /// Several together.
    Block(&'static [Argument]),
}

impl Argument {
    const fn new(name: &'static CStr, kind: Kind, summary: Option<&'static CStr>) -> Self {
        Self { name, kind, token: None, summary, optional: false }
    }

    const fn token(name: &'static CStr, token: &'static CStr) -> Self {
        Self { token: Some(token), ..Self::new(name, Kind::Token, None) }
    }

    const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }
}

const KEY: Argument = Argument::new(c"key", Kind::Key, Some(c"the limited subject and its rule"));
const LIMIT: Argument =
    Argument::new(c"limit", Kind::Integer, Some(c"units per window, 1 to 10^12"));
const BURST: Argument =
    Argument::new(c"burst", Kind::Integer, Some(c"units allowed at once, 1 to 10^12"));
const CAPACITY: Argument =
    Argument::new(c"capacity", Kind::Integer, Some(c"units the bucket holds, 1 to 10^12"));
const RATE: Argument =
    Argument::new(c"rate", Kind::Integer, Some(c"units per period in the long run"));
const DURATION: Option<&CStr> =
    Some(c"a duration from 1ms to 366d, seconds without a unit: 60, 0.5, 500ms, 1h");
const WINDOW: Argument = Argument::new(c"window", Kind::Text, DURATION);
const PERIOD: Argument = Argument::new(c"period", Kind::Text, DURATION);
const COST: Argument = Argument {
    name: c"cost",
    kind: Kind::Integer,
    token: Some(c"COST"),
    summary: Some(c"units this call takes, 0 to 10^12, 1 if not given"),
    optional: true,
};
const ALIGNED: Argument = Argument::token(c"aligned", c"ALIGNED").optional();

const LIMIT_PER_WINDOW: &[Argument] = &[KEY, LIMIT, WINDOW, COST];
const CAPACITY_AND_RATE: &[Argument] = &[KEY, CAPACITY, RATE, PERIOD, COST];

const ALGORITHMS: &[Argument] = &[
    Argument::new(
        c"fixed-window",
        Kind::Block(&[Argument::token(c"fixed", c"FIXED"), LIMIT, WINDOW, ALIGNED]),
        None,
    ),
    Argument::new(
        c"sliding-window",
        Kind::Block(&[Argument::token(c"sliding", c"SLIDING"), LIMIT, WINDOW]),
        None,
    ),
    Argument::new(
        c"sliding-log",
        Kind::Block(&[Argument::token(c"slidinglog", c"SLIDINGLOG"), LIMIT, WINDOW]),
        None,
    ),
    Argument::new(
        c"token-bucket",
        Kind::Block(&[Argument::token(c"tokenbucket", c"TOKENBUCKET"), CAPACITY, RATE, PERIOD]),
        None,
    ),
    Argument::new(
        c"leaky-bucket",
        Kind::Block(&[Argument::token(c"leakybucket", c"LEAKYBUCKET"), CAPACITY, RATE, PERIOD]),
        None,
    ),
    Argument::new(
        c"generic-cell-rate",
        Kind::Block(&[Argument::token(c"gcra", c"GCRA"), BURST, RATE, PERIOD]),
        None,
    ),
];

const CLOCK_ACTIONS: &[Argument] = &[
    Argument::new(
        c"freeze-clock",
        Kind::Block(&[
            Argument::token(c"freeze", c"FREEZE"),
            Argument::new(c"unix-us", Kind::Integer, Some(c"Unix time in us, 0 to the year 2200"))
                .optional(),
        ]),
        None,
    ),
    Argument::new(
        c"advance-clock",
        Kind::Block(&[
            Argument::token(c"advance", c"ADVANCE"),
            Argument::new(c"duration", Kind::Text, Some(c"a duration, with - in front to go back")),
        ]),
        None,
    ),
    Argument::token(c"resume", c"RESUME"),
];

const CONSTANT: &CStr = c"O(1)";
const SINCE: &CStr = c"0.1.0";

/// A deciding command of constant cost with a limit and a window.
const fn deciding(name: &'static CStr, summary: &'static CStr, algorithm: Algorithm) -> Command {
    Command {
        name,
        summary,
        complexity: CONSTANT,
        since: SINCE,
        arity: -4,
        flags: c"write fast deny-oom",
        categories: c"write fast",
        categories_and_own: c"write fast rl",
        access: Access::Update,
        tips: None,
        arguments: LIMIT_PER_WINDOW,
        action: Action::Decide(algorithm),
    }
}

/// A reading command of constant cost.
const fn reading(name: &'static CStr, summary: &'static CStr, action: Action) -> Command {
    Command {
        name,
        summary,
        complexity: CONSTANT,
        since: SINCE,
        arity: 2,
        flags: c"readonly fast",
        categories: c"read fast",
        categories_and_own: c"read fast rl",
        access: Access::Read,
        tips: None,
        arguments: &[KEY],
        action,
    }
}

/// The name of the module's own ACL category.
pub const ACL_CATEGORY: &CStr = c"rl";

/// All commands. The counters of `INFO` go by their place in this table.
pub static COMMANDS: [Command; 9] = [
    Command {
        arguments: &[KEY, LIMIT, WINDOW, COST, ALIGNED],
        ..deciding(
            c"rl.fixed",
            c"Decides whether a call may happen now, by a fixed window.",
            Algorithm::FixedWindow,
        )
    },
    deciding(
        c"rl.sliding",
        c"Decides whether a call may happen now, by a sliding-window counter.",
        Algorithm::SlidingWindow,
    ),
    Command {
        complexity: c"O(log N) with N entries in the log, amortised",
        flags: c"write deny-oom",
        categories: c"write slow",
        categories_and_own: c"write slow rl",
        ..deciding(
            c"rl.slidinglog",
            c"Decides whether a call may happen now, by an exact sliding window.",
            Algorithm::SlidingLog,
        )
    },
    Command {
        arity: -5,
        arguments: CAPACITY_AND_RATE,
        ..deciding(
            c"rl.tokenbucket",
            c"Decides whether a call may happen now, by a token bucket.",
            Algorithm::TokenBucket,
        )
    },
    Command {
        arity: -5,
        arguments: CAPACITY_AND_RATE,
        ..deciding(
            c"rl.leakybucket",
            c"Decides whether a call may join a queue, and tells how long to wait for its turn.",
            Algorithm::LeakyBucket,
        )
    },
    Command {
        arity: -5,
        arguments: &[KEY, BURST, RATE, PERIOD, COST],
        ..deciding(
            c"rl.gcra",
            c"Decides whether a call may happen now, by the generic cell rate algorithm.",
            Algorithm::Gcra,
        )
    },
    Command {
        complexity: c"O(1), for SLIDINGLOG O(log N) with N entries in the log",
        arity: -5,
        tips: Some(c"nondeterministic_output"),
        arguments: &[KEY, Argument::new(c"algorithm", Kind::OneOf(ALGORITHMS), None), COST],
        ..reading(
            c"rl.peek",
            c"Tells what an algorithm would decide now, changing nothing.",
            Action::Peek,
        )
    },
    reading(
        c"rl.inspect",
        c"Shows the state behind a key as field and value pairs, for people.",
        Action::Inspect,
    ),
    Command {
        name: c"rl.debug",
        summary: c"Stops and moves the module's clock, for tests.",
        complexity: CONSTANT,
        since: SINCE,
        arity: -3,
        flags: c"admin",
        categories: c"admin slow dangerous",
        categories_and_own: c"admin slow dangerous rl",
        access: Access::None,
        tips: Some(c"nondeterministic_output"),
        arguments: &[Argument {
            token: Some(c"CLOCK"),
            ..Argument::new(c"clock-action", Kind::OneOf(CLOCK_ACTIONS), None)
        }],
        action: Action::Debug,
    },
];
