/** Logs decisions as lines of JSON. */
import type { Writable } from 'node:stream';
import { checkOptions, typesOf } from '../rules/arguments.js';
import { type Clock, systemClock } from '../rules/clock.js';
import { integer } from '../rules/durations.js';
import { InvalidArgumentError } from '../rules/errors.js';
import type { DecisionEvent, OnDecision } from '../rules/options.js';
import { fieldsOf } from './events.js';

export interface JsonLogOptions {
  /**
   * The names of rules of which every event is logged, without a bound, also charges, refunds and
   * peeks.
   */
  audit?: readonly string[] | undefined;
  /** The maximum number of other lines in a second. Default 100. */
  linesPerSecond?: number | undefined;
  /** The clock, which a test can replace. */
  clock?: Clock | undefined;
}

const TYPES = typesOf<JsonLogOptions>({ audit: 'any', linesPerSecond: 'any', clock: 'clock' });

/**
 * Returns a hook for `onDecision` that writes one line of JSON for each decision that matters:
 * denials, degraded decisions and rejected calls. Lines above the bound, and lines for a stream
 * that is full, are dropped; the next line has their number. No line has a key or a subject.
 */
export function jsonLog(stream: Writable, options: JsonLogOptions = {}): OnDecision {
  checkOptions(options, TYPES);
  const { audit = [], linesPerSecond = 100, clock = systemClock } = options;
  if (typeof stream?.write !== 'function') {
    throw new InvalidArgumentError('stream', 'a stream to write to, such as process.stdout');
  }
  if (!Array.isArray(audit)) throw new InvalidArgumentError('audit', 'an array of names of rules');
  integer('linesPerSecond', linesPerSecond, 1, 1_000_000);
  const audited = new Set(audit);
  let beganMs = clock.nowMs();
  let lines = 0;
  let dropped = 0;

  function hasRoom(): boolean {
    if (clock.nowMs() - beganMs >= 1000) {
      beganMs = clock.nowMs();
      lines = 0;
    }
    lines += 1;
    return lines <= linesPerSecond && !stream.writableNeedDrain;
  }

  return (event) => {
    const isAudited = rulesOf(event).some((name) => audited.has(name));
    if (!isAudited && !matters(event)) return;
    // A stream that has ended would emit an error, which could end the process.
    if (!stream.writable || (!isAudited && !hasRoom())) {
      dropped += 1;
      return;
    }
    const latencyMs = Math.round(event.latencyMs * 1000) / 1000;
    const fields = { time_ms: Date.now(), ...fieldsOf(event), latency_ms: latencyMs };
    stream.write(`${JSON.stringify(dropped > 0 ? { ...fields, dropped } : fields)}\n`);
    dropped = 0;
  };
}

function rulesOf({ rule, decision }: DecisionEvent): string[] {
  return [rule.name, ...(decision?.rows ?? []).map((row) => row.rule)];
}

function matters({ kind, decision }: DecisionEvent): boolean {
  if (decision === undefined) return true;
  return (kind === 'check' || kind === 'lease') && (decision.degraded || !decision.allowed);
}
