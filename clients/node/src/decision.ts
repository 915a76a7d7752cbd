/** Decisions: frozen values that give the five integers of the reply their names. */
import { type HeaderOptions, rateLimitHeaders } from './headers.js';
import { isSame, type Rule } from './rules.js';

/**
 * Source of a decision. `server`; `local`: this process decided, by a prefetched permit, the denial
 * cache or `onError: 'local'`; `error`: no decision was made and `onError` applies, which says
 * nothing about the caller's usage.
 */
export type Source = 'server' | 'local' | 'error';

/** The fields of a decision, for fakes and tests that make one. */
export interface DecisionFields {
  allowed: boolean;
  rule: Rule;
  limit: number;
  remaining: number;
  retryAfterMs: number;
  resetAfterMs: number;
  granted?: number;
  source?: Source;
  parts?: readonly Decision[];
  wouldAllow?: boolean;
  wouldRetryAfterMs?: number;
  error?: Error | undefined;
}

const NONE: readonly Decision[] = Object.freeze([]);

export class Decision {
  readonly #rule: Rule;
  readonly allowed: boolean;
  /** The name of the rule that this comes from; of several, of the one that decided. */
  readonly rule: string;
  /** The window or the time to refill, in ms; undefined if the rule has neither. */
  readonly windowMs: number | undefined;
  /** The limit of the rule or policy. */
  readonly limit: number;
  /** Units left, rounded down. A denial with a cost above 1 may have more than 0. */
  readonly remaining: number;
  /**
   * Denied: time until the same call is allowed, in ms; `-1`: never, the cost is above the limit.
   * Allowed: 0, except for the leaky bucket, where it is the wait before acting.
   */
  readonly retryAfterMs: number;
  /** Time until the full allowance is back, in ms, without further calls. */
  readonly resetAfterMs: number;
  /** Units taken; a partial call may get less than it asked for. */
  readonly granted: number;
  readonly source: Source;
  /** The decisions of the single rules of one call, in their order; empty for one rule. */
  readonly parts: readonly Decision[];
  /** The policy's answer if it were enforced; without a policy the same as `allowed`. */
  readonly wouldAllow: boolean;
  /** `retryAfterMs` if the policy were enforced. */
  readonly wouldRetryAfterMs: number;
  /** Why the server was not called or did not answer, if `onError` decided. */
  readonly error: Error | undefined;

  constructor(fields: DecisionFields) {
    this.allowed = fields.allowed;
    this.#rule = fields.rule;
    this.rule = fields.rule.name;
    this.windowMs = fields.rule.windowMs;
    this.limit = fields.limit;
    this.remaining = fields.remaining;
    this.retryAfterMs = fields.retryAfterMs;
    this.resetAfterMs = fields.resetAfterMs;
    this.granted = fields.granted ?? (fields.allowed ? 1 : 0);
    this.source = fields.source ?? 'server';
    this.parts = !fields.parts?.length ? NONE : Object.freeze([...fields.parts]);
    this.wouldAllow = fields.wouldAllow ?? fields.allowed;
    this.wouldRetryAfterMs = fields.wouldRetryAfterMs ?? fields.retryAfterMs;
    this.error = fields.error;
    Object.freeze(this);
  }

  /** Whether the server should have decided and did not, so that `onError` decided. */
  get degraded(): boolean {
    return this.error !== undefined;
  }

  /** @internal Returns true if the decision belongs to this rule. */
  isOf(rule: Rule): boolean {
    return isSame(this.#rule, rule);
  }

  /** Returns the fields, to make another decision with some of them changed. */
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
      parts: this.parts,
      wouldAllow: this.wouldAllow,
      wouldRetryAfterMs: this.wouldRetryAfterMs,
      error: this.error,
    };
  }

  /** Returns the HTTP headers that report this decision, by name. */
  headers(options: HeaderOptions = {}): Record<string, string> {
    return rateLimitHeaders(this, options);
  }

  toString(): string {
    const verdict = this.allowed ? `allowed, ${this.remaining} left` : 'denied';
    const never = this.retryAfterMs < 0 ? ', never' : `, again in ${this.retryAfterMs} ms`;
    return `${this.rule}: ${verdict}${this.allowed ? '' : never} (${this.source})`;
  }
}

/**
 * Combines the decisions of several rules: the longest denial decides, else the first to run out.
 */
export function combined(parts: readonly Decision[], costs: readonly number[]): Decision {
  const wait = ({ retryAfterMs }: Decision) =>
    retryAfterMs < 0 ? Number.POSITIVE_INFINITY : retryAfterMs;
  const callsLeft = (part: Decision) => {
    const cost = costs[parts.indexOf(part)] ?? 1;
    return cost === 0 ? Number.POSITIVE_INFINITY : Math.floor(part.remaining / cost);
  };
  const denials = parts.filter((part) => !part.allowed).sort((a, b) => wait(b) - wait(a));
  const byRest = [...parts].sort(
    (a, b) => callsLeft(a) - callsLeft(b) || a.remaining - b.remaining,
  );
  const deciding = (denials[0] ?? byRest[0]) as Decision;
  const longest = Math.max(...parts.map((part) => part.retryAfterMs));
  const retryAfterMs = denials.length > 0 ? deciding.retryAfterMs : longest;
  const error = parts.find((part) => part.degraded)?.error;
  return new Decision({ ...deciding.fields(), retryAfterMs, parts, error });
}
