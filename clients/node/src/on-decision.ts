/** Reports each decision to the application, for its metrics and logs. */
import type { Decision } from './decision.js';
import type { Keys } from './keys.js';
import type { OnDecision } from './options.js';
import type { Ask } from './protocol.js';

/**
 * Calls the hook once per call, with the rule that decided. An error of the hook becomes a warning.
 */
export function tell(
  onDecision: OnDecision,
  decision: Decision,
  asks: readonly Ask[],
  keys: Keys,
  latencyMs: number,
): void {
  const { rule, subject = '' } = deciding(decision, asks);
  const hash = keys.subjectHash(subject);
  const call = async () => onDecision(decision, rule, hash, latencyMs);
  call().catch((error) => {
    process.emitWarning(`onDecision failed: ${error}`, { code: 'RL_ON_DECISION' });
  });
}

/**
 * Returns the call that decided. If several have the same rule, it is the one with the decision's
 * numbers.
 */
function deciding(decision: Decision, asks: readonly Ask[]): Ask {
  const { rule, allowed, remaining, resetAfterMs } = decision.fields();
  const ofRule = asks.filter((ask) => ask.rule === rule);
  const exact = asks.find((ask, at) => {
    const part = decision.parts[at];
    const isSame = part?.remaining === remaining && part.resetAfterMs === resetAfterMs;
    return ask.rule === rule && isSame && part.allowed === allowed;
  });
  return exact ?? ofRule[0] ?? (asks[0] as Ask);
}
