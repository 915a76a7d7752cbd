/** Makes the decisions of a limiter: counts them, reports them, and decides without an answer. */
import type { Calls } from './calls.js';
import type { Clock } from './clock.js';
import type { Decision } from './decision.js';
import { CommandRejectedError, UnavailableError } from './errors.js';
import type { Keys } from './keys.js';
import { LocalLimiter } from './local.js';
import { Hooks, type Told } from './on-decision.js';
import { withoutAnswer } from './on-error.js';
import type { OnDecision } from './options.js';
import type { Ask, Call } from './protocol.js';
import type { OnError } from './rules.js';

interface DeciderOptions {
  readonly timeoutMs: number;
  readonly breakerPauseMs: number;
  readonly onError: OnError;
  readonly onDecision: OnDecision | undefined;
}

export class Decider {
  readonly counters = { allowed: 0, denied: 0, degraded: 0, local: 0, rejected: 0, unsettled: 0 };
  /** The hooks of the application. */
  readonly hooks: Hooks;
  readonly #local: LocalLimiter;

  constructor(
    private readonly calls: Calls,
    private readonly clock: Clock,
    keys: Keys,
    private readonly options: DeciderOptions,
  ) {
    this.#local = new LocalLimiter(clock);
    this.hooks = new Hooks(keys, clock);
    if (options.onDecision !== undefined) this.hooks.add(options.onDecision);
  }

  /** The number of nodes whose circuit breaker is open. */
  get openBreakers(): number {
    return this.calls.openBreakers;
  }

  send(call: Call, signal: AbortSignal | undefined): Promise<unknown> {
    return this.calls.send(call, this.options.timeoutMs, signal);
  }

  /** Sends a call that `onError` does not decide. Throws its error, and counts a rejection. */
  async answer(
    call: Call,
    signal: AbortSignal | undefined,
    asks: readonly Ask[] = [],
  ): Promise<unknown> {
    const askedAtMs = this.clock.nowMs();
    try {
      return await this.send(call, signal);
    } catch (error) {
      this.noteRejection(asks, error, askedAtMs);
      throw error;
    }
  }

  /** Decides a call, by `onError` if there is no answer. Counts it and calls the hook. */
  async decided(
    kind: 'check' | 'peek' | 'lease',
    asks: readonly Ask[],
    decide: () => Promise<Decision>,
  ): Promise<Decision> {
    const askedAtMs = this.clock.nowMs();
    let decision: Decision;
    try {
      decision = await decide();
    } catch (error) {
      decision = this.without(asks, error, kind === 'peek', askedAtMs);
    }
    return this.counted(decision, asks, askedAtMs, kind);
  }

  /** @param askedAtMs Undefined if no call was sent. */
  counted(
    decision: Decision,
    asks: readonly Ask[],
    askedAtMs: number | undefined,
    kind: 'check' | 'peek' | 'lease' = 'check',
  ): Decision {
    if (kind !== 'peek') {
      this.counters[decision.allowed ? 'allowed' : 'denied'] += 1;
      if (decision.degraded) this.counters.degraded += 1;
      else if (decision.source === 'local') this.counters.local += 1;
    }
    this.tell({ kind, decision, asks, askedAtMs });
    return decision;
  }

  tell(told: Told): void {
    this.hooks.tell(told);
  }

  /** Decides by `onError` if the server was unavailable. Throws any other error. */
  without(asks: readonly Ask[], error: unknown, peek: boolean, askedAtMs: number): Decision {
    this.noteRejection(asks, error, askedAtMs);
    if (!(error instanceof UnavailableError)) throw error;
    const onErrors = asks.map(({ rule }) => rule.onError ?? this.options.onError);
    const retryAfterMs = this.options.breakerPauseMs;
    return withoutAnswer({ asks, onErrors, error, peek, retryAfterMs }, this.#local);
  }

  /** Gives units back that this process granted. */
  refundLocal(ask: Ask): void {
    this.#local.refund(ask);
  }

  /** Counts and reports the error if the server refused the call. */
  noteRejection(asks: readonly Ask[], error: unknown, askedAtMs: number): void {
    if (!(error instanceof CommandRejectedError)) return;
    this.counters.rejected += 1;
    if (asks.length === 0) return;
    this.tell({ kind: 'rejected', decision: undefined, error, asks, askedAtMs });
  }
}
