/** What several decisions say together, and what holds while the server does not answer. */
import { Decision } from './decision.js';
import type { UnavailableError } from './errors.js';
import { type LocalAsk, type LocalLimiter, strictest } from './policy.js';
import type { OnError } from './rules.js';

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

/** A call that got no answer. */
export interface Unanswered {
  asks: readonly LocalAsk[];
  /** What each of them says, in their order. */
  onErrors: readonly OnError[];
  error: UnavailableError;
  peek: boolean;
  /** When to come back, of a call that is refused. */
  retryAfterMs: number;
}

/** Of several rules what the strictest says; `local` decides by those that say so. */
export function withoutAnswer(
  { asks, onErrors, error, peek, retryAfterMs }: Unanswered,
  local: LocalLimiter,
): Decision {
  const onError = strictest(onErrors);
  const nobody = ({ rule, cost = 1 }: LocalAsk) => {
    const allowed = onError !== 'deny';
    return new Decision({
      allowed,
      rule,
      limit: rule.limit,
      remaining: 0,
      retryAfterMs: allowed ? 0 : retryAfterMs,
      resetAfterMs: 0,
      granted: allowed ? cost : 0,
      source: 'error',
      error,
    });
  };
  let parts = asks.map(nobody);
  let whole = parts[0] as Decision;
  if (onError === 'local') {
    const limited = asks.filter((_, at) => onErrors[at] === 'local');
    const locals = local.decide(limited, error, peek);
    parts = asks.map((ask, at) => locals[limited.indexOf(ask)] ?? (parts[at] as Decision));
    const costs = limited.map(({ cost = 1 }) => cost);
    whole = combined(locals, costs);
  }
  return asks.length > 1 ? new Decision({ ...whole.fields(), parts }) : (parts[0] as Decision);
}
