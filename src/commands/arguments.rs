//! The arguments of the commands, as the server describes them to clients.

use crate::api::command::{Argument, KeyRange, Kind};
use std::ffi::CStr;

pub const KEY: Argument =
    Argument::new(c"key", Kind::Key, Some(c"the user, IP or tenant to limit, one key per rule"));
pub const LIMIT: Argument =
    Argument::new(c"limit", Kind::Integer, Some(c"units per window, 1 to 10^12"));
pub const BURST: Argument =
    Argument::new(c"burst", Kind::Integer, Some(c"units allowed at once, 1 to 10^12"));
pub const CAPACITY: Argument =
    Argument::new(c"capacity", Kind::Integer, Some(c"units the bucket holds, 1 to 10^12"));
pub const RATE: Argument =
    Argument::new(c"rate", Kind::Integer, Some(c"units per period in the long run"));
pub const DURATION: Option<&CStr> =
    Some(c"a duration from 1ms to 366d, seconds without a unit: 60, 0.5, 500ms, 1h");
pub const WINDOW: Argument = Argument::new(c"window", Kind::Text, DURATION);
pub const PERIOD: Argument = Argument::new(c"period", Kind::Text, DURATION);
pub const COST: Argument = Argument {
    name: c"cost",
    kind: Kind::Integer,
    token: Some(c"COST"),
    summary: Some(c"units this call takes, 0 to 10^12, 1 if not given"),
    optional: true,
    multiple: false,
};
pub const PARTIAL: Argument = Argument::token(c"partial", c"PARTIAL").optional();
pub const LEAVE: Argument = Argument {
    token: Some(c"LEAVE"),
    ..Argument::new(
        c"leave",
        Kind::Text,
        Some(c"units that must remain, 0 to 10^12, or a percentage of the limit such as 20%"),
    )
    .optional()
};
pub const ALIGNED: Argument = Argument::token(c"aligned", c"ALIGNED").optional();
pub const SLOTS: Argument = Argument {
    token: Some(c"SLOTS"),
    ..Argument::new(
        c"slots",
        Kind::Integer,
        Some(c"16 to 65536, rl.sliding-log-slots if not given"),
    )
    .optional()
};

pub const ATTEMPTS: Argument =
    Argument::new(c"attempts", Kind::Integer, Some(c"attempts without a delay, 1 to 10^6"));
pub const BASE: Argument = Argument::new(c"base", Kind::Text, Some(c"the first delay, a duration"));
pub const MAX: Argument = Argument::new(c"max", Kind::Text, Some(c"the longest delay, a duration"));
pub const FORGET: Argument = Argument::new(
    c"forget",
    Kind::Text,
    Some(c"time without an allowed attempt that clears the key, a duration"),
);

pub const LIMIT_PER_PERIOD: Argument =
    Argument::new(c"limit", Kind::Integer, Some(c"units per calendar period, 1 to 10^12"));
pub const UNIT: Argument = Argument::new(
    c"unit",
    Kind::OneOf(&[
        Argument::token(c"day", c"DAY"),
        Argument::token(c"week", c"WEEK"),
        Argument::token(c"month", c"MONTH"),
        Argument::token(c"quarter", c"QUARTER"),
        Argument::token(c"year", c"YEAR"),
    ]),
    None,
);
pub const ZONE: Argument = Argument {
    token: Some(c"ZONE"),
    ..Argument::new(c"zone", Kind::Text, Some(c"an IANA time zone, UTC if not given")).optional()
};
pub const START: Argument = Argument {
    token: Some(c"START"),
    ..Argument::new(
        c"start",
        Kind::Text,
        Some(c"first weekday mon..sun, day of the month 1 to 31, or month of the year 1 to 12"),
    )
    .optional()
};

/// Lists the given arguments, then the options of every call that counts units, then the given
/// further options.
macro_rules! with_call_options {
    ($($argument:expr),*; $($option:expr),*) => {
        &[$($argument,)* COST, PARTIAL, LEAVE, $($option),*]
    };
}
pub(crate) use with_call_options;

pub const LIMIT_PER_WINDOW: &[Argument] = with_call_options![KEY, LIMIT, WINDOW;];
pub const CAPACITY_AND_RATE: &[Argument] = with_call_options![KEY, CAPACITY, RATE, PERIOD;];

