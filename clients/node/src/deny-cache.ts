/**
 * Denials that still hold: a denied call is denied again until its `retryAfterMs` has passed, so
 * the server is not called. Exact unless a key is deleted, refunded or gets another limit
 * meanwhile. Bounded: the oldest denial is dropped first.
 */
import type { Clock } from './clock.js';
import { Decision } from './decision.js';
import type { Rule } from './rules.js';

/** Separates the keys of a call with several rules. It cannot occur in a key. */
const SEPARATOR = '\0';

/** Returns the cache key of a call with several rules, in place of its key and its cost. */
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
  /** Before the call was sent. */
  atMs: number;
}

export class DenyCache {
  /** By key, then by cost. */
  readonly #held = new Map<string, Map<number | string, Held>>();
  /** Those keys of `#held` that belong to several rules. */
  readonly #joint = new Set<string>();
  #count = 0;

  constructor(
    private readonly clock: Clock,
    private readonly size: number,
  ) {}

  /** Returns the denial with the time left, or undefined. */
  get(key: string, cost: number | string, rule?: Rule): Decision | undefined {
    const held = this.#held.get(key)?.get(cost);
    if (held === undefined) return undefined;
    // The customer's plan may have changed to a rule of the same name.
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
   * @param askedAtMs The time before the call was sent, so that a denial is not kept longer here
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

  /** Forgets all denials of a key, whatever the cost. */
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

/** Returns the denial as of `passedMs` later, decided locally. */
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
