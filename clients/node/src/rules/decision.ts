/** Decisions: frozen values with a name for each of the five integers of a reply. */
import { RateLimitError, UnavailableError, type UnavailableReason } from './errors.js';
import { isSame, type Rule } from './forms.js';
import {
  checkHeaderOptions,
  type HeaderOptions,
  type Problem,
  problemOf,
  rateLimitHeaders,
} from './headers.js';

/**
 * The source of a decision. `server`: the server decided. `local`: this process decided, by a
 * prefetched permit, a denial that it remembers or `onError: 'local'`. `error`: there was no reply
 * and `onError` decided, so the decision says nothing about the caller's usage.
 */
export type Source = 'server' | 'local' | 'error';

/** The fields of a decision, for fakes and tests that create one. */
export interface DecisionFields {
  allowed: boolean;
  rule: Rule;
  limit: number;
  remaining: number;
  /** 2^53 - 1, the largest safe integer, if a retry never helps. */
  retryAfterMs: number;
  resetAfterMs: number;
  granted?: number;
  source?: Source;
  rows?: readonly Decision[];
  /** Default 0. */
  deciding?: number;
  /** Default false. */
  banned?: boolean;
  wouldAllow?: boolean;
  /** 2^53 - 1 if the policy would never allow the call. */
  wouldRetryAfterMs?: number;
  error?: Error | undefined;
}

const NONE: readonly Decision[] = Object.freeze([]);

/** The duration that stands for "never". */
export const NEVER_MS: number = Number.MAX_SAFE_INTEGER;

/** Returns a duration of the server or of an algorithm, which write -1 for "never". */
export function orNever(ms: number): number {
  return ms < 0 ? NEVER_MS : ms;
}

export class Decision {
  readonly #rule: Rule;
  readonly allowed: boolean;
  /** The name of the rule; if the call had several rules, the name of the one that decided. */
  readonly rule: string;
  /** The rule's window or time to refill, in ms; undefined if it has neither. */
  readonly windowMs: number | undefined;
  /** The limit of the rule or policy. */
  readonly limit: number;
  /** The units left, rounded down. May be above 0 for a denied call with a cost above 1. */
  readonly remaining: number;
  /**
   * Denied: the time until the same call is allowed, in ms; the largest safe integer if `never`.
   * Allowed: 0, except in a leaky bucket, where it is the time to wait before acting.
   */
  readonly retryAfterMs: number;
  /** True if a retry never helps, for example because the cost is above the limit. */
  readonly never: boolean;
  /**
   * True if the caller is blocked: a retry never helps, although the cost is not above the limit,
   * or the limit is 0. `never` is then true too.
   */
  readonly banned: boolean;
  /** The time in ms until the full allowance is available, if no further call takes units. */
  readonly resetAfterMs: number;
  /** The units taken. A partial call may get fewer than its cost. */
  readonly granted: number;
  readonly source: Source;
  /** The decisions of the rules of one call, in order; empty for a call with one rule. */
  readonly rows: readonly Decision[];
  /** The index of the row that decided; 0 for a call with one rule. */
  readonly deciding: number;
  /**
   * True if the policy would allow the call if it were enforced; without a policy the same as
   * `allowed`.
   */
  readonly wouldAllow: boolean;
  /**
   * The `retryAfterMs` if the policy were enforced; without a policy the same as `retryAfterMs`.
   */
  readonly wouldRetryAfterMs: number;
  /** The reason that the server was not called or did not reply, if `onError` decided. */
  readonly error: Error | undefined;

  constructor(fields: DecisionFields) {
    this.allowed = fields.allowed;
    this.#rule = fields.rule;
    this.rule = fields.rule.name;
    this.windowMs = fields.rule.windowMs;
    this.limit = fields.limit;
    this.remaining = fields.remaining;
    this.retryAfterMs = fields.retryAfterMs;
    this.never = this.retryAfterMs === NEVER_MS;
    this.banned = fields.banned ?? false;
    this.resetAfterMs = fields.resetAfterMs;
    this.granted = fields.granted ?? (fields.allowed ? 1 : 0);
    this.source = fields.source ?? 'server';
    this.rows = !fields.rows?.length ? NONE : Object.freeze([...fields.rows]);
    this.deciding = fields.deciding ?? 0;
    this.wouldAllow = fields.wouldAllow ?? fields.allowed;
    this.wouldRetryAfterMs = fields.wouldRetryAfterMs ?? fields.retryAfterMs;
    this.error = fields.error;
    Object.freeze(this);
  }

