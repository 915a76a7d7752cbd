/** Sends each call once, within its deadline, and limits the calls in flight. */
import { whenAborted } from './aborting.js';
import { Breaker, type Outcome } from './breaker.js';
import type { Clock } from './clock.js';
import { Deadlines, type Due } from './deadlines.js';
import type { Connection } from './drivers/connection.js';
import { CommandRejectedError, classified, NotDialledError, UnavailableError } from './errors.js';
import type { Call } from './protocol.js';
import { UntilGivenUp } from './waiting.js';
import { type Arrivals, isAnswer, type Watch } from './watch.js';

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
  readonly arrivals: Arrivals;
}

/** The number of renewals and ends in flight to a node, in addition to `maxInFlight`. */
const LEASE_SLOTS = 8;

/** The slots of renewals and ends, and those that wait for one. */
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
    /** @internal */
    readonly clock: Clock,
    private readonly options: CallsOptions,
    /** @internal */
    readonly watch: Watch,
  ) {
    this.deadlines = new Deadlines(clock);
    // Its callers have given up, so the silence is no failure.
    watch.onSilent = (name) => this.retire(this.nodeNamed(name), 'neither');
  }

  /** The number of nodes whose breaker is open. */
  get openBreakers(): number {
    return [...this.#nodes.values()].filter(({ breaker }) => breaker.open).length;
  }

  #node(call: Pick<Call, 'keys'>): Node {
    return this.nodeNamed(this.connection.nodeOf?.(call));
  }

  /**
   * @internal Returns the state of a node. Each node has its own breaker, so that a dead node does
   * not block the others.
   */
  nodeNamed(name: string | undefined): Node {
    let node = this.#nodes.get(name);
    if (node === undefined) {
      const { breakerFailures, breakerPauseMs } = this.options;
      const breaker = new Breaker(this.clock, breakerFailures, breakerPauseMs);
      const leases = new LeaseSlots(this.clock);
      const arrivals = this.watch.of(name);
      node = { name, breaker, inFlight: 0, entered: 0, failedThrough: 0, leases, arrivals };
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
   * Sends a renewal, or the end of a lease or an admission. These have slots of their own, wait for
   * one until `untilMs`, and pass an open circuit breaker if a connection is up.
   */
  async sendOfLease(
    call: Call,
    timeoutMs: number,
    untilMs: number,
    signal?: AbortSignal,
  ): Promise<unknown> {
    const node = this.#node(call);
    if (!(await node.leases.take(untilMs))) {
      throw new UnavailableError('overloaded', 'not sent: no slot was free before the lease ended');
    }
    try {
      signal?.throwIfAborted();
      const passes = node.breaker.open && this.connection.isUp?.(node.name) === true;
      const isProbe = passes ? false : node.breaker.enter();
      const terms = { call, node, isProbe, timeoutMs, isCounted: false };
      return await new Promise((resolve, reject) => {
        this.#run(terms, signal, resolve, reject);
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
   *
   * @param outcome The outcome of these calls. Default: one failure.
   */
  retire(node: Node, outcome?: Outcome): void {
    if (this.connection.retire?.(node.name) !== true) return;
    const lost = new UnavailableError('connection', 'the connection was dropped: it was silent');
    const nowMs = this.clock.nowMs();
    this.deadlines.each((due) => {
      if (!(due instanceof Pending) || !due.isOf(node)) return;
      if (due.endsAtMs <= nowMs) due.expire();
      else due.lose(lost, outcome);
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
  /** True if the call counts for `maxInFlight`. */
  readonly isCounted: boolean;
}

/** A call in flight, until it is answered, its deadline passes or it is aborted. */
class Pending extends UntilGivenUp implements Due {
  #settled = false;
  place = -1;
  /** The node that the call goes to: after a redirection another one. */
  #node: Node;
  /** The number of the call among those of its node. */
  #number: number;
  /** The instant at which the call was sent, in ms; undefined while it waits for a connection. */
  #sentAtMs: number | undefined;
  /** The number of answers from the node when the call was sent. */
  #arrived: number;
  #isProbe: boolean;
  #unwatch: (() => void) | undefined;
  readonly #unfollow: (() => void) | undefined;

  constructor(
    private readonly terms: Terms,
    readonly endsAtMs: number,
    private readonly calls: Calls,
    abort: AbortSignal | undefined,
    private readonly resolve: Resolve,
    private readonly reject: Reject,
  ) {
    super();
    const { node } = terms;
    this.#node = node;
    this.#isProbe = terms.isProbe;
    this.#number = node.entered;
    this.#sentAtMs = endsAtMs - terms.timeoutMs;
    this.#arrived = node.arrivals.count;
    if (abort === undefined) return;
    this.#unfollow = whenAborted(abort, () => {
      this.#giveUp('neither', abort.reason);
      if (this.#sentAtMs === undefined) return;
      this.#unwatch = calls.watch.begin(this.#node.name, this.#sentAtMs, this.#arrived);
    });
  }

  isOf(node: Node): boolean {
    return this.#node === node;
  }

  waits(name = this.#node.name): void {
    this.#sentAtMs = undefined;
    this.#goesTo(name);
  }

  sends(name: string | undefined): void {
    this.#goesTo(name);
    if (this.#settled) return;
    this.#sentAtMs = this.calls.clock.nowMs();
    this.#arrived = this.#node.arrivals.count;
  }

  /** Counts the call for another node. The node that redirected it has answered. */
  #goesTo(name: string | undefined): void {
    if (this.#settled || name === this.#node.name) return;
    const to = this.calls.nodeNamed(name);
    this.#leave('answered');
    this.#isProbe = false;
    this.#node.arrivals.count += 1;
    this.#node = to;
    to.entered += 1;
    this.#number = to.entered;
    if (this.terms.isCounted) to.inFlight += 1;
  }

  /** Called with the driver's answer. */
  answer(reply: unknown): void {
    this.#arrive(true);
    if (this.#settle('answered')) this.resolve(reply);
  }

  /** Called with the driver's error. */
  fail(error: CommandRejectedError | UnavailableError): void {
    this.#arrive(isAnswer(error));
    this.lose(error);
  }

  /** Called when the driver has settled the call. */
  #arrive(isAnswer: boolean): void {
    if (isAnswer) this.#node.arrivals.count += 1;
    this.#unwatch?.();
  }

  /** Ends the call, which the driver may not have settled yet. */
  lose(error: CommandRejectedError | UnavailableError, outcome = this.#outcome(error)): void {
    if (!this.#settle(outcome)) return;
    this.reject(error);
    this.#retire(error);
  }

  expire(): void {
    const error = new UnavailableError('timeout', `no answer in ${this.terms.timeoutMs} ms`);
    if (!this.#giveUp(this.#outcome(error), error)) return;
    this.#retire(error);
  }

  /** Retires the generation, unless the call timed out before it was sent. */
  #retire(error: CommandRejectedError | UnavailableError): void {
    const isUnsent = error instanceof UnavailableError && this.#sentAtMs === undefined;
    if (retires(error) && !isUnsent) this.calls.retire(this.#node);
  }

  /** Calls that fail together are one failure. A rejection is an answer. */
  #outcome(error: CommandRejectedError | UnavailableError): Outcome {
    if (error instanceof CommandRejectedError) return 'answered';
    if (error instanceof NotDialledError) return 'neither';
    const isLoss = error.reason === 'connection' || error.reason === 'timeout';
    if (isLoss && this.#number <= this.#node.failedThrough) return 'neither';
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
    this.#unfollow?.();
    if (outcome === 'failed') this.#node.failedThrough = this.#node.entered;
    this.#leave(outcome);
    return true;
  }

  /** Frees the slot of the call at its node. */
  #leave(outcome: Outcome): void {
    if (this.terms.isCounted) this.#node.inFlight -= 1;
    this.#node.breaker.ended(outcome, this.#isProbe);
  }
}
