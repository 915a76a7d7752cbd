/** The local limiter: decides in this process, without the server, if `onError` is `local`. */
import type { Clock } from '../rules/clock.js';
import { Decision, orNever } from '../rules/decision.js';
import type { Leave, Rule } from '../rules/forms.js';
import { unitsOf } from '../rules/rule.js';
import type { Algorithm } from './algorithms.js';
import { algorithmOf } from './algorithms.js';
import { granted } from './call-options.js';

/** The maximum number of keys in the local limiter. */
const SUBJECTS_MAX = 10_000;

/** The largest limit of a sliding log that has an entry for each call. */
const ENTRIES_MAX = 1000;

/** A rule, its key, and the units that a call takes. */
export interface LocalAsk {
  rule: Rule;
  key: string;
  /** True for the whole limit, in place of this process's share. */
  isWhole?: boolean | undefined;
  cost?: number | undefined;
  partial?: boolean | undefined;
  leave?: Leave | undefined;
}

/**
 * Returns the key of a state. A changed rule of the same name has another key, so it starts without
 * usage.
 */
function stateKey({ rule: { words }, key, isWhole }: LocalAsk): string {
  return `${isWhole ? 'whole' : 'share'} ${words.join(' ')} ${key}`;
}

/** Returns this process's share of the units that a call leaves. A percentage is of the share. */
function shareOf(leave: Leave | undefined, share: number): Leave | undefined {
  return typeof leave === 'number' ? Math.ceil(leave * share) : leave;
}

/** The local limiter, for rules whose `onError` is `local`. */
export class LocalLimiter {
  readonly #algorithms = new WeakMap<Rule, Algorithm>();
  /** The algorithms of the whole limits. */
  readonly #whole = new WeakMap<Rule, Algorithm>();
  /** The keys that have units left, the least recently used first. */
  readonly #states = new Map<string, unknown>();
  /** The others, which are dropped last, because dropping one resets its limit. */
  readonly #exhausted = new Map<string, { state: unknown; freeAtUs: bigint }>();

  constructor(private readonly clock: Clock) {}

  /** Takes from all rules or from none. Takes nothing if `peek` is true. */
  decide(asks: readonly LocalAsk[], error: Error, peek: boolean): Decision[] {
    const nowUs = BigInt(Math.floor(this.clock.nowMs() * 1000));
    const verdicts = asks.map((ask) => {
      const share = ask.isWhole ? 1 : ask.rule.localShare;
      const options = { ...ask, leave: shareOf(ask.leave, share) };
      return granted(this.#algorithm(ask), this.#stateOf(ask), nowUs, options);
    });
    const allowed = verdicts.every((verdict) => verdict.allowed);
    return verdicts.map(({ state, ...verdict }, at) => {
      const ask = asks[at] as LocalAsk;
      const { rule, cost = 1, leave } = ask;
      if (allowed && !peek && state !== undefined) this.#keep(ask, state, nowUs);
      const taken = verdict.allowed ? verdict.granted : 0;
      // A cost above the local share may still be within the rule's limit. Such a call may be
      // allowed when the server is back, so it has a retry time.
      const { limit } = rule.fallback ?? rule;
      const passes = verdict.retryAfterMs < 0 && cost + unitsOf(leave, limit) <= limit;
      const waitMs = passes ? Math.max(1000, verdict.resetAfterMs) : verdict.retryAfterMs;
      const retryAfterMs = orNever(waitMs);
      const source = 'local';
      return new Decision({ ...verdict, granted: taken, retryAfterMs, rule, source, error });
    });
  }

  /**
   * Begins the state of a key whose denial is over: a bucket is full again at an instant, or later
   * if the key has used more here. A window goes on. So no denial gives a key a second allowance.
   */
  begin(ask: LocalAsk, fullAtMs: number): void {
    const algorithm = this.#algorithm(ask);
    if (algorithm.until === undefined) return;
    const nowUs = BigInt(Math.floor(this.clock.nowMs() * 1000));
    const resetUs = BigInt(Math.floor(fullAtMs * 1000)) - nowUs;
    const state = algorithm.until(resetUs, nowUs);
    const resetMs = (of: unknown) => algorithm.decide(of, nowUs, 0).resetAfterMs;
    if (resetMs(this.#stateOf(ask)) < resetMs(state)) this.#keep(ask, state, nowUs);
  }

  /** Gives units back. */
  refund(ask: LocalAsk): void {
    const nowUs = BigInt(Math.floor(this.clock.nowMs() * 1000));
    const state = this.#stateOf(ask);
    if (state === undefined) return;
    const left = this.#algorithm(ask).refund(state, nowUs, ask.cost ?? 1);
    this.#keep(ask, left, nowUs);
  }

  /** Forgets what was counted for a key, by this process's share and by the whole limit. */
  forget(ask: LocalAsk): void {
    for (const isWhole of [false, true]) {
      const stored = stateKey({ ...ask, isWhole });
      this.#states.delete(stored);
      this.#exhausted.delete(stored);
    }
  }

  #algorithm({ rule, isWhole }: LocalAsk): Algorithm {
    const known = isWhole ? this.#whole : this.#algorithms;
    let algorithm = known.get(rule);
    if (algorithm === undefined) {
      algorithm = algorithmOf(rule, isWhole ? 1 : rule.localShare, ENTRIES_MAX);
      known.set(rule, algorithm);
    }
    return algorithm;
  }

  #stateOf(ask: LocalAsk): unknown {
    const stored = stateKey(ask);
    return this.#states.get(stored) ?? this.#exhausted.get(stored)?.state;
  }

  #keep(ask: LocalAsk, state: unknown, nowUs: bigint): void {
    const stored = stateKey(ask);
    this.#states.delete(stored);
    this.#exhausted.delete(stored);
    if (state === undefined) return;
    const { allowed, retryAfterMs } = this.#algorithm(ask).decide(state, nowUs, 1);
    if (allowed) this.#states.set(stored, state);
    else {
      const freeAtUs = nowUs + BigInt(retryAfterMs) * 1000n;
      this.#exhausted.set(stored, { state, freeAtUs });
    }
    if (this.#states.size + this.#exhausted.size > SUBJECTS_MAX) this.#drop(nowUs);
  }

  /**
   * Drops a key that has units left, if there is one. If most keys have none, drops one of these:
   * else no other key would be kept.
   */
  #drop(nowUs: bigint): void {
    const [oldest] = this.#exhausted.values();
    const hasUnits = oldest !== undefined && oldest.freeAtUs <= nowUs;
    const isCrowded = this.#exhausted.size > SUBJECTS_MAX / 2;
    const fromExhausted = hasUnits || isCrowded || this.#states.size === 0;
    const from = fromExhausted ? this.#exhausted : this.#states;
    from.delete(from.keys().next().value as string);
  }
}
