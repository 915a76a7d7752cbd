/** The local limiter: decides in this process, without the server, if `onError` is `local`. */
import { type Algorithm, algorithmOf } from './algorithms.js';
import type { Clock } from './clock.js';
import { Decision } from './decision.js';
import type { Rule } from './rules.js';

/**
 * The maximum number of keys in the local limiter. The least recently used key is dropped.
 */
const SUBJECTS_MAX = 10_000;

/** A rule, its key, and the units that a call takes. */
export interface LocalAsk {
  rule: Rule;
  key: string;
  cost?: number | undefined;
  partial?: boolean | undefined;
}

/**
 * Returns the key of a state. A changed rule of the same name has another key, so it starts without
 * usage.
 */
function stateKey({ words }: Rule, key: string): string {
  return `${words.join(' ')} ${key}`;
}

/** The local limiter, for rules whose `onError` is `local`. */
export class LocalLimiter {
  readonly #algorithms = new WeakMap<Rule, Algorithm>();
  readonly #states = new Map<string, unknown>();

  constructor(private readonly clock: Clock) {}

  /** Takes from all rules or from none. Takes nothing if `peek` is true. */
  decide(asks: readonly LocalAsk[], error: Error, peek: boolean): Decision[] {
    const nowUs = BigInt(Math.floor(this.clock.nowMs() * 1000));
    const verdicts = asks.map(({ rule, key, cost = 1, partial = false }) => {
      const algorithm = this.#algorithm(rule);
      const state = this.#states.get(stateKey(rule, key));
      const there = partial ? algorithm.decide(state, nowUs, 0).remaining : cost;
      const granted = Math.min(cost, Math.max(1, there));
      return { ...algorithm.decide(state, nowUs, granted), granted };
    });
    const allowed = verdicts.every((verdict) => verdict.allowed);
    return verdicts.map(({ state, ...verdict }, at) => {
      const { rule, key, cost = 1 } = asks[at] as LocalAsk;
      if (allowed && !peek && state !== undefined) this.#keep(stateKey(rule, key), state);
      const granted = verdict.allowed ? verdict.granted : 0;
      // A cost above the local share may still be within the rule's limit. Such a call may be
      // allowed when the server is back, so its retry time is not `-1`.
      const passes = verdict.retryAfterMs < 0 && cost <= (rule.fallback ?? rule).limit;
      const retryAfterMs = passes ? Math.max(1000, verdict.resetAfterMs) : verdict.retryAfterMs;
      return new Decision({ ...verdict, granted, retryAfterMs, rule, source: 'local', error });
    });
  }

  #algorithm(rule: Rule): Algorithm {
    let algorithm = this.#algorithms.get(rule);
    if (algorithm === undefined) {
      algorithm = algorithmOf(rule, rule.localShare);
      this.#algorithms.set(rule, algorithm);
    }
    return algorithm;
  }

  #keep(key: string, state: unknown): void {
    this.#states.delete(key);
    this.#states.set(key, state);
    if (this.#states.size > SUBJECTS_MAX) {
      this.#states.delete(this.#states.keys().next().value as string);
    }
  }
}
