/** Leases: permits that renew themselves until they are released, and report when they are lost. */
import type { Decision } from '../rules/decision.js';
import type { End, Hold } from './hold.js';

/**
 * A permit. While it is held, it renews itself after each third of its
 * ttl. It is not a lock: a process that was stopped for longer than the ttl does not notice the
 * loss.
 */
export class Lease {
  readonly decision: Decision;
  readonly id: string;
  readonly #hold: Hold;
  readonly #end: End;

  /** @internal Called by `Limiter.lease`. */
  constructor(decision: Decision, id: string, hold: Hold, end: End) {
    this.decision = decision;
    this.id = id;
    this.#hold = hold;
    this.#end = end;
    end.follow(this);
  }

  /**
   * True if this process still holds the permit, by its own clock. If `onError` allowed the lease,
   * it is held until it is released or the limiter is closed.
   */
  get held(): boolean {
    return this.#hold.held;
  }

  /** Aborted when the lease is lost. Stop the work then: another process may hold the permit. */
  get signal(): AbortSignal {
    return this.#hold.signal;
  }

  /**
   * Renews the permit for another ttl. A lease renews itself: call it only to learn the result.
   *
   * @returns False if the lease is lost or released: stop the work then.
   * @throws UnavailableError without a reply; CommandRejectedError if the server refuses it.
   */
  async renew(): Promise<boolean> {
    return this.#hold.renew();
  }

  /**
   * Releases the permit, unless `Limiter.close` has done so. A later call waits for the first. If
   * the server does not reply, the call returns and the release is repeated until the ttl is over
   * or the limiter is closed.
   */
  async release(): Promise<void> {
    await this.#end.run();
  }

  /**
   * Ends the renewals without a release, so the permit expires after its ttl at the latest. It can
   * still be released, and `Limiter.close` does so.
   *
   * @internal For the middleware, while the work for a client that has left may go on.
   */
  letExpire(): void {
    this.#end.letExpire();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }
}
