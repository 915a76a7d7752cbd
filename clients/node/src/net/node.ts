/**
 * The nodes of a limiter: the line in front of each, its commands in flight, its circuit breaker,
 * and what its silence ends.
 */
import type { Clock } from '../rules/clock.js';
import {
  CommandRejectedError,
  DialError,
  NotSentError,
  type RateLimitError,
  UnavailableError,
} from '../rules/errors.js';
import { warnOnce } from '../rules/warnings.js';
import { Breaker, type Probe } from './breaker.js';
import type { RunClock } from './clock.js';
import type { Connection } from './connection.js';
import { Dial } from './dial.js';
import { type Command, LeaseSlots, type Link, List, newLink, type Queued } from './line.js';

export interface NodeOptions {
  timeoutMs: number;
  silenceMs: number;
  maxInFlight: number;
  maxWaiting: number;
  breakerFailures: number;
  breakerPauseMs: number;
}

/** The calls to one node. */
export class Node {
  readonly breaker: Breaker;
  /** The renewals in flight, 8 at most. None waits for an end: its permit would expire. */
  readonly renewals: LeaseSlots;
  /** The ends in flight, 32 at most. */
  readonly ends: LeaseSlots;
  readonly #line = new List();
  /** The renewals and ends that wait for a connection. They need no place. */
  readonly #ends = new List();
  readonly #flying = new List();
  /** The commands of silent probes. Each stays until the next probe begins. */
  readonly #stale = new List();
  #inFlight = 0;
  #link = newLink();
  #heardMs = Number.NEGATIVE_INFINITY;
  /** The run time at which the last connection was lost. */
  #lostMs = Number.NEGATIVE_INFINITY;
  readonly #dial: Dial;
  /** The error of the last dial that failed. */
  #dialError: unknown;
  /** True once the first dial has ended. */
  #wasDialled: boolean;
  /** The instants until which patience is short, in line and for a reply. */
  #shortInLineMs = Number.NEGATIVE_INFINITY;
  #shortAfterSendMs = Number.NEGATIVE_INFINITY;
  #isServing = false;

