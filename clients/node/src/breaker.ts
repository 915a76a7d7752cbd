/** The circuit breaker: pauses the calls to a server that does not answer. */
import type { Clock } from './clock.js';
import { UnavailableError } from './errors.js';

/**
 * Stops asking a server that does not answer: after `failures` in a row for `pauseMs`, then one
 * call tries, and the others wait for nothing.
 */
export class Breaker {
  #failures = 0;
  #closedAtMs = 0;
  #probing = false;

  constructor(
    private readonly clock: Clock,
    private readonly failures: number,
    private readonly pauseMs: number,
  ) {}

  /** Whether the next call would be refused here. */
  get open(): boolean {
    if (this.#failures < this.failures) return false;
    return this.#probing || this.clock.nowMs() < this.#closedAtMs;
  }

  /** Ms until a call may try again. */
  get retryAfterMs(): number {
    return this.open ? Math.max(1, Math.ceil(this.#closedAtMs - this.clock.nowMs())) : 0;
  }

  /**
   * Before a call: throws while it is open. Every call that came past here ends in `ended`.
   *
   * @returns Whether it is the one that tries.
   */
  enter(): boolean {
    if (this.open) throw new UnavailableError('circuit', 'not asked: it did not answer before');
    const isProbe = this.#failures >= this.failures;
    if (isProbe) this.#probing = true;
    return isProbe;
  }

  /** @param outcome `neither`: given up by the caller, which says nothing about the server. */
  ended(outcome: 'answered' | 'failed' | 'neither', isProbe: boolean): void {
    if (isProbe) this.#probing = false;
    if (outcome === 'answered') this.#failures = 0;
    if (outcome !== 'failed') return;
    this.#failures += 1;
    this.#closedAtMs = this.clock.nowMs() + this.pauseMs;
  }
}
