//! The arguments of the commands, as the server describes them to clients.

use crate::api::command::{Argument, KeyRange, Kind};
use std::ffi::CStr;

pub const KEY: Argument =
    Argument::new(c"key", Kind::Key, Some(c"the user, IP or tenant to limit, one key per rule"));
pub const LIMIT: Argument = Argument::integer(c"limit", c"units per window, 1 to 10^12");
pub const BURST: Argument = Argument::integer(c"burst", c"units allowed at once, 1 to 10^12");
pub const CAPACITY: Argument =
    Argument::integer(c"capacity", c"units the bucket holds, 1 to 10^12");
pub const RATE: Argument = Argument::integer(c"rate", c"units per period in the long run");
const DURATION: &CStr = c"a duration from 1ms to 366d, seconds without a unit: 60, 0.5, 500ms, 1h";
pub const WINDOW: Argument = Argument::text(c"window", DURATION);
pub const PERIOD: Argument = Argument::text(c"period", DURATION);
pub const COST: Argument =
    Argument::integer(c"cost", c"units this call takes, 0 to 10^12, 1 if not given")
        .after(c"COST")
        .optional();
pub const PARTIAL: Argument = Argument::token(c"partial", c"PARTIAL").optional();
pub const LEAVE: Argument = Argument::text(
    c"leave",
    c"units that must remain, 0 to 10^12, or a percentage of the limit such as 20%",
)
.after(c"LEAVE")
.optional();
pub const ALIGNED: Argument = Argument::token(c"aligned", c"ALIGNED").optional();
pub const SLOTS: Argument =
    Argument::integer(c"slots", c"16 to 65536, rl.sliding-log-slots if not given")
        .after(c"SLOTS")
        .optional();

pub const ATTEMPTS: Argument =
    Argument::integer(c"attempts", c"attempts without a delay, 1 to 10^6");
pub const BASE: Argument = Argument::text(c"base", c"the first delay, a duration");
pub const MAX: Argument = Argument::text(c"max", c"the longest delay, a duration");
pub const FORGET: Argument =
    Argument::text(c"forget", c"time without an allowed attempt that clears the key, a duration");

pub const LIMIT_PER_PERIOD: Argument =
    Argument::integer(c"limit", c"units per calendar period, 1 to 10^12");
pub const UNIT: Argument = Argument::one_of(
    c"unit",
    &[
        Argument::token(c"day", c"DAY"),
        Argument::token(c"week", c"WEEK"),
        Argument::token(c"month", c"MONTH"),
        Argument::token(c"quarter", c"QUARTER"),
        Argument::token(c"year", c"YEAR"),
    ],
);
pub const ZONE: Argument =
    Argument::text(c"zone", c"an IANA time zone, UTC if not given").after(c"ZONE").optional();
pub const START: Argument = Argument::text(
    c"start",
    c"first weekday mon..sun, day of the month 1 to 31, or month of the year 1 to 12",
)
.after(c"START")
.optional();

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

pub const FIXED_WINDOW: Argument = Argument::block(
    c"fixed-window",
    &[Argument::token(c"fixed", c"FIXED"), LIMIT, WINDOW, ALIGNED],
);
pub const CALENDAR_QUOTA: Argument = Argument::block(
    c"calendar-quota",
    &[Argument::token(c"quota", c"QUOTA"), LIMIT_PER_PERIOD, UNIT, ZONE, START],
);

pub const ALGORITHMS: &[Argument] = &[
    FIXED_WINDOW,
    Argument::block(c"sliding-window", &[Argument::token(c"sliding", c"SLIDING"), LIMIT, WINDOW]),
    Argument::block(
        c"sliding-log",
        &[Argument::token(c"slidinglog", c"SLIDINGLOG"), LIMIT, WINDOW, SLOTS],
    ),
    Argument::block(
        c"token-bucket",
        &[Argument::token(c"tokenbucket", c"TOKENBUCKET"), CAPACITY, RATE, PERIOD],
    ),
    Argument::block(
        c"leaky-bucket",
        &[Argument::token(c"leakybucket", c"LEAKYBUCKET"), CAPACITY, RATE, PERIOD],
    ),
    Argument::block(
        c"generic-cell-rate",
        &[Argument::token(c"gcra", c"GCRA"), BURST, RATE, PERIOD],
    ),
    Argument::block(
        c"growing-delay",
        &[Argument::token(c"backoff", c"BACKOFF"), ATTEMPTS, BASE, MAX, FORGET],
    ),
    CALENDAR_QUOTA,
];

pub const ID: Argument = Argument::text(c"id", c"the holder, 1 to 128 bytes");
pub const HOLDERS: Argument = Argument::integer(c"limit", c"holders at once, 1 to 10^6");
pub const TTL: Argument = Argument::text(c"ttl", DURATION);

const HOLDING: Argument =
    Argument::block(c"holders", &[Argument::token(c"lease", c"LEASE"), ID, HOLDERS, TTL]);

pub const USED_POLICY: Argument =
    Argument::text(c"policy", c"name of 1 to 64 characters of A-Z a-z 0-9 . _ : / -");
