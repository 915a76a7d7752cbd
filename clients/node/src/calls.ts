/** One call, one answer, within the deadline: never more at once than agreed, never repeated. */
import type { Clock } from './clock.js';
import type { Connection } from './connection.js';
import { classified, MistakeError, UnavailableError } from './errors.js';
import { Breaker } from './policy.js';
import type { Call } from './protocol.js';
import { UntilGivenUp } from './waiting.js';

export interface CallsOptions {
  maxInFlight: number;
  breakerFailures: number;
  breakerPauseMs: number;
}

/** What is known of a node. */
interface Node {
  readonly breaker: Breaker;
  inFlight: number;
}

export class Calls {
  /** By name; a server that is no cluster has none. */
  readonly #nodes = new Map<string, Node>();

  constructor(
    private readonly connection: Connection,
    private readonly clock: Clock,
    private readonly options: CallsOptions,
  ) {}

  /** Each node of a cluster has its own: one that is dead does not open the others. */
  #node(call: Pick<Call, 'keys'>): Node {
    const name = this.connection.nodeOf?.(call) ?? '';
    let node = this.#nodes.get(name);
    if (node === undefined) {
      const { breakerFailures, breakerPauseMs } = this.options;
      node = { breaker: new Breaker(this.clock, breakerFailures, breakerPauseMs), inFlight: 0 };
      this.#nodes.set(name, node);
    }
    return node;
  }

  /** Ms until a call under this key may try again; at least 1. */
  retryAfterMs(key: string): number {
    return this.#node({ keys: [key] }).breaker.retryAfterMs || this.options.breakerPauseMs;
  }

  /** Rejects with a MistakeError, an UnavailableError, or as it was aborted. */
  async send(call: Call, timeoutMs: number, signal: AbortSignal | undefined): Promise<unknown> {
    signal?.throwIfAborted();
    const node = this.#node(call);
    const { maxInFlight } = this.options;
    if (node.inFlight >= maxInFlight) {
      throw new UnavailableError('overloaded', `not asked: ${maxInFlight} calls in flight`);
    }
    node.breaker.enter();
    node.inFlight += 1;
    const waiting = new UntilGivenUp();
    return new Promise((resolve, reject) => {
      let settled = false;
      const settle = (outcome: 'answered' | 'failed' | 'neither'): boolean => {
        if (settled) return false;
        settled = true;
        stop();
        signal?.removeEventListener('abort', onAbort);
        node.breaker.ended(outcome);
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
          node.inFlight -= 1;
          if (settle('answered')) resolve(reply);
        },
        (error) => {
          node.inFlight -= 1;
          const known = classified(error);
          if (settle(known instanceof MistakeError ? 'answered' : 'failed')) reject(known);
        },
      );
    });
  }
}
