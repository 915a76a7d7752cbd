/**
 * Ends what the server holds for this process, or owes it: sends releases, commits, cancellations,
 * charges and refunds, and the renewals until then.
 */
import type { Decider } from '../calls/decider.js';
import type { Calls } from '../calls/steps.js';
import { type Clock, sleep } from '../rules/clock.js';
import type { Decision } from '../rules/decision.js';
import {
  ClosedError,
  CommandRejectedError,
  mayHaveRun,
  UnavailableError,
} from '../rules/errors.js';
import * as replies from '../wire/replies.js';
import * as words from '../wire/words.js';

/** The pauses between two attempts of an end: the first, doubling up to the longest, in ms. */
const PAUSE_MS = 100;
const PAUSE_MAX_MS = 5000;

/** The time that a charge or a refund waits for a slot, in ms. */
const SLOT_MS = 30_000;

/** A command that ends an item. */
interface End {
  readonly kind: 'lease' | 'commit' | 'cancel' | 'charge' | 'refund';
  readonly call: words.Call;
  readonly request: words.RuleRequest;
  /** The end of the repetitions, and of the wait for a slot, in ms. */
  readonly untilMs: number;
  /** True if a failure is counted as unsettled and reported. */
  readonly isCounted: boolean;
  /** Sent if the reply is 0, unless an earlier attempt may have run. */
  readonly onUnknown?: (() => Promise<void>) | undefined;
}

/** The result of an attempt. */
interface Attempt {
  readonly startedAtMs: number;
  /** Undefined after an error, and for a release. */
  readonly decision?: Decision | undefined;
  readonly error?: CommandRejectedError | UnavailableError;
}

/** What this process knows of denials of a key. */
interface Memory {
  forget(key: string): void;
}

export class Ending {
  readonly #closed = new AbortController();
  /** The attempts, and the calls with leases or reservations, that are under way. */
  readonly #underWay = new Set<Promise<unknown>>();

  constructor(
    private readonly calls: Calls,
    private readonly clock: Clock,
    private readonly timeoutMs: number,
    private readonly decider: Decider,
    /** Those that a charge proves wrong too, and those that it does not. */
    private readonly memories: { readonly ofAny: readonly Memory[]; readonly ofLess: Memory },
  ) {}

  /** Renews a lease. Returns false if the server does not know it. */
  async renewLease(held: words.Held, untilMs: number): Promise<boolean> {
    const read = (reply: unknown) => replies.replyInteger(reply) === 1;
    return this.#send(words.renew(held), held, 'renewals', untilMs, read);
  }

  /** Renews a reservation. Returns false if the server denies or refuses it. */
  async renewReservation(held: words.Held, untilMs: number, signal: AbortSignal): Promise<boolean> {
    const read = (reply: unknown) => replies.decisionOf(reply, held).allowed;
    try {
      return await this.#send(words.reserve(held), held, 'renewals', untilMs, read, signal);
    } catch (error) {
      if (error instanceof CommandRejectedError) return false;
      throw error;
    }
  }

  /** Releases a lease. Like all ends, resolves after the first attempt, also without a reply. */
  release(request: words.Held, untilMs: number, isCounted: boolean): Promise<void> {
    const call = words.release(request);
    return this.#untilReplied({ kind: 'lease', call, request, untilMs, isCounted });
  }

  cancel(request: words.Held, untilMs: number, isCounted: boolean): Promise<void> {
    const call = words.cancel(request);
    return this.#untilReplied({ kind: 'cancel', call, request, untilMs, isCounted });
  }

