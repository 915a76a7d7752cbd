/** The circuit breaker: pauses the calls to a server that does not reply. */
import type { Clock } from '../rules/clock.js';
import { NotSentError } from '../rules/errors.js';

/** The call that probes a server. */
export interface Probe {
  /** The instant at which it began, in ms. */
  readonly beganAtMs: number;
  /** Called when it has ended. If no result of it was reported, the next call is the probe. */
  left(): void;
}

/**
 * Stops calls to a server that does not reply. After `failures` failures in a row the breaker
 * opens for `pauseMs`. Then one call probes the server. The other calls are refused at once until
 * the probe ends.
 */
export class Breaker {
  #failures = 0;
  #closedAtMs = 0;
  /** The probe in flight. */
  #probe: Probe | undefined;

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
    return this.#probe !== undefined;
  }

  /**
   * Lets a call pass, or throws while the breaker is open.
   *
   * @returns The probe, if the call is it.
   */
  enter(): Probe | undefined {
    // Nearly all calls find no failure.
    if (this.#failures < this.failures) return undefined;
    if (this.open) throw new NotSentError('circuit', 'not sent: the circuit breaker is open');
    const probe: Probe = {
      beganAtMs: this.clock.nowMs(),
      left: () => {
        // Another call may be the probe by now.
        if (this.#probe === probe) this.#probe = undefined;
      },
    };
    this.#probe = probe;
    return probe;
  }

  /** Called after a reply, which closes the breaker. */
  succeeded(): void {
    this.#failures = 0;
    this.#probe = undefined;
  }

  /**
   * Called once for each failure. The last one that is needed opens the breaker. A failure during
   * a probe opens it for another pause, from the begin of the probe.
   *
   * @param dialDueMs The instant before which no dial is due: a probe before it would be useless.
   */
  failed(dialDueMs = Number.NEGATIVE_INFINITY): void {
    this.#failures += 1;
    if (this.#probe !== undefined) {
      this.#closedAtMs = Math.max(this.#probe.beganAtMs + this.pauseMs, dialDueMs);
      this.#probe = undefined;
    } else if (this.#failures === this.failures) {
      this.#closedAtMs = this.clock.nowMs() + this.pauseMs;
    }
  }
}
