/** Makes the decisions of a limiter: counts them, reports them, and decides without an answer. */
import type { Clock } from '../rules/clock.js';
import type { Decision } from '../rules/decision.js';
import {
  CommandRejectedError,
  mayHaveRun,
  UnavailableError,
  type UnavailableReason,
} from '../rules/errors.js';
import type { OnError } from '../rules/forms.js';
import type { Keys } from '../rules/keys.js';
import type { OnDecision } from '../rules/options.js';
import { allDecisionOf, countedOf, decisionOf, type Hit, tooManyOf } from '../wire/replies.js';
import { type Ask, type Call, hitCall, isHeld, probe } from '../wire/words.js';
import type { DenialCache, KnownDenials } from './denials.js';
import { ErrorLog, Hooks } from './events.js';
import { isLocal, withoutAnswer } from './fallback.js';
import { type LocalAsk, LocalLimiter } from './local.js';
import type { Calls, Extras } from './steps.js';

/** The shortest time of `ready`, in ms. */
const READY_MIN_MS = 5000;

interface DeciderOptions {
  readonly breakerPauseMs: number;
  readonly logErrors: boolean;
  readonly onError: OnError;
  readonly onDecision: OnDecision | undefined;
}

/** The terms on which a call is decided without an answer. */
interface Terms {
  readonly isPeek: boolean;
  /** True if known denials may decide it. */
  readonly isKnown: boolean;
  readonly askedAtMs: number;
}

export class Decider {
  readonly counters = { allowed: 0, denied: 0, degraded: 0, local: 0, rejected: 0, unsettled: 0 };
  /** The hooks of the application. */
  readonly hooks: Hooks;
  readonly #local: LocalLimiter;
  readonly #log: ErrorLog | undefined;

  constructor(
    private readonly calls: Calls,
    private readonly clock: Clock,
    keys: Keys,
    private readonly known: KnownDenials,
    private readonly options: DeciderOptions,
  ) {
    this.#local = new LocalLimiter(clock);
    this.#log = options.logErrors ? new ErrorLog(clock) : undefined;
    this.hooks = new Hooks(keys, clock);
    if (options.onDecision !== undefined) this.hooks.add(options.onDecision);
  }

  /** Sends a call that `onError` does not decide. Throws its error, and counts a rejection. */
  async answer(call: Call, extras: Extras, asks: readonly Ask[] = []): Promise<unknown> {
    const askedAtMs = this.clock.nowMs();
    try {
      return await this.calls.send(call, extras);
    } catch (error) {
      this.noteRejection(asks, error, askedAtMs);
      throw error;
    }
  }

  /** Decides a call, by `onError` if there is no answer. Counts it and calls the hook. */
  async decided(
    kind: 'check' | 'peek' | 'lease',
    asks: readonly Ask[],
    isKnown: boolean,
    decide: () => Promise<Decision>,
  ): Promise<Decision> {
    const askedAtMs = this.clock.nowMs();
    let decision: Decision;
    try {
      decision = await decide();
    } catch (error) {
      decision = this.without(asks, error, { isPeek: kind === 'peek', isKnown, askedAtMs });
    }
    return this.counted(decision, asks, askedAtMs, kind);
  }

  /** Decides a call under one rule, as `decided` does. */
  single(kind: 'peek' | 'lease', ask: Ask, call: Call, extras: Extras): Promise<Decision> {
    return this.decided(kind, [ask], kind === 'peek', async () => {
      const { turn } = this.known;
      const decision = decisionOf(await this.calls.send(call, extras), ask);
      this.known.note(ask, decision, turn);
      return decision;
    });
  }

  /** Decides a call of several items, as `decided` does. A server with too many calls denies it. */
  several(
    kind: 'check' | 'peek',
    asks: readonly Ask[],
    call: Call,
    extras: Extras,
    denials: DenialCache | undefined,
  ): Promise<Decision> {
    const isKnown = call.asks !== undefined;
    return this.decided(kind, asks, isKnown, async () => {
      const asked = denials?.asked();
      const { turn } = this.known;
      try {
        const reply = await this.calls.send(call, extras);
        const decision = allDecisionOf(reply, asks);
        if (isKnown) this.known.noteAll(asks, decision, turn);
        if (asked !== undefined) denials?.put(call, decision, asked);
        return decision;
      } catch (error) {
        const denial = tooManyOf(error, asks);
        if (denial === undefined) throw error;
        return denial;
      }
    });
  }

