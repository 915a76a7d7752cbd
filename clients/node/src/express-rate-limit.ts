/**
 * A store for express-rate-limit, which keeps its options and headers; the server decides.
 *
 * That package compares a count with its limit. The store reports an allowed call as `limit -
 * remaining` hits, and a denial as `limit + 1` hits with the retry as the reset. It cannot report
 * costs, calls that never pass, or failure policies: use `redis-throttle-client/express` for those.
 */
import { ArgumentError, UnavailableError } from './errors.js';
import type { Limiter } from './limiter.js';
import { fixed, type Rule } from './rules.js';

/** The reply of a store. */
export interface HitCount {
  totalHits: number;
  resetTime: Date;
}

export interface StoreOptions {
  limiter: Limiter;
  /**
   * The rule that decides. Its limit must be the `limit` of express-rate-limit. Default: a fixed
   * window with its `limit` and `windowMs`.
   */
  rule?: Rule | undefined;
  /**
   * The name of the default rule. Default `express`; use one name for each limiter of the
   * application.
   */
  name?: string | undefined;
}

/** The options of express-rate-limit that a store must agree with. */
interface TheirOptions {
  windowMs: number;
  limit: unknown;
  skipFailedRequests?: boolean;
  skipSuccessfulRequests?: boolean;
  passOnStoreError?: boolean;
}

/** Kinds of rules that have no count of hits. */
const NOT_COUNTED = ['lease', 'backoff', 'policy', 'leaky_bucket'];

export class RedisThrottleStore {
  /** False: all processes share a key. express-rate-limit reads it. */
  readonly localKeys = false;
  /** The name of the rule, which separates its keys from those of another store. */
  readonly prefix: string;
  readonly #limiter: Limiter;
  readonly #name: string;
  #rule: Rule | undefined;
  #refused: Error | undefined;

  /** @throws ArgumentError at set-up for a rule that a store cannot express. */
  constructor({ limiter, rule, name = 'express' }: StoreOptions) {
    if (rule !== undefined && NOT_COUNTED.includes(rule.kind)) {
      throw new ArgumentError('rule', `a rule that counts hits; ${rule.name} is a ${rule.kind}`);
    }
    if ((rule?.prefetch ?? 1) > 1) {
      throw new ArgumentError('rule', 'a rule without prefetch, which hides hits');
    }
    this.#limiter = limiter;
    // The limiter's own `prefetch` does not apply either.
    this.#rule = rule && Object.freeze({ ...rule, prefetch: 1 });
    this.#name = name;
    this.prefix = `${rule?.name ?? name}:`;
  }

  /** Called by express-rate-limit at set-up. If it throws, the store refuses every call. */
  init(options: TheirOptions): void {
    try {
      this.#rule = this.#agreed(options);
    } catch (error) {
      this.#refused = error as Error;
      throw error;
    }
  }

  #agreed({ limit, windowMs, passOnStoreError }: TheirOptions): Rule {
    if (passOnStoreError === true) {
      // It would also serve requests after a mistake of the program.
      throw new ArgumentError('passOnStoreError', "false; onError 'allow' serves without a server");
    }
    if (typeof limit !== 'number') {
      throw new ArgumentError(
        'limit',
        'a number; for limits by request use redis-throttle-client/express',
      );
    }
    const rule = this.#rule ?? fixed(this.#name, limit, `${windowMs}ms`, { prefetch: 1 });
    if (rule.limit !== limit) {
      throw new ArgumentError('limit', `${rule.limit}, the limit of the rule ${rule.name}`);
    }
    const { kind } = rule;
    if (['fixed', 'sliding', 'sliding_log'].includes(kind) && rule.windowMs !== windowMs) {
      throw new ArgumentError('windowMs', `${rule.windowMs}, the window of the rule ${rule.name}`);
    }
    return rule;
  }

  get #ready(): Rule {
    if (this.#refused !== undefined) throw this.#refused;
    if (this.#rule === undefined)
      throw new ArgumentError('rule', 'a rule, or a store that was set up');
    return this.#rule;
  }

  /** @throws UnavailableError under `onError: 'deny'`, if the server did not decide. */
  async increment(key: string): Promise<HitCount> {
    if (this.#refused !== undefined) {
      process.emitWarning(this.#refused, { code: 'RL_STORE' });
      return { totalHits: Number.MAX_SAFE_INTEGER, resetTime: this.#at(1000) };
    }
    const rule = this.#ready;
    const decision = await this.#limiter.check(rule, key);
    if (decision.source === 'error' && !decision.allowed) {
      throw decision.error ?? new UnavailableError('server', 'no decision');
    }
    // `onError` allows the request, so it counts as the first hit.
    if (decision.source === 'error') return { totalHits: 1, resetTime: this.#at(1000) };
    if (!decision.allowed) {
      return { totalHits: rule.limit + 1, resetTime: this.#at(decision.retryAfterMs) };
    }
    const totalHits = Math.min(rule.limit, Math.max(1, rule.limit - decision.remaining));
    return { totalHits, resetTime: this.#at(decision.resetAfterMs) };
  }

  async get(key: string): Promise<HitCount | undefined> {
    const rule = this.#ready;
    const decision = await this.#limiter.peek(rule, key, { cost: 0 });
    if (decision.source === 'error') return undefined;
    const totalHits = rule.limit - decision.remaining;
    return totalHits > 0 ? { totalHits, resetTime: this.#at(decision.resetAfterMs) } : undefined;
  }

  /** Gives a hit back: for `skipFailedRequests` and `skipSuccessfulRequests`. */
  async decrement(key: string): Promise<void> {
    // express-rate-limit does not await it; a rejection would end the process.
    await this.#limiter.refund(this.#ready, key).catch((error) => {
      process.emitWarning(`a hit was not refunded: ${error}`, { code: 'RL_DECREMENT' });
    });
  }

  async resetKey(key: string): Promise<void> {
    await this.#limiter.forget(this.#ready, key);
  }

  /** Returns an instant at least one millisecond ahead. */
  #at(ms: number): Date {
    return new Date(Date.now() + Math.max(1, ms));
  }
}
