/** The limiter of this process: decides without the server if a rule's `onError` is `local`. */
import { type Algorithm, algorithmOf } from './algorithms.js';
import type { Clock } from './clock.js';
import { Decision } from './decision.js';
import type { Rule } from './rules.js';

/**
 * The number of keys that the local limiter remembers. Above it the least recently used is
 * forgotten.
 */
const SUBJECTS_MAX = 10_000;

/** A rule, its key, and what a call takes of it. */
export interface LocalAsk {
  rule: Rule;
  key: string;
  cost?: number | undefined;
  partial?: boolean | undefined;
}

/**
 * Returns the key of a state. A changed rule of the same name does not read it: it starts again.
 */
function stateKey({ words }: Rule, key: string): string {
  return `${words.join(' ')} ${key}`;
}

/** The limiter of this process, for rules whose `onError` is `local`. */
export class LocalLimiter {
  readonly #algorithms = new WeakMap<Rule, Algorithm>();
  readonly #states = new Map<string, unknown>();

  constructor(private readonly clock: Clock) {}

  /** Takes from all rules or from none; from none if it only peeks. */
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
      // A cost above this process' share may still be within the rule: the call may pass when the
      // server is back.
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
