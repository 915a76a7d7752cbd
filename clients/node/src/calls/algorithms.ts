/**
 * The algorithms, as pure functions of a state and an instant. `onError: 'local'` and the fake
 * server use them. Instants are in microseconds. All numbers are integers. They are rounded so that
 * the limit is never exceeded.
 */
import { microseconds } from '../rules/durations.js';
import type { Rule, RuleKind } from '../rules/rule.js';

/** An algorithm's decision and the state after it; a denial has no state. */
export interface Verdict<State> {
  allowed: boolean;
  limit: number;
  remaining: number;
  retryAfterMs: number;
  resetAfterMs: number;
  state: State | undefined;
}

/** The arithmetic of one algorithm with its limits. */
interface Arithmetic<State> {
  /** Returns the state as it is at an instant. It is `undefined` for a key without calls. */
  now(state: State | undefined, at: bigint): State;
  /** Adds units, also above the limit, or gives them back if their number is below 0. */
  add(now: State, units: number, at: bigint): State;
  isEmpty(now: State): boolean;
  remaining(now: State, at: bigint): number;
  /** Returns the ms until as many units are free; 0 if they are. */
  waitMs(now: State, units: number, at: bigint): number;
  /** Returns the ms until the full allowance is available. */
  resetMs(now: State, at: bigint): number;
  /** Only of a queue: returns the ms until the turn of an allowed call. */
  turnMs?(now: State): number;
  /**
   * Only of an algorithm that refills evenly: returns the state of a key whose full allowance is
   * available after `resetUs`.
   */
  until?(resetUs: bigint, at: bigint): State;
}

const max = (a: bigint, b: bigint): bigint => (a > b ? a : b);
const ceilDiv = (a: bigint, b: bigint): bigint => (a + b - 1n) / b;
/** Returns a time in ms, rounded up. */
const ms = (us: bigint): number => Number(ceilDiv(us, 1000n));

/** One algorithm with its limits. */
export class Algorithm<State = unknown> {
  constructor(
    readonly limit: number,
    private readonly math: Arithmetic<State>,
  ) {}

  decide(state: State | undefined, at: bigint, cost: number): Verdict<State> {
    const { limit, math } = this;
    const now = math.now(state, at);
    const waitMs = cost === 0 ? 0 : cost > limit ? -1 : math.waitMs(now, cost, at);
    const allowed = waitMs === 0;
    const after = allowed && cost > 0 ? math.add(now, cost, at) : now;
    const retryAfterMs = allowed ? (math.turnMs?.(now) ?? 0) : waitMs;
    return {
      ...this.#describe(after, at),
      allowed,
      retryAfterMs,
      state: after === now ? undefined : after,
    };
  }

  /**
   * Takes units even if fewer are left; the difference is a debt. The verdict's `retryAfterMs` is
   * the time until the debt is paid. Cost 0 only reports the debt.
   */
  charge(state: State | undefined, at: bigint, cost: number): Verdict<State> {
    const now = this.math.now(state, at);
    const after = cost > 0 ? this.math.add(now, cost, at) : now;
    const retryAfterMs = this.math.waitMs(after, 0, at);
    return {
      ...this.#describe(after, at),
      allowed: retryAfterMs === 0,
      retryAfterMs,
      state: after,
    };
  }

  /** Gives units back. Returns undefined if no units are in use any more. */
  refund(state: State, at: bigint, cost: number): State | undefined {
    const left = this.math.add(this.math.now(state, at), -cost, at);
    return this.math.isEmpty(left) ? undefined : left;
  }

  until(resetUs: bigint, at: bigint): State | undefined {
    return this.math.until?.(resetUs, at);
  }

  #describe(after: State, at: bigint) {
    const remaining = Math.max(0, this.math.remaining(after, at));
    return { limit: this.limit, remaining, resetAfterMs: this.math.resetMs(after, at) };
  }
}

/**
 * Returns the algorithm for a `share` of a rule. A share below one unit is one unit in a longer
 * time. A sliding log of a limit above `slots` counts in that many parts of its window.
 */
export function algorithmOf(rule: Rule, share: number, slots: number): Algorithm {
  const { kind, words } = rule.fallback ?? rule;
  const [, first, ...rest] = words as [string, string, string, string];
  const wanted = Number(first) * share;
  const limit = Math.max(1, Math.floor(wanted));
  const slower = (ticks: bigint, by: number) =>
    by === 1 ? ticks : BigInt(Math.ceil(Number(ticks) / by));
  if (kind === 'gcra' || kind === 'token_bucket' || kind === 'leaky_bucket') {
    const slowed = (unit: bigint) => slower(unit, share);
    return new Algorithm(limit, bucket(kind, limit, Number(rest[0]), slowed, rest[1]));
  }
  const window = slower(microseconds('window', rest[0]), Math.min(1, wanted));
  if (kind === 'fixed') {
    return new Algorithm(limit, fixedWindow(limit, window, rest.includes('ALIGNED')));
  }
  if (kind === 'sliding' && share === 1) return new Algorithm(limit, slidingWindow(limit, window));
  const at = rest.indexOf('SLOTS');
  const parts = at < 0 ? slots : Math.min(Number(rest[at + 1]), slots);
  const slot = limit <= parts ? 1n : max(1n, window / BigInt(parts));
  return new Algorithm(limit, log(limit, window, slot));
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
): Arithmetic<Level> {
  const us = microseconds('period', period);
  const nanos = kind === 'gcra';
  const unit = slower(nanos ? ceilDiv(us * 1000n, BigInt(rate)) : us);
  const drain = nanos ? 1000n : BigInt(rate);
  const full = BigInt(limit) * unit;
  const drainedMs = (level: bigint) => ms(ceilDiv(max(0n, level), drain));
  return {
    now(state, at) {
      const level = state ? max(0n, state.level - max(0n, at - state.at) * drain) : 0n;
      return { level, at };
    },
    add: ({ level }, units, at) => ({ level: max(0n, level + BigInt(units) * unit), at }),
    isEmpty: ({ level }) => level === 0n,
    remaining: ({ level }) => Number(max(0n, full - level) / unit),
    waitMs: ({ level }, units) => drainedMs(level + BigInt(units) * unit - full),
    resetMs: ({ level }) => drainedMs(level),
    ...(kind === 'leaky_bucket' && { turnMs: ({ level }: Level) => drainedMs(level) }),
    until: (resetUs, at) => ({ level: max(0n, resetUs) * drain, at }),
  };
}

