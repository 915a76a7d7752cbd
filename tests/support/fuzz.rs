//! Makes thousands of calls, and checks the properties that every reply must have.
//!
//! Between calls the clock must not move back. Then no state needs a repair, and every denial must
//! leave its key unchanged.

use std::env;

use redis::Value;
use redis_throttle_engine::algorithms::Algorithm;
use redis_throttle_engine::grammar::error::GrammarError;

use super::uses::{set, seven};
use super::{Client, Reply, integers, listing, raw_error};

/// The words of one call.
pub type Call = Vec<Vec<u8>>;

/// The number of calls that are sent before their replies are read.
const BATCH: usize = 200;

/// All error texts of the module, except those that list algorithms, arguments or options.
const KNOWN_ERRORS: [&str; 72] = [
    "ERR invalid limit: expected an integer from 1 to 1000000000000",
    "ERR invalid burst: expected an integer from 1 to 1000000000000",
    "ERR invalid capacity: expected an integer from 1 to 1000000000000",
    "ERR invalid rate: expected an integer from 1 to 1000000000000",
    "ERR invalid cost: expected an integer from 0 to 1000000000000",
    "ERR invalid window: expected a duration from 1ms to 366d, such as 60, 0.5, 500ms or 1h",
    "ERR invalid period: expected a duration from 1ms to 366d, such as 60, 0.5, 500ms or 1h",
    RATE_BOUND,
    CAPACITY_BOUND,
    BURST_BOUND,
    "ERR invalid option: BACKOFF takes no options",
    "ERR invalid option: PARTIAL is for RL.PEEK and commands that decide by one rule",
    "ERR repeated option: PARTIAL may be given once",
    "ERR repeated option: LEAVE may be given once",
    "ERR missing leave: expected LEAVE followed by units or a percentage, such as 20%",
    "ERR invalid leave: expected an integer from 0 to 1000000000000, or 0% to 100%",
    "ERR invalid option: LEAVE is for commands that decide a call",
    "ERR invalid cost: with PARTIAL, expected an integer from 1 to 1000000000000",
    "ERR invalid cost: the total of used units must not exceed 2000000000000",
    "ERR invalid cost: the time until the key is reset must not exceed 36525d",
    "ERR invalid attempts: expected an integer from 1 to 1000000",
    "ERR invalid base: expected a duration from 1ms to 366d, such as 60, 0.5, 500ms or 1h",
    "ERR invalid max: expected a duration from 1ms to 366d, such as 60, 0.5, 500ms or 1h",
    "ERR invalid forget: expected a duration from 1ms to 366d, such as 60, 0.5, 500ms or 1h",
    BASE_BOUND,
    FORGET_BOUND,
    "ERR invalid unit: expected day, week, month, quarter or year",
    "ERR invalid zone: expected a name of the IANA time zone database, such as UTC or \
     Europe/Berlin",
    "ERR invalid start: expected mon, tue, wed, thu, fri, sat or sun for a week",
    "ERR invalid start: expected an integer from 1 to 31 for a month",
    "ERR invalid start: expected an integer from 1 to 12 for a year",
    "ERR invalid start: only week, month and year take START",
    "ERR repeated option: ZONE may be given once",
    "ERR repeated option: START may be given once",
    "ERR missing zone: expected ZONE followed by a name of the IANA time zone database, such as \
     UTC or Europe/Berlin",
    "ERR missing start: expected START followed by a weekday, a day of the month or a month",
    "ERR repeated option: COST may be given once",
    "ERR repeated option: ALIGNED may be given once",
    "ERR missing cost: expected COST followed by an integer from 0 to 1000000000000",
    "ERR invalid algorithm: LEASE has no cost to charge or refund",
    "ERR invalid id: expected 1 to 128 bytes",
    "ERR invalid limit: expected an integer from 1 to 1000000",
    "ERR invalid duration: expected a duration from 1ms to 366d, such as 60, 0.5, 500ms or 1h",
    "ERR invalid ttl: expected a duration from 1ms to 366d, such as 60, 0.5, 500ms or 1h",
    "ERR invalid option: expected LEAVE n, a holder has one permit",
    "ERR wrong number of arguments: expected LEASE id limit ttl",
    "ERR invalid subcommand: expected CLOCK",
    "ERR invalid clock action: expected FREEZE [unix-us], ADVANCE duration or RESUME",
    "ERR invalid unix-us: expected an integer from 0 to 7258118400000000",
    "ERR invalid duration: expected a duration from 1ms to 366d, such as 60, 0.5, 500ms or \
     1h, with a leading - to move back",
    "ERR invalid duration: the clock must stay between the years 1970 and 2200",
    "ERR too many rules: expected 1 to 16 pairs of a key and a rule",
    "ERR repeated key: each key may be given once",
    "ERR invalid id: expected 1 to 64 bytes",
    "ERR invalid id: already committed, use a new id for each job",
    "ERR invalid algorithm: expected FIXED or QUOTA, which allow reservations, or USE",
    "ERR invalid algorithm: RESERVE is not allowed here",
    "ERR invalid policy: expected a rule of FIXED or QUOTA, which allow reservations",
    "ERR too many reservations: a key remembers at most 1024 ids at a time",
    "NOPOLICY no such policy",
    "ERR invalid policy: expected 1 to 64 characters of A-Z a-z 0-9 . _ : / -",
    "ERR invalid variant: expected 1 to 64 characters of A-Z a-z 0-9 . _ : / -",
    "ERR missing variant: expected FOR followed by a variant of the policy",
    "ERR repeated option: FOR may be given at most twice",
    "ERR missing rule: expected DEFAULT followed by an algorithm and its limits",
    "ERR wrong number of arguments: expected USE policy",
    "ERR invalid option: a policy's rule takes only ALIGNED after FIXED, SLOTS after SLIDINGLOG, \
     ZONE and START after QUOTA",
    "ERR invalid slots: expected an integer from 16 to 65536",
    "ERR repeated option: SLOTS may be given once",
    "ERR missing slots: expected SLOTS followed by an integer from 16 to 65536",
    super::WRONGTYPE,
    "WRONGTYPE the key does not hold a rate limiter's state",
];

