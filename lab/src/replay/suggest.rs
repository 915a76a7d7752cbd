//! Suggestions: the smallest limits that would have denied almost no key, in one pass.
//!
//! For each key and each rate of a ladder, with the interval `T = ceil(period / rate)`, every call
//! is allowed: `tat = max(tat, now) + cost x T`. The key is never denied if the burst is at least
//! the largest `ceil((tat - now) / T)`. For a window, that is the most units in one window, which
//! begins with a call. The suggested burst is the largest among the keys to cover.

use super::arguments::ReplayArguments;
use super::chunked::Chunked;
use super::event::Event;
use super::ladder::{Ladder, Rung};
use redis_throttle_engine::bounds::Period;
use redis_throttle_engine::grammar::number;

/// The numbers of keys to cover: all but one in this many.
pub const COVERS: [(&str, u64); 3] = [("99", 100), ("99.9", 1_000), ("99.99", 10_000)];

/// A burst or limit that is too large for any rule.
const TOO_LARGE: u64 = u64::MAX;

/// The calls of a log, and the burst or limit that each key needs at each rung.
#[derive(Debug)]
pub struct Suggest {
    ladder: Ladder,
    /// The keys to cover: all but one in this many.
    cover: usize,
    horizon: Period,
    margin_percent: u64,
    keys: Chunked<OfKey>,
    /// The numbers of a key at each rung: [`OF_RATE`] or [`OF_WINDOW`] of them.
    rungs: Chunked<u64>,
    /// The keys with rungs.
    with_rungs: u32,
}

/// The calls of one key.
#[derive(Clone, Copy, Debug, Default)]
struct OfKey {
    /// The first call: until the second one, a key has no rungs.
    first_us: u64,
    first_cost: u64,
    calls: u32,
    /// The place of the key's rungs, once it has a second call.
    place: u32,
}

/// The numbers of a key at a rate: the theoretical arrival time in nanoseconds, and the burst that
/// the key needs.
const OF_RATE: usize = 2;
/// The numbers of a key at a window: its start in microseconds, the limit that the key needs, and
/// the units used.
const OF_WINDOW: usize = 3;

/// A rung with the bursts or limits that cover the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Covered {
    /// The rate or window in words.
    pub rung: String,
    /// The bursts or limits that cover the shares of [`COVERS`]; `None` if no rule has them.
    pub units: [Option<u64>; 3],
}

/// A key that the suggestion would deny.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excluded {
    /// The key.
    pub key: u32,
    /// The calls.
    pub calls: u32,
    /// The burst or limit that it needs; `None` if no rule has it.
    pub needs: Option<u64>,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// All rungs.
    pub frontier: Vec<Covered>,
    /// The suggested rule, and its place in the frontier; `None` if no rule covers the keys.
    pub rule: Option<(String, usize)>,
    /// The keys that it would deny.
    pub excluded_keys: u64,
    /// The calls of those keys, also the allowed ones.
    pub excluded_calls: u64,
    /// The excluded keys with the most calls.
    pub excluded: Vec<Excluded>,
}

impl Suggest {
    /// Creates the suggestion that the arguments request.
    ///
    /// # Errors
    ///
    /// A text that says what is wrong.
    pub fn new(ladder: Ladder, arguments: &ReplayArguments) -> Result<Self, String> {
        let cover = COVERS.iter().position(|(percent, _)| *percent == arguments.cover);
        let cover = cover.ok_or("invalid --cover: expected 99, 99.9 or 99.99")?;
        let horizon = number::period(arguments.horizon.as_bytes());
        let horizon = horizon.ok_or("invalid --horizon: expected a duration such as 60s")?;
        let rungs = Chunked::new(ladder.rungs.len() * ladder.rungs.first().map_or(0, len_at));
        let margin_percent = u64::from(arguments.margin);
        let keys = Chunked::new(1);
        Ok(Self { ladder, cover, horizon, margin_percent, keys, rungs, with_rungs: 0 })
    }

    /// Counts a call.
    pub fn call(&mut self, event: &Event) {
        let Event { at_us, cost, key, .. } = *event;
        let [of_key, ..] = self.keys.record_mut(key) else { return };
        of_key.calls = of_key.calls.saturating_add(1);
        match of_key.calls {
            1 => {
                (of_key.first_us, of_key.first_cost) = (at_us, cost);
                return;
            }
            2 => {
                of_key.place = self.with_rungs;
                self.with_rungs += 1;
                let rungs = self.rungs.record_mut(of_key.place);
                count(&self.ladder.rungs, rungs, of_key.first_us, of_key.first_cost);
            }
            _ => {}
        }
        count(&self.ladder.rungs, self.rungs.record_mut(of_key.place), at_us, cost);
    }

    /// Returns what a key needs at a rung.
    fn needs(&self, key: u32, rung: usize) -> u64 {
        let Some(of_key) = self.keys.record(key).first() else { return 0 };
        match of_key.calls {
            // A first call needs its cost, at any rate.
            0 | 1 => of_key.first_cost,
            _ => {
                let len = self.ladder.rungs.first().map_or(0, len_at);
                let needs = self.rungs.record(of_key.place).get(rung * len + 1);
                needs.copied().unwrap_or(0)
            }
        }
    }

