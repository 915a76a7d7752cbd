/** Sends each call once, within its deadline, and limits the calls in flight. */
import { Breaker, type Outcome } from './breaker.js';
import type { Clock } from './clock.js';
import { Deadlines, type Due } from './deadlines.js';
import type { Connection } from './drivers/connection.js';
import { CommandRejectedError, classified, NotDialledError, UnavailableError } from './errors.js';
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
  /** The number of calls so far. */
  entered: number;
  /**
   * The number of calls at the last failure. A failure of one of these calls is part of that one:
   * all calls in flight lose a connection together.
   */
  failedThrough: number;
  readonly leases: LeaseSlots;
}

/** The number of renewals and releases in flight to a node, in addition to `maxInFlight`. */
const LEASE_SLOTS = 8;

/** The slots of renewals and releases, and those that wait for one. */
class LeaseSlots {
  #free = LEASE_SLOTS;
  readonly #waiting = new Set<() => void>();

  constructor(private readonly clock: Clock) {}

  /** Takes a slot, or waits for one until `untilMs`. Returns false if none was free in time. */
  take(untilMs: number): Promise<boolean> {
    if (this.#free > 0) {
      this.#free -= 1;
      return Promise.resolve(true);
    }
    return new Promise((resolve) => {
      const stop = this.clock.after(Math.max(0, untilMs - this.clock.nowMs()), () => {
        this.#waiting.delete(given);
        resolve(false);
      });
      const given = () => {
        stop();
        resolve(true);
      };
      this.#waiting.add(given);
    });
  }

  /** Returns a slot. The one that has waited longest gets it. */
  put(): void {
    const [next] = this.#waiting;
    if (next === undefined) this.#free += 1;
    else {
      this.#waiting.delete(next);
      next();
    }
  }
}

/** Returns true if the error shows that the connection leads to no server that decides. */
function retires(error: CommandRejectedError | UnavailableError): boolean {
  if (error instanceof CommandRejectedError) return /^(NOAUTH|WRONGPASS)$/.test(error.kind);
  if (error.reason === 'timeout') return true;
  return error.reason === 'server' && /^-?(READONLY|MASTERDOWN)\b/.test(error.message);
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
      const breaker = new Breaker(this.clock, breakerFailures, breakerPauseMs);
      const leases = new LeaseSlots(this.clock);
      node = { breaker, inFlight: 0, entered: 0, failedThrough: 0, leases };
      this.#nodes.set(name, node);
    }
    return node;
  }

  /** Returns the time in ms until a call on this key may be sent again; at least 1. */
  retryAfterMs(key: string): number {
    return this.#node({ keys: [key] }).breaker.retryAfterMs || this.options.breakerPauseMs;
  }

  /**
   * Sends a call. Rejects with a CommandRejectedError, an UnavailableError, or the signal's reason.
   */
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
      const end = () => {
        node.inFlight -= 1;
      };
      this.#run({ call, node, isProbe, timeoutMs, signal, end, resolve, reject });
    });
  }

  /**
   * Sends a renewal or a release. It has slots of its own, waits for one until `untilMs`, and
   * passes an open circuit breaker if a connection is up.
   */
  async sendOfLease(call: Call, timeoutMs: number, untilMs: number): Promise<unknown> {
    const node = this.#node(call);
    if (!(await node.leases.take(untilMs))) {
      throw new UnavailableError('overloaded', 'not sent: no slot was free before the lease ended');
    }
    try {
      const passes = node.breaker.open && this.connection.isUp?.(call) === true;
      const isProbe = passes ? false : node.breaker.enter();
      return await new Promise((resolve, reject) => {
        const end = () => {};
        this.#run({ call, node, isProbe, timeoutMs, signal: undefined, end, resolve, reject });
      });
    } finally {
      node.leases.put();
    }
  }

  #run({ call, node, isProbe, timeoutMs, signal, end, resolve, reject }: Sending): void {
    node.entered += 1;
    const endsAtMs = this.clock.nowMs() + timeoutMs;
    const retire = (error: CommandRejectedError | UnavailableError) => {
      if (retires(error)) this.#retire(call, node);
    };
    const terms = { node, number: node.entered, isProbe, timeoutMs, endsAtMs, retire };
    const pending = new Pending(terms, this.#deadlines, signal, resolve, reject);
    // A call whose caller gave up counts as in flight until the driver has settled it.
    this.#sent(call, pending).then(
      (reply) => {
        end();
        pending.answer(reply);
      },
      (error) => {
        end();
        pending.fail(classified(error));
      },
    );
  }

  /** Drops the connections to a node, and ends the calls on them. The next call dials anew. */
  #retire(call: Call, node: Node): void {
    if (this.connection.retire?.(call) !== true) return;
    const lost = new UnavailableError('connection', 'the connection was dropped: it was silent');
    const nowMs = this.clock.nowMs();
    this.#deadlines.each((due) => {
      if (!(due instanceof Pending) || !due.isOf(node)) return;
      if (due.endsAtMs <= nowMs) due.expire();
      else due.fail(lost);
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

/** A call on its way to a node. */
interface Sending {
  call: Call;
  node: Node;
  isProbe: boolean;
  timeoutMs: number;
  signal: AbortSignal | undefined;
  /** Called when the driver has settled the call. */
  end: () => void;
  resolve: (reply: unknown) => void;
  reject: (reason: unknown) => void;
}

/** The node and the deadline of one call, and whether it probes the node. */
interface Terms {
  node: Node;
  /** The number of the call among those of its node. */
  number: number;
  isProbe: boolean;
  timeoutMs: number;
  /** The instant of the deadline, in ms of the limiter's clock. */
  endsAtMs: number;
  /** Drops the connection if the error shows that it is of no use. */
  retire: (error: CommandRejectedError | UnavailableError) => void;
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

  isOf(node: Node): boolean {
    return this.terms.node === node;
  }

  fail(error: CommandRejectedError | UnavailableError): void {
    if (!this.#settle(this.#outcome(error))) return;
    this.reject(error);
    this.terms.retire(error);
  }

  expire(): void {
    const error = new UnavailableError('timeout', `no answer in ${this.terms.timeoutMs} ms`);
    if (!this.#giveUp(this.#outcome(error), error)) return;
    this.terms.retire(error);
  }

  /** Calls that fail together are one failure. A rejection is an answer. */
  #outcome(error: CommandRejectedError | UnavailableError): Outcome {
    if (error instanceof CommandRejectedError) return 'answered';
    if (error instanceof NotDialledError) return 'neither';
    const { node, number } = this.terms;
    const isLoss = error.reason === 'connection' || error.reason === 'timeout';
    if (isLoss && number <= node.failedThrough) return 'neither';
    return 'failed';
  }

  #giveUp(outcome: Outcome, reason: unknown): boolean {
    if (!this.#settle(outcome)) return false;
    this.reject(reason);
    this.end();
    return true;
  }

  #settle(outcome: Outcome): boolean {
    if (this.#settled) return false;
    this.#settled = true;
    this.deadlines.delete(this);
    if (this.#onAbort !== undefined) this.abort?.removeEventListener('abort', this.#onAbort);
    const { node, isProbe } = this.terms;
    if (outcome === 'failed') node.failedThrough = node.entered;
    node.breaker.ended(outcome, isProbe);
    return true;
  }
}
