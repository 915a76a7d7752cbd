/** Reservations: units that are held until the cost of the work is known. */
import type { Decision } from '../rules/decision.js';
import type { Rule } from '../rules/rule.js';
import type { Admission } from './admission.js';

/**
 * An admission of one reservation, created by `Limiter.reserve`. It renews itself until its end.
 */
export class Reservation {
  readonly #admission: Admission;
  readonly #rule: Rule;

  /** @internal Called by `Limiter.reserve`. */
  constructor(admission: Admission, rule: Rule) {
    this.#admission = admission;
    this.#rule = rule;
  }

  get decision(): Decision {
    return this.#admission.decision;
  }

  /** The id of the reservation. */
  get id(): string {
    return this.#admission.id;
  }

  /** True if the reservation lasts and is not lost, by the clock of this process. */
  get held(): boolean {
    return this.#admission.held;
  }

  /** Aborted when the reservation is lost. */
  get signal(): AbortSignal {
    return this.#admission.signal;
  }

  /**
   * Charges the units that the work took, and ends the reservation; see `Admission.finish`.
   *
   * @throws InvalidArgumentError after the end.
   *
   * @example
   * const tokens = quota('tokens', 100_000, 'month');
   * const reserved = await limiter.reserve(tokens, '42', { cost: 500 });
   * await reserved.commit(420);
   * (await limiter.peek(tokens, '42', { cost: 0 })).remaining; // 99_580
   */
  async commit(actual: number): Promise<void> {
    this.#admission.settle(this.#rule, actual);
    await this.#admission.finish();
  }

  /** Frees the reserved units. After the end it does nothing. */
  async cancel(): Promise<void> {
    await this.#admission.finish();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.cancel();
  }
}