  /** Counts a hit of a fixed window, also above its limit. Without an answer decides as `check`. */
  async hit(ask: Ask): Promise<Hit> {
    let hits: number | undefined;
    const decision = await this.decided('check', [ask], true, async () => {
      const { turn } = this.known;
      const counted = countedOf(await this.calls.send(hitCall(ask)), ask.rule);
      hits = counted.hits;
      this.known.note(ask, counted.decision, turn);
      return counted.decision;
    });
    return { decision, hits };
  }

  /** @param askedAtMs Undefined if no call was sent. */
  counted(
    decision: Decision,
    asked: Ask | readonly Ask[],
    askedAtMs: number | undefined,
    kind: 'check' | 'peek' | 'lease' = 'check',
  ): Decision {
    if (kind !== 'peek') {
      this.counters[decision.allowed ? 'allowed' : 'denied'] += 1;
      if (decision.degraded) this.counters.degraded += 1;
      else if (decision.source === 'local') this.counters.local += 1;
    }
    if (this.hooks.isEmpty) return decision;
    const asks = 'rule' in asked ? [asked] : asked;
    this.hooks.tell({ kind, decision, asks, askedAtMs });
    return decision;
  }

  /**
   * Decides by a known denial or by `onError` if the server was unavailable. Throws other errors.
   */
  without(asks: readonly Ask[], error: unknown, { isPeek, isKnown, askedAtMs }: Terms): Decision {
    this.noteRejection(asks, error, askedAtMs);
    if (!(error instanceof UnavailableError)) throw error;
    this.#log?.add(error.reason);
    const denial = isKnown ? this.known.unanswered(asks, error) : undefined;
    if (denial !== undefined) return denial;
    const isOverloaded = error.reason === 'overloaded';
    const asked = asks.map((ask) => this.#asked(ask, isKnown, isOverloaded));
    const onErrors = asked.map((ask) => (ask.isWhole ? 'local' : this.#onError(ask)));
    const retryAfterMs = this.options.breakerPauseMs;
    return withoutAnswer({ asks: asked, onErrors, error, peek: isPeek, retryAfterMs }, this.#local);
  }

  #onError({ rule }: Pick<Ask, 'rule'>): OnError {
    return rule.onError ?? this.options.onError;
  }

  /**
   * Returns what is asked; for the whole limit if it would be allowed, although the server has
   * denied the key before or has too many calls.
   */
  #asked(ask: Ask, isKnown: boolean, isOverloaded: boolean): LocalAsk {
    if (this.#onError(ask) !== 'allow' || !isLocal(ask.rule) || isHeld(ask)) return ask;
    const isOver = isKnown && this.known.isOver(ask);
    if (!isOver && !isOverloaded) return ask;
    const whole = { ...ask, isWhole: true };
    const fullAtMs = isOver ? this.known.beginsLocally(ask.key) : undefined;
    if (fullAtMs !== undefined) this.#local.begin(whole, fullAtMs);
    return whole;
  }

  /** Gives units back that this process granted, without an answer for this reason. */
  refundLocal(ask: Ask, reason: UnavailableReason | undefined): void {
    this.#local.refund(this.#asked(ask, true, reason === 'overloaded'));
  }

  /** Forgets what this process counted for a key without an answer. */
  forgetLocal(ask: Ask): void {
    this.#local.forget(ask);
  }

  /** Logs the rest of what is to be logged. */
  close(): void {
    this.#log?.close();
  }

  /** Counts and reports the error if the server refused the call. */
  noteRejection(asks: readonly Ask[], error: unknown, askedAtMs: number): void {
    if (!(error instanceof CommandRejectedError)) return;
    this.counters.rejected += 1;
    if (asks.length === 0) return;
    this.hooks.tell({ kind: 'rejected', decision: undefined, error, asks, askedAtMs });
  }

  /** Returns once the server has answered a call of the key; see `Limiter.ready`. */
  async ready(key: string, timeoutMs: number, signal: AbortSignal | undefined): Promise<void> {
    const patienceMs = Math.max(READY_MIN_MS, timeoutMs);
    try {
      await this.answer(probe(key), { signal, patienceMs });
    } catch (error) {
      if (!mayHaveRun(error)) throw error;
      const { reason, message, cause } = error as UnavailableError;
      const came = 'connected, logged in, no reply to RL.PEEK';
      throw new UnavailableError(reason, `${message}: ${came}`, { cause });
    }
  }
}
