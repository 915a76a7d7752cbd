//! The commands on leases. They differ from the other commands in two ways: each call names the id
//! of a holder, and the state is not a string.

use crate::api::call::Call;
use crate::api::key::ReadKey;
use crate::api::reply::Value;
use crate::api::sorted_set::Member;
use crate::clock;
use crate::commands::table::CommandId;
use crate::ending::{self, Finished, no_policy};
use crate::error::CommandError;
use crate::fault::{self, Point};
use crate::keyspace::{self, KeyWrite};
use crate::leases::set as holders;
use crate::leases::set::{Change, HolderWrite, HoldersError, Stored, Write};
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
    ending::finish(id, call, |key| {
        let now = clock::now();
        let (decision, write) = decide(key.as_mut(), &request, Mode::Take, now)?;
        Ok(ending::of(&decision, write).in_top(Cost::ONE, now))
    })
}

/// Decides a call that takes a lease, and stores nothing.
#[cold]
pub fn peek(
    id: CommandId,
    call: &Call<'_>,
    request: &LeaseRequest<'_>,
) -> Result<(), CommandError> {
    let mut key = call.only_key()?.open_for_reading();
    let (decision, _) = decide(&mut key, request, Mode::Take, clock::now())?;
    ending::answer_unstored(id, call, decision.verdict.is_allowed(), &decision.integers());
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
/// the holder `holder` has no live lease.
fn settle(
    id: CommandId,
    call: &mut Call<'_>,
    holder: &[u8],
    act: impl FnOnce(&mut Stored<'_, '_, '_>, Instant) -> Result<Option<Change>, HoldersError>,
) -> Result<(), CommandError> {
    let now = clock::now();
    ending::finish(id, call, |key| {
        let me = Member::new(holder).ok_or(HoldersError::NotTold)?;
        fault::point(Point::Decide);
        let write = match Stored::new(key.as_mut(), &me, now) {
            Ok(mut stored) => {
                let change = act(&mut stored, now)?;
                let has_expired = stored.has_expired();
                change.map(|change| HolderWrite { change, id: me, now, has_expired })
            }
            Err(error) => {
                // A ban ended all leases.
                live_ban(key, now).ok_or(error)?;
                None
            }
        };
        let is_live = write.is_some();
        Ok(Finished { write, reply: is_live, is_allowed: is_live, demand: None, count: no_policy })
    })
}

/// Decides a request for a lease. Returns the decision, and the change to store: of the holders if
/// the lease is granted, or of a ban that had to be re-based.
///
/// # Errors
///
/// [`HoldersError`] if the holders cannot be read, and the key has no ban.
pub fn decide(
    key: &mut ReadKey<'_, '_>,
    request: &LeaseRequest<'_>,
    mode: Mode,
    now: Instant,
) -> Result<(Decision, Option<Write>), HoldersError> {
    let me = Member::new(request.id).ok_or(HoldersError::NotTold)?;
    fault::point(Point::Decide);
    let mut stored = match Stored::new(key, &me, now) {
        Ok(stored) => stored,
        Err(error) => return decide_banned(key, request, mode, now, error),
    };
    let (decision, grant) = request.rule.decide(&mut stored, request.leave, now, mode)?;
    let has_expired = stored.has_expired();
    let write = |grant| HolderWrite { change: Change::Hold(grant), id: me, now, has_expired };
    Ok((decision, grant.map(write).map(Write::Holder)))
}

/// Decides a request on a key whose holders cannot be read because of `error`: a ban denies it.
#[cold]
#[inline(never)]
fn decide_banned(
    key: &ReadKey<'_, '_>,
    request: &LeaseRequest<'_>,
    mode: Mode,
    now: Instant,
    error: HoldersError,
) -> Result<(Decision, Option<Write>), HoldersError> {
    let live = live_ban(key, now).ok_or(error)?;
    let options = CallOptions { leave: request.leave, ..CallOptions::of_cost(Cost::ONE) };
    let outcome = live.decide(request.rule.limit, options, mode);
    Ok((outcome.decision, outcome.next.kept().map(KeyWrite::of_ban).map(Write::State)))
}

/// Returns the ban of a key at `now`; `None` if it has none.
fn live_ban(key: &ReadKey<'_, '_>, now: Instant) -> Option<LiveBan> {
    keyspace::ban(key)?.at(now)
}

/// Replies to `RL.INSPECT` with the live holders of a key.
#[cold]
pub fn inspect(call: &Call<'_>, mut key: ReadKey<'_, '_>) -> Result<(), CommandError> {
    let shown = holders::show(&mut key, clock::now()).map_err(|_| CommandError::NotAState)?;
    fault::point(Point::Reply);
    let head = [("algorithm", Value::Text("LEASE")), ("holders", Value::Integer(shown.count))];
    let first = shown.first.iter().map(|(id, left)| (id.bytes(), left.as_ms_ceil()));
    call.context().reply_map_with_members(&head, "lapse_after_ms", first);
    Ok(())
}
