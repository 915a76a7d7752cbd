/** Sends each call once, within its deadline, and limits the calls in flight. */
import { Breaker } from './breaker.js';
import type { Clock } from './clock.js';
import { Deadlines, type Due } from './deadlines.js';
import type { Connection } from './drivers/connection.js';
import { CommandRejectedError, classified, UnavailableError } from './errors.js';
import type { Call } from './protocol.js';
import { UntilGivenUp } from './waiting.js';

export interface CallsOptions {
  maxInFlight: number;
  breakerFailures: number;
  breakerPauseMs: number;
}

/** The calls to one node. */
interface Node {
  readonly breaker: Breaker;
  inFlight: number;
}

export class Calls {
  /** The nodes by name. A single server has the name ''. */
  readonly #nodes = new Map<string, Node>();
  readonly #deadlines: Deadlines;

  constructor(
    private readonly connection: Connection,
    private readonly clock: Clock,
    private readonly options: CallsOptions,
  ) {
    this.#deadlines = new Deadlines(clock);
  }

  /**
   * Returns the state of a call's node. Each node has its own breaker, so that a dead node does not
   * block the others.
   */
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

  /** Returns the time in ms until a call on this key may be sent again; at least 1. */
  retryAfterMs(key: string): number {
    return this.#node({ keys: [key] }).breaker.retryAfterMs || this.options.breakerPauseMs;
  }

  /** Sends a call. Rejects with a CommandRejectedError, an UnavailableError, or the signal's reason. */
  send(call: Call, timeoutMs: number, signal: AbortSignal | undefined): Promise<unknown> {
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      const node = this.#node(call);
      const { maxInFlight } = this.options;
      if (node.inFlight >= maxInFlight) {
        throw new UnavailableError('overloaded', `not sent: ${maxInFlight} calls are in flight`);
      }
      const isProbe = node.breaker.enter();
      node.inFlight += 1;
      const of = { node, isProbe, timeoutMs, endsAtMs: this.clock.nowMs() + timeoutMs };
      const pending = new Pending(of, this.#deadlines, signal, resolve, reject);
      // A call whose caller gave up counts as in flight until the driver has settled it.
      this.#sent(call, pending).then(
        (reply) => {
          node.inFlight -= 1;
          pending.answer(reply);
        },
        (error) => {
          node.inFlight -= 1;
          pending.fail(classified(error));
        },
      );
    });
  }

  /** Sends a call. If the application's connection throws, returns a rejected promise. */
  #sent(call: Call, pending: Pending): Promise<unknown> {
    try {
      return this.connection.send(call, pending);
    } catch (error) {
      return Promise.reject(error);
    }
  }
}

/** The node and the deadline of one call, and whether it probes the node. */
interface Terms {
  node: Node;
  isProbe: boolean;
  timeoutMs: number;
  /** The instant of the deadline, in ms of the limiter's clock. */
  endsAtMs: number;
}

/** A call in flight, until it is answered, its deadline passes or it is aborted. */
class Pending extends UntilGivenUp implements Due {
  #settled = false;
  readonly endsAtMs: number;
  place = -1;
  readonly #onAbort: (() => void) | undefined;

  constructor(
    private readonly terms: Terms,
    private readonly deadlines: Deadlines,
    private readonly abort: AbortSignal | undefined,
    private readonly resolve: (reply: unknown) => void,
    private readonly reject: (reason: unknown) => void,
  ) {
    super();
    this.endsAtMs = terms.endsAtMs;
    deadlines.add(this);
    if (abort === undefined) return;
    this.#onAbort = () => this.#giveUp('neither', abort.reason);
    abort.addEventListener('abort', this.#onAbort, { once: true });
  }

  answer(reply: unknown): void {
    if (this.#settle('answered')) this.resolve(reply);
  }

  fail(error: CommandRejectedError | UnavailableError): void {
    const outcome = error instanceof CommandRejectedError ? 'answered' : 'failed';
    if (this.#settle(outcome)) this.reject(error);
  }

  expire(): void {
    this.#giveUp(
      'failed',
      new UnavailableError('timeout', `no answer in ${this.terms.timeoutMs} ms`),
    );
  }

  #giveUp(outcome: 'failed' | 'neither', reason: unknown): void {
    if (!this.#settle(outcome)) return;
    this.reject(reason);
    this.end();
  }

  #settle(outcome: 'answered' | 'failed' | 'neither'): boolean {
    if (this.#settled) return false;
    this.#settled = true;
    this.deadlines.delete(this);
    if (this.#onAbort !== undefined) this.abort?.removeEventListener('abort', this.#onAbort);
    const { node, isProbe } = this.terms;
    node.breaker.ended(outcome, isProbe);
    return true;
  }
}