  /** @param isCharged Whether the units are charged if the server does not know the reservation. */
  commit(request: words.Held, units: number, untilMs: number, isCharged: boolean): Promise<void> {
    const call = words.commit(request, units);
    const onUnknown = isCharged ? () => this.settle(request, units) : undefined;
    return this.#untilReplied({
      kind: 'commit',
      call,
      request,
      untilMs,
      isCounted: true,
      onUnknown,
    });
  }

  /** Charges a number of units, or refunds them if it is below 0. Sends the call once. */
  async settle({ rule, key, subject }: words.RuleRequest, units: number): Promise<void> {
    if (units === 0) return;
    const request = { rule, key, subject, cost: Math.abs(units) };
    const kind = units > 0 ? 'charge' : 'refund';
    const call = words.single(kind, request);
    const untilMs = this.clock.nowMs() + SLOT_MS;
    const end: End = { kind, call, request, untilMs, isCounted: true };
    await this.#ended(end, await this.#attempt(end), false);
  }

  /**
   * Decides a call with leases or reservations. Ends those that may be there, but whose caller has
   * nothing of them: `onError` denied them, the caller gave up, or the limiter was closed. A reply
   * that may still come is awaited: before it, the server would not know what to end.
   *
   * @param isCounted Whether an end that fails is counted as unsettled.
   * @param decide Decides. It calls `onLate` as `Calls.send` does.
   */
  abandoning(
    requests: readonly words.RuleRequest[],
    isCounted: boolean,
    decide: (onLate: (reply: unknown) => void) => Promise<Decision>,
  ): Promise<Decision> {
    return this.#during(this.#abandoning(requests, isCounted, decide));
  }

  async #abandoning(
    requests: readonly words.RuleRequest[],
    isCounted: boolean,
    decide: (onLate: (reply: unknown) => void) => Promise<Decision>,
  ): Promise<Decision> {
    const held = requests.filter(words.isHeld);
    const abandon = () => {
      for (const request of held) void this.#abandon(request, isCounted);
    };
    let onLate = (_: unknown) => {};
    const late = new Promise<unknown>((resolve) => {
      onLate = resolve;
    });
    const abandonLate = () =>
      void late.then((reply) => {
        if (reply === undefined || hasTaken(reply)) abandon();
      });
    try {
      const decision = await decide(onLate);
      const isOver = this.#closed.signal.aborted && decision.allowed && held.length > 0;
      if (isOver && decision.source === 'server') abandon();
      else if (isOver || !decision.allowed) abandonLate();
      if (isOver) throw new ClosedError();
      return decision;
    } catch (error) {
      if (!(error instanceof ClosedError)) abandonLate();
      throw error;
    }
  }

  #abandon(request: words.Held, isCounted: boolean): Promise<void> {
    const untilMs = this.clock.nowMs() + words.ttlMsOf(request);
    const isLease = request.ttl === undefined;
    return isLease
      ? this.release(request, untilMs, isCounted)
      : this.cancel(request, untilMs, isCounted);
  }

  /** Sends an end. Further attempts follow by themselves. */
  async #untilReplied(end: End): Promise<void> {
    const first = await this.#attempt(end);
    if (isFinal(first)) await this.#ended(end, first, false);
    else void this.#repeat(end, first);
  }

  async #repeat(end: End, first: Attempt): Promise<void> {
    let last = first;
    let hasRun = false;
    for (let pauseMs = PAUSE_MS; !isFinal(last); pauseMs = Math.min(2 * pauseMs, PAUSE_MAX_MS)) {
      hasRun ||= mayHaveRun(last.error);
      if (this.clock.nowMs() + pauseMs >= end.untilMs) break;
      const slept = sleep(this.clock, pauseMs, this.#closed.signal).then(
        () => true,
        () => false,
      );
      if (!(await slept)) break;
      last = await this.#attempt(end);
    }
    await this.#ended(end, last, hasRun);
  }

  /** Called once, after the last attempt. Counts and reports it. */
  async #ended(
    end: End,
    { decision, error, startedAtMs }: Attempt,
    hasRun: boolean,
  ): Promise<void> {
    const { kind, request } = end;
    if (error !== undefined) {
      if (!end.isCounted && !this.#closed.signal.aborted) return;
      this.decider.counters.unsettled += 1;
      // A rejection was reported when it arrived.
      if (error instanceof CommandRejectedError) return;
      this.decider.hooks.report({ kind, decision, error, requests: [request], startedAtMs });
    } else if (decision !== undefined) {
      this.decider.hooks.report({ kind, decision, requests: [request], startedAtMs });
      if (!decision.allowed && !hasRun) await end.onUnknown?.();
    }
  }

  #attempt(end: End): Promise<Attempt> {
    return this.#during(this.#try(end));
  }

  async #during<T>(work: Promise<T>): Promise<T> {
    this.#underWay.add(work);
    try {
      return await work;
    } finally {
      this.#underWay.delete(work);
    }
  }

  async #try({ kind, call, request, untilMs }: End): Promise<Attempt> {
    const startedAtMs = this.clock.nowMs();
    const isRelease = kind === 'lease';
    // An end waits for a slot although its ttl is over.
    const slotMs = Math.max(untilMs, startedAtMs + this.timeoutMs);
    const read = (reply: unknown) =>
      isRelease ? undefined : replies.settledOf(reply, request.rule);
    try {
      if (!isRelease) this.#forget(kind, request.key);
      const decision = await this.#send(call, request, 'ends', slotMs, read);
      if (!isRelease) this.#forget(kind, request.key);
      return { startedAtMs, decision };
    } catch (error) {
      return { startedAtMs, error: error as CommandRejectedError | UnavailableError };
    }
  }

  #forget(kind: End['kind'], key: string): void {
    for (const memory of this.memories.ofAny) memory.forget(key);
    if (kind !== 'charge') this.memories.ofLess.forget(key);
  }

  /** Sends a call in one of these slots. Counts and reports a rejection. */
  async #send<Result>(
    call: words.Call,
    request: words.RuleRequest,
    slots: 'renewals' | 'ends',
    untilMs: number,
    read: (reply: unknown) => Result,
    signal?: AbortSignal,
  ): Promise<Result> {
    const startedAtMs = this.clock.nowMs();
    try {
      return read(await this.calls.sendOfLease(call, slots, untilMs, signal));
    } catch (error) {
      this.decider.noteRejection([request], error, startedAtMs);
      throw error;
    }
  }

  /** Ends the repetitions, and gives back what is taken from now on. */
  close(): void {
    this.#closed.abort();
  }

  /** Resolves when nothing is under way. */
  async settled(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.allSettled(this.#underWay);
  }
}

/** Returns true if a late reply shows that a call took something. */
function hasTaken(reply: unknown): boolean {
  return !Array.isArray(reply) || Number(reply[0]) !== 0;
}

/** Returns true if the server replied, even with a rejection. */
function isFinal({ error }: Attempt): boolean {
  return !(error instanceof UnavailableError);
}
