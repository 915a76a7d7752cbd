//! The path of `CL.THROTTLE`, the command of redis-cell: its arguments, answers and keys, and what
//! every other command of ours promises.

use super::api::Call;
use super::error::CommandError;
use super::fault::{self, Point};
use super::keyspace::{self, Write};
use super::subject::{args_after_key, only_key};
use super::{info, reply};
use crate::grammar;
use crate::limiter::redis_cell::Verdict;

/// Decides a call and stores what follows from it.
// Out of line, so that the other commands do not pay for it.
#[inline(never)]
pub fn throttle(index: usize, call: &mut Call<'_>) -> Result<(), CommandError> {
    let request = grammar::throttle(args_after_key(call))?;
    let key = only_key(call)?.open_for_writing();
    let outcome = keyspace::throttle(&key, &request)?;
    let decision = outcome.decision;
    let integers = reply::redis_cell(&decision);
    fault::point(Point::Reply);
    if let Some(next) = &outcome.next {
        fault::point(Point::Store);
        keyspace::commit(key, &Write::of_redis_cell(next))?.announce(call)?;
    }
    info::count_decision(index, decision.verdict == Verdict::Allowed);
    call.context().reply_integers(&integers);
    Ok(())
}