pub const VARIANTS: Argument = Argument::block(
    c"variants",
    &[
        Argument::text(c"variant", c"most specific variant, used if the policy has it")
            .after(c"FOR"),
        Argument::text(c"variant", c"less specific variant, used otherwise")
            .after(c"FOR")
            .optional(),
    ],
)
.optional();
pub const DEFAULT_RULE: Argument = Argument::new(
    c"default-rule",
    Kind::Block(&[Argument::token(c"default", c"DEFAULT"), RULE_OF_POLICY]),
    Some(c"the rule to use if the policy does not exist, given last"),
)
.optional();
pub const RULE_OF_POLICY: Argument = Argument::one_of(c"algorithm", ALGORITHMS);

const USE: Argument = Argument::block(
    c"use-of-policy",
    &[Argument::token(c"use", c"USE"), USED_POLICY, VARIANTS, DEFAULT_RULE],
);

/// Lists the algorithms, then rules that are not algorithms.
const fn rules_with<const N: usize>(others: &[Argument]) -> [Argument; N] {
    let mut rules = [USE; N];
    let (algorithms, rest) = rules.split_at_mut(ALGORITHMS.len());
    algorithms.copy_from_slice(ALGORITHMS);
    rest.copy_from_slice(others);
    rules
}

pub const ANY_RULE: Argument =
    Argument::one_of(c"rule", &rules_with::<{ ALGORITHMS.len() + 3 }>(&[HOLDING, RESERVING, USE]));

pub const RULE: Argument =
    Argument::one_of(c"rule", &rules_with::<{ ALGORITHMS.len() + 1 }>(&[USE]));

pub const BANNED_FOR: Argument = Argument::text(c"duration", DURATION);

pub const RESERVATION_ID: Argument = Argument::text(c"id", c"id of the reservation, 1 to 64 bytes");
pub const HELD_FOR: Argument =
    Argument::text(c"ttl", c"time that the units are held and the id is stored, a duration");
pub const RESERVABLE: Argument = Argument::one_of(c"rule", &[FIXED_WINDOW, CALENDAR_QUOTA, USE]);

const RESERVING: Argument = Argument::block(
    c"reservation",
    &[Argument::token(c"reserve", c"RESERVE"), RESERVATION_ID, HELD_FOR, RESERVABLE],
);

pub const POLICY: Argument = Argument::text(
    c"policy",
    c"name or name@variant, each 1 to 64 characters of A-Z a-z 0-9 . _ : / -",
);
pub const MODE: Argument = Argument::one_of(
    c"mode",
    &[
        Argument::token(c"shadow", c"SHADOW"),
        Argument::token(c"off", c"OFF"),
        Argument::token(c"block", c"BLOCK"),
        Argument::integer(c"percent", c"percentage of keys to enforce, 0 to 100").after(c"ENFORCE"),
    ],
)
.optional();
pub const EX: Argument =
    Argument::text(c"lasts", c"a duration, after which the previous policy applies again")
        .after(c"EX")
        .optional();
pub const NEW_RULE: Argument = Argument {
    summary: Some(c"may be left out after a mode: the policy's rule stays"),
    ..RULE_OF_POLICY.optional()
};
pub const PATTERN: Argument =
    Argument::text(c"pattern", c"glob-style pattern of names, as in KEYS").optional();
pub const MAX_BURST: Argument =
    Argument::integer(c"max_burst", c"units allowed at once, minus one");
pub const COUNT_PER_PERIOD: Argument =
    Argument::integer(c"count_per_period", c"units per period in the long run");
pub const PERIOD_IN_SECONDS: Argument =
    Argument::integer(c"period", c"whole seconds, 1 to 366 days");
pub const QUANTITY: Argument =
    Argument::integer(c"quantity", c"units this call takes, 1 if not given").optional();

pub const MAX_BURST_OF_GCRA: Argument = Argument { name: c"max-burst", ..MAX_BURST };
pub const TOKENS_PER_PERIOD: Argument =
    Argument::integer(c"tokens-per-period", c"units per period in the long run");
pub const ANY_PERIOD: Argument =
    Argument::text(c"period", c"seconds, a decimal number above 0, below 10^12");
pub const TOKENS: Argument = Argument::integer(c"count", c"units this call takes, 1 if not given")
    .after(c"TOKENS")
    .optional();

const CLOCK_ACTIONS: &[Argument] = &[
    Argument::block(
        c"freeze-clock",
        &[
            Argument::token(c"freeze", c"FREEZE"),
            Argument::integer(c"unix-us", c"Unix time in us, 0 to the year 2200").optional(),
        ],
    ),
    Argument::block(
        c"advance-clock",
        &[
            Argument::token(c"advance", c"ADVANCE"),
            Argument::text(c"duration", c"a duration, with - in front to go back"),
        ],
    ),
    Argument::token(c"resume", c"RESUME"),
];

pub const CLOCK_ACTION: Argument = Argument::one_of(c"clock-action", CLOCK_ACTIONS).after(c"CLOCK");

pub const TOP_ACTION: Argument = Argument::one_of(
    c"action",
    &[
        Argument::block(
            c"show",
            &[
                Argument::integer(c"count", c"rows, 1 to 128, 10 if not given").optional(),
                Argument::token(c"calls", c"CALLS").optional(),
            ],
        ),
        Argument::token(c"reset", c"RESET"),
    ],
)
.optional();

/// Alternating keys and rules.
pub const PAIRS: KeyRange = KeyRange { last: -1, step: 2 };

pub const KEYS_AND_RULES: &[Argument] = &[Argument::block(
    c"key-and-rule",
    &[
        KEY,
        Argument::text(
            c"rule",
            c"a rule and its arguments in one argument: \"GCRA 6 10 60\", \"USE search\"",
        ),
    ],
)
.multiple()];
