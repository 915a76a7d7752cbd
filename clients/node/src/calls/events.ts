/** Reports decisions, ends of admissions and rejections to the application: metrics and logs. */
import type { Clock } from '../rules/clock.js';
import type { Decision } from '../rules/decision.js';
import type { UnavailableReason } from '../rules/errors.js';
import {
  type CommandRejectedError,
  InvalidArgumentError,
  UnavailableError,
} from '../rules/errors.js';
import type { Keys } from '../rules/keys.js';
import type { DecisionEvent, DecisionKind, OnDecision } from '../rules/options.js';
import type { RuleRequest } from '../wire/words.js';

/** The result of a call: its decision, or its error. */
export interface Outcome {
  kind: DecisionKind;
  decision: Decision | undefined;
  error?: CommandRejectedError | UnavailableError;
  requests: readonly RuleRequest[];
  /** Undefined if no call was sent. */
  startedAtMs: number | undefined;
}

/** The hooks of a limiter. */
export class Hooks {
  #hooks: readonly OnDecision[] = [];

  constructor(
    private readonly keys: Keys,
    private readonly clock: Clock,
  ) {}

  get isEmpty(): boolean {
    return this.#hooks.length === 0;
  }

  add(hook: OnDecision): void {
    if (typeof hook !== 'function') throw new InvalidArgumentError('hook', 'a function');
    this.#hooks = [...this.#hooks, hook];
  }

  /**
   * Calls each hook once, with the rule that decided. An error of a hook becomes a warning, and the
   * others are called all the same.
   */
  report(outcome: Outcome): void {
    if (this.isEmpty) return;
    const { kind, decision, error, requests, startedAtMs } = outcome;
    const { rule, subject = '' } = (requests[decision?.deciding ?? 0] ??
      requests[0]) as RuleRequest;
    const keyHash = this.keys.keyHash(subject);
    const degraded = decision?.degraded ?? false;
    const latencyMs = startedAtMs === undefined ? 0 : this.clock.nowMs() - startedAtMs;
    const event = Object.freeze({ kind, decision, rule, keyHash, latencyMs, degraded, error });
    for (const hook of this.#hooks) call(hook, event);
  }
}

function call(hook: OnDecision, event: DecisionEvent): void {
  const called = async () => hook(event);
  called().catch((error) => {
    process.emitWarning(`onDecision failed: ${error}`, { code: 'RL_ON_DECISION' });
  });
}

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

/** The shortest time between two lines of one reason, in ms. */
const PAUSE_MS = 1000;

/** The calls since the last line of a reason. */
interface Since {
  calls: number;
  stop: () => void;
}

/** Writes at most one warning per second and reason. No line has a key or a subject. */
export class ErrorLog {
  readonly #since = new Map<UnavailableReason, Since>();

  constructor(private readonly clock: Clock) {}

  /** Counts a call that was decided without the server. The first of a reason is logged at once. */
  add(reason: UnavailableReason): void {
    const since = this.#since.get(reason);
    if (since === undefined) this.#write(reason, 1);
    else since.calls += 1;
  }

  #write(reason: UnavailableReason, calls: number): void {
    console.warn(`redis-throttle: ${calls} calls decided without the server: ${reason}`);
    const since: Since = {
      calls: 0,
      stop: this.clock.after(PAUSE_MS, () => {
        if (since.calls > 0) this.#write(reason, since.calls);
        else this.#since.delete(reason);
      }),
    };
    this.#since.set(reason, since);
  }

  /** Logs the rest. */
  close(): void {
    for (const [reason, { calls, stop }] of [...this.#since]) {
      stop();
      this.#since.delete(reason);
      if (calls === 0) continue;
      this.#write(reason, calls);
      this.#since.get(reason)?.stop();
    }
  }
}
