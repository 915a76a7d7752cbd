/** Waits until a call is allowed. */
import { checkOptions } from '../rules/arguments.js';
import { type Clock, sleep } from '../rules/clock.js';
import { Decision } from '../rules/decision.js';
import { InvalidArgumentError, UnavailableError } from '../rules/errors.js';
import type { Rule } from '../rules/forms.js';
import type { Subject } from '../rules/keys.js';
import { type CallOptions, TYPES, type WaitOptions } from '../rules/options.js';

/** The part of a limiter that waits. */
interface Waiter {
  readonly budget: { readonly isOver: boolean };
  readonly clock: Clock;
  check(rule: Rule, subject: Subject, options: CallOptions): Promise<Decision>;
  refund(rule: Rule, subject: Subject, options: CallOptions): Promise<Decision>;
}

/** The longest interval of a timer, in ms. */
const INTERVAL_MAX_MS = 2 ** 31 - 1;

/** Waits, and keeps the process alive: the timers of the clock do not. */
async function keptAlive(slept: Promise<void>): Promise<void> {
  const timer = setInterval(() => {}, INTERVAL_MAX_MS);
  try {
    await slept;
  } finally {
    clearInterval(timer);
  }
}

/** Checks, sleeps for as long as the decision says, and checks again; see `Limiter.wait`. */
export async function waited(
  limiter: Waiter,
  rule: Rule,
  subject: Subject,
  options: WaitOptions,
): Promise<Decision> {
  checkOptions(options, TYPES.wait);
  const { maxWaitMs, signal, ...rest } = options;
  if (typeof maxWaitMs !== 'number' || !(maxWaitMs >= 0))
    throw new InvalidArgumentError('maxWaitMs', 'a number of at least 0');
  const endsAtMs = limiter.clock.nowMs() + maxWaitMs;
  let denied: Decision | undefined;
  for (;;) {
    if (denied !== undefined && limiter.budget.isOver) return denied;
    const decision = await limiter.check(rule, subject, { ...rest, signal });
    if (denied !== undefined && decision.degraded && limiter.budget.isOver) return denied;
    const waitMs = decision.retryAfterMs;
    if (waitMs === 0) return decision;
    const fits = !decision.never && limiter.clock.nowMs() + waitMs <= endsAtMs;
    if (!decision.allowed && (!fits || decision.source === 'error')) return decision;
    if (!fits) {
      // The turn comes too late: leave the leaky bucket's queue. Without a reply the place stays
      // taken.
      if (!decision.degraded) {
        await limiter.refund(rule, subject, { ...rest, signal }).catch((error) => {
          if (!(error instanceof UnavailableError)) throw error;
        });
      }
      return new Decision({ ...decision.fields(), allowed: false, granted: 0 });
    }
    try {
      await keptAlive(sleep(limiter.clock, waitMs, signal));
    } catch (error) {
      // Leave the leaky bucket's queue.
      if (decision.allowed && !decision.degraded) {
        await limiter.refund(rule, subject, rest).catch(() => {});
      }
      throw error;
    }
    if (decision.allowed) return decision;
    denied = decision;
  }
}
