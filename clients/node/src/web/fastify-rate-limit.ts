/**
 * A store for @fastify/rate-limit: the package handles routes and headers, and the server counts,
 * in a fixed window for each route and key. Like the package's own stores it also counts the
 * requests that are denied. `onError` replaces `skipOnError`.
 */
import type { Limiter } from '../limiter.js';
import { checkLimiter, checkOptions, typesOf } from '../rules/arguments.js';
import type { Decision } from '../rules/decision.js';
import { LONGEST_MS, MAX_LIMIT, microseconds } from '../rules/durations.js';
import { InvalidArgumentError, UnavailableError } from '../rules/errors.js';
import { fixed, type Rule } from '../rules/forms.js';
import { rateLimitHeaders } from '../rules/headers.js';
import { withoutLimit } from '../wire/words.js';
import { hitsOf, isClosed, isMissing, withStatus } from './hits.js';
import { joined } from './key-of.js';

export { storeKeyOf as keyOf, type WithHeaders } from './key-of.js';

export interface FastifyStoreOptions {
  limiter: Limiter;
  /**
   * The name of the rules. Default `fastify`. Each registration of the plugin needs its own name.
   */
  name?: string | undefined;
}

const TYPES = typesOf<FastifyStoreOptions>({ limiter: 'any', name: 'any' });

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

/** The hits of a key, those that were denied included. */
export interface FastifyHits {
  current: number;
  /** The ms until the window ends. */
  ttl: number;
}

/** Called with the hits of a key, or with an error. */
export type FastifyStoreCallback = (error: Error | null, hits?: FastifyHits) => void;

/** A store of @fastify/rate-limit. */
export interface FastifyStore {
  /** Counts a request. An error has the status 503 if `onError` denied the request. */
  incr(key: string, callback: FastifyStoreCallback, timeWindow: number, max: number): void;
  /** Reports the hits of a key, and counts nothing. */
  read(key: string, callback: FastifyStoreCallback, timeWindow: number, max: number): void;
  /** Returns the store of a route. Routes with the same `groupId` share their hits. */
  child(options: object): FastifyStore;
}

/**
 * Returns a store class for the option `store` of @fastify/rate-limit. A `max` of 0 denies, and an
 * infinite one allows, without a call.
 *
 * The class throws an InvalidArgumentError at setup for an option that it cannot express.
 */
export function redisThrottleStore(
  options: FastifyStoreOptions,
): new (
  pluginOptions: object,
) => FastifyStore {
  checkOptions(options, TYPES);
  const { limiter, name = 'fastify' } = options;
  checkLimiter(limiter);
  fixed(name, 1, 1); // Validates the name.

  return class RedisThrottleStore implements FastifyStore {
    readonly #space: readonly string[];
    readonly #exceeding: Exceeding | undefined;
    /** True if the package needs the number of denied requests. */
    readonly #needsDenials: boolean;

    constructor(pluginOptions: FastifyRateLimitOptions) {
      validate(pluginOptions);
      this.#space = spaceOf(pluginOptions);
      const growth = growthOf(pluginOptions);
      this.#exceeding = growth && new Exceeding(limiter, name, growth);
      this.#needsDenials = growth !== undefined || (pluginOptions.ban ?? -1) >= 0;
    }

    incr(key: string, callback: FastifyStoreCallback, timeWindow: number, max: number): void {
      const constant = { current: 1, ttl: timeWindow };
      this.#respond({ key, timeWindow, max, constant }, callback, async (rule, subject) => {
        const { decision, hits } = await limiter.hit(rule, subject);
        opened(decision);
        const isOver = hits === undefined || hits > max;
        if (this.#exceeding !== undefined && isOver && decision.source === 'server') {
          const over = { rule, subject, max, timeWindow, hits, leftMs: decision.retryAfterMs };
          return this.#exceeding.hit(over);
        }
        const reported = hitsOf(rule, decision, timeWindow);
        return { current: hits ?? reported.hits, ttl: reported.waitMs };
      });
    }

    read(key: string, callback: FastifyStoreCallback, timeWindow: number, max: number): void {
      const constant = max > 0 ? { current: 0, ttl: 0 } : { current: 1, ttl: timeWindow };
      this.#respond({ key, timeWindow, max, constant }, callback, async (rule, subject) => {
        const now = opened(await limiter.peek(withoutLimit(rule), subject, { cost: 0 }));
        if (!now.allowed) {
          const more = (await this.#exceeding?.count(subject)) || 1;
          return { current: Math.max(0, Math.floor(max)) + more, ttl: now.retryAfterMs };
        }
        const current = now.source === 'error' ? 0 : now.limit - now.remaining;
        return { current, ttl: current === 0 ? 0 : now.resetAfterMs };
      });
    }

    child(routeOptions: FastifyRateLimitOptions): FastifyStore {
      return new RedisThrottleStore(routeOptions);
    }

    /** Calls back with the hits or the error, and never throws. */
    #respond(
      { key, timeWindow, max, constant }: HitRequest,
      callback: FastifyStoreCallback,
      decide: (rule: Rule, subject: string) => Promise<FastifyHits>,
    ): void {
      const count = async () => {
        if (isMissing(key)) throw withStatus(new InvalidArgumentError('key', 'a key'), 400);
        if (typeof max !== 'number' || Number.isNaN(max)) {
          throw new InvalidArgumentError('max', 'a number');
        }
        const isDenied = max <= 0 && !this.#needsDenials;
        if (isDenied || max === Number.POSITIVE_INFINITY) return constant;
        const limit = Math.min(MAX_LIMIT, Math.max(1, Math.floor(max)));
        const rule = fixed(name, limit, `${timeWindow}ms`, { prefetch: 1 });
        return decide(rule, joined(...this.#space, String(key)));
      };
      count().then((hits) => callback(null, hits), callback);
    }
  };
}

