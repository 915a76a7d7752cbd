/** The circuit breaker: pauses the calls to a server that does not answer. */
import type { Clock } from './clock.js';
import { UnavailableError } from './errors.js';

/** The end of a call. `neither` if it says nothing about the server: its caller gave up. */
export type Outcome = 'answered' | 'failed' | 'neither';

/**
 * Stops calls to a server that does not answer. After `failures` failures in a row the breaker
 * opens for `pauseMs`. Then one call probes the server. The other calls are refused at once until
 * the probe ends.
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

  /** True if the breaker would refuse the next call. */
  get open(): boolean {
    if (this.#failures < this.failures) return false;
    return this.#probing || this.clock.nowMs() < this.#closedAtMs;
  }

  /**
   * Lets a call pass, or throws while the breaker is open. For each call that passes, `ended` must
   * be called.
   *
   * @returns True if the call is the probe.
   */
  enter(): boolean {
    if (this.open) throw new UnavailableError('circuit', 'not sent: the circuit breaker is open');
    const isProbe = this.#failures >= this.failures;
    if (isProbe) this.#probing = true;
    return isProbe;
  }

  ended(outcome: Outcome, isProbe: boolean): void {
    if (isProbe) this.#probing = false;
    if (outcome === 'answered') this.#failures = 0;
    if (outcome !== 'failed') return;
    this.#failures += 1;
    this.#closedAtMs = this.clock.nowMs() + this.pauseMs;
  }
}
