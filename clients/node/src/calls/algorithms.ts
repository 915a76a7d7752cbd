/** The shape of an algorithm and of its decisions. */
import { microseconds } from '../rules/durations.js';
import type { Rule, RuleKind } from '../rules/forms.js';
import { fixedWindow } from './windows.js';

/** An algorithm's decision and the state after it; a denial has no state. */
export interface Verdict<State> {
  allowed: boolean;
  limit: number;
  remaining: number;
  retryAfterMs: number;
  resetAfterMs: number;
  state: State | undefined;
}

/** One algorithm with its limits. The state is `undefined` for a key without calls. */
export interface Algorithm<State = unknown> {
  decide(state: State | undefined, nowUs: bigint, cost: number): Verdict<State>;
  /**
   * Takes units even if fewer are left; the difference is a debt. The verdict's `retryAfterMs` is
   * the time until the debt is paid. Cost 0 only reports the debt.
   */
  charge(state: State | undefined, nowUs: bigint, cost: number): Verdict<State>;
  /** Gives units back. Returns undefined if no units are in use any more. */
  refund(state: State, nowUs: bigint, cost: number): State | undefined;
  /**
   * Only of an algorithm that refills evenly: returns the state of a key whose full allowance is
   * available after `resetUs`.
   */
  until?(resetUs: bigint, nowUs: bigint): State;
}

export const max = (a: bigint, b: bigint): bigint => (a > b ? a : b);
export const ceilDiv = (a: bigint, b: bigint): bigint => (a + b - 1n) / b;
/** Returns a time in ms, rounded up. */
export const ms = (us: bigint): number => Number(ceilDiv(us, 1000n));

/**
 * Returns the algorithm for a `share` of a rule. A share below one unit is one unit in a longer
 * time. A sliding log of a limit above `slots` counts in that many parts of its window.
 */
export function algorithmOf(rule: Rule, share = 1, slots = Number.POSITIVE_INFINITY): Algorithm {
  const [word, first, ...rest] = (rule.fallback ?? rule).words as [string, string, string, string];
  const kind = (rule.fallback ?? rule).kind;
  const wanted = Number(first) * share;
  const limit = Math.max(1, Math.floor(wanted));
  const slower = (ticks: bigint, by: number) =>
    by === 1 ? ticks : BigInt(Math.ceil(Number(ticks) / by));
  if (word === 'GCRA' || word === 'TOKENBUCKET' || word === 'LEAKYBUCKET') {
    return bucket(kind, limit, Number(rest[0]), (unit) => slower(unit, share), rest[1]);
  }
  const window = slower(microseconds('window', rest[0]), Math.min(1, wanted));
  if (word === 'FIXED') return fixedWindow(limit, window, rest.includes('ALIGNED'));
  if (word === 'SLIDING' && share === 1) return slidingWindow(limit, window);
  const at = rest.indexOf('SLOTS');
  const parts = at < 0 ? slots : Math.min(Number(rest[at + 1]), slots);
  return log(limit, window, limit <= parts ? 1n : max(1n, window / BigInt(parts)));
}

interface Level {
  /** The usage, counted in parts of a unit. */
  level: bigint;
  at: bigint;
}

/** Makes GCRA, a token bucket or a leaky bucket. For GCRA a unit is a whole number of ns. */
function bucket(
  kind: RuleKind,
  limit: number,
  rate: number,
  slower: (unit: bigint) => bigint,
  period: string,
): Algorithm<Level> {
  const us = microseconds('period', period);
  const nanos = kind === 'gcra';
  const unit = slower(nanos ? ceilDiv(us * 1000n, BigInt(rate)) : us);
  const drain = nanos ? 1000n : BigInt(rate);
  const full = BigInt(limit) * unit;
  const now = (state: Level | undefined, at: bigint) =>
    state ? max(0n, state.level - max(0n, at - state.at) * drain) : 0n;
  return {
    decide(state, at, cost) {
      const level = now(state, at);
      const after = level + BigInt(cost) * unit;
      const allowed = after <= full || cost === 0;
      const kept = allowed ? after : level;
      const never = cost > limit;
      const wait = kind === 'leaky_bucket' ? ms(ceilDiv(level, drain)) : 0;
      return {
        allowed,
        limit,
        remaining: Number(max(0n, full - kept) / unit),
        retryAfterMs: allowed ? wait : never ? -1 : ms(ceilDiv(after - full, drain)),
        resetAfterMs: ms(ceilDiv(kept, drain)),
        state: allowed && cost > 0 ? { level: after, at } : undefined,
      };
    },
    charge(state, at, cost) {
      const level = now(state, at) + BigInt(cost) * unit;
      const allowed = level <= full;
      return {
        allowed,
        limit,
        remaining: Number(max(0n, full - level) / unit),
        retryAfterMs: allowed ? 0 : ms(ceilDiv(level - full, drain)),
        resetAfterMs: ms(ceilDiv(level, drain)),
        state: { level, at },
      };
    },
    refund(state, at, cost) {
      const level = now(state, at) - BigInt(cost) * unit;
      return level > 0n ? { level, at } : undefined;
    },
    until: (resetUs, at) => ({ level: max(0n, resetUs) * drain, at }),
  };
}

