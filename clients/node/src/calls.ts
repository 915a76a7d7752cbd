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
  /** Undefined for a single server. */
  readonly name: string | undefined;
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
  /** The nodes by name. */
  readonly #nodes = new Map<string | undefined, Node>();
  /** @internal */
  readonly deadlines: Deadlines;

  constructor(
    private readonly connection: Connection,
    private readonly clock: Clock,
    private readonly options: CallsOptions,
  ) {
    this.deadlines = new Deadlines(clock);
  }

  /**
   * Returns the state of a call's node. Each node has its own breaker, so that a dead node does not
   * block the others.
   */
  #node(call: Pick<Call, 'keys'>): Node {
    const name = this.connection.nodeOf?.(call);
    let node = this.#nodes.get(name);
    if (node === undefined) {
      const { breakerFailures, breakerPauseMs } = this.options;
      const breaker = new Breaker(this.clock, breakerFailures, breakerPauseMs);
      const leases = new LeaseSlots(this.clock);
      node = { name, breaker, inFlight: 0, entered: 0, failedThrough: 0, leases };
      this.#nodes.set(name, node);
    }
    return node;
  }

  /**
   * Sends a call. Rejects with a CommandRejectedError, an UnavailableError, or the signal's reason.
   */
  send(call: Call, timeoutMs: number, signal: AbortSignal | undefined): Promise<unknown> {
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      const node = this.#node(call);
      const { maxInFlight } = this.options;
      if (node.inFlight >= maxInFlight && !node.breaker.open) {
        throw new UnavailableError('overloaded', `not sent: ${maxInFlight} calls are in flight`);
      }
      const isProbe = node.breaker.enter();
      node.inFlight += 1;
      const terms = { call, node, isProbe, timeoutMs, isCounted: true };
      this.#run(terms, signal, resolve, reject);
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
      const passes = node.breaker.open && this.connection.isUp?.(node.name) === true;
      const isProbe = passes ? false : node.breaker.enter();
      const terms = { call, node, isProbe, timeoutMs, isCounted: false };
      return await new Promise((resolve, reject) => {
        this.#run(terms, undefined, resolve, reject);
      });
    } finally {
      node.leases.put();
    }
  }

  #run(terms: Terms, signal: AbortSignal | undefined, resolve: Resolve, reject: Reject): void {
    const { call, node, timeoutMs } = terms;
    node.entered += 1;
    const endsAtMs = this.clock.nowMs() + timeoutMs;
    const pending = new Pending(terms, endsAtMs, this, signal, resolve, reject);
    this.deadlines.add(pending);
    this.#sent(call, pending).then(
      (reply) => pending.answer(reply),
      (error) => pending.fail(classified(error)),
    );
  }

  /**
   * @internal Drops the connections to a node, and ends the calls on them. The next call dials.
   */
  retire(node: Node): void {
    if (this.connection.retire?.(node.name) !== true) return;
    const lost = new UnavailableError('connection', 'the connection was dropped: it was silent');
    const nowMs = this.clock.nowMs();
    this.deadlines.each((due) => {
      if (!(due instanceof Pending) || !due.isOf(node)) return;
      if (due.endsAtMs <= nowMs) due.expire();
      else due.lose(lost);
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

type Resolve = (reply: unknown) => void;
type Reject = (reason: unknown) => void;

/** A call to a node, and its terms. */
interface Terms {
  readonly call: Call;
  readonly node: Node;
  readonly isProbe: boolean;
  readonly timeoutMs: number;
  /** Whether the call counts for `maxInFlight`. */
  readonly isCounted: boolean;
}

/** A call in flight, until it is answered, its deadline passes or it is aborted. */
class Pending extends UntilGivenUp implements Due {
  #settled = false;
  place = -1;
  /** The number of the call among those of its node. */
  readonly #number: number;
  readonly #onAbort: (() => void) | undefined;

  constructor(
    private readonly terms: Terms,
    readonly endsAtMs: number,
    private readonly calls: Calls,
    private readonly abort: AbortSignal | undefined,
    private readonly resolve: Resolve,
    private readonly reject: Reject,
  ) {
    super();
    this.#number = terms.node.entered;
    if (abort === undefined) return;
    this.#onAbort = () => this.#giveUp('neither', abort.reason);
    abort.addEventListener('abort', this.#onAbort, { once: true });
  }

  isOf(node: Node): boolean {
    return this.terms.node === node;
  }

  /** Called with the driver's answer. */
  answer(reply: unknown): void {
    this.#leave();
    if (this.#settle('answered')) this.resolve(reply);
  }

  /** Called with the driver's error. */
  fail(error: CommandRejectedError | UnavailableError): void {
    this.#leave();
    this.lose(error);
  }

  /** Ends the call, which the driver may not have settled yet. */
  lose(error: CommandRejectedError | UnavailableError): void {
    if (!this.#settle(this.#outcome(error))) return;
    this.reject(error);
    this.#retire(error);
  }

  expire(): void {
    const error = new UnavailableError('timeout', `no answer in ${this.terms.timeoutMs} ms`);
    if (!this.#giveUp(this.#outcome(error), error)) return;
    this.#retire(error);
  }

  /** A call whose caller gave up counts as in flight until the driver has settled it. */
  #leave(): void {
    if (this.terms.isCounted) this.terms.node.inFlight -= 1;
  }

  #retire(error: CommandRejectedError | UnavailableError): void {
    if (retires(error)) this.calls.retire(this.terms.node);
  }

  /** Calls that fail together are one failure. A rejection is an answer. */
  #outcome(error: CommandRejectedError | UnavailableError): Outcome {
    if (error instanceof CommandRejectedError) return 'answered';
    if (error instanceof NotDialledError) return 'neither';
    const isLoss = error.reason === 'connection' || error.reason === 'timeout';
    if (isLoss && this.#number <= this.terms.node.failedThrough) return 'neither';
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
    this.calls.deadlines.delete(this);
    if (this.#onAbort !== undefined) this.abort?.removeEventListener('abort', this.#onAbort);
    const { node, isProbe } = this.terms;
    if (outcome === 'failed') node.failedThrough = node.entered;
    node.breaker.ended(outcome, isProbe);
    return true;
  }
}
