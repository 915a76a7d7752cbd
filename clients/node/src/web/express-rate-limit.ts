/**
 * A store for express-rate-limit, and for packages with its store interface, such as
 * hono-rate-limiter: the package handles options and headers, and the server counts.
 *
 * The package compares a number of hits with its limit, and may take back the hit of a denied
 * request. So the store counts denied requests too, in a fixed window. With a rule of another kind
 * the server decides: an allowed call is reported as `limit - remaining` hits, and a denial as
 * `limit + 1`, with the retry time as the reset time. It cannot express costs, calls that are never
 * allowed, or `onError`: for those use `redis-throttle-client/express`.
 */
import { checkRule } from '../calls/builder.js';
import type { Limiter } from '../limiter.js';
import { checkLimiter, checkOptions, typesOf } from '../rules/arguments.js';
import { MAX_LIMIT } from '../rules/durations.js';
import { InvalidArgumentError, UnavailableError } from '../rules/errors.js';
import { fixed, type Rule } from '../rules/forms.js';
import { withoutLimit } from '../wire/words.js';
import { hitsOf, isClosed, isMissing, withStatus } from './hits.js';

export { storeKeyOf as keyOf, type WithHeaders } from './key-of.js';

/** The reply of a store. */
export interface HitCount {
  totalHits: number;
  resetTime: Date;
}

export interface StoreOptions {
  limiter: Limiter;
  /**
   * The rule that decides. Its limit must equal the `limit` of express-rate-limit. Default: a fixed
   * window with that package's `limit`, which may be a function, and `windowMs`. A rule that is no
   * fixed window does not count denials, so it refuses the options that take hits back.
   */
  rule?: Rule | undefined;
  /**
   * The name of the default rule. Default `express`. Each limiter of the application needs its own
   * name.
   */
  name?: string | undefined;
}

const TYPES = typesOf<StoreOptions>({ limiter: 'any', rule: 'any', name: 'any' });

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

/** The options with which a package takes hits back, also those of denied requests. */
const REFUNDING = ['skipFailedRequests', 'skipSuccessfulRequests'] as const;

export class RedisThrottleStore {
  /** False because all processes share a key. Read by express-rate-limit. */
  readonly localKeys = false;
  /**
   * The name of the rule and `|`, which no name contains. Read by express-rate-limit, to
   * distinguish the keys of this store from those of another.
   */
  readonly prefix: string;
  readonly #limiter: Limiter;
  readonly #name: string;
  #rule: Rule | undefined;
  #refused: Error | undefined;
  /** True if the limit is 0 or infinite, so that one hit says all. */
  #isConstant = false;

  /** @throws InvalidArgumentError at setup for a rule that the store cannot express. */
  constructor(options: StoreOptions) {
    checkOptions(options, TYPES);
    const { limiter, rule, name = 'express' } = options;
    checkLimiter(limiter);
    if (rule !== undefined) checkRule(rule);
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
    this.prefix = `${rule?.name ?? name}|`;
  }

  /**
   * Called by the package at setup. If it throws, the store refuses every call.
   *
   * @throws InvalidArgumentError for options that the store cannot express.
   */
  init(options: ExpressRateLimitOptions): void {
    try {
      this.#rule = this.#agree(options);
    } catch (error) {
      this.#refused = error as Error;
      // express-rate-limit 8 logs the error and goes on: it next reads this method.
      Object.defineProperty(this, 'resetKey', {
        get: () => {
          throw error;
        },
      });
      throw error;
    }
  }

  /** Returns the rule for the options. */
  #agree(options: ExpressRateLimitOptions): Rule {
    const { limit, windowMs, passOnStoreError } = options;
    if (passOnStoreError === true) {
      // `passOnStoreError` would also serve requests after an error in the program or its setup.
      throw new InvalidArgumentError(
        'passOnStoreError',
        "false; onError 'allow' serves without a server",
      );
    }
    const own = this.#rule;
    if (own === undefined) {
      const isNumber = typeof limit === 'number';
      this.#isConstant = isNumber && (limit <= 0 || limit === Number.POSITIVE_INFINITY);
      const most = typeof limit === 'function' || this.#isConstant ? MAX_LIMIT : (limit as number);
      return fixed(this.#name, most, `${windowMs}ms`, { prefetch: 1 });
    }
    if (own.kind !== 'fixed') {
      for (const option of REFUNDING) {
        if (options[option] !== true) continue;
        // The package takes back denied requests too, which took nothing under this rule.
        throw new InvalidArgumentError(
          option,
          `false with a ${own.kind}; redis-throttle-client/express has count`,
        );
      }
    }
    if (limit !== own.limit) {
      throw new InvalidArgumentError('limit', `${own.limit}, the limit of the rule ${own.name}`);
    }
    const isWindow = ['fixed', 'sliding', 'sliding_log'].includes(own.kind);
    if (isWindow && own.windowMs !== windowMs) {
      throw new InvalidArgumentError(
        'windowMs',
        `${own.windowMs}, the window of the rule ${own.name}`,
      );
    }
    return own;
  }

  get #ready(): Rule {
    if (this.#refused !== undefined) throw this.#refused;
    if (this.#rule === undefined)
      throw new InvalidArgumentError('rule', 'a rule, or a store that was set up');
    return this.#rule;
  }

  /**
   * @throws UnavailableError, a 503, under `onError: 'deny'`, if the server did not reply;
   * InvalidArgumentError, a 400, for a request without a key.
   */
  async increment(key: string): Promise<HitCount> {
    if (this.#refused !== undefined) {
      process.emitWarning(this.#refused, { code: 'RL_STORE' });
      return { totalHits: Number.MAX_SAFE_INTEGER, resetTime: this.#at(1000) };
    }
    const rule = this.#ready;
    if (isMissing(key)) throw withStatus(new InvalidArgumentError('key', 'a key'), 400);
    if (this.#isConstant) return { totalHits: 1, resetTime: this.#at(rule.windowMs ?? 0) };
    const { decision, hits } =
      rule.kind === 'fixed'
        ? await this.#limiter.hit(rule, key)
        : { decision: await this.#limiter.check(rule, key), hits: undefined };
    if (isClosed(decision)) {
      throw withStatus(decision.error ?? new UnavailableError('server', 'no decision'), 503);
    }
    const reported = hitsOf(rule, decision, 1000);
    return { totalHits: hits ?? reported.hits, resetTime: this.#at(reported.waitMs) };
  }

  async get(key: string): Promise<HitCount | undefined> {
    const rule = this.#ready;
    const counting = rule.kind === 'fixed' ? withoutLimit(rule) : rule;
    const decision = await this.#limiter.peek(counting, key, { cost: 0 });
    if (decision.source === 'error') return undefined;
    const totalHits = decision.limit - decision.remaining;
    return totalHits > 0 ? { totalHits, resetTime: this.#at(decision.resetAfterMs) } : undefined;
  }

  /** Takes a hit back. */
  async decrement(key: string): Promise<void> {
    if (this.#isConstant) return;
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
