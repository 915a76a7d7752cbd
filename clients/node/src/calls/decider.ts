/** Makes the decisions of a limiter: counts them, reports them, and decides without the server. */
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
import { type Call, hitCall, isHeld, probe, type RuleRequest } from '../wire/words.js';
import type { DenialCache, KnownDenials } from './denials.js';
import { ErrorLog, Hooks } from './events.js';
import { isLocal, withoutReply } from './fallback.js';
import { LocalLimiter, type LocalRequest } from './local.js';
import type { Calls, Extras } from './steps.js';

/** The shortest time of `ready`, in ms. */
const READY_MIN_MS = 5000;

interface DeciderOptions {
  readonly breakerPauseMs: number;
  readonly logErrors: boolean;
  readonly onError: OnError;
  readonly onDecision: OnDecision | undefined;
}

/** The terms on which a call is decided without the server. */
interface Terms {
  readonly isPeek: boolean;
  /** True if known denials may decide it. */
  readonly isKnown: boolean;
  readonly startedAtMs: number;
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
  async send(call: Call, extras: Extras, requests: readonly RuleRequest[] = []): Promise<unknown> {
    const startedAtMs = this.clock.nowMs();
    try {
      return await this.calls.send(call, extras);
    } catch (error) {
      this.noteRejection(requests, error, startedAtMs);
      throw error;
    }
  }

  /** Decides a call, by `onError` if there is no reply. Counts it and calls the hook. */
  async decided(
    kind: 'check' | 'peek' | 'lease',
    requests: readonly RuleRequest[],
    isKnown: boolean,
    decide: () => Promise<Decision>,
  ): Promise<Decision> {
    const startedAtMs = this.clock.nowMs();
    let decision: Decision;
    try {
      decision = await decide();
    } catch (error) {
      decision = this.without(requests, error, { isPeek: kind === 'peek', isKnown, startedAtMs });
    }
    return this.counted(decision, requests, startedAtMs, kind);
  }

  /** Decides a call under one rule, as `decided` does. */
  single(
    kind: 'peek' | 'lease',
    request: RuleRequest,
    call: Call,
    extras: Extras,
  ): Promise<Decision> {
    return this.decided(kind, [request], kind === 'peek', async () => {
      const { turn } = this.known;
      const decision = decisionOf(await this.calls.send(call, extras), request);
      this.known.note(request, decision, turn);
      return decision;
    });
  }

  /** Decides a call of several items, as `decided` does. A server with too many calls denies it. */
  several(
    kind: 'check' | 'peek',
    requests: readonly RuleRequest[],
    call: Call,
    extras: Extras,
    denials: DenialCache | undefined,
  ): Promise<Decision> {
    const isKnown = call.requests !== undefined;
    return this.decided(kind, requests, isKnown, async () => {
      const moment = denials?.moment();
      const { turn } = this.known;
      try {
        const reply = await this.calls.send(call, extras);
        const decision = allDecisionOf(reply, requests);
        if (isKnown) this.known.noteAll(requests, decision, turn);
        if (moment !== undefined) denials?.put(call, decision, moment);
        return decision;
      } catch (error) {
        const denial = tooManyOf(error, requests);
        if (denial === undefined) throw error;
        return denial;
      }
    });
  }

  /** Counts a hit of a fixed window, also above its limit. Without a reply, decides as `check`. */
  async hit(request: RuleRequest): Promise<Hit> {
    let hits: number | undefined;
    const decision = await this.decided('check', [request], true, async () => {
      const { turn } = this.known;
      const counted = countedOf(await this.calls.send(hitCall(request)), request.rule);
      hits = counted.hits;
      this.known.note(request, counted.decision, turn);
      return counted.decision;
    });
    return { decision, hits };
  }

  /** @param startedAtMs Undefined if no call was sent. */
  counted(
    decision: Decision,
    called: RuleRequest | readonly RuleRequest[],
    startedAtMs: number | undefined,
    kind: 'check' | 'peek' | 'lease' = 'check',
  ): Decision {
    if (kind !== 'peek') {
      this.counters[decision.allowed ? 'allowed' : 'denied'] += 1;
      if (decision.degraded) this.counters.degraded += 1;
      else if (decision.source === 'local') this.counters.local += 1;
    }
    if (this.hooks.isEmpty) return decision;
    const requests = 'rule' in called ? [called] : called;
    this.hooks.report({ kind, decision, requests, startedAtMs });
    return decision;
  }

  /**
   * Decides by a known denial or by `onError` if the server was unavailable. Throws other errors.
   */
  without(
    requests: readonly RuleRequest[],
    error: unknown,
    { isPeek, isKnown, startedAtMs }: Terms,
  ): Decision {
    this.noteRejection(requests, error, startedAtMs);
    if (!(error instanceof UnavailableError)) throw error;
    this.#log?.add(error.reason);
    const denial = isKnown ? this.known.withoutReply(requests, error) : undefined;
    if (denial !== undefined) return denial;
    const isOverloaded = error.reason === 'overloaded';
    const locals = requests.map((request) => this.#localRequest(request, isKnown, isOverloaded));
    const onErrors = locals.map((request) => (request.isWhole ? 'local' : this.#onError(request)));
    const retryAfterMs = this.options.breakerPauseMs;
    return withoutReply(
      { requests: locals, onErrors, error, peek: isPeek, retryAfterMs },
      this.#local,
    );
  }

  #onError({ rule }: Pick<RuleRequest, 'rule'>): OnError {
    return rule.onError ?? this.options.onError;
  }

  /**
   * Returns the request; for the whole limit if it would be allowed, although the server has denied
   * the key before or has too many calls.
   */
  #localRequest(request: RuleRequest, isKnown: boolean, isOverloaded: boolean): LocalRequest {
    if (this.#onError(request) !== 'allow' || !isLocal(request.rule) || isHeld(request))
      return request;
    const isOver = isKnown && this.known.isOver(request);
    if (!isOver && !isOverloaded) return request;
    const whole = { ...request, isWhole: true };
    const fullAtMs = isOver ? this.known.beginsLocally(request.key) : undefined;
    if (fullAtMs !== undefined) this.#local.begin(whole, fullAtMs);
    return whole;
  }

  /** Gives units back that this process granted, because there was no reply for this reason. */
  refundLocal(request: RuleRequest, reason: UnavailableReason | undefined): void {
    this.#local.refund(this.#localRequest(request, true, reason === 'overloaded'));
  }

  /** Forgets what this process counted for a key without the server. */
  forgetLocal(request: RuleRequest): void {
    this.#local.forget(request);
  }

  /** Logs the rest of the warnings. */
  close(): void {
    this.#log?.close();
  }

  /** Counts and reports the error if the server refused the call. */
  noteRejection(requests: readonly RuleRequest[], error: unknown, startedAtMs: number): void {
    if (!(error instanceof CommandRejectedError)) return;
    this.counters.rejected += 1;
    if (requests.length === 0) return;
    this.hooks.report({ kind: 'rejected', decision: undefined, error, requests, startedAtMs });
  }

  /** Returns once the server has replied to a call of the key; see `Limiter.ready`. */
  async ready(key: string, timeoutMs: number, signal: AbortSignal | undefined): Promise<void> {
    const patienceMs = Math.max(READY_MIN_MS, timeoutMs);
    try {
      await this.send(probe(key), { signal, patienceMs });
    } catch (error) {
      if (!mayHaveRun(error)) throw error;
      const { reason, message, cause } = error as UnavailableError;
      const came = 'connected, logged in, no reply to RL.PEEK';
      throw new UnavailableError(reason, `${message}: ${came}`, { cause });
    }
  }
}
