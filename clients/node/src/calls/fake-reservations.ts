/** The reservations of the fake server. */
import { microseconds } from '../rules/durations.js';
import type { Leave } from '../rules/forms.js';
import { unitsOf } from '../rules/rule.js';
import type { Algorithm, Verdict } from './algorithms.js';
import type { Counter, Reserved, Usage, WindowAlgorithm } from './windows.js';

/** The number of ids that a key remembers at a time. */
const IDS_MAX = 1024;
/** The shortest time for which an id is remembered after its commit, unless the ttl is shorter. */
const SETTLED_US = 60_000_000n;

/** Returns the usage of a key under a rule that can reserve. */
export function usageOf(algorithm: Algorithm, state: unknown, nowUs: bigint): Usage {
  if (!('at' in algorithm)) {
    throw new Error('WRONGTYPE reservations are for FIXED, QUOTA and policies of them');
  }
  return (algorithm as WindowAlgorithm).at(state as Counter | undefined, nowUs);
}

function isOpen(one: Reserved | undefined): one is Reserved & { units: number } {
  return one?.units !== undefined;
}

interface Wanted {
  readonly id: string;
  readonly ttl: string;
  readonly cost: number;
  readonly leave: Leave | undefined;
}

/** Decides a reservation. Those of the same id are replaced. */
export function reserved(
  usage: Usage,
  nowUs: bigint,
  { id, ttl, cost, leave }: Wanted,
): Verdict<Counter> {
  const own = usage.reserved.find((one) => one.id === id);
  const others = usage.reserved.filter((one) => one !== own);
  if (own !== undefined && !isOpen(own)) {
    throw new Error('ERR invalid id: already committed, use a new id for each job');
  }
  if (own === undefined && others.length >= IDS_MAX) {
    throw new Error('ERR too many reservations: a key remembers at most 1024 ids at a time');
  }
  const without = usage.with(usage.used, others);
  const { limit } = usage.shown();
  const needed = cost + unitsOf(leave, limit);
  const allowed = needed === 0 || without.taken + needed <= limit;
  if (!allowed) {
    const retryAfterMs = without.roomInMs(needed);
    return { ...usage.shown(), allowed, retryAfterMs, state: undefined };
  }
  const ttlUs = microseconds('ttl', ttl);
  const made = { id, units: cost, ttlUs, lapsesAt: nowUs + ttlUs };
  const after = usage.with(usage.used, [...others, made]);
  return { ...after.shown(), allowed, retryAfterMs: 0, state: after.state() };
}

/**
 * Ends a reservation.
 *
 * @param cost The units that a commit uses; undefined cancels the reservation.
 * @returns A verdict that allows if the id was open, or a commit found it settled.
 */
export function ended(
  usage: Usage,
  nowUs: bigint,
  id: string,
  cost: number | undefined,
): Verdict<Counter> {
  const own = usage.reserved.find((one) => one.id === id);
  const others = usage.reserved.filter((one) => one !== own);
  let after = usage;
  if (isOpen(own) && cost === undefined) after = usage.with(usage.used, others);
  else if (isOpen(own)) {
    const leftUs = own.lapsesAt - nowUs;
    const leastUs = own.ttlUs < SETTLED_US ? own.ttlUs : SETTLED_US;
    const lapsesAt = nowUs + (leftUs > leastUs ? leftUs : leastUs);
    const settled = { ...own, units: undefined, lapsesAt };
    after = usage.with(usage.used + (cost as number), [...others, settled]);
  }
  const allowed = cost === undefined ? isOpen(own) : own !== undefined;
  return { ...after.shown(), allowed, retryAfterMs: after.roomInMs(0), state: after.state() };
}
