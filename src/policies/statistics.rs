//! `RL.POLICY STATS` and `RESETSTAT`: the call counters of policies on this server.

use crate::api::reply::{Context, Value};
use crate::error::CommandError;
use crate::fault::{self, Point};
use crate::policies::table as policies;
use redis_throttle_engine::grammar::error::GrammarError;
use redis_throttle_engine::policy::pattern::Pattern;
use redis_throttle_engine::policy::statistics::Counters;

/// Replies with the counters of all policies, or of those whose names match a pattern.
pub fn show(context: Context<'_>, args: &[&[u8]]) -> Result<(), CommandError> {
    // The counters are copied, because the server must not be called while the table is locked.
    let copy = |(name, counters): (&[u8], &Counters)| {
        (String::from_utf8_lossy(name).into_owned(), counters.clone())
    };
    let rows: Vec<_> = match args {
        [] => policies::table().statistics.all().into_iter().map(copy).collect(),
        [pattern] => {
            let matching = Pattern::new(pattern).ok_or(GrammarError::Pattern)?;
            let table = policies::table();
            match table.statistics.of(pattern) {
                // A name has no special characters, so it matches itself alone.
                Some(counters) => vec![copy((pattern, counters))],
                None => {
                    let all = table.statistics.all().into_iter();
                    all.filter(|(name, _)| matching.matches(name)).map(copy).collect()
                }
            }
        }
        _ => return Err(CommandError::Grammar(GrammarError::Arity)),
    };
    fault::point(Point::Reply);
    context.reply_maps(rows.iter().map(|(name, counters)| (name.as_str(), pairs(counters))));
    Ok(())
}

/// Resets the counters.
pub fn reset(context: Context<'_>) -> Result<(), CommandError> {
    fault::point(Point::Reply);
    policies::table().statistics.reset();
    context.reply_ok();
    Ok(())
}

fn pairs(counters: &Counters) -> [(&'static str, Value); 8] {
    [
        ("allowed", counters.allowed),
        ("denied", counters.denied),
        ("shadow_denied", counters.shadow_denied),
        ("near_limit", counters.near_limit),
        ("created", counters.created),
        ("units", counters.units),
        ("errors", counters.errors),
        ("last_denied_us", counters.last_denied_us),
    ]
    .map(|(name, number)| (name, Value::Integer(number)))
}
