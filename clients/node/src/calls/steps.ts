/** Sends each call once: through the line of its node, within its time. */
import type { Probe } from '../net/breaker.js';
import type { Budget } from '../net/clock.js';
import type { Command, Link, List, Queued } from '../net/line.js';
import type { Node, Nodes } from '../net/node.js';
import { UntilGivenUp, whenAborted } from '../rules/aborting.js';
import {
  ClosedError,
  CommandRejectedError,
  classified,
  NotSentError,
  type RateLimitError,
  UnavailableError,
} from '../rules/errors.js';
import type { Backends, Caller } from '../wire/backends.js';
import type { Call } from '../wire/words.js';
import type { KnownDenials } from './denials.js';

const NONE: Extras = Object.freeze({});

/** A call holds no connection for longer than this multiple of its time. */
const LATEST = 3;

export class Calls {
  /** The number of calls whose callers wait. */
  #open = 0;
  #isClosed = false;
  #hasEnded = false;
  #onIdle: (() => void) | undefined;

  constructor(
    /** @internal */
    readonly backends: Backends,
    /** @internal */
    readonly nodes: Nodes,
    /** @internal */
    readonly known: KnownDenials,
    private readonly timeoutMs: number,
    /** @internal */
    readonly silenceMs: number,
  ) {}

  /**
   * Sends a call, or decides it by a known denial.
   *
   * @returns The reply, or a Decision. Rejects with a CommandRejectedError, an UnavailableError, a
   * ClosedError or the signal's reason.
   *
   * @param atMs The instant at which the caller came, in ms. Default: now.
   */
  send(call: Call, extras = NONE, atMs = this.nodes.clock.nowMs()): Promise<unknown> {
    return new Promise((resolve, reject) => {
      extras.signal?.throwIfAborted();
      if (this.#isClosed) throw new ClosedError();
      if (extras.budget?.isOver) {
        throw new NotSentError('overloaded', 'not sent: the time is over');
      }
      this.#enter(call, extras, atMs, resolve, reject);
    });
  }

  /** Sends the refund of a limiter that is being closed. */
  sendAtClose(call: Call): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#enter(call, NONE, this.nodes.clock.nowMs(), resolve, reject);
    });
  }

  /** @internal Returns the node of a call. */
  nodeOf(call: Call): Node {
    return this.nodes.of(this.backends.nodeOf(call));
  }

  #enter(call: Call, extras: Extras, atMs: number, resolve: Resolve, reject: Reject): void {
    const node = this.nodeOf(call);
    const probe = node.admits(true);
    this.#open += 1;
    new Pending(this, call, true, extras, atMs, resolve, reject).enter(node, probe);
  }

  /**
   * Sends a renewal, or the end of a lease or an admission. These have slots of their own, wait for
   * one until `untilMs`, and pass an open circuit breaker if a connection is up.
   */
  async sendOfLease(
    call: Call,
    kind: 'renewals' | 'ends',
    untilMs: number,
    signal?: AbortSignal,
  ): Promise<unknown> {
    if (this.#hasEnded) throw new NotSentError('connection', 'not sent: the limiter is closed');
    const node = this.nodeOf(call);
    const slots = node[kind];
    if (!(await slots.take(untilMs))) {
      throw new NotSentError('overloaded', 'not sent: no slot was free before the lease ended');
    }
    try {
      signal?.throwIfAborted();
      const probe = node.admits(false);
      return await new Promise((resolve, reject) => {
        this.#open += 1;
        const atMs = this.nodes.clock.nowMs();
        new Pending(this, call, false, NONE, atMs, resolve, reject).enter(node, probe);
      });
    } finally {
      slots.put();
    }
  }

  /** @internal Called once for each call, when its caller has its result. */
  ended(): void {
    this.#open -= 1;
    if (this.#open === 0) this.#onIdle?.();
  }

  /** @internal Returns the time of a call, in ms. */
  timeOf({ patienceMs, budget }: Extras): number {
    return patienceMs ?? budget?.leftMs ?? this.timeoutMs;
  }

  /** Refuses new calls and those in line. */
  close(): void {
    this.#isClosed = true;
    for (const node of this.nodes.all()) node.close(new ClosedError(), false);
  }

  /** Resolves when no caller waits. */
  idle(): Promise<void> {
    if (this.#open === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onIdle = resolve;
    });
  }

  /** Ends all calls, and drops all connections. */
  end(): void {
    this.#hasEnded = true;
    for (const node of this.nodes.all()) node.close(new ClosedError(), true);
  }
}

type Resolve = (reply: unknown) => void;
type Reject = (reason: unknown) => void;

