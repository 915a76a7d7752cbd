/** What was decided, as a value: frozen, with the five integers of the reply under their names. */
import { type HeaderOptions, rateLimitHeaders } from './headers.js';
import { isSame, type Rule } from './rules.js';

/**
 * Who decided: the server; this process (`local`: prefetched permits, the denial cache, or
 * `onError` local); or nobody (`error`: what `onError` says, which is no statement about the
 * subject).
 */
export type Source = 'server' | 'local' | 'error';

/** The fields of a decision, for those who make one: fakes, tests. */
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
  /** The window or the time to refill, in ms; undefined where there is none. */
  readonly windowMs: number | undefined;
  /** The capacity asked for. */
  readonly limit: number;
  /**
   * What would still be allowed right now, rounded down; in a denial with a cost above 1 maybe more
   * than 0.
   */
  readonly remaining: number;
  /**
   * Denied: after so many ms this very call is allowed; `-1`: never, the cost is above the limit.
   * Allowed: 0, but for the leaky bucket, which tells how long to wait before acting.
   */
  readonly retryAfterMs: number;
  /** Full again after so many ms, if nobody calls. */
  readonly resetAfterMs: number;
  /** How much was taken: of a partial call maybe less than asked for. */
  readonly granted: number;
  readonly source: Source;
  /** Of several rules in one call, what each said, in their order; else empty. */
  readonly parts: readonly Decision[];
  /** What the policy would answer if it were enforced; else as `allowed`. */
  readonly wouldAllow: boolean;
  /** What field 4 would be if the policy were enforced. */
  readonly wouldRetryAfterMs: number;
  /** Why the server was not asked or did not answer, where `source` is not `server`. */
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

  /** Whether the server should have decided and did not: `onError` answered for it. */
  get degraded(): boolean {
    return this.error !== undefined;
  }

  /** @internal Whether it is about what this rule says. */
  isOf(rule: Rule): boolean {
    return isSame(this.#rule, rule);
  }

  /** What another decision can be made of, with some of it changed. */
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

  /** The headers that tell a client of it, by their names as they are written. */
  headers(options: HeaderOptions = {}): Record<string, string> {
    return rateLimitHeaders(this, options);
  }

  toString(): string {
    const verdict = this.allowed ? `allowed, ${this.remaining} left` : 'denied';
    const never = this.retryAfterMs < 0 ? ', never' : `, again in ${this.retryAfterMs} ms`;
    return `${this.rule}: ${verdict}${this.allowed ? '' : never} (${this.source})`;
  }
}

/** Of several decisions the one that counts: what denies longest, else what runs out first. */
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
