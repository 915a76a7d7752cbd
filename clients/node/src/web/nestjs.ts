/**
 * A storage for @nestjs/throttler: the package handles routes and headers, and the server decides,
 * by a fixed window for each throttler and key.
 */
import { type ArgumentsHost, Catch, type ExceptionFilter, HttpException } from '@nestjs/common';
import type { Limiter } from '../limiter.js';
import { checkLimiter, checkOptions, typesOf } from '../rules/arguments.js';
import { Decision, DeniedError } from '../rules/decision.js';
import { LONGEST_MS, MAX_LIMIT } from '../rules/durations.js';
import { UnavailableError } from '../rules/errors.js';
import { fixed, type Rule } from '../rules/forms.js';
import { noSubjectProblem } from '../rules/headers.js';
import { hitsOf, isClosed, isMissing } from './hits.js';
import { joined, requiredKeyOf, type WithHeaders } from './key-of.js';

export type { WithHeaders } from './key-of.js';

export interface StorageOptions {
  limiter: Limiter;
  /**
   * The first part of the rules' names. Default `nestjs`; the rule of the throttler `default` is
   * then `nestjs/default`. Applications that share a server need different names.
   */
  name?: string | undefined;
}

const TYPES = typesOf<StorageOptions>({ limiter: 'any', name: 'any' });

/** The result of a storage. All times are in seconds, rounded up. */
export interface ThrottlerRecord {
  totalHits: number;
  timeToExpire: number;
  isBlocked: boolean;
  /** 0 unless blocked. */
  timeToBlockExpire: number;
}

/**
 * Stores the hits of @nestjs/throttler. A denied request takes nothing, and a window begins with
 * its first request. A `blockDuration` other than the `ttl` bans the key for this long, after which
 * it starts with a full limit; the server's user needs the rights to `RL.BLOCK` and `DEL` for it.
 */
export class RedisThrottleStorage {
  readonly #limiter: Limiter;
  readonly #name: string;

  /** @throws InvalidArgumentError for a name that a rule cannot have. */
  constructor(options: StorageOptions) {
    checkOptions(options, TYPES);
    const { limiter, name = 'nestjs' } = options;
    checkLimiter(limiter);
    fixed(name, 1, 1); // Validates the name.
    this.#limiter = limiter;
    this.#name = name;
  }

  /**
   * Counts a request, and returns the state of its key. A limit of 0 denies, and an infinite one
   * allows, without a call.
   *
   * @param ttl The window, in ms.
   * @param blockDuration The length of a ban, in ms, at most 366 days. 0 or the ttl: none, the
   * window's end unblocks.
   * @throws HttpException with the status 503 under `onError: 'deny'`, if there is no reply, or
   * with 400 without a key; InvalidArgumentError for a limit that is no number.
   */
  async increment(
    key: string,
    ttl: number,
    limit: number,
    blockDuration: number,
    throttlerName: string,
  ): Promise<ThrottlerRecord> {
    if (isMissing(key)) throw new HttpException(noSubjectProblem(), 400);
    const hasBan = blockDuration > 0 && blockDuration !== ttl;
    if (limit < 1) {
      const waitMs = hasBan ? blockDuration : ttl;
      return { ...recordOf(1, ttl), isBlocked: true, timeToBlockExpire: seconds(waitMs) };
    }
    if (limit === Number.POSITIVE_INFINITY) return recordOf(1, ttl);
    // The subject has the exact name of the throttler.
    const name = `${this.#name}/${throttlerName.replace(/[^A-Za-z0-9._:/-]/g, '_')}`;
    const most = Math.min(Math.floor(limit), MAX_LIMIT);
    const rule = fixed(name, most, `${ttl}ms`, { prefetch: 1 });
    const subject = joined(throttlerName, String(key));
    const decision = hasBan
      ? await this.#checkBanned(rule, subject, Math.min(blockDuration, LONGEST_MS))
      : await this.#limiter.check(rule, subject);
    if (isClosed(decision)) {
      throw new HttpException(decision.problem(), 503, { cause: decision.error });
    }
    const { hits, waitMs } = hitsOf(rule, decision, ttl);
    if (decision.allowed) return recordOf(hits, waitMs);
    const record = recordOf(hits, decision.resetAfterMs);
    return { ...record, isBlocked: true, timeToBlockExpire: seconds(waitMs) };
  }

  /**
   * Checks a rule, and the ban of the key on a key of its own: a ban on the key of the rule could
   * not be distinguished from the end of its window. Bans the key when only the rule denies.
   */
  async #checkBanned(rule: Rule, subject: string, banMs: number): Promise<Decision> {
    const ban = fixed(`${rule.name}/ban`, 1, 1, { prefetch: 1 });
    // No subject of a window ends in an empty part.
    const banned = `${subject}|`;
    // The tag keeps both keys in one slot of a cluster.
    const options = { tag: subject };
    const items = [rule.of(subject), ban.of(banned).cost(0)];
    const decision = await this.#limiter.checkAll(items, options);
    const [window, kept] = decision.rows;
    const isFirst = window?.allowed === false && kept?.allowed === true;
    if (!isFirst || decision.source !== 'server') return decision;
    try {
      await this.#limiter.block(ban, banned, `${banMs}ms`, options);
      await this.#limiter.forget(rule, subject, options);
      // Both end what this process knows of the key. Its ban holds also if the server falls silent.
      await this.#limiter.peek(ban, banned, { ...options, cost: 0 });
    } catch (error) {
      // Without a reply, the window's end unblocks the key.
      if (error instanceof UnavailableError) return decision;
      throw error;
    }
    return new Decision({ ...decision.fields(), retryAfterMs: banMs });
  }
}

/** The part of a response of Express or Fastify that the filter uses. */
interface Reply {
  status(status: number): unknown;
  header(name: string, value: string): unknown;
  send(body: string): unknown;
}

/**
 * Responds to a DeniedError of a handler with the problem body and the headers of a denial:
 * `app.useGlobalFilters(new DeniedFilter())`. For applications over HTTP.
 */
export class DeniedFilter implements ExceptionFilter<DeniedError> {
  catch(error: DeniedError, host: ArgumentsHost): void {
    const reply = host.switchToHttp().getResponse<Reply>();
    reply.status(error.status);
    const headers = { ...error.headers, 'Content-Type': 'application/problem+json' };
    for (const [name, value] of Object.entries(headers)) reply.header(name, value);
    reply.send(JSON.stringify(error.decision.problem()));
  }
}

Catch(DeniedError)(DeniedFilter);

function recordOf(totalHits: number, resetAfterMs: number): ThrottlerRecord {
  const timeToExpire = Math.ceil(resetAfterMs / 1000);
  return { totalHits, timeToExpire, isBlocked: false, timeToBlockExpire: 0 };
}

/** Returns the seconds of a denial, at least 1. */
function seconds(ms: number): number {
  return Math.max(1, Math.ceil(ms / 1000));
}

/**
 * Returns a function for the option `getTracker` that joins the values of one or more header
 * fields, such as `keyOf('X-Tenant', 'X-Api-Key')`. The values are encoded: two requests have the
 * same key only if all their fields are equal. A request without one of the fields, or with one
 * more than once, gets a 400 response.
 *
 * @throws InvalidArgumentError without a name, or for one that no header field can have.
 */
export function keyOf(...headers: string[]): (request: WithHeaders) => string {
  return requiredKeyOf(headers, () => new HttpException(noSubjectProblem(), 400));
}