  constructor(
    /** Undefined for a single server. */
    readonly name: string | undefined,
    private readonly connection: Connection,
    private readonly run: RunClock,
    private readonly options: NodeOptions,
  ) {
    const { breakerFailures, breakerPauseMs } = options;
    this.breaker = new Breaker(run.clock, breakerFailures, breakerPauseMs);
    this.renewals = new LeaseSlots(run.clock, 8);
    this.ends = new LeaseSlots(run.clock, 32);
    this.#wasDialled = connection.connect === undefined;
    this.#dial = new Dial(connection, name, run, options, (error) => {
      if (error === undefined) this.#connected();
      else this.#unconnected(error);
    });
  }

  /** True if a connection is open. A connection that does not dial is always open. */
  get isUp(): boolean {
    return this.connection.connect === undefined || this.connection.isUp?.(this.name) === true;
  }

  /**
   * Lets a call pass, or throws while the breaker is open. Renewals and ends, which are not
   * counted, also pass an open breaker while a connection is up. Returns the probe, if the call is
   * it.
   */
  admits(isCounted: boolean): Probe | undefined {
    if (!isCounted && this.breaker.open && this.isUp) return undefined;
    const probe = this.breaker.enter();
    if (probe !== undefined) this.#dropSilent();
    return probe;
  }

  /** Sends a command at once if there is a place and a connection; otherwise it waits. */
  enter(queued: Queued, ranMs: number, nowMs: number): void {
    const isUp = this.isUp;
    if (this.#wasDialled || isUp) queued.beganMs = ranMs;
    if (isUp && (!queued.isCounted || this.#hasPlace)) {
      queued.send(ranMs, nowMs);
      return;
    }
    queued.joinedMs = ranMs;
    if (!queued.isCounted) this.#ends.push(queued);
    else if (!this.#joins(queued, isUp, ranMs, nowMs)) return;
    if (!isUp) this.#dial.begin(queued.dialMs);
  }

  get #hasPlace(): boolean {
    return this.#line.size === 0 && this.#inFlight < this.options.maxInFlight;
  }

  /** Adds a call to the line. Returns false if it ended at once. */
  #joins(queued: Queued, isUp: boolean, ranMs: number, nowMs: number): boolean {
    const { maxInFlight, maxWaiting } = this.options;
    // Those that wait for a connection alone will have a place.
    const places = isUp ? 0 : Math.max(0, maxInFlight - this.#inFlight);
    queued.isPressed = this.#line.size >= places;
    if (queued.isPressed && queued.deny(nowMs)) return false;
    if (this.#line.size >= places + maxWaiting) {
      queued.refuse(new NotSentError('overloaded', `not sent: ${maxWaiting} calls are in line`));
      return false;
    }
    this.#line.push(queued);
    this.#stand(queued, ranMs, nowMs);
    return true;
  }

  /** Begins the wait in line. During the first dial it has no end of its own. */
  #stand(queued: Queued, ranMs: number, nowMs: number): void {
    if (queued.beganMs === undefined) return;
    const halfMs = queued.timeMs / 2;
    const isShort = nowMs < this.#shortInLineMs;
    queued.patienceMs = ranMs + (isShort ? Math.min(this.options.silenceMs, halfMs) : halfMs);
    this.run.wake(queued.patienceMs, nowMs);
  }

  /** Makes a silence end a command that was sent at this run time. */
  watch(sentMs: number): void {
    this.run.wake(sentMs + this.options.silenceMs, this.run.clock.nowMs());
  }

  /** Registers a command that is being sent. Returns its connection. */
  sends(command: Command, isCounted: boolean, ranMs: number, nowMs: number): Link {
    this.#flying.push(command);
    if (isCounted) this.#inFlight += 1;
    this.run.wake(ranMs + this.options.silenceMs, nowMs);
    return this.#link;
  }

  /** Returns the run time until which a call that is sent now waits, if patience is short. */
  patienceOf(ranMs: number, nowMs: number): number | undefined {
    return nowMs < this.#shortAfterSendMs ? ranMs + this.options.silenceMs : undefined;
  }

  /** Called after an end of a call in line, or of a sent one: patience is short for a pause. */
  shorten(wasSent: boolean): void {
    const untilMs = this.run.clock.nowMs() + this.options.breakerPauseMs;
    if (wasSent) this.#shortAfterSendMs = untilMs;
    else this.#shortInLineMs = untilMs;
  }

  /** Removes a command that has ended, and gives its place to the next one. */
  leaves(command: Command, isCounted: boolean): void {
    const { list } = command;
    list?.delete(command);
    if (isCounted && (list === this.#flying || list === this.#stale)) this.#inFlight -= 1;
    this.#serve();
    if (this.isIdle && this.run.isIdle()) this.run.rest();
  }

  /** True if nothing waits in line or for a reply. */
  get isIdle(): boolean {
    return this.#flying.size + this.#line.size + this.#ends.size + this.#stale.size === 0;
  }

  /**
   * Serves the line after the callers of the replies that have just arrived, whose denials then are
   * known.
   */
  #serve(): void {
    if (this.#isServing || (this.#line.first ?? this.#ends.first) === undefined) return;
    this.#isServing = true;
    process.nextTick(() => {
      this.#isServing = false;
      this.#pump();
    });
  }

  #pump(): void {
    const nowMs = this.run.clock.nowMs();
    const ranMs = this.run.at(nowMs);
    for (;;) {
      const isEnd = this.#ends.first !== undefined;
      const next = (this.#ends.first ?? this.#line.first) as Queued | undefined;
      if (next === undefined) return;
      if (!this.isUp) {
        this.#dial.begin(next.dialMs);
        return;
      }
      if (!isEnd && this.#inFlight >= this.options.maxInFlight) return;
      next.list?.delete(next);
      if (!next.isPressed || !next.deny(nowMs)) next.send(ranMs, nowMs);
    }
  }

  #connected(): void {
    const nowMs = this.run.clock.nowMs();
    const ranMs = this.run.at(nowMs);
    this.#link = newLink();
    this.#heardMs = ranMs;
    if (!this.#wasDialled) this.#begin(ranMs, nowMs);
    this.#pump();
  }

  /** Begins the time of those that waited for the first dial. */
  #begin(ranMs: number, nowMs: number): void {
    this.#wasDialled = true;
    for (const one of [...this.#ends.all(), ...this.#line.all()] as Queued[]) {
      one.joinedMs = ranMs;
      one.begin(ranMs, nowMs);
      if (one.isCounted) this.#stand(one, ranMs, nowMs);
    }
  }

  #unconnected(error: RateLimitError): void {
    this.#wasDialled = true;
    this.failsToDial(error);
    for (const one of [...this.#ends.all(), ...this.#line.all()] as Queued[]) {
      one.list?.delete(one);
      one.refuse(error);
    }
  }

  /** Called with the error of a dial, which is one failure. A refused login is a reply. */
  failsToDial(error: unknown): void {
    if (error === this.#dialError) return;
    this.#dialError = error;
    if (error instanceof DialError) this.breaker.failed(error.dialDueMs);
    else if (error instanceof CommandRejectedError) this.breaker.succeeded();
  }

  /** Called after the reply to a command: a decision, a rejection or another error. */
  hears(link: Link): void {
    // What is sent later is younger anyway, so a lone command needs no look at the clock.
    if (this.#flying.size + this.#stale.size > 1) this.#heardMs = this.run.nowMs();
    link.hasReplied = true;
  }

  /** Called after an error reply of a server that cannot decide now. */
  failsToDecide(link: Link, error: UnavailableError): void {
    if (!/^-?(READONLY|MASTERDOWN)\b/.test(error.message)) this.breaker.failed();
    else if (!link.hasFailed) {
      link.hasFailed = true;
      this.breaker.failed();
      this.retire(link);
    }
  }

  /** Drops the connections to the node, if this one is among them. The next call dials. */
  retire(link: Link): void {
    if (link === this.#link && this.#drop()) {
      this.#cutOff(new UnavailableError('connection', 'the connection was dropped'));
    }
  }

  /** Closes the open connections. Returns false if none was open, or the adapter throws. */
  #drop(): boolean {
    try {
      return this.connection.retire?.(this.name) === true;
    } catch (error) {
      warnOnce('RL_CONNECTION', 'a connection was not closed, because its adapter throws', error);
      return false;
    }
  }

  /** Called for each command whose connection closed. */
  loses(link: Link): void {
    if (link !== this.#link) return;
    this.#link = newLink();
    this.#lostMs = this.run.nowMs();
    // A connection that cannot dial reports a failed dial in the same way.
    if (!link.hasReplied || this.connection.connect === undefined) this.breaker.failed();
  }

  /** Ends all commands in flight, whose connections are closed. */
  #cutOff(error: UnavailableError): void {
    this.#link = newLink();
    this.#lostMs = this.run.nowMs();
    for (const one of [...this.#flying.all(), ...this.#stale.all()]) one.lose(error);
  }

  /** Closes the connection of a silent probe: the next probe needs a new one. */
  #dropSilent(): void {
    if (this.#stale.size === 0) return;
    this.#drop();
    this.#cutOff(new UnavailableError('timeout', 'the server was silent'));
  }

  /** Returns the run time at which the node is silent, if it is not heard until then. */
  get #silentAtMs(): number {
    for (let one = this.#flying.first; one !== undefined; one = one.after) {
      if (one.sentMs === undefined) continue;
      return Math.max(one.sentMs, this.#heardMs) + this.options.silenceMs;
    }
    return Number.POSITIVE_INFINITY;
  }

  /** Ends the commands in flight if the node is silent. Returns false if it is not. */
  fallsSilent(dueMs: number): boolean {
    if (this.#silentAtMs > dueMs) return false;
    const { silenceMs } = this.options;
    const error = new UnavailableError('timeout', `nothing was heard for ${silenceMs} ms`);
    const { isProbing } = this.breaker;
    this.breaker.failed();
    if (isProbing) {
      for (const one of this.#flying.all()) {
        one.giveUp(error);
        this.#flying.delete(one);
        this.#stale.push(one);
      }
    } else {
      this.#drop();
      this.#cutOff(error);
    }
    const unsent = new NotSentError('timeout', `not sent: ${error.message}`);
    for (const one of this.#line.all() as Queued[]) {
      if ((one.joinedMs ?? 0) + silenceMs > dueMs) continue;
      this.#line.delete(one);
      one.refuse(unsent);
    }
    this.#serve();
    return true;
  }

  /**
   * Ends what is due, and returns the next deadline.
   *
   * @param dueMs The run time until which deadlines are over.
   */
  passes(dueMs: number, nowMs: number): number {
    this.fallsSilent(dueMs);
    this.#dial.passes(dueMs);
    let nextMs = this.#silentAtMs;
    if (!this.isIdle) nextMs = Math.min(nextMs, this.#dial.endsMs);
    const due: Command[] = [];
    for (const list of [this.#line, this.#ends, this.#flying]) {
      const isDown = list !== this.#flying && this.#dial.isUnderWay && this.#wasDialled;
      for (let one = list.first; one !== undefined; one = one.after) {
        const endsAtMs = isDown ? this.#undialledAtMs(one as Queued) : one.endsAtMs;
        if (endsAtMs <= dueMs || one.latestMs <= nowMs) due.push(one);
        else nextMs = Math.min(nextMs, endsAtMs);
      }
    }
    for (const one of due) if (one.list !== undefined) one.expire();
    return nextMs;
  }

  /** Returns the run time until which a command waits for a later dial than the first. */
  #undialledAtMs({ joinedMs = 0, dialMs, endsAtMs }: Queued): number {
    if (dialMs !== undefined) return endsAtMs;
    return Math.max(joinedMs, this.#lostMs) + this.options.silenceMs;
  }

  /** Ends all that waits, and with `isWhole` also all that is in flight. */
  close(error: RateLimitError, isWhole: boolean): void {
    const waiting = isWhole ? [...this.#line.all(), ...this.#ends.all()] : this.#line.all();
    for (const one of waiting as Queued[]) {
      one.list?.delete(one);
      one.refuse(error);
    }
    if (!isWhole) return;
    this.renewals.close();
    this.ends.close();
    this.#drop();
    this.#cutOff(new UnavailableError('connection', 'the limiter was closed'));
  }
}

/** The nodes by name, over the connections of an adapter. */
export class Nodes {
  readonly #nodes = new Map<string | undefined, Node>();
  /** The node without a name. Nearly all calls need it, so it has no look-up. */
  #unnamed: Node | undefined;

  constructor(
    private readonly connection: Connection,
    readonly run: RunClock,
    private readonly options: NodeOptions,
  ) {
    run.isIdle = () => {
      for (const node of this.#nodes.values()) if (!node.isIdle) return false;
      return true;
    };
    run.onTick = (dueMs, nowMs) => {
      let nextMs = Number.POSITIVE_INFINITY;
      for (const node of this.#nodes.values()) nextMs = Math.min(nextMs, node.passes(dueMs, nowMs));
      return nextMs;
    };
  }

  get clock(): Clock {
    return this.run.clock;
  }

  /** True if a call may go to one of several nodes. */
  get isRouted(): boolean {
    return this.connection.nodeOf !== undefined;
  }

  /** The number of nodes whose breaker is open. */
  get openBreakers(): number {
    return this.all().filter(({ breaker }) => breaker.open).length;
  }

  all(): Node[] {
    return [...this.#nodes.values()];
  }

  /**
   * Returns the state of a node. Each node has its own breaker, so that a dead node does not block
   * the others.
   */
  of(name: string | undefined): Node {
    if (name === undefined && this.#unnamed !== undefined) return this.#unnamed;
    let node = this.#nodes.get(name);
    if (node === undefined) {
      node = new Node(name, this.connection, this.run, this.options);
      this.#nodes.set(name, node);
      if (name === undefined) this.#unnamed = node;
    }
    return node;
  }
}
