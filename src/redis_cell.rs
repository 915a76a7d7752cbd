//! `CL.THROTTLE`, the command of redis-cell, and `GCRA`, the command that Redis has merged but not
//! released. They have the arguments and replies of those commands and the keys of redis-cell, and
//! the guarantees of the module's other commands.

use crate::api::call::Call;
use crate::commands::table::CommandId;
use crate::error::CommandError;
use crate::fault::{self, Point};
use crate::keyspace::{self, Digits, KeyWrite, Rebased};
use crate::{clock, ending, reply, top};
use redis_throttle_engine::grammar;
use redis_throttle_engine::grammar::redis_cell::ThrottleRequest;
use redis_throttle_engine::redis_cell::Verdict;

/// Decides a call of `CL.THROTTLE` and stores the result.
pub fn throttle(id: CommandId, call: &mut Call<'_>) -> Result<(), CommandError> {
    let request = grammar::redis_cell::throttle(call.args_after_key())?;
    decide(id, call, &request)
}

/// Decides a call of `GCRA` and stores the result.
pub fn throttle_as_redis(id: CommandId, call: &mut Call<'_>) -> Result<(), CommandError> {
    match grammar::redis_gcra::gcra(call.args_after_key())?.counted() {
        Ok(request) => decide(id, call, &request),
        Err(error) => {
            // The error of the key comes first.
            let key = call.only_key()?.open_for_writing();
            keyspace::load_digits(&key, clock::now())?;
            Err(error.into())
        }
    }
}

/// Decides a call and stores the result.
// Out of line, so that it adds no cost to the other commands. Both commands share one copy: with
// two, the compiler inlines less, and each call takes a hundred instructions more.
#[inline(never)]
fn decide(
    id: CommandId,
    call: &mut Call<'_>,
    request: &ThrottleRequest,
) -> Result<(), CommandError> {
    let key = call.only_key()?.open_for_writing();
    let now = clock::now();
    let stored = keyspace::load_digits(&key, now)?;
    fault::point(Point::Decide);
    let stored = match stored {
        Digits::Stored(stored) => stored,
        Digits::Banned(live) => {
            let repair = live.repair(request.quantity).as_ref().map(KeyWrite::of_ban);
            let integers = reply::redis_cell(&request.rule.denial(live.left(), request.quantity));
            let counts = top::Decided { cost: request.quantity, denies: true, now };
            return ending::store(id, key, repair.map(Rebased))?
                .finish(call, false, &integers, counts);
        }
    };
    let outcome = request.rule.decide(stored, now, request.quantity);
    let decision = outcome.decision;
    let integers = reply::redis_cell(&decision);
    let write = outcome.next.as_ref().map(KeyWrite::of_redis_cell);
    let is_allowed = decision.verdict == Verdict::Allowed;
    let counts = top::Decided { cost: request.quantity, denies: !is_allowed, now };
    ending::store(id, key, write)?.finish(call, is_allowed, &integers, counts)
}
