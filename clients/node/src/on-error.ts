/** Decides, by `onError`, the calls that the server did not answer. */
import { combined, Decision } from './decision.js';
import type { UnavailableError } from './errors.js';
import type { LocalAsk, LocalLimiter } from './local.js';
import type { OnError } from './rules.js';

const BY_STRICTNESS: readonly OnError[] = ['allow', 'local', 'deny'];

/** Returns the strictest of the given values: `deny` before `local` before `allow`. */
export function strictest(all: readonly OnError[]): OnError {
  const at = Math.max(0, ...all.map((onError) => BY_STRICTNESS.indexOf(onError)));
  return BY_STRICTNESS[at] as OnError;
}

/** A call that got no answer from the server. */
export interface Unanswered {
  asks: readonly LocalAsk[];
  /** The `onError` of each rule, in the order of the rules. */
  onErrors: readonly OnError[];
  error: UnavailableError;
  peek: boolean;
  /** The retry time of a denied call, in ms. */
  retryAfterMs: number;
}

/**
 * Decides by the strictest `onError` of the rules. If that is `local`, the rules with `local`
 * decide.
 */
export function withoutAnswer(
  { asks, onErrors, error, peek, retryAfterMs }: Unanswered,
  local: LocalLimiter,
): Decision {
  const onError = strictest(onErrors);
  const undecided = ({ rule, cost = 1 }: LocalAsk) => {
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
  let rows = asks.map(undecided);
  let whole = rows[0] as Decision;
  if (onError === 'local') {
    const limited = asks.filter((_, at) => onErrors[at] === 'local');
    const locals = local.decide(limited, error, peek);
    rows = asks.map((ask, at) => locals[limited.indexOf(ask)] ?? (rows[at] as Decision));
    const costs = limited.map(({ cost = 1 }) => cost);
    const all = combined(locals, costs);
    const deciding = asks.indexOf(limited[all.deciding] as LocalAsk);
    whole = new Decision({ ...all.fields(), deciding });
  }
  return asks.length > 1 ? new Decision({ ...whole.fields(), rows }) : (rows[0] as Decision);
}
