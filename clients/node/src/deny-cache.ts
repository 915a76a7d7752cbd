/**
 * Denials that still hold: until its `retry_after` a denied call would be denied again, so nobody
 * needs to ask. Exact while nobody deletes, refunds or changes the limit. Bounded: the oldest goes
 * first.
 */
import type { Clock } from './clock.js';
import { Decision } from './decision.js';

interface Held {
  decision: Decision;
  /** Before the call was sent. */
  atMs: number;
}

export class DenyCache {
  /** By key, then by cost. */
  readonly #held = new Map<string, Map<number, Held>>();
  #count = 0;

  constructor(
    private readonly clock: Clock,
    private readonly size: number,
  ) {}

  /** The denial with what is left of its times, or undefined. */
  get(key: string, cost: number): Decision | undefined {
    const held = this.#held.get(key)?.get(cost);
    if (held === undefined) return undefined;
    const passed = Math.floor(this.clock.nowMs() - held.atMs);
    const { decision } = held;
    if (passed >= decision.retryAfterMs) {
      this.#drop(key, cost);
      return undefined;
    }
    return new Decision({
      ...decision.fields(),
      retryAfterMs: decision.retryAfterMs - passed,
      wouldRetryAfterMs: Math.max(0, decision.wouldRetryAfterMs - passed),
      resetAfterMs: Math.max(0, decision.resetAfterMs - passed),
      source: 'local',
    });
  }

  /**
   * @param askedAtMs Before the call was sent, so that nothing is held longer than the server holds
   * it.
   */
  put(key: string, cost: number, decision: Decision, askedAtMs: number): void {
    if (decision.allowed || decision.source !== 'server' || decision.retryAfterMs <= 0) return;
    this.#drop(key, cost);
    const costs = this.#held.get(key) ?? new Map<number, Held>();
    this.#held.set(key, costs.set(cost, { decision, atMs: askedAtMs }));
    this.#count += 1;
    if (this.#count > this.size) this.forget(this.#held.keys().next().value as string);
  }

  #drop(key: string, cost: number): void {
    const costs = this.#held.get(key);
    if (costs?.delete(cost) !== true) return;
    this.#count -= 1;
    if (costs.size === 0) this.#held.delete(key);
  }

  /** Forgets what this process knows of a key, whatever the cost. */
  forget(key: string): void {
    this.#count -= this.#held.get(key)?.size ?? 0;
    this.#held.delete(key);
  }
}
