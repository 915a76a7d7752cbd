//! `CL.THROTTLE`, the command of redis-cell. It has the arguments, replies and keys of redis-cell,
//! and the guarantees of the module's other commands.

use crate::api::call::Call;
use crate::error::CommandError;
use crate::keyspace::{self, KeyWrite};
use crate::{ending, reply};
use redis_throttle_engine::grammar;
use redis_throttle_engine::redis_cell::Verdict;

/// Decides a call and stores the result.
// Out of line, so that it adds no cost to the other commands.
#[inline(never)]
pub fn throttle(index: usize, call: &mut Call<'_>) -> Result<(), CommandError> {
    let request = grammar::redis_cell::throttle(call.args_after_key())?;
    let key = call.only_key()?.open_for_writing();
    let outcome = keyspace::throttle(&key, &request)?;
    let decision = outcome.decision;
    let integers = reply::redis_cell(&decision);
    let write = outcome.next.as_ref().map(KeyWrite::of_redis_cell);
    ending::store(index, key, write)?.announce(call)?;
    ending::answer(index, call, decision.verdict == Verdict::Allowed, &integers);
    Ok(())
}
