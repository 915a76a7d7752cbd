/** One call, one answer, within the deadline: never more at once than agreed, never repeated. */
import type { Clock } from './clock.js';
import type { Connection } from './connection.js';
import { classified, MistakeError, UnavailableError } from './errors.js';
import type { Breaker } from './policy.js';
import type { Call } from './protocol.js';
import { UntilGivenUp } from './waiting.js';

export class Calls {
  #inFlight = 0;

  constructor(
    private readonly connection: Connection,
    private readonly clock: Clock,
    private readonly breaker: Breaker,
    private readonly maxInFlight: number,
  ) {}

  /** Rejects with a MistakeError, an UnavailableError, or as it was aborted. */
  async send(call: Call, timeoutMs: number, signal: AbortSignal | undefined): Promise<unknown> {
    signal?.throwIfAborted();
    if (this.#inFlight >= this.maxInFlight) {
      throw new UnavailableError('overloaded', `not asked: ${this.maxInFlight} calls in flight`);
    }
    this.breaker.enter();
    this.#inFlight += 1;
    const waiting = new UntilGivenUp();
    return new Promise((resolve, reject) => {
      let settled = false;
      const settle = (outcome: 'answered' | 'failed' | 'neither'): boolean => {
        if (settled) return false;
        settled = true;
        stop();
        signal?.removeEventListener('abort', onAbort);
        this.breaker.ended(outcome);
        return true;
      };
      const giveUp = (outcome: 'failed' | 'neither', reason: unknown) => {
        if (!settle(outcome)) return;
        reject(reason);
        waiting.end();
      };
      const onAbort = () => giveUp('neither', signal?.reason);
      const stop = this.clock.after(timeoutMs, () => {
        giveUp('failed', new UnavailableError('timeout', `no answer in ${timeoutMs} ms`));
      });
      signal?.addEventListener('abort', onAbort, { once: true });
      // Who was given up still counts as in flight, until the driver has settled it.
      this.connection.send(call, waiting).then(
        (reply) => {
          this.#inFlight -= 1;
          if (settle('answered')) resolve(reply);
        },
        (error) => {
          this.#inFlight -= 1;
          const known = classified(error);
          if (settle(known instanceof MistakeError ? 'answered' : 'failed')) reject(known);
        },
      );
    });
  }
}
