/** Tells the application of decisions, for its metrics and logs. */
import { createHash } from 'node:crypto';
import type { Decision } from './decision.js';
import type { OnDecision } from './options.js';
import type { Ask } from './protocol.js';

/** Once for each rule of a call. What the hook throws is a warning, and changes no decision. */
export function tell(
  onDecision: OnDecision,
  decision: Decision,
  asks: readonly Ask[],
  latencyMs: number,
): void {
  for (const [at, { rule, key }] of asks.entries()) {
    // Of the key, which under a secret is a keyed hash already.
    const hash = createHash('sha256').update(key).digest('hex').slice(0, 16);
    const call = async () => onDecision(decision.parts[at] ?? decision, rule, hash, latencyMs);
    call().catch((error) => {
      process.emitWarning(`onDecision failed: ${error}`, { code: 'RL_ON_DECISION' });
    });
  }
}
