/** Reports decisions, ends of admissions and rejections to the application: metrics and logs. */
import type { Decision } from './decision.js';
import type { CommandRejectedError, UnavailableError } from './errors.js';
import type { Keys } from './keys.js';
import type { DecisionKind, OnDecision } from './options.js';
import type { Ask } from './protocol.js';

/** The result of a call: its decision, or its error. */
export interface Told {
  kind: DecisionKind;
  decision: Decision | undefined;
  error?: CommandRejectedError | UnavailableError;
  asks: readonly Ask[];
  latencyMs: number;
}

/**
 * Calls the hook once per call, with the rule that decided. An error of the hook becomes a warning.
 */
export function tell(onDecision: OnDecision, keys: Keys, told: Told): void {
  const { kind, decision, error, asks, latencyMs } = told;
  const { rule, subject = '' } = (asks[decision?.deciding ?? 0] ?? asks[0]) as Ask;
  const keyHash = keys.keyHash(subject);
  const degraded = decision?.degraded ?? false;
  const event = Object.freeze({ kind, decision, rule, keyHash, latencyMs, degraded, error });
  const call = async () => onDecision(event);
  call().catch((error) => {
    process.emitWarning(`onDecision failed: ${error}`, { code: 'RL_ON_DECISION' });
  });
}
