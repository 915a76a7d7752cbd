/** The fields of an event in logs and traces. None of them has a key or a subject. */
import { UnavailableError } from '../rules/errors.js';
import type { DecisionEvent } from '../rules/options.js';

type Field = boolean | number | string | string[];

/** Returns the fields by name, in the order and with the names of the other clients. */
export function fieldsOf(event: DecisionEvent): Record<string, Field> {
  const { kind, decision, rule, keyHash, error } = event;
  const fields: Record<string, Field> = { kind, rule: rule.name, key_hash: keyHash };
  if (decision !== undefined) {
    const { allowed, source, limit, remaining, retryAfterMs, degraded, reason, rows } = decision;
    Object.assign(fields, { allowed, source, limit, remaining, retry_after_ms: retryAfterMs });
    fields.degraded = degraded;
    if (reason !== undefined) fields.reason = reason;
    if (rows.length > 0) fields.rules = rows.map((row) => row.rule);
  }
  // The text of a rejection may repeat the key.
  if (error instanceof UnavailableError)
    Object.assign(fields, { error: 'unavailable', reason: error.reason });
  else if (error !== undefined) fields.error = error.kind;
  return fields;
}
