/**
 * A store for @fastify/rate-limit: the package handles routes and headers, and the server decides,
 * by a fixed window for each route and key.
 *
 * The package's own stores also count the requests that are denied. This one does not: a denied
 * request takes nothing, and is reported as one hit above the limit. So the options that need such
 * a count are refused: `ban`, `continueExceeding` and `exponentialBackoff`. `onError` replaces
 * `skipOnError`.
 */
import type { Decision } from './decision.js';
import { InvalidArgumentError, UnavailableError } from './errors.js';
import { rateLimitHeaders } from './headers.js';
import { hitsOf, isClosed, isMissing, withStatus } from './hits.js';
import { requiredKeyOf, type WithHeaders } from './key-of.js';
import type { Limiter } from './limiter.js';
import { integer, microseconds } from './numbers.js';
import { fixed, type Rule } from './rules.js';

export type { WithHeaders } from './key-of.js';

export interface FastifyStoreOptions {
  limiter: Limiter;
  /**
   * The name of the rules. Default `fastify`. Each registration of the plugin needs its own name.
   */
  name?: string | undefined;
}

/** The options of @fastify/rate-limit, of the plugin or of a route, that a store depends on. */
interface FastifyRateLimitOptions {
  ban?: number;
  continueExceeding?: boolean;
  exponentialBackoff?: boolean;
  skipOnError?: boolean;
  max?: unknown;
  timeWindow?: unknown;
  groupId?: string;
  routeInfo?: { method?: string | string[]; url?: string };
}

/** The hits of a key; one more than `max` for a denial. */
export interface FastifyHits {
  current: number;
  /** The ms until the window ends; of a denial, until the retry. */
  ttl: number;
}

/** Called with the hits of a key, or with an error. */
export type FastifyStoreCallback = (error: Error | null, hits?: FastifyHits) => void;

/** A store of @fastify/rate-limit. */
export interface FastifyStore {
  /** Counts a request. An error has the status 503 if `onError` denied the request. */
  incr(key: string, callback: FastifyStoreCallback, timeWindow: number, max: number): void;
  /** Reports the hits of a key, and counts nothing. If the next request is denied: `max` + 1. */
  read(key: string, callback: FastifyStoreCallback, timeWindow: number, max: number): void;
  /** Returns the store of a route. Routes with the same `groupId` share their hits. */
  child(options: object): FastifyStore;
}

/**
 * Returns a store class for the option `store` of @fastify/rate-limit.
 *
 * The class throws an InvalidArgumentError at setup for an option that it cannot express, and for a
 * `max` below 1.
 */
export function redisThrottleStore(
  options: FastifyStoreOptions,
): new (
  pluginOptions: object,
) => FastifyStore {
  const { limiter, name = 'fastify' } = options;
  if (limiter === undefined) throw new InvalidArgumentError('limiter', 'a Limiter');
  fixed(name, 1, 1); // Validates the name.

  return class RedisThrottleStore implements FastifyStore {
    readonly #space: string;

    constructor(pluginOptions: FastifyRateLimitOptions) {
      validate(pluginOptions);
      this.#space = spaceOf(pluginOptions);
    }

    incr(key: string, callback: FastifyStoreCallback, timeWindow: number, max: number): void {
      this.#answer({ key, timeWindow, max }, callback, async (rule, subject) => {
        const decision = opened(await limiter.check(rule, subject));
        const { hits, waitMs } = hitsOf(rule, decision, timeWindow);
        return { current: hits, ttl: waitMs };
      });
    }

    read(key: string, callback: FastifyStoreCallback, timeWindow: number, max: number): void {
      this.#answer({ key, timeWindow, max }, callback, async (rule, subject) => {
        const next = opened(await limiter.peek(rule, subject));
        if (!next.allowed) return { current: max + 1, ttl: next.retryAfterMs };
        const current = next.source === 'error' ? 0 : max - next.remaining - 1;
        return { current, ttl: current === 0 ? 0 : next.resetAfterMs };
      });
    }

    child(routeOptions: FastifyRateLimitOptions): FastifyStore {
      return new RedisThrottleStore(routeOptions);
    }

    /** Calls back with the answer or the error, and never throws. */
    #answer(
      { key, timeWindow, max }: Asked,
      callback: FastifyStoreCallback,
      decide: (rule: Rule, subject: string) => Promise<FastifyHits>,
    ): void {
      const decided = async () => {
        if (isMissing(key)) throw withStatus(new InvalidArgumentError('key', 'a key'), 400);
        const rule = fixed(name, max, `${timeWindow}ms`, { prefetch: 1 });
        return decide(rule, `${this.#space}${key}`);
      };
      decided().then((hits) => callback(null, hits), callback);
    }
  };
}

interface Asked {
  /** A key generator may also return a number, or nothing. */
  key: string | number | null | undefined;
  timeWindow: number;
  max: number;
}

/** Returns the decision, or throws the error of a 503 if `onError` denied the call. */
function opened(decision: Decision): Decision {
  if (!isClosed(decision)) return decision;
  const reason = decision.reason ?? 'server';
  const options = { cause: decision.error };
  const error = new UnavailableError(reason, 'the rate limiter is not available', options);
  throw Object.assign(withStatus(error, 503), { headers: rateLimitHeaders(decision) });
}

/** Throws for options that the store cannot express. */
function validate(options: FastifyRateLimitOptions): void {
  const { ban = -1, max, timeWindow } = options;
  if (ban >= 0) throw new InvalidArgumentError('ban', 'no ban, which needs a count of denials');
  for (const option of ['continueExceeding', 'exponentialBackoff'] as const) {
    if (options[option]) throw new InvalidArgumentError(option, 'false; denials take nothing');
  }
  if (options.skipOnError) {
    throw new InvalidArgumentError('skipOnError', "false; onError 'allow' serves without a server");
  }
  if (typeof max === 'number') integer('max', max, 1);
  if (typeof timeWindow === 'number') microseconds('timeWindow', `${timeWindow}ms`);
}

/** Returns the first part of the subjects of a store, so that routes with options count apart. */
function spaceOf({ groupId, routeInfo }: FastifyRateLimitOptions): string {
  if (groupId !== undefined) return 'group-';
  return routeInfo === undefined ? '' : `${routeInfo.method ?? ''}${routeInfo.url ?? ''}-`;
}

/**
 * Returns a function for the option `keyGenerator` that joins the values of one or more header
 * fields, such as `keyOf('X-Tenant', 'X-Api-Key')`. The values are encoded: two requests have the
 * same key only if all their fields are equal. A request without one of the fields is answered 400.
 *
 * @throws InvalidArgumentError without a name, or for one that no header field can have.
 */
export function keyOf(...headers: string[]): (request: WithHeaders) => string {
  return requiredKeyOf(headers);
}