    /// Returns the suggestion for the first `keys` keys; `None` if there are no keys.
    pub fn finish(&self, keys: u32) -> Option<Suggestion> {
        if keys == 0 {
            return None;
        }
        let mut needs = Vec::new();
        let mut frontier = Vec::new();
        let mut best: Option<(u128, String, usize, u64)> = None;
        for (at, rung) in self.ladder.rungs.iter().enumerate() {
            needs.clear();
            needs.extend((0..keys).map(|key| self.needs(key, at)));
            needs.sort_unstable();
            let units = COVERS.map(|(_, one_in)| {
                let rank = rank(needs.len() as u64, one_in);
                usize::try_from(rank).ok().and_then(|rank| needs.get(rank.checked_sub(1)?)).copied()
            });
            let units = units.map(|units| units.map(|units| units.max(1)));
            // A burst without a rule, such as one that takes a century to refill, is none.
            let has_rule = |units: &u64| self.ladder.rule(*rung, *units).is_some();
            let valid = units.map(|units| units.filter(has_rule));
            frontier.push(Covered { rung: rung.text(), units: valid });
            let raised = units[self.cover].map(|units| self.raised(units));
            let Some((units, rule)) =
                raised.and_then(|units| Some((units, self.ladder.rule(*rung, units)?)))
            else {
                continue;
            };
            let most = rung.most_millionths(units, self.horizon);
            if best.as_ref().is_none_or(|(least, ..)| most < *least) {
                best = Some((most, rule, at, units));
            }
        }
        let excluded = best.as_ref().map(|(_, _, at, units)| self.excluded(keys, *at, *units));
        let (excluded_keys, excluded_calls, excluded) = excluded.unwrap_or_default();
        let rule = best.map(|(_, rule, at, _)| (rule, at));
        Some(Suggestion { frontier, rule, excluded_keys, excluded_calls, excluded })
    }

    /// Adds the margin.
    fn raised(&self, units: u64) -> u64 {
        let raised = u128::from(units) * u128::from(100 + self.margin_percent);
        u64::try_from(raised.div_ceil(100)).unwrap_or(TOO_LARGE)
    }

    /// Returns the number of keys that need more than `units`, their calls, and those with the most
    /// calls.
    fn excluded(&self, keys: u32, rung: usize, units: u64) -> (u64, u64, Vec<Excluded>) {
        const REPORTED: usize = 10;
        let mut all: Vec<_> = (0..keys)
            .filter_map(|key| {
                let needs = self.needs(key, rung);
                let calls = self.keys.record(key).first()?.calls;
                let finite_needs = Some(needs).filter(|needs| *needs < TOO_LARGE);
                let excluded = Excluded { key, calls, needs: finite_needs };
                (needs > units).then_some(excluded)
            })
            .collect();
        all.sort_by_key(|excluded| std::cmp::Reverse(excluded.calls));
        let calls = all.iter().map(|excluded| u64::from(excluded.calls)).sum();
        let count = all.len() as u64;
        all.truncate(REPORTED);
        (count, calls, all)
    }

    /// Returns the percentage of keys that the suggestion covers, and the number of keys of which
    /// one may be denied.
    pub fn cover(&self) -> (&'static str, u64) {
        COVERS[self.cover]
    }
}

/// Returns how many of `keys` keys are covered if at most one in `one_in` is not: `ceil(p x keys)`.
pub fn rank(keys: u64, one_in: u64) -> u64 {
    keys - keys / one_in
}

/// Returns the number of numbers of a key at a rung.
const fn len_at(rung: &Rung) -> usize {
    match rung {
        Rung::Rate(..) => OF_RATE,
        Rung::Window(_) => OF_WINDOW,
    }
}

/// Counts a call of a key at all rungs, which are of one kind.
fn count(rungs: &[Rung], mut numbers: &mut [u64], at_us: u64, cost: u64) {
    for rung in rungs {
        let Some((of_rung, rest)) = numbers.split_at_mut_checked(len_at(rung)) else { return };
        match (rung, of_rung) {
            (Rung::Rate(..), [at, needs]) => count_at_rate(rung.step(), [at, needs], at_us, cost),
            (Rung::Window(_), [at, needs, used]) => {
                // A call that takes nothing opens no window.
                if *used == 0 || at_us >= at.saturating_add(rung.step()) {
                    (*at, *used) = (at_us, 0);
                }
                *used = used.saturating_add(cost);
                *needs = (*needs).max(*used);
            }
            _ => {}
        }
        numbers = rest;
    }
}

/// Counts a call of a key at a rate with an interval of `step_ns`. An overflow makes the need too
/// large for any rule.
fn count_at_rate(step_ns: u64, [at, needs]: [&mut u64; OF_RATE], at_us: u64, cost: u64) {
    let now_ns = at_us.saturating_mul(1_000);
    let arrival_ns = u128::from((*at).max(now_ns)) + u128::from(cost) * u128::from(step_ns);
    let Ok(arrival_ns) = u64::try_from(arrival_ns) else {
        (*at, *needs) = (u64::MAX, TOO_LARGE);
        return;
    };
    *at = arrival_ns;
    // Most calls need no more than an earlier one, which a multiplication shows.
    let owed_ns = arrival_ns - now_ns;
    if owed_ns > needs.saturating_mul(step_ns) {
        *needs = owed_ns.div_ceil(step_ns);
    }
}

#[cfg(test)]
mod tests;
