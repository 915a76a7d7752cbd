//! The commands on leases. They differ from the other commands in two ways: each call names the id
//! of a holder, and the state is not a string.

use crate::api::call::Call;
use crate::api::key::ReadKey;
use crate::api::reply::Value;
use crate::api::sorted_set::Member;
use crate::commands::table::CommandId;
use crate::error::CommandError;
use crate::fault::{self, Point};
use crate::keyspace::{self, KeyWrite, Rebased};
use crate::leases::set as holders;
use crate::leases::set::{Change, HolderWrite, HoldersError, Stored};
use crate::{clock, ending, top};
use redis_throttle_engine::ban::LiveBan;
use redis_throttle_engine::bounds::Cost;
use redis_throttle_engine::call::{CallOptions, Mode};
use redis_throttle_engine::decision::Decision;
use redis_throttle_engine::grammar::lease::LeaseRequest;
use redis_throttle_engine::time::Instant;
use redis_throttle_engine::{grammar, leases as lease};

/// Decides a call that takes a lease, and stores the lease.
pub fn take(id: CommandId, call: &mut Call<'_>) -> Result<(), CommandError> {
    let request = grammar::lease::lease(call.args_after_key())?;
    let mut key = call.only_key()?.open_for_writing();
    let now = clock::now();
    match decide(key.as_mut(), &request, Mode::Take, now) {
        Ok((decision, write)) => {
            let (is_allowed, integers) = (decision.verdict.is_allowed(), decision.integers());
            let counts = top::Decided { cost: Cost::ONE, denies: !is_allowed, now };
            ending::store(id, key, write.as_ref())?.finish(call, is_allowed, &integers, counts)
        }
        Err(error) => {
            let (denial, repair) = decide_banned(&key, &request, Mode::Take, now, error)?;
            let integers = denial.integers();
            let counts = top::Decided { cost: Cost::ONE, denies: true, now };
            ending::store(id, key, repair.map(Rebased))?.finish(call, false, &integers, counts)
        }
    }
}

/// Decides a call that takes a lease, and stores nothing.
#[cold]
pub fn peek(
    id: CommandId,
    call: &Call<'_>,
    request: &LeaseRequest<'_>,
) -> Result<(), CommandError> {
    let mut key = call.only_key()?.open_for_reading();
    let now = clock::now();
    let decision = match decide(&mut key, request, Mode::Take, now) {
        Ok((decision, _)) => decision,
        Err(error) => decide_banned(&key, request, Mode::Take, now, error)?.0,
    };
    ending::finish_unstored(id, call, decision.verdict.is_allowed(), &decision.integers());
    Ok(())
}

/// Renews a lease. Replies with 1, or with 0 if the holder has no live lease.
pub fn renew(id: CommandId, call: &mut Call<'_>) -> Result<(), CommandError> {
    let (holder, ttl) = grammar::lease::renew(call.args_after_key())?;
    settle(id, call, holder, |stored, now| Ok(lease::renew(stored, ttl, now)?.map(Change::Hold)))
}

/// Releases a lease. Replies with 1, or with 0 if the holder has no live lease.
pub fn release(id: CommandId, call: &mut Call<'_>) -> Result<(), CommandError> {
    let holder = grammar::lease::release(call.args_after_key())?;
    settle(id, call, holder, |stored, _| Ok(lease::release(stored)?.map(Change::Release)))
}

/// Runs `act`, and stores the change that it returns for a live lease. Replies with 1, or with 0 if
/// `holder` has no live lease.
fn settle(
    id: CommandId,
    call: &mut Call<'_>,
    holder: &[u8],
    act: impl FnOnce(&mut Stored<'_, '_, '_>, Instant) -> Result<Option<Change>, HoldersError>,
) -> Result<(), CommandError> {
    let now = clock::now();
    let mut key = call.only_key()?.open_for_writing();
    let me = Member::new(holder).ok_or(HoldersError::QueryRefused)?;
    fault::point(Point::Decide);
    let mut stored = match Stored::new(key.as_mut(), &me, now) {
        Ok(stored) => stored,
        Err(error) => {
            // A ban ended all leases.
            live_ban(&key, now).ok_or(error)?;
            ending::finish_unstored(id, call, false, &false);
            return Ok(());
        }
    };
    let change = act(&mut stored, now)?;
    let has_expired = stored.has_expired();
    let is_live = change.is_some();
    let write = change.map(|change| HolderWrite { change, id: me, now, has_expired });
    ending::store(id, key, write.as_ref())?.finish(call, is_live, &is_live, ())
}

/// Decides a request for a lease. Returns the decision, and the change to store if the lease is
/// granted.
///
/// # Errors
///
/// [`HoldersError`] if the holders cannot be read.
pub fn decide(
    key: &mut ReadKey<'_, '_>,
    request: &LeaseRequest<'_>,
    mode: Mode,
    now: Instant,
) -> Result<(Decision, Option<HolderWrite>), HoldersError> {
    let me = Member::new(request.id).ok_or(HoldersError::QueryRefused)?;
    fault::point(Point::Decide);
    let mut stored = Stored::new(key, &me, now)?;
    let (decision, grant) = request.rule.decide(&mut stored, request.leave, now, mode)?;
    let has_expired = stored.has_expired();
    let write = |grant| HolderWrite { change: Change::Hold(grant), id: me, now, has_expired };
    Ok((decision, grant.map(write)))
}

/// Decides a request on a key whose holders cannot be read because of `error`: a ban denies it.
/// Returns the decision, and the change to store if the ban had to be re-based.
///
/// # Errors
///
/// `error` if the key has no ban.
#[cold]
#[inline(never)]
pub fn decide_banned(
    key: &ReadKey<'_, '_>,
    request: &LeaseRequest<'_>,
    mode: Mode,
    now: Instant,
    error: HoldersError,
) -> Result<(Decision, Option<KeyWrite>), HoldersError> {
    let live = live_ban(key, now).ok_or(error)?;
    let options = CallOptions { leave: request.leave, ..CallOptions::of_cost(Cost::ONE) };
    let outcome = live.decide(request.rule.limit, options, mode);
    Ok((outcome.decision, outcome.next.kept().map(KeyWrite::of_ban)))
}

/// Returns the ban of a key at `now`; `None` if it has none.
fn live_ban(key: &ReadKey<'_, '_>, now: Instant) -> Option<LiveBan> {
    keyspace::ban(key)?.at(now)
}

/// Replies to `RL.INSPECT` with the live holders of a key.
#[cold]
pub fn inspect(call: &Call<'_>, mut key: ReadKey<'_, '_>) -> Result<(), CommandError> {
    let listing = holders::list(&mut key, clock::now()).map_err(|_| CommandError::NotAState)?;
    fault::point(Point::Reply);
    let head = [("algorithm", Value::Text("LEASE")), ("holders", Value::Integer(listing.count))];
    let first = listing.first.iter().map(|(id, left)| (id.bytes(), left.as_ms_ceil()));
    call.context().reply_map_with_members(&head, "lapse_after_ms", first);
    Ok(())
}