const RATE_BOUND: &str = "ERR invalid rate: rate / period must not exceed 1000000000 per second";
const CAPACITY_BOUND: &str = "ERR invalid capacity: capacity x period / rate, the time to \
     refill from empty, must not exceed 36525d";
const BURST_BOUND: &str = "ERR invalid burst: burst x period / rate, the time to refill from \
     empty, must not exceed 36525d";

const BASE_BOUND: &str = "ERR invalid base: must not exceed max";
const FORGET_BOUND: &str = "ERR invalid max: must be less than forget";

/// The errors for values that are each in range but invalid together.
pub const CROSS_BOUNDS: [&str; 5] =
    [RATE_BOUND, CAPACITY_BOUND, BURST_BOUND, BASE_BOUND, FORGET_BOUND];

/// Sets the policies for the calls of a fuzzer. None is OFF, because OFF allows calls without
/// storing them.
pub fn set_policies(client: &mut Client) {
    let definitions = ["p GCRA 7 9 60", "p@gold GCRA 16 9 60", "queue SHADOW LEAKYBUCKET 7 2 1"];
    definitions.iter().for_each(|definition| set(client, definition));
    set(client, "shut BLOCK FIXED 7 60");
    set(client, "slow BACKOFF 3 1s 8s 1h");
}

/// The number of calls with each outcome. A fuzzer that only causes errors tests little.
#[derive(Debug, Default, Clone, Copy)]
pub struct Outcomes {
    pub calls: u64,
    pub allowed: u64,
    pub denied: u64,
    pub errors: u64,
}

/// Returns the seed of this run (`FUZZ_SEED` or `usual`), and prints it so that the run can be
/// repeated.
pub fn seed(test: &str, usual: u64) -> u64 {
    let seed = number("FUZZ_SEED", usual);
    eprintln!("{test}: FUZZ_SEED={seed}");
    seed
}

/// Returns the number of calls to make: `FUZZ_CALLS` or `usual`.
pub fn calls(usual: u64) -> u64 {
    number("FUZZ_CALLS", usual)
}

fn number(variable: &str, usual: u64) -> u64 {
    env::var(variable).map_or(usual, |text| {
        text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number"))
    })
}

/// Formats a call for an error message, and truncates long arguments.
pub fn format_call(call: &[Vec<u8>]) -> String {
    let words = call.iter().take(12).map(|word| word[..word.len().min(60)].escape_ascii());
    format!("{:?} ({} words)", words.map(|word| word.to_string()).collect::<Vec<_>>(), call.len())
}

/// Returns true for an error of the module, or the server's error for the number of arguments.
pub fn is_known(error: &str) -> bool {
    let arity = error.starts_with("ERR wrong number of arguments for 'rl.");
    let text = without_rule(error);
    arity || KNOWN_ERRORS.contains(&text.as_str()) || listings().any(|listing| listing == text)
}

