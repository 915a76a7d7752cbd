/** Reads replies as decisions. It does no I/O and reads no clock. */
import { Decision, orNever } from '../rules/decision.js';
import { CommandRejectedError } from '../rules/errors.js';
import type { Leave, Rule } from '../rules/forms.js';
import { unitsOf } from '../rules/rule.js';
import { type RuleRequest, ttlMsOf } from './words.js';

/** Reads an integer of a reply. A driver may be configured to return bigints. */
export function replyInteger(value: unknown): number {
  const number = typeof value === 'bigint' ? Number(value) : value;
  if (typeof number !== 'number' || !Number.isSafeInteger(number)) throw unexpected();
  return number;
}

function unexpected(): CommandRejectedError {
  return new CommandRejectedError('PROTOCOL', 'the reply is not a decision');
}

/**
 * Reads a decision: five integers, or seven under a policy. A known denial is a decision already.
 */
export function decisionOf(
  reply: unknown,
  { rule, cost = 1, partial = false, leave }: Terms,
): Decision {
  if (!Array.isArray(reply)) {
    if (reply instanceof Decision) return reply;
    throw unexpected();
  }
  // Without the module a policy is its default.
  const isPolicy = rule.kind === 'policy' && (reply.length > 5 || rule.fallback === undefined);
  if (reply.length !== (isPolicy ? 7 : 5)) throw unexpected();
  const taken = replyInteger(reply[0]);
  if (taken < 0 || taken > (partial ? cost : 1)) throw unexpected();
  const allowed = taken > 0;
  const limit = replyInteger(reply[1]);
  const waitMs = replyInteger(reply[3]);
  const retryAfterMs = orNever(waitMs);
  return new Decision({
    allowed,
    rule,
    limit,
    remaining: replyInteger(reply[2]),
    retryAfterMs,
    resetAfterMs: replyInteger(reply[4]),
    banned: waitMs < 0 && isBan(limit, partial ? 1 : cost, leave),
    granted: allowed && !partial ? cost : taken,
    wouldAllow: isPolicy ? replyInteger(reply[5]) > 0 : allowed,
    wouldRetryAfterMs: isPolicy ? orNever(replyInteger(reply[6])) : retryAfterMs,
  });
}

/** Returns true if a call that is never allowed would be within the limit. */
function isBan(limit: number, cost: number, leave: Leave | undefined): boolean {
  return limit === 0 || cost + unitsOf(leave, limit) <= limit;
}

type FiveIntegers = [number, number, number, number, number];
type Terms = Pick<RuleRequest, 'rule' | 'cost' | 'partial' | 'leave'>;

/** Reads the reply of a refund or a charge: five integers, also under a policy. */
export function settledOf(reply: unknown, rule: Rule): Decision {
  if (!Array.isArray(reply) || reply.length !== 5) throw unexpected();
  const fields = reply.map(replyInteger);
  const [settled, limit, remaining, waitMs, resetAfterMs] = fields as FiveIntegers;
  const [allowed, retryAfterMs] = [settled > 0, orNever(waitMs)];
  return new Decision({ allowed, rule, limit, remaining, retryAfterMs, resetAfterMs });
}

/**
 * Reads a reply of `RL.ALL`: five integers, the number of the rule that decided, and a row per
 * rule.
 */
export function allDecisionOf(reply: unknown, requests: readonly RuleRequest[]): Decision {
  if (reply instanceof Decision) return reply;
  if (!Array.isArray(reply) || reply.length !== 6 + requests.length) throw unexpected();
  const rows = requests.map((request, at) => decisionOf(reply[6 + at], request));
  const number = replyInteger(reply[5]);
  const rule = requests[number - 1]?.rule;
  if (rule === undefined) throw unexpected();
  const whole = settledOf(reply.slice(0, 5), rule);
  const waits = rows.filter((row) => !row.wouldAllow).map((row) => row.wouldRetryAfterMs);
  return new Decision({
    ...whole.fields(),
    rows,
    deciding: number - 1,
    banned: whole.never && rows[number - 1]?.banned === true,
    wouldAllow: waits.length === 0,
    wouldRetryAfterMs: Math.max(whole.retryAfterMs, ...waits),
  });
}

/** Matches the error if a key remembers too many ids. `RL.ALL` adds the number of the rule. */
const TOO_MANY = /^ERR (rule \d+: )?too many reservations/;

/**
 * Returns the denial if a key has no room for another reservation, or undefined for another error.
 * The ids are forgotten in time, so it is no error of the program.
 */
export function tooManyOf(error: unknown, requests: readonly RuleRequest[]): Decision | undefined {
  if (!(error instanceof CommandRejectedError) || !TOO_MANY.test(error.message)) return undefined;
  const deciding = requests.findIndex(({ ttl }) => ttl !== undefined);
  if (deciding < 0) return undefined;
  const rows = requests.map((request, at) => {
    const { rule, cost = 1 } = request;
    const allowed = at !== deciding;
    const retryAfterMs = allowed ? 0 : Math.ceil(ttlMsOf(request));
    const granted = allowed ? cost : 0;
    const unknown = { limit: rule.limit, remaining: 0, resetAfterMs: retryAfterMs };
    return new Decision({ allowed, rule, retryAfterMs, granted, ...unknown });
  });
  return new Decision({ ...(rows[deciding] as Decision).fields(), rows, deciding });
}

/** A counted hit. */
export interface Hit {
  readonly decision: Decision;
  /** The hits of the window; undefined if the server did not count, or the key is blocked. */
  readonly hits: number | undefined;
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
