/** Attributes of the active OpenTelemetry span, with the package `@opentelemetry/api`. */
import { trace } from '@opentelemetry/api';
import { fieldsOf } from './calls/events.js';
import type { DecisionEvent } from './rules/options.js';

/**
 * Sets `redis_throttle.rule`, `.allowed`, `.source` and the others on the active span. A hook for
 * `onDecision`, for checks, leases and rejected calls. After several in one span the attributes are
 * those of the last one. No attribute has a key or a subject.
 */
export function setSpanAttributes(event: DecisionEvent): void {
  if (!['check', 'lease', 'rejected'].includes(event.kind)) return;
  const span = trace.getActiveSpan();
  if (span?.isRecording() !== true) return;
  for (const [name, value] of Object.entries(fieldsOf(event))) {
    span.setAttribute(`redis_throttle.${name}`, value);
  }
}
