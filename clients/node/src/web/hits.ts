/** Decisions as the stores of other packages report them: as a number of hits. */
import type { Decision } from '../rules/decision.js';
import type { Rule } from '../rules/forms.js';
import { isSubject } from '../rules/keys.js';

/** The number of hits of a key, and the time until it may call again. */
export interface Hits {
  /** 1 to the limit; one more than the limit if the call is denied. */
  hits: number;
  /** The time until the reset, in ms; of a denial, until the retry. */
  waitMs: number;
}

/**
 * Returns the hits that a decision stands for. A call that `onError` allowed is the first hit.
 *
 * @param unknownMs The wait of a call that `onError` allowed.
 */
export function hitsOf({ limit }: Rule, decision: Decision, unknownMs: number): Hits {
  if (!decision.allowed) return { hits: limit + 1, waitMs: decision.retryAfterMs };
  if (decision.source === 'error') return { hits: 1, waitMs: unknownMs };
  const hits = Math.min(limit, Math.max(1, limit - decision.remaining));
  return { hits, waitMs: decision.resetAfterMs };
}

/** Returns true if `onError` denied the call because there was no reply. */
export function isClosed({ allowed, source }: Decision): boolean {
  return !allowed && source === 'error';
}

/** Returns true if a key function found no subject, whatever its type promises. */
export function isMissing(key: unknown): boolean {
  return !isSubject(key);
}

/** Adds the properties by which a framework responds with this status: Hono calls `getResponse`. */
export function withStatus(error: Error, statusCode: number): Error {
  const getResponse = () => new Response(null, { status: statusCode });
  Object.defineProperty(error, 'getResponse', { value: getResponse, configurable: true });
  return Object.assign(error, { statusCode });
}
