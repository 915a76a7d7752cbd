/** A permit that renews itself until it is released, and says when it is lost. */
import type { Clock } from './clock.js';
import type { Decision } from './decision.js';

/** What a lease asks of its limiter. */
export interface LeaseCalls {
  /** Whether the permit is still ours; rejects without an answer. */
  renew(): Promise<boolean>;
  release(): Promise<void>;
}

/**
 * A lease, or the refusal of one: `allowed` tells. While it is held it renews itself at a third of
 * its ttl. It is no lock: a process that was stopped for longer than the ttl does not know that it
 * lost it.
 */
export class Lease {
  readonly decision: Decision;
  readonly id: string;
  readonly #lost = new AbortController();
  readonly #calls: LeaseCalls;
  readonly #clock: Clock;
  readonly #ttlMs: number;
  #heldUntilMs: number;
  #stop: (() => void) | undefined;
  #released = false;

  /** @internal Made by `Limiter.lease`. */
  constructor(
    made: { decision: Decision; id: string; ttlMs: number; askedAtMs: number; clock: Clock },
    calls: LeaseCalls,
  ) {
    this.decision = made.decision;
    this.id = made.id;
    this.#clock = made.clock;
    this.#ttlMs = made.ttlMs;
    this.#calls = calls;
    this.#heldUntilMs = made.askedAtMs + made.ttlMs;
    if (this.#isOnServer) this.#schedule();
  }

  get allowed(): boolean {
    return this.decision.allowed;
  }

  /**
   * Whether the permit is ours by this process' clock. Of a lease that nobody decided: until it is
   * released.
   */
  get held(): boolean {
    if (!this.allowed || this.#released || this.#lost.signal.aborted) return false;
    return !this.#isOnServer || this.#clock.nowMs() < this.#heldUntilMs;
  }

  /** Aborted when the lease is lost: stop then, somebody else may hold the permit. */
  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  get #isOnServer(): boolean {
    return this.allowed && this.decision.source === 'server';
  }

  /**
   * Gives the permit back, once. A release that finds no server is forgotten: the permit lapses.
   */
  async release(): Promise<void> {
    if (this.#released) return;
    this.#released = true;
    this.#stop?.();
    if (this.#isOnServer) await this.#calls.release().catch(() => {});
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  #schedule(): void {
    const leftMs = this.#heldUntilMs - this.#clock.nowMs();
    if (leftMs <= 0) {
      this.#lost.abort(new Error('the lease is lost'));
      return;
    }
    const delayMs = Math.min(this.#ttlMs / 3, leftMs);
    this.#stop = this.#clock.after(delayMs, () => void this.#renew());
  }

  async #renew(): Promise<void> {
    const askedAtMs = this.#clock.nowMs();
    if (askedAtMs < this.#heldUntilMs) {
      try {
        const kept = await this.#calls.renew();
        this.#heldUntilMs = kept ? askedAtMs + this.#ttlMs : 0;
      } catch {
        // There are more tries before it lapses.
      }
    }
    if (!this.#released) this.#schedule();
  }
}
