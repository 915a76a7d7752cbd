/**
 * Denials that still hold: until its `retry_after` a denied call would be denied again, so nobody
 * needs to ask. Exact while nobody deletes, refunds or changes the limit. Bounded: the oldest goes
 * first.
 */
import type { Clock } from './clock.js';
import { Decision } from './decision.js';

export class DenyCache {
  readonly #held = new Map<string, { decision: Decision; atMs: number }>();

  constructor(
    private readonly clock: Clock,
    private readonly size: number,
  ) {}

  /** The denial with what is left of its times, or undefined. */
  get(key: string, cost: number): Decision | undefined {
    const id = `${cost} ${key}`;
    const held = this.#held.get(id);
    if (held === undefined) return undefined;
    const passed = Math.floor(this.clock.nowMs() - held.atMs);
    const { decision } = held;
    if (passed >= decision.retryAfterMs) {
      this.#held.delete(id);
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
    if (decision.allowed || decision.retryAfterMs <= 0) return;
    const id = `${cost} ${key}`;
    this.#held.delete(id);
    this.#held.set(id, { decision, atMs: askedAtMs });
    if (this.#held.size > this.size) {
      this.#held.delete(this.#held.keys().next().value as string);
    }
  }

  /** Forgets what this process knows of a key, whatever the cost. */
  forget(key: string): void {
    for (const id of this.#held.keys()) {
      if (id.slice(id.indexOf(' ') + 1) === key) this.#held.delete(id);
    }
  }
}