interface HitRequest {
  /** A key generator may also return a number, or nothing. */
  key: string | number | null | undefined;
  timeWindow: number;
  max: number;
  /** The hits, without a call, if `max` is 0 or infinite. */
  constant: FastifyHits;
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
function validate({ skipOnError, timeWindow }: FastifyRateLimitOptions): void {
  if (skipOnError) {
    throw new InvalidArgumentError('skipOnError', "false; onError 'allow' serves without a server");
  }
  if (typeof timeWindow === 'number') microseconds('timeWindow', `${timeWindow}ms`);
}

/** Returns what a denied request does to the window, undefined if nothing. */
function growthOf(options: FastifyRateLimitOptions): Growth | undefined {
  if (options.continueExceeding) return 'continue';
  return options.exponentialBackoff ? 'double' : undefined;
}

/**
 * Returns the first parts of the subjects of a store, so that routes with options count apart. The
 * plugin, groups and routes have different numbers of parts.
 */
function spaceOf({ groupId, routeInfo }: FastifyRateLimitOptions): readonly string[] {
  if (groupId !== undefined) return [groupId];
  return routeInfo === undefined ? [] : [String(routeInfo.method ?? ''), routeInfo.url ?? ''];
}

/** `continue`: each denial starts the window again. `double`: it also doubles it. */
type Growth = 'continue' | 'double';

/** A denied request. */
interface Over {
  readonly rule: Rule;
  readonly subject: string;
  readonly max: number;
  /** The window, in ms. */
  readonly timeWindow: number;
  /** The hits of the window; undefined if its key is blocked by an earlier denial. */
  readonly hits: number | undefined;
  /** The ms until the denial ends, without this one. */
  readonly leftMs: number;
}

/** The time between two calls for which a count is kept, in ms. */
const MARGIN_MS = 1000;

/**
 * Blocks the key of the window for as long as the denial lasts, and counts the denials on a key of
 * their own, which lives at least as long.
 */
class Exceeding {
  constructor(
    private readonly limiter: Limiter,
    private readonly name: string,
    private readonly growth: Growth,
  ) {}

  /**
   * Counts a denial, and extends it. Without a reply, the denial ends as it would have.
   *
   * @returns The hits, and the ms until the denial ends.
   */
  async hit(over: Over): Promise<{ current: number; ttl: number }> {
    const { rule, subject, hits, leftMs } = over;
    const max = Math.max(0, Math.floor(over.max));
    try {
      // The first denial of a window.
      if (hits === max + 1) await this.limiter.forget(this.#denials(LONGEST_MS), after(subject));
      const count = await this.#count(over);
      const ttl = Math.max(this.#lasts(over.timeWindow, count), leftMs);
      await this.limiter.block(rule, subject, `${ttl}ms`);
      // This process then knows the denial, should the server fall silent.
      await this.limiter.peek(rule, subject, { cost: 0 });
      return { current: max + count, ttl };
    } catch (error) {
      if (!(error instanceof UnavailableError)) throw error;
      return { current: hits ?? max + 1, ttl: leftMs };
    }
  }

  /** Returns the number of denials of the window of a key. */
  async count(subject: string): Promise<number> {
    return (await this.#denied(subject)).count;
  }

  async #denied(subject: string): Promise<{ count: number; ageMs: number }> {
    const rule = this.#denials(LONGEST_MS);
    const { limit, remaining, resetAfterMs } = await this.limiter.peek(rule, after(subject), {
      cost: 0,
    });
    const count = limit - remaining;
    return { count, ageMs: count === 0 ? 0 : LONGEST_MS - resetAfterMs };
  }

  /** Counts a denial, and returns the number of denials. */
  async #count({ subject, timeWindow }: Over): Promise<number> {
    const { count, ageMs } = await this.#denied(subject);
    const keptMs = ageMs + 2 * this.#lasts(timeWindow, count + 1) + MARGIN_MS;
    const rule = this.#denials(Math.min(keptMs, LONGEST_MS));
    const { limit, remaining } = await this.limiter.charge(rule, after(subject));
    return limit - remaining;
  }

  /** Returns how long a denial lasts, in ms. */
  #lasts(timeWindow: number, count: number): number {
    const times = this.growth === 'double' ? 2 ** (count - 1) : 1;
    return Math.min(Math.ceil(timeWindow * times), LONGEST_MS);
  }

  #denials(windowMs: number): Rule {
    return fixed(this.name, MAX_LIMIT, `${windowMs}ms`, { prefetch: 1 });
  }
}

/** Returns the subject that counts denials: no other ends in an empty part. */
function after(subject: string): string {
  return `${subject}|`;
}