pub const FIXED_WINDOW: Argument = Argument::new(
    c"fixed-window",
    Kind::Block(&[Argument::token(c"fixed", c"FIXED"), LIMIT, WINDOW, ALIGNED]),
    None,
);
pub const CALENDAR_QUOTA: Argument = Argument::new(
    c"calendar-quota",
    Kind::Block(&[Argument::token(c"quota", c"QUOTA"), LIMIT_PER_PERIOD, UNIT, ZONE, START]),
    None,
);

pub const ALGORITHMS: &[Argument] = &[
    FIXED_WINDOW,
    Argument::new(
        c"sliding-window",
        Kind::Block(&[Argument::token(c"sliding", c"SLIDING"), LIMIT, WINDOW]),
        None,
    ),
    Argument::new(
        c"sliding-log",
        Kind::Block(&[Argument::token(c"slidinglog", c"SLIDINGLOG"), LIMIT, WINDOW, SLOTS]),
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
    Argument::new(
        c"growing-delay",
        Kind::Block(&[Argument::token(c"backoff", c"BACKOFF"), ATTEMPTS, BASE, MAX, FORGET]),
        None,
    ),
    CALENDAR_QUOTA,
];

pub const ID: Argument = Argument::new(c"id", Kind::Text, Some(c"the holder, 1 to 128 bytes"));
pub const HOLDERS: Argument =
    Argument::new(c"limit", Kind::Integer, Some(c"holders at once, 1 to 10^6"));
pub const TTL: Argument = Argument::new(c"ttl", Kind::Text, DURATION);

const HOLDING: Argument = Argument::new(
    c"holders",
    Kind::Block(&[Argument::token(c"lease", c"LEASE"), ID, HOLDERS, TTL]),
    None,
);

pub const USED_POLICY: Argument = Argument::new(
    c"policy",
    Kind::Text,
    Some(c"name of 1 to 64 characters of A-Z a-z 0-9 . _ : / -"),
);
pub const VARIANTS: Argument = Argument::new(
    c"variants",
    Kind::Block(&[
        Argument {
            token: Some(c"FOR"),
            ..Argument::new(
                c"variant",
                Kind::Text,
                Some(c"most specific variant, used if the policy has it"),
            )
        },
        Argument {
            token: Some(c"FOR"),
            ..Argument::new(c"variant", Kind::Text, Some(c"less specific variant, used otherwise"))
                .optional()
        },
    ]),
    None,
)
.optional();
pub const DEFAULT_RULE: Argument = Argument::new(
    c"default-rule",
    Kind::Block(&[Argument::token(c"default", c"DEFAULT"), RULE_OF_POLICY]),
    Some(c"the rule to use if the policy does not exist, given last"),
)
.optional();
pub const RULE_OF_POLICY: Argument = Argument::new(c"algorithm", Kind::OneOf(ALGORITHMS), None);

const USE: Argument = Argument::new(
    c"use-of-policy",
    Kind::Block(&[Argument::token(c"use", c"USE"), USED_POLICY, VARIANTS, DEFAULT_RULE]),
    None,
);

/// Lists the algorithms, then rules that are not algorithms.
const fn rules_with<const N: usize>(others: &[Argument]) -> [Argument; N] {
    let mut rules = [USE; N];
    let (algorithms, rest) = rules.split_at_mut(ALGORITHMS.len());
    algorithms.copy_from_slice(ALGORITHMS);
    rest.copy_from_slice(others);
    rules
}

pub const ANY_RULE: Argument = Argument::new(
    c"rule",
    Kind::OneOf(&rules_with::<{ ALGORITHMS.len() + 3 }>(&[HOLDING, RESERVING, USE])),
    None,
);

pub const RULE: Argument =
    Argument::new(c"rule", Kind::OneOf(&rules_with::<{ ALGORITHMS.len() + 1 }>(&[USE])), None);

pub const BANNED_FOR: Argument = Argument::new(c"duration", Kind::Text, DURATION);

pub const RESERVATION_ID: Argument =
    Argument::new(c"id", Kind::Text, Some(c"id of the reservation, 1 to 64 bytes"));
pub const HELD_FOR: Argument = Argument::new(
    c"ttl",
    Kind::Text,
    Some(c"time that the units are held and the id is stored, a duration"),
);
pub const RESERVABLE: Argument =
    Argument::new(c"rule", Kind::OneOf(&[FIXED_WINDOW, CALENDAR_QUOTA, USE]), None);

const RESERVING: Argument = Argument::new(
    c"reservation",
    Kind::Block(&[Argument::token(c"reserve", c"RESERVE"), RESERVATION_ID, HELD_FOR, RESERVABLE]),
    None,
);

pub const POLICY: Argument = Argument::new(
    c"policy",
    Kind::Text,
    Some(c"name or name@variant, each 1 to 64 characters of A-Z a-z 0-9 . _ : / -"),
);
pub const MODE: Argument = Argument::new(
    c"mode",
    Kind::OneOf(&[
        Argument::token(c"shadow", c"SHADOW"),
        Argument::token(c"off", c"OFF"),
        Argument::token(c"block", c"BLOCK"),
        Argument {
            token: Some(c"ENFORCE"),
            ..Argument::new(
                c"percent",
                Kind::Integer,
                Some(c"percentage of keys to enforce, 0 to 100"),
            )
        },
    ]),
    None,
)
.optional();
pub const EX: Argument = Argument {
    token: Some(c"EX"),
    ..Argument::new(
        c"lasts",
        Kind::Text,
        Some(c"a duration, after which the previous policy applies again"),
    )
    .optional()
};
pub const NEW_RULE: Argument = Argument {
    summary: Some(c"may be left out after a mode: the policy's rule stays"),
    ..RULE_OF_POLICY.optional()
};
pub const PATTERN: Argument =
    Argument::new(c"pattern", Kind::Text, Some(c"glob-style pattern of names, as in KEYS"))
        .optional();
pub const MAX_BURST: Argument =
    Argument::new(c"max_burst", Kind::Integer, Some(c"units allowed at once, minus one"));
pub const COUNT_PER_PERIOD: Argument =
    Argument::new(c"count_per_period", Kind::Integer, Some(c"units per period in the long run"));
pub const PERIOD_IN_SECONDS: Argument =
    Argument::new(c"period", Kind::Integer, Some(c"whole seconds, 1 to 366 days"));
pub const QUANTITY: Argument =
    Argument::new(c"quantity", Kind::Integer, Some(c"units this call takes, 1 if not given"))
        .optional();

pub const MAX_BURST_OF_GCRA: Argument = Argument { name: c"max-burst", ..MAX_BURST };
pub const TOKENS_PER_PERIOD: Argument =
    Argument::new(c"tokens-per-period", Kind::Integer, Some(c"units per period in the long run"));
pub const ANY_PERIOD: Argument =
    Argument::new(c"period", Kind::Text, Some(c"seconds, a decimal number above 0, below 10^12"));
pub const TOKENS: Argument = Argument {
    token: Some(c"TOKENS"),
    ..Argument::new(c"count", Kind::Integer, Some(c"units this call takes, 1 if not given"))
        .optional()
};

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

pub const CLOCK_ACTION: Argument = Argument {
    token: Some(c"CLOCK"),
    ..Argument::new(c"clock-action", Kind::OneOf(CLOCK_ACTIONS), None)
};

pub const TOP_ACTION: Argument = Argument::new(
    c"action",
    Kind::OneOf(&[
        Argument::new(
            c"show",
            Kind::Block(&[
                Argument::new(c"count", Kind::Integer, Some(c"rows, 1 to 128, 10 if not given"))
                    .optional(),
                Argument::token(c"calls", c"CALLS").optional(),
            ]),
            None,
        ),
        Argument::token(c"reset", c"RESET"),
    ]),
    None,
)
.optional();

/// Alternating keys and rules.
pub const PAIRS: KeyRange = KeyRange { last: -1, step: 2 };

pub const KEYS_AND_RULES: &[Argument] = &[Argument::new(
    c"key-and-rule",
    Kind::Block(&[
        KEY,
        Argument::new(
            c"rule",
            Kind::Text,
            Some(c"a rule and its arguments in one argument: \"GCRA 6 10 60\", \"USE search\""),
        ),
    ]),
    None,
)
.multiple()];
