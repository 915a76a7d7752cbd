/**
 * Ends what the server holds for this process, or owes it: sends releases, commits, cancellations,
 * charges and refunds, and the renewals until then.
 */
import type { Calls } from './calls.js';
import { type Clock, sleep } from './clock.js';
import type { Decider } from './decider.js';
import type { Decision } from './decision.js';
import type { DenialCache } from './denial-cache.js';
import { CommandRejectedError, mayHaveRun, UnavailableError } from './errors.js';
import * as protocol from './protocol.js';

/** The pauses between two attempts of an end: the first, doubling up to the longest, in ms. */
const PAUSE_MS = 100;
const PAUSE_MAX_MS = 5000;

/** The time that a charge or a refund waits for a slot, in ms. */
const SLOT_MS = 30_000;

/** A command that ends an item. */
interface End {
  readonly kind: 'lease' | 'commit' | 'cancel' | 'charge' | 'refund';
  readonly call: protocol.Call;
  readonly ask: protocol.Ask;
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

export class Ending {
  readonly #closed = new AbortController();
  /** The attempts under way. */
  readonly #attempts = new Set<Promise<Attempt>>();

  constructor(
    private readonly calls: Calls,
    private readonly clock: Clock,
    private readonly timeoutMs: number,
    private readonly decider: Decider,
    private readonly denials: DenialCache | undefined,
  ) {}

  /** Renews a lease. Returns false if the server does not know it. */
  async renewLease(held: protocol.Held, untilMs: number): Promise<boolean> {
    const read = (reply: unknown) => protocol.replyInteger(reply) === 1;
    return this.#send(protocol.renew(held), held, untilMs, read);
  }

  /** Renews a reservation. Returns false if the server denies or refuses it. */
  async renewReservation(
    held: protocol.Held,
    untilMs: number,
    signal: AbortSignal,
  ): Promise<boolean> {
    const read = (reply: unknown) => protocol.decisionOf(reply, held).allowed;
    try {
      return await this.#send(protocol.reserve(held), held, untilMs, read, signal);
    } catch (error) {
      if (error instanceof CommandRejectedError) return false;
      throw error;
    }
  }

  /** Releases a lease. Like all ends, resolves after the first attempt, also without an answer. */
  release(ask: protocol.Held, untilMs: number, isCounted: boolean): Promise<void> {
    const call = protocol.release(ask);
    return this.#untilAnswered({ kind: 'lease', call, ask, untilMs, isCounted });
  }

  cancel(ask: protocol.Held, untilMs: number, isCounted: boolean): Promise<void> {
    const call = protocol.cancel(ask);
    return this.#untilAnswered({ kind: 'cancel', call, ask, untilMs, isCounted });
  }

  /** @param isCharged Whether the units are charged if the server does not know the reservation. */
  commit(ask: protocol.Held, units: number, untilMs: number, isCharged: boolean): Promise<void> {
    const call = protocol.commit(ask, units);
    const onUnknown = isCharged ? () => this.settle(ask, units) : undefined;
    return this.#untilAnswered({ kind: 'commit', call, ask, untilMs, isCounted: true, onUnknown });
  }

  /** Charges a number of units, or refunds them if it is below 0. Sends the call once. */
  async settle({ rule, key, subject }: protocol.Ask, units: number): Promise<void> {
    if (units === 0) return;
    const ask = { rule, key, subject, cost: Math.abs(units) };
    const kind = units > 0 ? 'charge' : 'refund';
    const call = protocol.single(kind, ask);
    const untilMs = this.clock.nowMs() + SLOT_MS;
    const end: End = { kind, call, ask, untilMs, isCounted: true };
    await this.#ended(end, await this.#attempt(end), false);
  }

  /**
   * Decides a call with leases or reservations. Ends those that may be there, but whose caller has
   * nothing of them: `onError` denied them, or the caller gave up.
   *
   * @param isCounted Whether an end that fails is counted as unsettled.
   */
  async abandoning(
    asks: readonly protocol.Ask[],
    signal: AbortSignal | undefined,
    isCounted: boolean,
    decide: () => Promise<Decision>,
  ): Promise<Decision> {
    const abandon = () => {
      for (const ask of asks) if (protocol.isHeld(ask)) void this.#abandon(ask, isCounted);
    };
    signal?.throwIfAborted();
    try {
      const decision = await decide();
      if (!decision.allowed && mayHaveRun(decision.error)) abandon();
      return decision;
    } catch (error) {
      if (signal?.aborted) abandon();
      throw error;
    }
  }

  #abandon(ask: protocol.Held, isCounted: boolean): Promise<void> {
    const untilMs = this.clock.nowMs() + protocol.ttlMsOf(ask);
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
    const { kind, ask, isCounted } = end;
    if (error !== undefined) {
      if (!isCounted) return;
      this.decider.counters.unsettled += 1;
      // A rejection was reported when it arrived.
      if (error instanceof CommandRejectedError) return;
      this.decider.tell({ kind, decision, error, asks: [ask], askedAtMs });
    } else if (decision !== undefined) {
      this.decider.tell({ kind, decision, asks: [ask], askedAtMs });
      if (!decision.allowed && !hasRun) await end.onUnknown?.();
    }
  }

  async #attempt(end: End): Promise<Attempt> {
    const attempt = this.#tried(end);
    this.#attempts.add(attempt);
    try {
      return await attempt;
    } finally {
      this.#attempts.delete(attempt);
    }
  }

  async #tried({ kind, call, ask, untilMs }: End): Promise<Attempt> {
    const askedAtMs = this.clock.nowMs();
    const isRelease = kind === 'lease';
    // An end waits for a slot although its ttl is over.
    const slotMs = Math.max(untilMs, askedAtMs + this.timeoutMs);
    const read = (reply: unknown) => (isRelease ? undefined : protocol.settledOf(reply, ask.rule));
    try {
      if (!isRelease) this.denials?.forget(ask.key);
      const decision = await this.#send(call, ask, slotMs, read);
      if (!isRelease) this.denials?.forget(ask.key);
      return { askedAtMs, decision };
    } catch (error) {
      return { askedAtMs, error: error as CommandRejectedError | UnavailableError };
    }
  }

  /** Sends a call in a slot of the leases. Counts and reports a rejection. */
  async #send<Answer>(
    call: protocol.Call,
    ask: protocol.Ask,
    untilMs: number,
    read: (reply: unknown) => Answer,
    signal?: AbortSignal,
  ): Promise<Answer> {
    const askedAtMs = this.clock.nowMs();
    try {
      return read(await this.calls.sendOfLease(call, this.timeoutMs, untilMs, signal));
    } catch (error) {
      this.decider.noteRejection([ask], error, askedAtMs);
      throw error;
    }
  }

  /** Ends the repetitions. Resolves when the attempts under way have ended. */
  async close(): Promise<void> {
    this.#closed.abort();
    while (this.#attempts.size > 0) await Promise.all(this.#attempts);
  }
}

/** Returns true if the server answered, even by a rejection. */
function isFinal({ error }: Attempt): boolean {
  return !(error instanceof UnavailableError);
}
