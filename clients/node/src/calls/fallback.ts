/** Decides, by `onError`, the calls to which the server did not reply. */
import { combined, Decision } from '../rules/decision.js';
import { InvalidArgumentError, type UnavailableError } from '../rules/errors.js';
import { LOCAL, type OnError, type Rule } from '../rules/forms.js';
import type { LocalLimiter, LocalRequest } from './local.js';

const BY_STRICTNESS: readonly OnError[] = ['allow', 'local', 'deny'];

/** Returns true if this process can decide the calls of the rule. */
export function isLocal(rule: Rule): boolean {
  return LOCAL.has((rule.fallback ?? rule).kind);
}

/** Throws if `onError` is `local` and this process cannot decide the calls of the rule. */
export function assertLocal(rule: Rule, onError: OnError): void {
  if (onError === 'local' && !isLocal(rule)) {
    const { kind } = rule.fallback ?? rule;
    throw new InvalidArgumentError('onError', `allow or deny: a ${kind} has no local limit`);
  }
}

/** Returns the strictest of the given values: `deny` before `local` before `allow`. */
export function strictest(all: readonly OnError[]): OnError {
  const at = Math.max(0, ...all.map((onError) => BY_STRICTNESS.indexOf(onError)));
  return BY_STRICTNESS[at] as OnError;
}

/** A call that got no reply from the server. */
export interface Failed {
  requests: readonly LocalRequest[];
  /** The `onError` of each rule, in the order of the rules. */
  onErrors: readonly OnError[];
  error: UnavailableError;
  peek: boolean;
  /** The retry time of a denied call, in ms. */
  retryAfterMs: number;
}

/**
 * Decides each rule by its own `onError`. The strictest `onError` decides the call. If a rule
 * denies, no local rule takes anything.
 */
export function withoutReply(
  { requests, onErrors, error, peek, retryAfterMs }: Failed,
  local: LocalLimiter,
): Decision {
  const chosen = strictest(onErrors);
  const locals = requests.filter((_, at) => onErrors[at] === 'local');
  const mode = chosen === 'deny' ? 'deny' : peek ? 'peek' : 'take';
  const here = local.decide(locals, error, mode);
  const rows = requests.map((request, at) => {
    const row = here[locals.indexOf(request)];
    return row ?? withoutState(request, onErrors[at] !== 'deny', error, retryAfterMs);
  });
  if (requests.length === 1) return rows[0] as Decision;
  const bound = requests.flatMap((_, at) => (onErrors[at] === chosen ? [at] : []));
  const whole = combined(
    bound.map((at) => rows[at] as Decision),
    bound.map((at) => requests[at]?.cost ?? 1),
  );
  const deciding = bound[whole.deciding] as number;
  return new Decision({ ...whole.fields(), rows, deciding });
}

/** Returns the decision on a rule that has no state in this process. */
function withoutState(
  { rule }: LocalRequest,
  allowed: boolean,
  error: UnavailableError,
  retryAfterMs: number,
): Decision {
  return new Decision({
    allowed,
    rule,
    limit: rule.limit,
    remaining: 0,
    retryAfterMs: allowed ? 0 : retryAfterMs,
    resetAfterMs: 0,
    granted: 0,
    source: 'error',
    error,
  });
}