interface TwoCounters {
  start: bigint;
  previous: bigint;
  current: bigint;
}

function slidingWindow(limit: number, window: bigint): Algorithm<TwoCounters> {
  const rolled = (state: TwoCounters | undefined, at: bigint): TwoCounters => {
    const start = at - (at % window);
    if (state === undefined || state.start + window < start)
      return { start, previous: 0n, current: 0n };
    if (state.start === start) return state;
    return { start, previous: state.current, current: 0n };
  };
  /** Returns the estimated usage in parts. A unit has `window` parts. */
  const estimate = (state: TwoCounters, at: bigint): bigint => {
    const { start, previous, current } = rolled(state, at);
    return previous * (window - (at - start)) + current * window;
  };
  const resetUs = ({ start, previous, current }: TwoCounters, at: bigint): bigint =>
    current > 0n ? start + 2n * window - at : previous > 0n ? start + window - at : 0n;
  /** Returns the time until `cost` units are free, in ms. */
  const roomAfterMs = (state: TwoCounters, at: bigint, cost: number): number => {
    const room = (when: bigint) => BigInt(limit - cost) * window - estimate(state, when) >= 0n;
    if (room(at)) return 0;
    let [low, high] = [0n, ceilDiv(2n * window, 1000n)];
    while (high - low > 1n) {
      const middle = (low + high) / 2n;
      if (room(at + middle * 1000n)) high = middle;
      else low = middle;
    }
    return Number(high);
  };
  const remaining = (state: TwoCounters, at: bigint) =>
    Number(max(0n, BigInt(limit) * window - estimate(state, at)) / window);
  return {
    decide(state, at, cost) {
      const now = rolled(state, at);
      const waitMs = roomAfterMs(now, at, cost);
      const allowed = waitMs === 0 || cost === 0;
      const after = allowed ? { ...now, current: now.current + BigInt(cost) } : now;
      return {
        allowed,
        limit,
        remaining: remaining(after, at),
        retryAfterMs: allowed ? 0 : cost > limit ? -1 : waitMs,
        resetAfterMs: ms(resetUs(after, at)),
        state: allowed && cost > 0 ? after : undefined,
      };
    },
    charge(state, at, cost) {
      const now = rolled(state, at);
      const after = { ...now, current: now.current + BigInt(cost) };
      const retryAfterMs = roomAfterMs(after, at, 0);
      const resetAfterMs = ms(resetUs(after, at));
      const allowed = retryAfterMs === 0;
      const left = remaining(after, at);
      return { allowed, limit, remaining: left, retryAfterMs, resetAfterMs, state: after };
    },
    refund(state, at, cost) {
      const now = rolled(state, at);
      const current = max(0n, now.current - BigInt(cost));
      const left = now.current - BigInt(cost);
      const previous = left < 0n ? max(0n, now.previous + left) : now.previous;
      return current + previous > 0n ? { ...now, previous, current } : undefined;
    },
  };
}

/** The units taken, with their sum. Oldest first; entries that have expired may still be there. */
interface Entries {
  readonly all: readonly { readonly at: bigint; readonly units: number }[];
  readonly used: number;
}

/**
 * Makes a sliding log of the units taken. Each entry counts for one window from its instant, which
 * is rounded up to a multiple of `slot`.
 */
