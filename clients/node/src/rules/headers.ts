/**
 * Writes all headers and problem bodies. The header names are those of revision 11 of
 * draft-ietf-httpapi-ratelimit-headers. They may still change, so they are only in this file.
 */
import { checkOptions, typesOf } from './arguments.js';
import { InvalidArgumentError } from './errors.js';

/** The values of a decision that headers and problem bodies need. */
export interface DecisionValues {
  readonly allowed: boolean;
  readonly rule: string;
  readonly windowMs: number | undefined;
  readonly limit: number;
  readonly remaining: number;
  readonly retryAfterMs: number;
  readonly resetAfterMs: number;
  readonly banned: boolean;
  readonly source: string;
  readonly rows: readonly DecisionValues[];
}

/**
 * The form of the headers. `draft-11`: `RateLimit` and `RateLimit-Policy`. `draft-6`, an older
 * form: `RateLimit-Limit`, `-Remaining` and `-Reset`; the reset is in seconds from now.
 * `x-ratelimit`, an older form: the same names with `X-`; the reset is Unix time in seconds.
 */
export type HeaderStyle = 'draft-11' | 'draft-6' | 'x-ratelimit';

/** The syntax of a header's name. */
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/** Returns true for a name that a header field can have. */
export function isHeaderName(name: unknown): boolean {
  return typeof name === 'string' && TOKEN.test(name);
}

const STYLES: readonly HeaderStyle[] = ['draft-11', 'draft-6', 'x-ratelimit'];

export interface HeaderOptions {
  /** The forms to write. Default: `['draft-11']`. */
  styles?: readonly HeaderStyle[] | undefined;
  /**
   * The current Unix time in ms, which only `X-RateLimit-Reset` needs. Default: the clock of this
   * process.
   */
  nowMs?: number | undefined;
}

const TYPES = typesOf<HeaderOptions>({ styles: 'any', nowMs: 'any' });

/** Validates options of a program. */
export function checkHeaderOptions(options: HeaderOptions): void {
  checkOptions(options, TYPES);
  const { styles = [], nowMs = 0 } = options;
  checkStyles('styles', styles);
  if (!Number.isFinite(nowMs)) throw new InvalidArgumentError('nowMs', 'a number of ms');
}

/** Validates a list of forms. */
export function checkStyles(argument: string, styles: readonly HeaderStyle[]): void {
  if (!Array.isArray(styles)) {
    throw new InvalidArgumentError(argument, "an array, such as ['draft-6']");
  }
  if (!styles.every((style) => STYLES.includes(style))) {
    throw new InvalidArgumentError(argument, `some of ${STYLES.join(', ')}`);
  }
}

/**
 * Returns `Retry-After` in seconds, rounded up and at least 1; undefined if a retry never helps.
 */
export function retryAfterSeconds(retryAfterMs: number): number | undefined {
  return retryAfterMs < 0 || retryAfterMs >= Number.MAX_SAFE_INTEGER
    ? undefined
    : Math.max(1, Math.ceil(retryAfterMs / 1000));
}

/**
 * Returns the headers for a decision of one rule or of several. If `onError` decided without a
 * reply, only a denial has a header: `Retry-After`.
 */
export function rateLimitHeaders(
  decision: DecisionValues,
  options: HeaderOptions = {},
): Record<string, string> {
  const { styles = ['draft-11'], nowMs = Date.now() } = options;
  const retryAfter = decision.allowed ? undefined : retryAfterSeconds(decision.retryAfterMs);
  const headers: Record<string, string> = {};
  if (decision.source !== 'error') {
    const left = secondsLeft(decision, retryAfter);
    if (styles.includes('draft-11')) Object.assign(headers, structured(decision, retryAfter));
    if (styles.includes('draft-6')) Object.assign(headers, three('', decision, left));
    if (styles.includes('x-ratelimit')) {
      const waitMs = retryAfter === undefined ? decision.resetAfterMs : decision.retryAfterMs;
      Object.assign(headers, three('X-', decision, Math.ceil((nowMs + waitMs) / 1000)));
    }
  }
  if (retryAfter !== undefined) headers['Retry-After'] = String(retryAfter);
  return headers;
}

function structured(
  decision: DecisionValues,
  retryAfter: number | undefined,
): Record<string, string> {
  const all = decision.rows.length > 0 ? decision.rows : [decision];
  const state = (row: DecisionValues) =>
    `"${row.rule}";r=${row.remaining};t=${secondsLeft(row, retryAfter)}`;
  return { 'RateLimit-Policy': all.map(policy).join(', '), RateLimit: all.map(state).join(', ') };
}

/**
 * Returns a rule's item of `RateLimit-Policy`. `w` is the window in whole seconds, left out if the
 * window is below one second.
 */
function policy({ rule, limit, windowMs = 0 }: DecisionValues): string {
  return `"${rule}";q=${limit}${windowMs < 1000 ? '' : `;w=${Math.ceil(windowMs / 1000)}`}`;
}

/**
 * Returns `t`: the seconds until a rule's retry if the rule denies, otherwise until its reset; at
 * most `retryAfter`.
 */
function secondsLeft(row: DecisionValues, retryAfter = Number.POSITIVE_INFINITY): number {
  const own = row.allowed ? undefined : retryAfterSeconds(row.retryAfterMs);
  return Math.min(own ?? Math.ceil(row.resetAfterMs / 1000), retryAfter);
}

function three(prefix: string, { limit, remaining }: DecisionValues, reset: number) {
  return {
    [`${prefix}RateLimit-Limit`]: String(limit),
    [`${prefix}RateLimit-Remaining`]: String(remaining),
    [`${prefix}RateLimit-Reset`]: String(reset),
  };
}

/**
 * A body of `application/problem+json` (RFC 9457). It contains no key, no subject and no limit of
 * other rules.
 */
export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  'violated-policies'?: string[];
}

const QUOTA_EXCEEDED = 'https://iana.org/assignments/http-problem-types#quota-exceeded';

/**
 * Returns the body of a denial: status 429; 413 if a retry never helps, or 403 if the caller is
 * banned; 503 if `onError` decided.
 */
export function problemOf(decision: DecisionValues): Problem {
  const { source, retryAfterMs } = decision;
  if (source === 'error') {
    return plain(503, 'Service Unavailable', 'The rate limiter is not available.');
  }
  const seconds = retryAfterSeconds(retryAfterMs);
  if (decision.banned) return plain(403, 'Forbidden', 'This caller is blocked.');
  if (seconds === undefined) {
    const detail = 'This request costs more than its limit allows at once.';
    return plain(413, 'Content Too Large', detail);
  }
  const denying = decision.rows.filter((row) => !row.allowed).map((row) => row.rule);
  return {
    type: QUOTA_EXCEEDED,
    title: 'Too Many Requests',
    status: 429,
    detail: `Come back in ${seconds} ${seconds === 1 ? 'second' : 'seconds'}.`,
    'violated-policies': denying.length > 0 ? denying : [decision.rule],
  };
}

/** Returns the body of the response to a request without a subject. */
export function noSubjectProblem(): Problem {
  return plain(400, 'Bad Request', 'The request does not say who it is from.');
}

/** Returns the body of the response to a request whose cost no call can have. */
export function noCostProblem(): Problem {
  return plain(400, 'Bad Request', 'The request has no valid cost.');
}

function plain(status: number, title: string, detail: string): Problem {
  return { type: 'about:blank', title, status, detail };
}