  /** True if `onError` decided because the server did not reply or was not called. */
  get degraded(): boolean {
    return this.error !== undefined;
  }

  /** The reason that there was no reply; undefined unless `degraded`. */
  get reason(): UnavailableReason | undefined {
    return this.error instanceof UnavailableError ? this.error.reason : undefined;
  }

  /** @internal Returns true if the decision belongs to this rule. */
  isOf(rule: Rule): boolean {
    return isSame(this.#rule, rule);
  }

  /** Returns the fields, for a copy of the decision with some of them changed. */
  fields(): DecisionFields {
    return {
      allowed: this.allowed,
      rule: this.#rule,
      limit: this.limit,
      remaining: this.remaining,
      retryAfterMs: this.retryAfterMs,
      resetAfterMs: this.resetAfterMs,
      granted: this.granted,
      source: this.source,
      rows: this.rows,
      deciding: this.deciding,
      banned: this.banned,
      wouldAllow: this.wouldAllow,
      wouldRetryAfterMs: this.wouldRetryAfterMs,
      error: this.error,
    };
  }

  /** Returns the HTTP headers that report this decision, by name. */
  headers(options: HeaderOptions = {}): Record<string, string> {
    checkHeaderOptions(options);
    return rateLimitHeaders(this, options);
  }

  /**
   * Returns the problem (RFC 9457) of a denial: the body to send as `application/problem+json`. Its
   * `status` is 429; 413 if `never`, or 403 if `banned`; 503 if `onError` denied. It names rules,
   * never a key or a subject.
   */
  problem(): Problem {
    return problemOf(this);
  }

  toString(): string {
    const verdict = this.allowed ? `allowed, ${this.remaining} left` : 'denied';
    const never = this.never ? ', never' : `, again in ${this.retryAfterMs} ms`;
    return `${this.rule}: ${verdict}${this.allowed ? '' : never} (${this.source})`;
  }
}

/** A lease or an admission was denied. `decision` says why, and when to come back. */
export class DeniedError extends RateLimitError {
  readonly code = 'RL_DENIED';

  constructor(readonly decision: Decision) {
    super(`denied: ${decision}`);
  }

  /**
   * The status that an error handler returns: 429; 413 if `never`, or 403 if `banned`; 503 if
   * `onError` denied.
   */
  get status(): number {
    return this.decision.problem().status;
  }

  /** The headers of that response: those of the decision, and `Cache-Control: no-store`. */
  get headers(): Record<string, string> {
    return { ...this.decision.headers(), 'Cache-Control': 'no-store' };
  }

  /**
   * Returns that response, with the problem as its body. Hono calls it for an error of a handler.
   */
  getResponse(): Response {
    const { status } = this;
    const headers = { ...this.headers, 'Content-Type': 'application/problem+json' };
    return new Response(JSON.stringify(this.decision.problem()), { status, headers });
  }
}

/**
 * Combines the decisions of several rules. The denial with the longest retry time decides; if all
 * rules allow, the rule with the fewest calls left decides.
 */
export function combined(rows: readonly Decision[], costs: readonly number[]): Decision {
  const callsLeft = (row: Decision) => {
    const cost = costs[rows.indexOf(row)] ?? 1;
    return cost === 0 ? Number.POSITIVE_INFINITY : Math.floor(row.remaining / cost);
  };
  const denials = rows
    .filter((row) => !row.allowed)
    .sort((a, b) => b.retryAfterMs - a.retryAfterMs);
  const byRest = [...rows].sort((a, b) => callsLeft(a) - callsLeft(b) || a.remaining - b.remaining);
  const decider = (denials[0] ?? byRest[0]) as Decision;
  const deciding = rows.indexOf(decider);
  const longest = Math.max(...rows.map((row) => row.retryAfterMs));
  const retryAfterMs = denials.length > 0 ? decider.retryAfterMs : longest;
  const error = rows.find((row) => row.degraded)?.error;
  return new Decision({ ...decider.fields(), retryAfterMs, rows, deciding, error });
}
