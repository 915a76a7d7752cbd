/**
 * A store for express-rate-limit: the package handles options and headers, and the server decides.
 *
 * express-rate-limit compares a number of hits with its limit. The store reports an allowed call as
 * `limit - remaining` hits. It reports a denial as `limit + 1` hits, with the retry time as the
 * reset time. It cannot express costs, calls that are never allowed, or `onError`: for those use
 * `redis-throttle-client/express`.
 */
import { InvalidArgumentError, UnavailableError } from './errors.js';
import { hitsOf, isClosed, isMissing, withStatus } from './hits.js';
import { requiredKeyOf, type WithHeaders } from './key-of.js';
import type { Limiter } from './limiter.js';
import { fixed, type Rule } from './rules.js';

export type { WithHeaders } from './key-of.js';

/** The reply of a store. */
export interface HitCount {
  totalHits: number;
  resetTime: Date;
}

export interface StoreOptions {
  limiter: Limiter;
  /**
   * The rule that decides. Its limit must equal the `limit` of express-rate-limit. Default: a fixed
   * window with that package's `limit` and `windowMs`.
   */
  rule?: Rule | undefined;
  /**
   * The name of the default rule. Default `express`. Each limiter of the application needs its own
   * name.
   */
  name?: string | undefined;
}

/** The options of express-rate-limit that the store must match. */
export interface ExpressRateLimitOptions {
  windowMs: number;
  limit: unknown;
  skipFailedRequests?: boolean;
  skipSuccessfulRequests?: boolean;
  passOnStoreError?: boolean;
}

/** The kinds of rules that the store rejects, because their decisions are not a number of hits. */
const NOT_COUNTED = ['lease', 'backoff', 'policy', 'leaky_bucket'];

export class RedisThrottleStore {
  /** False because all processes share a key. Read by express-rate-limit. */
  readonly localKeys = false;
  /** The name of the rule, which separates the keys of this store from those of another. */
  readonly prefix: string;
  readonly #limiter: Limiter;
  readonly #name: string;
  #rule: Rule | undefined;
  #refused: Error | undefined;

  /** @throws InvalidArgumentError at setup for a rule that the store cannot express. */
  constructor({ limiter, rule, name = 'express' }: StoreOptions) {
    if (rule !== undefined && NOT_COUNTED.includes(rule.kind)) {
      throw new InvalidArgumentError(
        'rule',
        `a rule that counts hits; ${rule.name} is a ${rule.kind}`,
      );
    }
    if ((rule?.prefetch ?? 1) > 1) {
      throw new InvalidArgumentError('rule', 'a rule without prefetch, which hides hits');
    }
    if (rule !== undefined && rule.count !== 'all') {
      throw new InvalidArgumentError(
        'rule',
        'a rule that counts all; skipSuccessfulRequests refunds',
      );
    }
    if (rule !== undefined) limiter.assertDecides(rule);
    this.#limiter = limiter;
    // Prefetch nothing, even if the limiter's options set `prefetch`.
    this.#rule = rule && Object.freeze({ ...rule, prefetch: 1 });
    this.#name = name;
    this.prefix = `${rule?.name ?? name}:`;
  }

  /** Called by express-rate-limit at setup. If it throws, the store refuses every call. */
  init(options: ExpressRateLimitOptions): void {
    try {
      this.#rule = this.#agreed(options);
    } catch (error) {
      this.#refused = error as Error;
      throw error;
    }
  }

  #agreed({
    limit,
    windowMs,
    passOnStoreError,
    skipFailedRequests,
  }: ExpressRateLimitOptions): Rule {
    if (skipFailedRequests === true) {
      // That package then refunds each 429, which took nothing, and each request that is reset.
      throw new InvalidArgumentError(
        'skipFailedRequests',
        'false; redis-throttle-client/express has count',
      );
    }
    if (passOnStoreError === true) {
      // `passOnStoreError` would also serve requests after an error in the program or its setup.
      throw new InvalidArgumentError(
        'passOnStoreError',
        "false; onError 'allow' serves without a server",
      );
    }
    if (typeof limit !== 'number') {
      throw new InvalidArgumentError(
        'limit',
        'a number; for limits by request use redis-throttle-client/express',
      );
    }
    const rule = this.#rule ?? fixed(this.#name, limit, `${windowMs}ms`, { prefetch: 1 });
    if (rule.limit !== limit) {
      throw new InvalidArgumentError('limit', `${rule.limit}, the limit of the rule ${rule.name}`);
    }
    const { kind } = rule;
    if (['fixed', 'sliding', 'sliding_log'].includes(kind) && rule.windowMs !== windowMs) {
      throw new InvalidArgumentError(
        'windowMs',
        `${rule.windowMs}, the window of the rule ${rule.name}`,
      );
    }
    return rule;
  }

  get #ready(): Rule {
    if (this.#refused !== undefined) throw this.#refused;
    if (this.#rule === undefined)
      throw new InvalidArgumentError('rule', 'a rule, or a store that was set up');
    return this.#rule;
  }

  /**
   * @throws UnavailableError, a 503, under `onError: 'deny'`, if the server gave no answer;
   * InvalidArgumentError, a 400, for a request without a key.
   */
  async increment(key: string): Promise<HitCount> {
    if (this.#refused !== undefined) {
      process.emitWarning(this.#refused, { code: 'RL_STORE' });
      return { totalHits: Number.MAX_SAFE_INTEGER, resetTime: this.#at(1000) };
    }
    const rule = this.#ready;
    if (isMissing(key)) throw withStatus(new InvalidArgumentError('key', 'a key'), 400);
    const decision = await this.#limiter.check(rule, key);
    if (isClosed(decision)) {
      throw withStatus(decision.error ?? new UnavailableError('server', 'no decision'), 503);
    }
    const { hits, waitMs } = hitsOf(rule, decision, 1000);
    return { totalHits: hits, resetTime: this.#at(waitMs) };
  }

  async get(key: string): Promise<HitCount | undefined> {
    const rule = this.#ready;
    const decision = await this.#limiter.peek(rule, key, { cost: 0 });
    if (decision.source === 'error') return undefined;
    const totalHits = rule.limit - decision.remaining;
    return totalHits > 0 ? { totalHits, resetTime: this.#at(decision.resetAfterMs) } : undefined;
  }

  /** Refunds a hit, for `skipSuccessfulRequests`. */
  async decrement(key: string): Promise<void> {
    // express-rate-limit does not await this call. A rejection would end the process.
    await this.#limiter.refund(this.#ready, key).catch((error) => {
      process.emitWarning(`a hit was not refunded: ${error}`, { code: 'RL_DECREMENT' });
    });
  }

  async resetKey(key: string): Promise<void> {
    await this.#limiter.forget(this.#ready, key);
  }

  /** Returns the instant `ms` from now, but at least one millisecond ahead. */
  #at(ms: number): Date {
    return new Date(Date.now() + Math.max(1, ms));
  }
}

/**
 * Returns a function for the option `keyGenerator` that joins the values of one or more header fields,
 * such as `keyOf('X-Tenant', 'X-Api-Key')`. The values are encoded: two requests have the same key
 * only if all their fields are equal. A request without one of the fields is answered 400.
 *
 * @throws InvalidArgumentError without a name, or for one that no header field can have.
 */
export function keyOf(...headers: string[]): (request: WithHeaders) => string {
  return requiredKeyOf(headers);
}