/// Returns the error texts that list algorithms, arguments or options.
fn listings() -> impl Iterator<Item = &'static str> {
    use GrammarError::{
        AlgorithmOfPolicy, CostOfBackoff, CostOfPolicy, Option, OptionOfLog, OptionOfQuota,
        OptionOfUse, OptionOrAligned, RuleArity,
    };
    let algorithms = [GrammarError::Algorithm, AlgorithmOfPolicy];
    let of_rules = [Option, OptionOrAligned, OptionOfLog, OptionOfQuota, OptionOfUse];
    let options = of_rules.into_iter().chain([CostOfBackoff, CostOfPolicy]);
    let arguments = Algorithm::ALL.map(RuleArity);
    algorithms.into_iter().chain(options).chain(arguments).map(listing)
}

/// Removes the number of the rule from an error text.
pub fn without_rule(error: &str) -> String {
    let numbered = error.split_once(" rule ").and_then(|(prefix, rest)| {
        let (number, text) = rest.split_once(": ")?;
        (1..=16).contains(&number.parse().unwrap_or(0)).then(|| format!("{prefix} {text}"))
    });
    numbered.unwrap_or_else(|| error.to_owned())
}

/// Returns the five integers of a reply: the first five of a reply to several rules, or, for a
/// policy, those of its enforced rule.
fn decision_of(reply: &Value) -> Option<Reply> {
    if let Some([_, limit, remaining, _, reset_ms, allowed, retry_ms]) = seven(reply) {
        return Some([allowed, limit, remaining, retry_ms, reset_ms]);
    }
    match reply {
        Value::Array(fields) if fields.len() > 6 => integers(&Value::Array(fields[..5].to_vec())),
        reply => integers(reply),
    }
}

/// Makes the calls, reads the key before and after each, and checks every reply. Sends a PEEK with
/// the same arguments before each call that decides, and `and_then` after every call.
pub fn check_all(client: &mut Client, calls: &[Call], and_then: &Call, outcomes: &mut Outcomes) {
    for batch in calls.chunks(BATCH) {
        let mut sent = Vec::with_capacity(batch.len() * 7);
        for call in batch {
            let key = call.get(1).cloned().unwrap_or_default();
            let about = |command: &str| vec![command.as_bytes().to_vec(), key.clone()];
            let look = || [about("DUMP"), about("PEXPIRETIME"), vec![b"DBSIZE".to_vec()]];
            sent.extend(look());
            sent.push(peek_before(call));
            sent.push(call.clone());
            sent.push(and_then.clone());
            sent.extend(look());
        }
        let replies = client.pipeline(&sent);
        for (call, replies) in batch.iter().zip(replies.chunks(9)) {
            let [before @ .., peeked, reply, _] = &replies[..6] else { unreachable!() };
            check(call, before, peeked, reply, &replies[6..], outcomes);
        }
    }
}

/// Returns the PEEK that matches a call that decides, or a harmless PEEK for any other call.
fn peek_before(call: &[Vec<u8>]) -> Call {
    let name = call[0].to_ascii_uppercase();
    let algorithm = name.strip_prefix(b"RL.").unwrap_or_default();
    let is_other = matches!(algorithm, b"PEEK" | b"INSPECT" | b"DEBUG" | b"CHARGE" | b"REFUND")
        || matches!(
            algorithm,
            b"BLOCK" | b"RESERVE" | b"COMMIT" | b"CANCEL" | b"RENEW" | b"RELEASE"
        );
    if is_other || call.len() < 2 {
        return vec![b"PING".to_vec()];
    }
    if algorithm == b"ALL" || algorithm == b"PEEKALL" {
        return [vec![b"RL.PEEKALL".to_vec()], call[1..].to_vec()].concat();
    }
    let head = [b"RL.PEEK".to_vec(), call[1].clone(), algorithm.to_vec()];
    head.into_iter().chain(call[2..].iter().cloned()).collect()
}

