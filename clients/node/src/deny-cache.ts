/**
 * The denial cache: a denied call is denied again, without a call to the server, until its
 * `retryAfterMs` has passed. The cache is exact unless the key is deleted, refunded or gets another
 * limit in the meantime. When it is full, the oldest denial is dropped.
 */
import type { Clock } from './clock.js';
import { Decision } from './decision.js';
import type { Rule } from './rules.js';

/** Separates the keys of a call with several rules. It cannot occur in a key. */
const SEPARATOR = '\0';

/** Returns the two strings under which the cache stores a call with several rules. */
export function joint(
  asks: readonly { rule: Rule; key: string; cost?: number | undefined }[],
): [keys: string, costs: string] {
  return [
    asks.map(({ key }) => key).join(SEPARATOR),
    asks.map(({ rule, cost = 1 }) => [...rule.words, cost].join(' ')).join(SEPARATOR),
  ];
}

interface Held {
  decision: Decision;
  /** The instant before the call was sent, in ms. */
  atMs: number;
}

export class DenyCache {
  /** The denials by key, then by cost. */
  readonly #held = new Map<string, Map<number | string, Held>>();
  /** The keys of `#held` that belong to calls with several rules. */
  readonly #joint = new Set<string>();
  #count = 0;

  constructor(
    private readonly clock: Clock,
    private readonly size: number,
  ) {}

  /** Returns the cached denial with the time that is left, or undefined. */
  get(key: string, cost: number | string, rule?: Rule): Decision | undefined {
    const held = this.#held.get(key)?.get(cost);
    if (held === undefined) return undefined;
    // The customer's plan may have changed to a rule with the same name.
    if (rule !== undefined && !held.decision.isOf(rule)) return undefined;
    const passed = Math.floor(this.clock.nowMs() - held.atMs);
    const { decision } = held;
    if (passed >= decision.retryAfterMs) {
      this.#drop(key, cost);
      return undefined;
    }
    return aged(decision, passed);
  }

  /**
   * @param askedAtMs The instant before the call was sent, so that the denial expires here no later
   * than on the server.
   */
  put(key: string, cost: number | string, decision: Decision, askedAtMs: number): void {
    if (decision.allowed || decision.source !== 'server' || decision.retryAfterMs <= 0) return;
    this.#drop(key, cost);
    const costs = this.#held.get(key) ?? new Map<number | string, Held>();
    this.#held.set(key, costs.set(cost, { decision, atMs: askedAtMs }));
    this.#count += 1;
    if (key.includes(SEPARATOR)) this.#joint.add(key);
    if (this.#count > this.size) this.#remove(this.#held.keys().next().value as string);
  }

  #drop(key: string, cost: number | string): void {
    const costs = this.#held.get(key);
    if (costs?.delete(cost) !== true) return;
    this.#count -= 1;
    if (costs.size === 0) this.#remove(key);
  }

  /** Removes all denials of a key, of every cost. */
  forget(key: string): void {
    this.#remove(key);
    for (const keys of this.#joint) {
      if (keys.split(SEPARATOR).includes(key)) this.#remove(keys);
    }
  }

  #remove(key: string): void {
    this.#count -= this.#held.get(key)?.size ?? 0;
    this.#held.delete(key);
    this.#joint.delete(key);
  }
}

/** Returns the denial as it is `passedMs` later, with this process as its source. */
function aged(decision: Decision, passedMs: number): Decision {
  const left = (ms: number) => (ms > 0 ? Math.max(0, ms - passedMs) : ms);
  return new Decision({
    ...decision.fields(),
    retryAfterMs: left(decision.retryAfterMs),
    wouldRetryAfterMs: left(decision.wouldRetryAfterMs),
    resetAfterMs: left(decision.resetAfterMs),
    source: 'local',
    parts: decision.parts.map((part) => aged(part, passedMs)),
  });
}
