/** Leases: permits that renew themselves until they are released, and report when they are lost. */
import type { Clock } from './clock.js';
import type { Decision } from './decision.js';
import { mayHaveRun } from './errors.js';

/** The requests of a lease to its limiter. */
export interface LeaseCalls {
  /** Returns true if this lease still holds the permit. Rejects if there is no answer. */
  renew(untilMs: number): Promise<boolean>;
  /** Resolves after the first attempt, also without an answer. */
  release(untilMs: number): Promise<void>;
}

/**
 * A permit. While it is held, it renews itself after each third of its
 * ttl. It is not a lock: a process that was stopped for longer than the ttl does not notice the
 * loss.
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

  /** @internal Called by `Limiter.lease`. */
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
    if (this.#isOnServer) this.#schedule(made.askedAtMs);
  }

  /**
   * Whether this process still holds the permit, by its own clock. If `onError` allowed the lease,
   * it is held until it is released.
   */
  get held(): boolean {
    if (this.#released || this.#lost.signal.aborted) return false;
    return !this.#isOnServer || this.#clock.nowMs() < this.#heldUntilMs;
  }

  /** Aborted when the lease is lost. Stop the work then: another process may hold the permit. */
  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  get #isOnServer(): boolean {
    return this.decision.source === 'server';
  }

  /**
   * Renews the permit for another ttl. A lease renews itself: call it only to learn the result.
   *
   * @returns False if the lease is lost or released: stop the work then.
   * @throws UnavailableError without an answer; CommandRejectedError if the server refuses it.
   */
  async renew(): Promise<boolean> {
    if (!this.held || !this.#isOnServer) return this.held;
    const askedAtMs = this.#clock.nowMs();
    const isKept = await this.#calls.renew(this.#heldUntilMs);
    if (!isKept) this.#lose();
    // The answers to two renewals may arrive in any order.
    else this.#heldUntilMs = Math.max(this.#heldUntilMs, askedAtMs + this.#ttlMs);
    return this.held;
  }

  /**
   * Releases the permit. Later calls do nothing. If the server gives no answer, the call returns
   * and the release is repeated until the ttl is over or the limiter is closed.
   */
  async release(): Promise<void> {
    if (this.#released) return;
    this.#released = true;
    this.#stop?.();
    if (this.#isOnServer || mayHaveRun(this.decision.error)) {
      await this.#calls.release(this.#heldUntilMs);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  #lose(): void {
    this.#stop?.();
    if (!this.#released) this.#lost.abort(new Error('the lease is lost'));
  }

  /** Plans the renewal that follows a third of the ttl after the last one was sent. */
  #schedule(sentAtMs: number): void {
    const dueMs = Math.min(sentAtMs + this.#ttlMs / 3, this.#heldUntilMs);
    this.#stop = this.#clock.after(Math.max(0, dueMs - this.#clock.nowMs()), () => {
      const nowMs = this.#clock.nowMs();
      if (nowMs >= this.#heldUntilMs) {
        this.#lose();
        return;
      }
      // The next renewal does not wait for the answer to this one.
      this.#schedule(nowMs);
      // Ignore an error: further renewals follow before the permit expires.
      this.renew().catch(() => {});
    });
  }
}
