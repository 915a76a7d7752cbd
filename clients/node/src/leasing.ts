/** Sends the calls of leases: renewals, and releases until they are answered. */
import type { Calls } from './calls.js';
import { type Clock, sleep } from './clock.js';
import type { Decision } from './decision.js';
import { CommandRejectedError, mayHaveRun, UnavailableError } from './errors.js';
import { Lease } from './lease.js';
import * as protocol from './protocol.js';
import { microseconds, type Rule } from './rules.js';

/** The pauses between two attempts of a release: the first, doubling up to the longest, in ms. */
const PAUSE_MS = 100;
const PAUSE_MAX_MS = 5000;

/** A permit that this process may hold. */
interface Held {
  rule: Rule;
  key: string;
  id: string;
}

function ttlMsOf(rule: Rule): number {
  return Number(microseconds('ttl', rule.words[2] as string)) / 1000;
}

export class Leasing {
  readonly #closed = new AbortController();

  constructor(
    private readonly calls: Calls,
    private readonly clock: Clock,
    private readonly timeoutMs: number,
    /** Called with the error of each attempt that failed. */
    private readonly onError: (error: unknown) => void,
  ) {}

  /** Returns the lease of a decision that allowed it, or that `onError` made. */
  lease(held: Held, decision: Decision, askedAtMs: number): Lease {
    const { rule, key, id } = held;
    const ttlMs = ttlMsOf(rule);
    return new Lease(
      { decision, id, ttlMs, askedAtMs, clock: this.clock },
      {
        renew: async (untilMs) => {
          const reply = await this.#send(protocol.renew(rule, key, id), untilMs);
          return protocol.replyInteger(reply) === 1;
        },
        release: (untilMs) => this.#release(held, untilMs),
      },
    );
  }

  /**
   * Decides leases. Releases those that may be granted, but whose caller has no permit: `onError`
   * denied them, or the caller gave up.
   */
  async abandoning(
    leases: readonly Held[],
    signal: AbortSignal | undefined,
    decide: () => Promise<Decision>,
  ): Promise<Decision> {
    const abandon = () => {
      for (const held of leases) {
        void this.#release(held, this.clock.nowMs() + ttlMsOf(held.rule));
      }
    };
    try {
      const decision = await decide();
      if (!decision.allowed && mayHaveRun(decision.error)) abandon();
      return decision;
    } catch (error) {
      if (signal?.aborted) abandon();
      throw error;
    }
  }

  /** Releases a permit. Resolves after the first attempt; further ones follow by themselves. */
  async #release({ key, id }: Held, untilMs: number): Promise<void> {
    const call = protocol.release(key, id);
    if (await this.#isReleased(call, untilMs)) return;
    void this.#repeat(call, untilMs);
  }

  async #repeat(call: protocol.Call, untilMs: number): Promise<void> {
    for (let pauseMs = PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, PAUSE_MAX_MS)) {
      if (this.clock.nowMs() + pauseMs >= untilMs) return;
      const slept = sleep(this.clock, pauseMs, this.#closed.signal).then(
        () => true,
        () => false,
      );
      if (!(await slept) || (await this.#isReleased(call, untilMs))) return;
    }
  }

  /** Returns true if the server has answered, even by a rejection. */
  async #isReleased(call: protocol.Call, untilMs: number): Promise<boolean> {
    try {
      await this.#send(call, untilMs);
      return true;
    } catch (error) {
      return error instanceof CommandRejectedError || !(error instanceof UnavailableError);
    }
  }

  async #send(call: protocol.Call, untilMs: number): Promise<unknown> {
    try {
      return await this.calls.sendOfLease(call, this.timeoutMs, untilMs);
    } catch (error) {
      this.onError(error);
      throw error;
    }
  }

  /** Ends the repetitions. */
  close(): void {
    this.#closed.abort();
  }
}