interface Counter {
  start: bigint;
  used: number;
}

/** Makes a counter per window, which opens at the first call, or at multiples of its length. */
function fixedWindow(limit: number, window: bigint, aligned: boolean): Arithmetic<Counter> {
  const endsMs = ({ start }: Counter, at: bigint) => ms(start + window - at);
  return {
    now(state, at) {
      const start = aligned ? at - (at % window) : at;
      const isOpen =
        state !== undefined &&
        state.used > 0 &&
        at < state.start + window &&
        (!aligned || state.start >= start);
      return isOpen ? state : { start, used: 0 };
    },
    add: ({ start, used }, units) => ({ start, used: Math.max(0, used + units) }),
    isEmpty: ({ used }) => used === 0,
    remaining: ({ used }) => limit - used,
    waitMs: (now, units, at) => (now.used + units > limit ? endsMs(now, at) : 0),
    resetMs: (now, at) => (now.used > 0 ? endsMs(now, at) : 0),
  };
}

interface TwoCounters {
  start: bigint;
  previous: bigint;
  current: bigint;
}

function slidingWindow(limit: number, window: bigint): Arithmetic<TwoCounters> {
  const rolled = (state: TwoCounters | undefined, at: bigint): TwoCounters => {
    const start = at - (at % window);
    if (state === undefined || state.start + window < start)
      return { start, previous: 0n, current: 0n };
    if (state.start === start) return state;
    return { start, previous: state.current, current: 0n };
  };
  /** Returns the units that are left in parts. A unit has `window` parts. */
  const room = (state: TwoCounters, at: bigint): bigint => {
    const { start, previous, current } = rolled(state, at);
    return BigInt(limit) * window - previous * (window - (at - start)) - current * window;
  };
  return {
    now: rolled,
    add({ start, previous, current }, units) {
      const after = current + BigInt(units);
      if (after >= 0n) return { start, previous, current: after };
      return { start, previous: max(0n, previous + after), current: 0n };
    },
    isEmpty: ({ previous, current }) => previous + current === 0n,
    remaining: (now, at) => Number(max(0n, room(now, at)) / window),
    waitMs(now, units, at) {
      const needed = BigInt(units) * window;
      if (room(now, at) >= needed) return 0;
      let [low, high] = [0n, ceilDiv(2n * window, 1000n)];
      while (high - low > 1n) {
        const middle = (low + high) / 2n;
        if (room(now, at + middle * 1000n) >= needed) high = middle;
        else low = middle;
      }
      return Number(high);
    },
    resetMs({ start, previous, current }, at) {
      return ms(current > 0n ? start + 2n * window - at : previous > 0n ? start + window - at : 0n);
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
function log(limit: number, window: bigint, slot: bigint): Arithmetic<Entries> {
  return {
    now(state, at) {
      const { all, used } = state ?? { all: [], used: 0 };
      const live = all.findIndex((entry) => at < entry.at + window);
      if (live === 0 || all.length === 0) return { all, used };
      const kept = live < 0 ? [] : all.slice(live);
      return { all: kept, used: kept.reduce((sum, { units }) => sum + units, 0) };
    },
    add({ all, used }, units, at) {
      const kept = [...all];
      const slotAt = ceilDiv(at, slot) * slot;
      // No entry is before the newest one.
      let left = units;
      while (left < 0 && kept.length > 0) {
        const newest = kept.pop() as Entries['all'][0];
        if (newest.units + left > 0) kept.push({ at: newest.at, units: newest.units + left });
        left = Math.min(0, left + newest.units);
      }
      const newest = kept.at(-1);
      if (units > 0 && newest !== undefined && newest.at >= slotAt) {
        kept[kept.length - 1] = { at: newest.at, units: newest.units + units };
      } else if (units > 0) kept.push({ at: slotAt, units });
      return { all: kept, used: Math.max(0, used + units) };
    },
    isEmpty: ({ all }) => all.length === 0,
    remaining: ({ used }) => limit - used,
    waitMs({ all, used }, units, at) {
      let needed = used + units - limit;
      if (needed <= 0) return 0;
      // The entry that must expire for the units to become free.
      const last = all.find((entry) => {
        needed -= entry.units;
        return needed <= 0;
      });
      return last === undefined ? 0 : ms(last.at + window - at);
    },
    resetMs({ all }, at) {
      const newest = all.at(-1);
      return newest === undefined ? 0 : ms(newest.at + window - at);
    },
  };
}