function log(limit: number, window: bigint, slot: bigint): Algorithm<Entries> {
  /** Returns the instant of the entry that must expire for `units` to become free. */
  const freed = ({ all }: Entries, units: number): bigint | undefined => {
    let [needed, last] = [units, undefined as bigint | undefined];
    for (const entry of all) {
      if (needed <= 0) break;
      needed -= entry.units;
      last = entry.at;
    }
    return last;
  };
  const live = (entries: Entries | undefined, at: bigint): Entries => {
    let { all, used } = entries ?? { all: [], used: 0 };
    let expired = 0;
    for (const entry of all) {
      if (at < entry.at + window) break;
      used -= entry.units;
      expired += 1;
    }
    if (expired > 0) all = all.slice(expired);
    return { all, used };
  };
  const slotOf = (at: bigint) => ceilDiv(at, slot) * slot;
  /** Adds units at an instant that is not before the newest entry. */
  const added = ({ all, used }: Entries, at: bigint, units: number): Entries => {
    const newest = all.at(-1);
    const merged = newest !== undefined && newest.at >= at;
    const entry = merged ? { at: newest.at, units: newest.units + units } : { at, units };
    return { all: [...(merged ? all.slice(0, -1) : all), entry], used: used + units };
  };
  const resetMs = ({ all }: Entries, at: bigint) => {
    const newest = all.at(-1);
    return newest === undefined ? 0 : ms(newest.at + window - at);
  };
  return {
    decide(state, at, cost) {
      const entries = live(state, at);
      const { used } = entries;
      if (used + cost > limit && cost > 0) {
        const last = freed(entries, used + cost - limit);
        const waitMs = last === undefined ? 0 : ms(last + window - at);
        return {
          allowed: false,
          limit,
          remaining: Math.max(0, limit - used),
          retryAfterMs: cost > limit ? -1 : waitMs,
          resetAfterMs: resetMs(entries, at),
          state: undefined,
        };
      }
      const after = cost > 0 ? added(entries, slotOf(at), cost) : entries;
      return {
        allowed: true,
        limit,
        remaining: Math.max(0, limit - after.used),
        retryAfterMs: 0,
        resetAfterMs: resetMs(after, at),
        state: cost > 0 ? after : undefined,
      };
    },
    charge(state, at, cost) {
      const entries = live(state, at);
      const after = cost > 0 ? added(entries, slotOf(at), cost) : entries;
      const last = freed(after, after.used - limit);
      return {
        allowed: after.used <= limit,
        limit,
        remaining: Math.max(0, limit - after.used),
        retryAfterMs: last === undefined ? 0 : ms(last + window - at),
        resetAfterMs: resetMs(after, at),
        state: after,
      };
    },
    refund(state, at, cost) {
      const { all, used } = live(state, at);
      const kept = [...all];
      let left = cost;
      while (left > 0) {
        const newest = kept.pop();
        if (newest === undefined) break;
        if (newest.units > left) kept.push({ at: newest.at, units: newest.units - left });
        left -= Math.min(left, newest.units);
      }
      return kept.length > 0 ? { all: kept, used: used - (cost - left) } : undefined;
    },
  };
}

interface Attempts {
  last: bigint;
  count: number;
}

/** Makes a backoff: some attempts without delay, then delays that double. */
export function delays(rule: Rule): Algorithm<Attempts> {
  const [attempts, ...words] = rule.words.slice(1) as [string, string, string, string];
  const limit = Number(attempts);
  const [base, longest, forget] = words.map((word) => microseconds('base', word)) as [
    bigint,
    bigint,
    bigint,
  ];
  const counted = (state: Attempts | undefined, at: bigint): Attempts =>
    state === undefined || at >= state.last + forget ? { last: at, count: 0 } : state;
  const delay = (count: number): bigint => {
    if (count < limit) return 0n;
    const doubled = base << BigInt(Math.min(64, count - limit));
    return doubled < longest ? doubled : longest;
  };
  const told = ({ last, count }: Attempts, at: bigint, allowed: boolean, waits: boolean) => ({
    allowed,
    limit,
    remaining: Math.max(0, limit - count),
    retryAfterMs: waits ? ms(max(0n, last + delay(count) - at)) : 0,
    resetAfterMs: count === 0 ? 0 : ms(last + forget - at),
  });
  return {
    decide(state, at, cost) {
      const now = counted(state, at);
      const allowed = at >= now.last + delay(now.count);
      const after = allowed && cost > 0 ? { last: at, count: now.count + 1 } : now;
      const kept = allowed && cost > 0 ? after : undefined;
      return { ...told(after, at, allowed, !allowed), state: kept };
    },
    charge(state, at, cost) {
      const now = counted(state, at);
      const allowed = at >= now.last + delay(now.count);
      const after = cost > 0 ? { last: at, count: now.count + 1 } : now;
      return { ...told(after, at, allowed, true), state: after };
    },
    refund(state, at) {
      const { last, count } = counted(state, at);
      return count > 1 ? { last, count: count - 1 } : undefined;
    },
  };
}