fn check(
    call: &[Vec<u8>],
    before: &[Value],
    peeked: &Value,
    reply: &Value,
    after: &[Value],
    outcomes: &mut Outcomes,
) {
    outcomes.calls += 1;
    let unchanged = before == after;
    if let Some(error) = raw_error(reply) {
        outcomes.errors += 1;
        assert!(is_known(&error), "{}: {error}", format_call(call));
        assert!(unchanged, "{}: {error}, and yet the key has changed", format_call(call));
        let arity = error.contains("wrong number");
        let peek_agrees = raw_error(peeked).is_none_or(|peeked| peeked == error);
        assert!(arity || peek_agrees, "{}: {error}, but PEEK: {peeked:?}", format_call(call));
        return;
    }
    match (call[0].to_ascii_uppercase().as_slice(), reply) {
        (b"RL.INSPECT", Value::Nil | Value::Array(_)) | (b"RL.DEBUG", Value::Int(0..)) => {
            assert!(unchanged, "{}", format_call(call));
        }
        (b"RL.BLOCK", Value::Okay) => {
            assert!(matches!(after[1], Value::Int(1..)), "{}: {:?}", format_call(call), after[1]);
        }
        (b"RL.RENEW" | b"RL.RELEASE", Value::Int(live @ 0..=1)) => {
            assert!(unchanged || *live == 1, "{}: there was nothing to change", format_call(call));
        }
        (name, reply) => {
            let decision =
                decision_of(reply).unwrap_or_else(|| panic!("{}: {reply:?}", format_call(call)));
            let may_wait =
                [&b"RL.LEAKYBUCKET"[..], b"RL.PEEK", b"RL.ALL", b"RL.PEEKALL", b"RL.USE"];
            let is_leaky = may_wait.contains(&name);
            if name == b"RL.CHARGE" || name == b"RL.REFUND" {
                check_settled(call, decision);
                assert!(unchanged || !is_free(call), "{}: it was free", format_call(call));
                return;
            }
            if name == b"RL.COMMIT" || name == b"RL.CANCEL" {
                check_settled(call, decision);
                assert!(unchanged || decision[0] == 1, "{}: it was not open", format_call(call));
                return;
            }
            check_decision(call, decision, is_leaky);
            if name == b"RL.RESERVE" {
                assert!(unchanged || decision[0] == 1, "{}: {decision:?}", format_call(call));
                return;
            }
            let allowed = decision[0] > 0;
            outcomes.allowed += u64::from(allowed);
            outcomes.denied += u64::from(!allowed);
            if name == b"RL.PEEK" || name == b"RL.PEEKALL" {
                assert!(unchanged, "{}: PEEK has changed the key", format_call(call));
                return;
            }
            assert_eq!(peeked, reply, "{}: PEEK replied differently", format_call(call));
            let several = name == b"RL.ALL";
            if !allowed || (is_free(call) && !several) {
                assert!(unchanged, "{}: {decision:?}, and the key has changed", format_call(call));
            } else if !is_free(call) {
                let expires = matches!(after[1], Value::Int(1..));
                assert!(expires, "{}: {decision:?}, and then {:?}", format_call(call), after[1]);
            }
        }
    }
}

fn check_decision(call: &[Vec<u8>], decision: Reply, may_wait: bool) {
    let [allowed, limit, remaining, retry_ms, reset_ms] = decision;
    let sane = (1..=1_000_000_000_000).contains(&limit)
        && (0..=limit).contains(&remaining)
        && reset_ms >= 0
        && match allowed {
            1.. => allowed <= limit && (retry_ms == 0 || (may_wait && retry_ms > 0)),
            0 => retry_ms >= 1 || retry_ms == -1,
            _ => false,
        };
    assert!(sane, "{}: {decision:?}", format_call(call));
}

/// Checks the reply to a charge or a refund.
fn check_settled(call: &[Vec<u8>], decision: Reply) {
    let [clear, limit, remaining, retry_ms, reset_ms] = decision;
    let sane = (0..=1).contains(&clear)
        && (0..=limit).contains(&remaining)
        && (retry_ms >= 0 && reset_ms >= retry_ms
            // The reply under a policy that is blocked without an end.
            || [clear, remaining, retry_ms, reset_ms] == [0, 0, -1, 0]);
    assert!(sane, "{}: {decision:?}", format_call(call));
}

/// Returns true if the first rule of an accepted call has cost 0.
fn is_free(call: &[Vec<u8>]) -> bool {
    if call[0].eq_ignore_ascii_case(b"RL.ALL") {
        let words = call[2].split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let rule = words.map(<[u8]>::to_vec).collect::<Vec<_>>();
        return is_free(&[vec![vec![], vec![]], rule].concat());
    }
    let mut pairs = call[2..].windows(2);
    pairs.any(|pair| pair[0].eq_ignore_ascii_case(b"COST") && pair[1].iter().all(|b| *b == b'0'))
}
