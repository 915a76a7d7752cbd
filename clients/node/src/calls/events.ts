/** Reports decisions, ends of admissions and rejections to the application: metrics and logs. */
import type { Clock } from '../rules/clock.js';
import type { Decision } from '../rules/decision.js';
import {
  type CommandRejectedError,
  InvalidArgumentError,
  type UnavailableError,
} from '../rules/errors.js';
import type { Keys } from '../rules/keys.js';
import type { DecisionEvent, DecisionKind, OnDecision } from '../rules/options.js';
import type { Ask } from '../wire/words.js';

/** The result of a call: its decision, or its error. */
export interface Told {
  kind: DecisionKind;
  decision: Decision | undefined;
  error?: CommandRejectedError | UnavailableError;
  asks: readonly Ask[];
  /** Undefined if no call was sent. */
  askedAtMs: number | undefined;
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
  tell(told: Told): void {
    if (this.isEmpty) return;
    const { kind, decision, error, asks, askedAtMs } = told;
    const { rule, subject = '' } = (asks[decision?.deciding ?? 0] ?? asks[0]) as Ask;
    const keyHash = this.keys.keyHash(subject);
    const degraded = decision?.degraded ?? false;
    const latencyMs = askedAtMs === undefined ? 0 : this.clock.nowMs() - askedAtMs;
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
