/** What happens without an answer: the failure policies, the circuit breaker, the local limiter. */

import type { Clock } from './clock.js';
import { Decision } from './decision.js';
import { UnavailableError } from './errors.js';
import { type Model, modelOf } from './models.js';
import type { OnError, Rule } from './rules.js';

const BY_STRICTNESS: readonly OnError[] = ['allow', 'local', 'deny'];

/** Of several rules in one call the strictest decides: deny before local before allow. */
export function strictest(all: readonly OnError[]): OnError {
  const at = Math.max(0, ...all.map((onError) => BY_STRICTNESS.indexOf(onError)));
  return BY_STRICTNESS[at] as OnError;
}

/**
 * Stops asking a server that does not answer: after `failures` in a row for `pauseMs`, then one
 * call tries, and the others wait for nothing.
 */
export class Breaker {
  #failures = 0;
  #closedAtMs = 0;
  #probing = false;

  constructor(
    private readonly clock: Clock,
    private readonly failures: number,
    private readonly pauseMs: number,
  ) {}

  /** Whether the next call would be refused here. */
  get open(): boolean {
    if (this.#failures < this.failures) return false;
    return this.#probing || this.clock.nowMs() < this.#closedAtMs;
  }

  /** Ms until a call may try again. */
  get retryAfterMs(): number {
    return this.open ? Math.max(1, Math.ceil(this.#closedAtMs - this.clock.nowMs())) : 0;
  }

  /**
   * Before a call: throws while it is open. Every call that came past here ends in `ended`.
   *
   * @returns Whether it is the one that tries.
   */
  enter(): boolean {
    if (this.open) throw new UnavailableError('circuit', 'not asked: it did not answer before');
    const isProbe = this.#failures >= this.failures;
    if (isProbe) this.#probing = true;
    return isProbe;
  }

  /** @param outcome `neither`: given up by the caller, which says nothing about the server. */
  ended(outcome: 'answered' | 'failed' | 'neither', isProbe: boolean): void {
    if (isProbe) this.#probing = false;
    if (outcome === 'answered') this.#failures = 0;
    if (outcome !== 'failed') return;
    this.#failures += 1;
    this.#closedAtMs = this.clock.nowMs() + this.pauseMs;
  }
}

/**
 * Subjects that the local limiter remembers; beyond it the one that was served least lately is
 * forgotten.
 */
const SUBJECTS_MAX = 10_000;

/** A rule, its key, and what is asked of it. */
export interface LocalAsk {
  rule: Rule;
  key: string;
  cost?: number | undefined;
  partial?: boolean | undefined;
}

/** A state is read by the rule that wrote it: another one of the same name begins anew. */
function stateKey({ words }: Rule, key: string): string {
  return `${words.join(' ')} ${key}`;
}

/** The limiter of this process, for rules whose `onError` is `local`. */
export class LocalLimiter {
  readonly #models = new WeakMap<Rule, Model>();
  readonly #states = new Map<string, unknown>();

  constructor(private readonly clock: Clock) {}

  /** All rules, or none of them is charged; nothing is when it only looks. */
  decide(asks: readonly LocalAsk[], error: Error, peek: boolean): Decision[] {
    const nowUs = BigInt(Math.floor(this.clock.nowMs() * 1000));
    const verdicts = asks.map(({ rule, key, cost = 1, partial = false }) => {
      const model = this.#model(rule);
      const state = this.#states.get(stateKey(rule, key));
      const there = partial ? model.decide(state, nowUs, 0).remaining : cost;
      const granted = Math.min(cost, Math.max(1, there));
      return { ...model.decide(state, nowUs, granted), granted };
    });
    const allowed = verdicts.every((verdict) => verdict.allowed);
    return verdicts.map(({ state, ...verdict }, at) => {
      const { rule, key, cost = 1 } = asks[at] as LocalAsk;
      if (allowed && !peek && state !== undefined) this.#keep(stateKey(rule, key), state);
      const granted = verdict.allowed ? verdict.granted : 0;
      // Above what this process may grant is not above the rule: it may pass when the server is
      // back.
      const passes = verdict.retryAfterMs < 0 && cost <= (rule.fallback ?? rule).limit;
      const retryAfterMs = passes ? Math.max(1000, verdict.resetAfterMs) : verdict.retryAfterMs;
      return new Decision({ ...verdict, granted, retryAfterMs, rule, source: 'local', error });
    });
  }

  #model(rule: Rule): Model {
    let model = this.#models.get(rule);
    if (model === undefined) {
      model = modelOf(rule, rule.localShare);
      this.#models.set(rule, model);
    }
    return model;
  }

  #keep(key: string, state: unknown): void {
    this.#states.delete(key);
    this.#states.set(key, state);
    if (this.#states.size > SUBJECTS_MAX) {
      this.#states.delete(this.#states.keys().next().value as string);
    }
  }
}
