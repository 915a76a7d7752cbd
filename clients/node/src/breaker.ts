/** The circuit breaker: pauses the calls to a server that does not answer. */
import type { Clock } from './clock.js';
import { NotSentError } from './errors.js';

/**
 * Stops calls to a server that does not answer. After `failures` failures in a row the breaker
 * opens for `pauseMs`. Then one call probes the server. The other calls are refused at once until
 * the probe ends.
 */
export class Breaker {
  #failures = 0;
  #closedAtMs = 0;
  /** The instant at which the probe in flight began, in ms. */
  #probedAtMs: number | undefined;

  constructor(
    private readonly clock: Clock,
    private readonly failures: number,
    private readonly pauseMs: number,
  ) {}

  /** True if the breaker would refuse the next call. */
  get open(): boolean {
    if (this.#failures < this.failures) return false;
    return this.isProbing || this.clock.nowMs() < this.#closedAtMs;
  }

  get isProbing(): boolean {
    return this.#probedAtMs !== undefined;
  }

  /**
   * Lets a call pass, or throws while the breaker is open.
   *
   * @returns True if the call is the probe. If it ends neither way, `left` must be called.
   */
  enter(): boolean {
    // Nearly all calls find no failure.
    if (this.#failures < this.failures) return false;
    if (this.open) throw new NotSentError('circuit', 'not sent: the circuit breaker is open');
    this.#probedAtMs = this.clock.nowMs();
    return true;
  }

  /** Called after an answer, which closes the breaker. */
  answered(): void {
    this.#failures = 0;
    this.#probedAtMs = undefined;
  }

  /**
   * Called once for each failure. The last one that is needed opens the breaker. A failure during
   * a probe opens it for another pause, from the begin of the probe.
   *
   * @param dialDueMs The instant before which no dial is due: a probe before it would be useless.
   */
  failed(dialDueMs = Number.NEGATIVE_INFINITY): void {
    this.#failures += 1;
    if (this.#probedAtMs !== undefined) {
      this.#closedAtMs = Math.max(this.#probedAtMs + this.pauseMs, dialDueMs);
      this.#probedAtMs = undefined;
    } else if (this.#failures === this.failures) {
      this.#closedAtMs = this.clock.nowMs() + this.pauseMs;
    }
  }

  /** Called when the caller of the probe has left without a result. The next call is the probe. */
  left(): void {
    this.#probedAtMs = undefined;
  }
}
