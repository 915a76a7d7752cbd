/**
 * The hits of a fixed window, counted by charges without a limit: also those that are denied, as
 * the stores of other packages count them.
 */
import { Decision } from '../rules/decision.js';
import { MAX_LIMIT } from '../rules/durations.js';
import type { Rule } from '../rules/forms.js';
import { type Ask, type Call, settledOf, single } from './words.js';

/** A counted hit. */
export interface Hit {
  readonly decision: Decision;
  /** The hits of the window; undefined if the server did not count, or the key is blocked. */
  readonly hits: number | undefined;
}

/** Returns the rule that counts every hit of the window of a rule. The keys are the same. */
export function withoutLimit(rule: Rule): Rule {
  const [word, , ...rest] = rule.words;
  const words = Object.freeze([word as string, String(MAX_LIMIT), ...rest]);
  return Object.freeze({ ...rule, words, limit: MAX_LIMIT });
}

/** Builds the call that counts a hit. */
export function hitCall(ask: Ask): Call {
  return single('charge', { ...ask, rule: withoutLimit(ask.rule) });
}

/** Reads the reply to `hitCall`. Only a blocked key is denied. */
export function countedOf(reply: unknown, rule: Rule): Hit {
  const { allowed: isFree, limit: most, remaining: left, resetAfterMs } = settledOf(reply, rule);
  const hits = isFree ? most - left : undefined;
  const allowed = hits !== undefined && hits <= rule.limit;
  const decision = new Decision({
    allowed,
    rule,
    limit: rule.limit,
    remaining: Math.max(0, rule.limit - (hits ?? rule.limit)),
    retryAfterMs: allowed ? 0 : resetAfterMs,
    resetAfterMs,
  });
  return { decision, hits };
}