/** A call: in line, then in flight until its reply comes or its connection closes. */
class Pending extends UntilGivenUp implements Queued, Caller {
  list: List | undefined;
  before: Command | undefined;
  after: Command | undefined;
  sentMs: number | undefined;
  isPressed = false;
  joinedMs: number | undefined;
  patienceMs: number | undefined;
  beganMs: number | undefined;
  #node!: Node;
  #probe: Probe | undefined;
  /** The connection on which it was sent; undefined before that. */
  #link: Link | undefined;
  /** True once no reply can follow. */
  #isOver = false;
  /** The instant at which its time began, if that was not at its arrival. */
  #begunAtMs: number | undefined;
  /** True while it waits for a connection after a redirection. */
  #isDialling = false;
  /** The run time at which a call of `ready` was sent, whose silence says nothing. */
  #quietMs: number | undefined;
  /** The instant at which its caller came, and the turn of the known denials at that instant. */
  readonly #atMs: number;
  readonly #turn: number;
  readonly #unfollow: (() => void) | undefined;

  constructor(
    private readonly calls: Calls,
    readonly call: Call,
    readonly isCounted: boolean,
    private readonly extras: Extras,
    atMs: number,
    private readonly resolve: Resolve,
    private readonly reject: Reject,
  ) {
    super();
    this.#atMs = atMs;
    this.#turn = calls.known.turn;
    const { signal } = extras;
    if (signal !== undefined) this.#unfollow = whenAborted(signal, () => this.#cancel(signal));
  }

  get dialMs(): number | undefined {
    return this.extras.patienceMs;
  }

  enter(node: Node, probe: Probe | undefined): void {
    this.#node = node;
    this.#probe = probe;
    node.enter(this, this.calls.nodes.run.at(this.#atMs), this.#atMs);
    const { budget } = this.extras;
    if (budget !== undefined) budget.hasBegun = this.beganMs !== undefined;
  }

  get timeMs(): number {
    return this.calls.timeOf(this.extras);
  }

  get endsAtMs(): number {
    if (this.ended || this.beganMs === undefined) return Number.POSITIVE_INFINITY;
    const endMs = this.beganMs + this.timeMs;
    return this.patienceMs === undefined ? endMs : Math.min(endMs, this.patienceMs);
  }

  get latestMs(): number {
    if (this.ended || this.beganMs === undefined) return Number.POSITIVE_INFINITY;
    return (this.#begunAtMs ?? this.#atMs) + LATEST * this.timeMs;
  }

  begin(ranMs: number, nowMs: number): void {
    this.beganMs = ranMs;
    this.#begunAtMs = nowMs;
    if (this.extras.budget !== undefined) this.extras.budget.hasBegun = true;
  }

  send(ranMs: number, nowMs: number): void {
    if (this.#node.name === undefined && this.calls.nodes.isRouted) {
      const node = this.calls.nodeOf(this.call);
      if (node !== this.#node) {
        this.#moveTo(node, ranMs, nowMs);
        return;
      }
    }
    this.#fly(ranMs, nowMs);
    this.calls.backends.send(this.call, this);
  }

  /** Enters the node of a call whose cluster has only now returned its slot map. */
  #moveTo(node: Node, ranMs: number, nowMs: number): void {
    this.#node.breaker.succeeded();
    this.#node = node;
    this.beganMs = this.patienceMs = undefined;
    this.#begunAtMs = nowMs;
    try {
      this.#probe = node.admits(this.isCounted);
    } catch (error) {
      this.refuse(error as NotSentError);
      return;
    }
    node.enter(this, ranMs, nowMs);
  }

  #fly(ranMs: number, nowMs: number): void {
    const { patienceMs } = this.extras;
    if (patienceMs === undefined) this.sentMs = ranMs;
    else this.#quietMs = ranMs;
    const isUsual = this.isCounted && patienceMs === undefined;
    this.patienceMs = isUsual ? this.#node.patienceOf(ranMs, nowMs) : undefined;
    this.#link = this.#node.sends(this, this.isCounted, ranMs, nowMs);
    // Only the rest of a budget may be shorter than a silence.
    if (this.extras.budget !== undefined) this.calls.nodes.run.wake(this.endsAtMs, nowMs);
  }

  waits(name?: string | undefined): void {
    if (name !== undefined) this.#goTo(name);
    this.sentMs = this.#quietMs = undefined;
    this.#isDialling = name !== undefined;
    if (!this.#isDialling) return;
    const { nodes, silenceMs } = this.calls;
    this.patienceMs = nodes.run.nowMs() + silenceMs;
  }

  sends(name: string | undefined): void {
    this.#goTo(name);
    if (this.#isDialling) this.patienceMs = undefined;
    this.#isDialling = false;
    const { list } = this;
    if (list === undefined) return;
    // Sent again, it is the youngest command in flight.
    list.delete(this);
    list.push(this);
    const ranMs = this.calls.nodes.run.nowMs();
    if (this.extras.patienceMs === undefined) this.sentMs = ranMs;
    else this.#quietMs = ranMs;
  }

  /**
   * Moves the call to another node, or throws if its breaker is open. The redirection of
   * the old node is a reply.
   */
  #goTo(name: string | undefined): void {
    if (this.#isOver || name === this.#node.name) return;
    this.#node.hears(this.#link as Link);
    this.#node.breaker.succeeded();
    this.#node.leaves(this, this.isCounted);
    this.#node = this.calls.nodes.of(name);
    this.#probe = this.#node.admits(this.isCounted);
    const nowMs = this.calls.nodes.clock.nowMs();
    this.#fly(this.calls.nodes.run.at(nowMs), nowMs);
  }

  receive(reply: unknown): void {
    if (this.#isOver) {
      this.#receiveLate(reply);
      return;
    }
    this.#isOver = true;
    this.#node.hears(this.#link as Link);
    this.#node.breaker.succeeded();
    if (this.ended) this.#late(reply);
    else {
      this.#finish();
      this.resolve(reply);
    }
    this.#node.leaves(this, this.isCounted);
  }

  /** Called with a reply on a connection that could not be closed. */
  #receiveLate(reply: unknown): void {
    this.#node.breaker.succeeded();
    this.calls.known.noteLate(this.call, reply, this.#turn);
  }

  fail(cause: unknown): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const error = classified(cause);
    const [node, link] = [this.#node, this.#link as Link];
    if (error instanceof CommandRejectedError) {
      node.hears(link);
      node.breaker.succeeded();
    } else if (error.reason === 'server') {
      node.hears(link);
      node.failsToDecide(link, error);
    } else if (error instanceof NotSentError) node.failsToDial(error);
    else {
      node.loses(link);
      this.#late(undefined);
    }
    this.#end(error);
    node.leaves(this, this.isCounted);
    const isRefused = error instanceof CommandRejectedError;
    if (isRefused && /^(NOAUTH|WRONGPASS)$/.test(error.kind)) node.retire(link);
  }

  lose(error: UnavailableError): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#end(error);
    this.#late(undefined);
    this.#node.leaves(this, this.isCounted);
  }

  giveUp(error: UnavailableError): void {
    this.#end(error);
  }

  refuse(error: RateLimitError): void {
    this.#isOver = true;
    this.#end(error);
  }

  deny(nowMs: number): boolean {
    const denial = this.calls.known.young(this.call, nowMs);
    if (denial === undefined) return false;
    this.#isOver = true;
    this.#finish();
    this.resolve(denial);
    return true;
  }

  expire(): void {
    const node = this.#node;
    if (this.#link === undefined) {
      const { isUp } = node;
      this.#leaveLine();
      if (isUp) node.shorten(false);
      this.#end(
        isUp
          ? new NotSentError('overloaded', 'not sent: no place was free in time')
          : new NotSentError('connection', 'not sent: no connection was open in time'),
      );
      return;
    }
    if (this.extras.patienceMs !== undefined) {
      this.sentMs = this.#quietMs;
      if (node.fallsSilent(this.calls.nodes.run.nowMs())) return;
    }
    if (this.#isDialling) {
      this.#end(new NotSentError('connection', 'not sent: no connection was open in time'));
      return;
    }
    const wasSent = this.sentMs !== undefined;
    if (wasSent && this.isCounted) node.shorten(true);
    const Reason = wasSent ? UnavailableError : NotSentError;
    this.#end(new Reason('overloaded', 'no reply in time, but the server replies to other calls'));
  }

  #leaveLine(): void {
    this.#isOver = true;
    this.#node.leaves(this, this.isCounted);
  }

