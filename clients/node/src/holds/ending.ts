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
  readonly ask: words.Ask;
  /** The end of the repetitions, and of the wait for a slot, in ms. */
  readonly untilMs: number;
  /** True if a failure is counted as unsettled and reported. */
  readonly isCounted: boolean;
  /** Sent if the answer is 0, unless an earlier attempt may have run. */
  readonly onUnknown?: (() => Promise<void>) | undefined;
}

/** The result of an attempt. */
interface Attempt {
  readonly askedAtMs: number;
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

  /** Releases a lease. Like all ends, resolves after the first attempt, also without an answer. */
  release(ask: words.Held, untilMs: number, isCounted: boolean): Promise<void> {
    const call = words.release(ask);
    return this.#untilAnswered({ kind: 'lease', call, ask, untilMs, isCounted });
  }

  cancel(ask: words.Held, untilMs: number, isCounted: boolean): Promise<void> {
    const call = words.cancel(ask);
    return this.#untilAnswered({ kind: 'cancel', call, ask, untilMs, isCounted });
  }

  /** @param isCharged Whether the units are charged if the server does not know the reservation. */
  commit(ask: words.Held, units: number, untilMs: number, isCharged: boolean): Promise<void> {
    const call = words.commit(ask, units);
    const onUnknown = isCharged ? () => this.settle(ask, units) : undefined;
    return this.#untilAnswered({ kind: 'commit', call, ask, untilMs, isCounted: true, onUnknown });
  }

  /** Charges a number of units, or refunds them if it is below 0. Sends the call once. */
  async settle({ rule, key, subject }: words.Ask, units: number): Promise<void> {
    if (units === 0) return;
    const ask = { rule, key, subject, cost: Math.abs(units) };
    const kind = units > 0 ? 'charge' : 'refund';
    const call = words.single(kind, ask);
    const untilMs = this.clock.nowMs() + SLOT_MS;
    const end: End = { kind, call, ask, untilMs, isCounted: true };
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
    asks: readonly words.Ask[],
    isCounted: boolean,
    decide: (onLate: (reply: unknown) => void) => Promise<Decision>,
  ): Promise<Decision> {
    return this.#during(this.#abandoning(asks, isCounted, decide));
  }

  async #abandoning(
    asks: readonly words.Ask[],
    isCounted: boolean,
    decide: (onLate: (reply: unknown) => void) => Promise<Decision>,
  ): Promise<Decision> {
    const held = asks.filter(words.isHeld);
    const abandon = () => {
      for (const ask of held) void this.#abandon(ask, isCounted);
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

  #abandon(ask: words.Held, isCounted: boolean): Promise<void> {
    const untilMs = this.clock.nowMs() + words.ttlMsOf(ask);
    const isLease = ask.ttl === undefined;
    return isLease ? this.release(ask, untilMs, isCounted) : this.cancel(ask, untilMs, isCounted);
  }

  /** Sends an end. Further attempts follow by themselves. */
  async #untilAnswered(end: End): Promise<void> {
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
  async #ended(end: End, { decision, error, askedAtMs }: Attempt, hasRun: boolean): Promise<void> {
    const { kind, ask } = end;
    if (error !== undefined) {
      if (!end.isCounted && !this.#closed.signal.aborted) return;
      this.decider.counters.unsettled += 1;
      // A rejection was reported when it arrived.
      if (error instanceof CommandRejectedError) return;
      this.decider.hooks.tell({ kind, decision, error, asks: [ask], askedAtMs });
    } else if (decision !== undefined) {
      this.decider.hooks.tell({ kind, decision, asks: [ask], askedAtMs });
      if (!decision.allowed && !hasRun) await end.onUnknown?.();
    }
  }

  #attempt(end: End): Promise<Attempt> {
    return this.#during(this.#tried(end));
  }

  async #during<T>(work: Promise<T>): Promise<T> {
    this.#underWay.add(work);
    try {
      return await work;
    } finally {
      this.#underWay.delete(work);
    }
  }

  async #tried({ kind, call, ask, untilMs }: End): Promise<Attempt> {
    const askedAtMs = this.clock.nowMs();
    const isRelease = kind === 'lease';
    // An end waits for a slot although its ttl is over.
    const slotMs = Math.max(untilMs, askedAtMs + this.timeoutMs);
    const read = (reply: unknown) => (isRelease ? undefined : replies.settledOf(reply, ask.rule));
    try {
      if (!isRelease) this.#forget(kind, ask.key);
      const decision = await this.#send(call, ask, 'ends', slotMs, read);
      if (!isRelease) this.#forget(kind, ask.key);
      return { askedAtMs, decision };
    } catch (error) {
      return { askedAtMs, error: error as CommandRejectedError | UnavailableError };
    }
  }

  #forget(kind: End['kind'], key: string): void {
    for (const memory of this.memories.ofAny) memory.forget(key);
    if (kind !== 'charge') this.memories.ofLess.forget(key);
  }

  /** Sends a call in one of these slots. Counts and reports a rejection. */
  async #send<Answer>(
    call: words.Call,
    ask: words.Ask,
    slots: 'renewals' | 'ends',
    untilMs: number,
    read: (reply: unknown) => Answer,
    signal?: AbortSignal,
  ): Promise<Answer> {
    const askedAtMs = this.clock.nowMs();
    try {
      return read(await this.calls.sendOfLease(call, slots, untilMs, signal));
    } catch (error) {
      this.decider.noteRejection([ask], error, askedAtMs);
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

/** Returns true if the server answered, even by a rejection. */
function isFinal({ error }: Attempt): boolean {
  return !(error instanceof UnavailableError);
}
