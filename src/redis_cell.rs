//! The path of `CL.THROTTLE`, the command of redis-cell: its arguments, answers and keys, and what
//! every other command of ours promises.

use crate::api::call::Call;
use crate::error::CommandError;
use crate::fault::{self, Point};
use crate::keyspace::{self, Write};
use crate::subject::{args_after_key, only_key};
use crate::{info, reply};
use redis_throttle_engine::grammar;
use redis_throttle_engine::redis_cell::Verdict;

/// Decides a call and stores what follows from it.
// Out of line, so that the other commands do not pay for it.
#[inline(never)]
pub fn throttle(index: usize, call: &mut Call<'_>) -> Result<(), CommandError> {
    let request = grammar::redis_cell::throttle(args_after_key(call))?;
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