  /** Ends the call of a caller that has gone. A command that was sent drains. */
  #cancel(signal: AbortSignal): void {
    if (this.#link === undefined) this.#leaveLine();
    else if (this.#quietMs !== undefined) {
      // No caller of `ready` waits any more, so a silence ends the command.
      this.sentMs = this.#quietMs;
      this.#node.watch(this.sentMs);
    }
    this.#end(signal.reason);
  }

  #end(reason: unknown): void {
    if (this.ended) return;
    this.#finish();
    this.reject(reason);
    this.end();
  }

  /** Called once, when the caller has its result. */
  #finish(): void {
    this.ended = true;
    this.#unfollow?.();
    this.#probe?.left();
    const { extras, beganMs, calls } = this;
    const { budget } = extras;
    if (budget && beganMs !== undefined) budget.leftMs -= calls.nodes.run.nowMs() - beganMs;
    this.calls.ended();
  }

  /** Called if it was sent, with the reply after its caller has gone, or when no reply follows. */
  #late(reply: unknown): void {
    if (this.sentMs === undefined) return;
    this.extras.onLate?.(reply);
    if (reply !== undefined) {
      this.calls.known.noteLate(this.call, reply, this.#turn);
    }
  }
}

export interface Extras {
  signal?: AbortSignal | undefined;
  /** Default: the whole time, for this call alone. */
  budget?: Budget | undefined;
  /**
   * Called if the call was sent and its caller has gone: with the late reply, or with undefined
   * when its connection closed.
   */
  onLate?: ((reply: unknown) => void) | undefined;
  /** The time of `ready`, in ms, which no silence ends and which its dial has too. */
  patienceMs?: number | undefined;
}
