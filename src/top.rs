//! `RL.TOP`: the keys that are denied most and the keys that are called most on this server.
//!
//! The memory is allocated once, when the module loads. The server loads modules, runs commands and
//! writes `INFO` on one thread, so the counts belong to that thread. A lock would cost fifteen
//! instructions more for each denial.

use crate::api::call::Call;
use crate::{clock, config};
use redis_throttle_engine::bounds::Cost;
use redis_throttle_engine::grammar::top::TopRequest;
use redis_throttle_engine::time::Instant;
use redis_throttle_engine::top::name::Seed;
use redis_throttle_engine::top::sampling::{Gaps, ONE_IN};
use redis_throttle_engine::top::{Moment, Sketch};
use std::cell::Cell;
use std::hash::{BuildHasher as _, RandomState};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The counted keys.
struct Top {
    /// Every enforced denial, by key.
    denied: Sketch,
    /// One decided call in [`ONE_IN`], by key.
    called: Sketch,
    gaps: Gaps,
}

thread_local! {
    /// The counts, `None` while they are in use. Without a destructor, access needs no registration
    /// with the thread.
    static TOP: Cell<Option<ManuallyDrop<Box<Top>>>> = const { Cell::new(None) };
}

/// The number of decided calls up to and including the next one to sample.
static UNTIL_SAMPLE: AtomicU32 = AtomicU32::new(NEVER);
/// Calls that are decided before the counter is looked at, if nothing is counted.
const NEVER: u32 = u32::MAX;

/// Calls `act` with the counts; returns `None` if nothing is counted. If `act` panics, counting
/// ends.
#[inline(always)]
fn with_counts<T>(act: impl FnOnce(&mut Top) -> T) -> Option<T> {
    let mut top = TOP.take()?;
    let result = act(&mut top);
    TOP.set(Some(top));
    Some(result)
}

/// Allocates the memory that the settings require.
pub fn create() {
    let slots = config::top_slots();
    // The standard library draws the keys of its hash maps from the system.
    let random = |number: u8| RandomState::new().hash_one(number);
    free();
    if slots > 0 {
        TOP.set(Some(ManuallyDrop::new(Box::new(Top {
            denied: Sketch::new(slots, Seed::new(random(0))),
            called: Sketch::new(slots, Seed::new(random(1))),
            gaps: Gaps::new(random(2)),
        }))));
    }
    UNTIL_SAMPLE.store(1, Relaxed);
}

/// Frees the memory.
pub fn free() {
    drop(TOP.take().map(ManuallyDrop::into_inner));
}

/// Counts a call of `cost` on `key` that a deciding command has decided. `denies` is true for a
/// denial that is enforced. A call of cost 0 is not counted.
#[inline(always)]
pub fn count(call: &Call<'_>, key: &[u8], cost: Cost, denies: bool, now: Instant) {
    if cost.is_zero() {
        return;
    }
    if denies {
        count_denial(call, key, now);
    }
    let left = UNTIL_SAMPLE.load(Relaxed).wrapping_sub(1);
    UNTIL_SAMPLE.store(left, Relaxed);
    if left == 0 {
        count_sample(call, key, now);
    }
}

/// A decided call with one key, as [`count`] counts it.
pub struct Decided {
    /// The cost of the call.
    pub cost: Cost,
    /// Whether the call is denied, and the denial is enforced.
    pub denies: bool,
    /// The instant of the call.
    pub now: Instant,
}

/// Counts a denial.
#[inline(never)]
fn count_denial(call: &Call<'_>, key: &[u8], now: Instant) {
    let database = call.context().database();
    with_counts(|top| top.denied.count(database, key, at(now)));
}

/// Counts a sampled call, and draws the distance to the next one.
#[inline(never)]
fn count_sample(call: &Call<'_>, key: &[u8], now: Instant) {
    let database = call.context().database();
    let next = with_counts(|top| {
        top.called.count(database, key, at(now));
        top.gaps.draw()
    });
    UNTIL_SAMPLE.store(next.unwrap_or(NEVER), Relaxed);
}

/// Returns the instant of a command with the half-life that applies to it.
fn at(now: Instant) -> Moment {
    Moment { now, half_life: config::top_half_life() }
}

/// Returns the shares of all denials that the first key and the first ten keys have, in millionths;
/// `None` if nothing is counted.
pub fn denied_shares() -> Option<[u64; 2]> {
    let at = at(clock::now());
    with_counts(|top| top.denied.shares(at))
}

/// A key with its count and the count's error.
pub type Row = (Vec<u8>, [u64; 2]);

/// Returns the keys of a database for a request, highest count first, or forgets all keys
/// and returns none; `None` if nothing is counted. The rows are copies, because the counts must not
/// be in use while the module calls the server.
pub fn rows(request: TopRequest, database: u32) -> Option<Vec<Row>> {
    let at = at(clock::now());
    with_counts(|top| {
        let rows = match request {
            TopRequest::Denied { count } => top.denied.top(database, count, 1, at),
            TopRequest::Called { count } => top.called.top(database, count, ONE_IN.into(), at),
            TopRequest::Reset => {
                top.denied.reset();
                top.called.reset();
                Vec::new()
            }
        };
        rows.iter().map(|row| (row.name.to_vec(), [row.count, row.error])).collect()
    })
}
