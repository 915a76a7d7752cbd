/** Denied requests that extend their own denial, as two options of @fastify/rate-limit want it. */

import type { Limiter } from '../limiter.js';
import { LONGEST_MS, MAX_LIMIT } from '../rules/durations.js';
import { UnavailableError } from '../rules/errors.js';
import { fixed, type Rule } from '../rules/forms.js';

/** `continue`: each denial starts the window again. `double`: it also doubles it. */
export type Growth = 'continue' | 'double';

/** A denied request. */
interface Over {
  readonly rule: Rule;
  readonly subject: string;
  readonly max: number;
  /** The window, in ms. */
  readonly timeWindow: number;
  /** The hits of the window; undefined if its key is blocked by an earlier denial. */
  readonly hits: number | undefined;
  /** The ms until the denial ends, without this one. */
  readonly leftMs: number;
}

/** The time between two calls for which a count is kept, in ms. */
const MARGIN_MS = 1000;

/**
 * Blocks the key of the window for as long as the denial lasts, and counts the denials on a key of
 * their own, which lives at least as long.
 */
export class Exceeding {
  constructor(
    private readonly limiter: Limiter,
    private readonly name: string,
    private readonly growth: Growth,
  ) {}

  /**
   * Counts a denial, and extends it. Without an answer the denial ends as it would have.
   *
   * @returns The hits, and the ms until the denial ends.
   */
  async hit(over: Over): Promise<{ current: number; ttl: number }> {
    const { rule, subject, hits, leftMs } = over;
    const max = Math.max(0, Math.floor(over.max));
    try {
      // The first denial of a window.
      if (hits === max + 1) await this.limiter.forget(this.#denials(LONGEST_MS), after(subject));
      const count = await this.#count(over);
      const ttl = Math.max(this.#lasts(over.timeWindow, count), leftMs);
      await this.limiter.block(rule, subject, `${ttl}ms`);
      // This process then knows the denial, should the server fall silent.
      await this.limiter.peek(rule, subject, { cost: 0 });
      return { current: max + count, ttl };
    } catch (error) {
      if (!(error instanceof UnavailableError)) throw error;
      return { current: hits ?? max + 1, ttl: leftMs };
    }
  }

  /** Returns the number of denials of the window of a key. */
  async count(subject: string): Promise<number> {
    return (await this.#denied(subject)).count;
  }

  async #denied(subject: string): Promise<{ count: number; ageMs: number }> {
    const rule = this.#denials(LONGEST_MS);
    const { limit, remaining, resetAfterMs } = await this.limiter.peek(rule, after(subject), {
      cost: 0,
    });
    const count = limit - remaining;
    return { count, ageMs: count === 0 ? 0 : LONGEST_MS - resetAfterMs };
  }

  /** Counts a denial, and returns the number of denials. */
  async #count({ subject, timeWindow }: Over): Promise<number> {
    const { count, ageMs } = await this.#denied(subject);
    const keptMs = ageMs + 2 * this.#lasts(timeWindow, count + 1) + MARGIN_MS;
    const rule = this.#denials(Math.min(keptMs, LONGEST_MS));
    const { limit, remaining } = await this.limiter.charge(rule, after(subject));
    return limit - remaining;
  }

  /** Returns how long a denial lasts, in ms. */
  #lasts(timeWindow: number, count: number): number {
    const times = this.growth === 'double' ? 2 ** (count - 1) : 1;
    return Math.min(Math.ceil(timeWindow * times), LONGEST_MS);
  }

  #denials(windowMs: number): Rule {
    return fixed(this.name, MAX_LIMIT, `${windowMs}ms`, { prefetch: 1 });
  }
}

/** Returns the subject that counts denials: no other ends in an empty part. */
function after(subject: string): string {
  return `${subject}|`;
}
