/**
 * Denials that still hold: until its `retry_after` a denied call would be denied again, so nobody
 * needs to ask. Exact while nobody deletes, refunds or changes the limit. Bounded: the oldest goes
 * first.
 */
import type { Clock } from './clock.js';
import { Decision } from './decision.js';
import type { Rule } from './rules.js';

/** Between the keys of a call of several rules: it stands in no key. */
const SEPARATOR = '\0';

/** What the denial of a call of several rules is held by, in place of its key and its cost. */
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
  /** The keys of several rules among them. */
  readonly #joint = new Set<string>();
  #count = 0;

  constructor(
    private readonly clock: Clock,
    private readonly size: number,
  ) {}

  /** The denial with what is left of its times, or undefined. */
  get(key: string, cost: number | string, rule?: Rule): Decision | undefined {
    const held = this.#held.get(key)?.get(cost);
    if (held === undefined) return undefined;
    // The plan of a customer may have changed, and its rule have the same name.
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
   * @param askedAtMs Before the call was sent, so that nothing is held longer than the server holds
   * it.
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

  /** Forgets what this process knows of a key, whatever the cost. */
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

/** So many ms later, and from here. */
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
