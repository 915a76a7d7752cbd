/** Checks several rules one after the other. */
import { combined, type Decision } from '../rules/decision.js';
import { InvalidArgumentError } from '../rules/errors.js';
import type { Rule } from '../rules/forms.js';
import type { Subject } from '../rules/keys.js';
import type { CallOptions, CheckOptions } from '../rules/options.js';
import { isHeld, type RuleRequest } from '../wire/words.js';

/** The part of a limiter that checks and refunds. */
interface Checker {
  check(rule: Rule, subject: Subject, options: CheckOptions): Promise<Decision>;
  refund(rule: Rule, subject: Subject, options: CallOptions): Promise<Decision>;
}

/** Checks one item after the other, and refunds the earlier ones; see `Limiter.checkEach`. */
export async function checkEach(
  limiter: Checker,
  requests: readonly RuleRequest[],
  signal: AbortSignal | undefined,
): Promise<Decision> {
  if (requests.length === 0) throw new InvalidArgumentError('items', 'at least one item');
  if (requests.some((request) => isHeld(request) || request.rule.kind === 'backoff')) {
    throw new InvalidArgumentError('items', 'no lease, reservation or backoff: no refunds');
  }
  const rows: Decision[] = [];
  const giveBack = async () => {
    // The server has too many calls already.
    if (rows.at(-1)?.reason === 'overloaded') return;
    for (const [at, row] of rows.entries()) {
      const { rule, subject = '', cost = 1 } = requests[at] as RuleRequest;
      // A call that only the shadow mode of its policy allowed took nothing.
      if (!row.allowed || !row.wouldAllow || row.degraded || cost === 0) continue;
      await limiter.refund(rule, subject, { cost }).catch(() => {});
    }
  };
  try {
    for (const { rule, subject = '', cost, leave } of requests) {
      const row = await limiter.check(rule, subject, { cost, leave, signal });
      rows.push(row);
      if (!row.allowed) break;
    }
  } catch (error) {
    await giveBack();
    throw error;
  }
  if (rows.at(-1)?.allowed === false) await giveBack();
  return combined(
    rows,
    requests.map(({ cost = 1 }) => cost),
  );
}
