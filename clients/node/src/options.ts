/** The options of a limiter and of its calls. */
import type { Backend } from './backends.js';
import { type Clock, systemClock } from './clock.js';
import type { Decision } from './decision.js';
import { ArgumentError } from './errors.js';
import type { KeyOptions } from './keys.js';
import { integer, MAX_PREFETCH, type OnError, type Rule } from './rules.js';

/**
 * Called once after each decision, with the rule that decided, for metrics and logs. Never receives
 * the subject itself.
 */
export type OnDecision = (
  decision: Decision,
  rule: Rule,
  subjectHash: string,
  latencyMs: number,
) => unknown;

export interface LimiterOptions extends KeyOptions {
  /**
   * The back end. Default `auto`: the module if the server has it, else the library, loaded as
   * functions if the server allows it, else as a script.
   */
  backend?: Backend | 'auto' | undefined;
  /** Deadline of a call, in ms. Default 100: a limiter must not be slower than what it protects. */
  timeoutMs?: number | undefined;
  /** For rules without their own. Default `allow`. */
  onError?: OnError | undefined;
  /** Calls in flight; above it `onError` decides at once. Default 256. */
  maxInFlight?: number | undefined;
  /** Failures in a row after which the breaker pauses all calls. Default 5. */
  breakerFailures?: number | undefined;
  /** The pause, in ms; then one call probes the server. Default 1000. */
  breakerPauseMs?: number | undefined;
  /**
   * Denials to remember until their retry. Default 0: none. Exact unless a key is deleted, refunded
   * or gets another limit elsewhere, which shows only after the retry.
   */
  denialCache?: number | undefined;
  /** Permits that one call takes in advance, for rules that allow it. Default 1. */
  prefetch?: number | undefined;
  /** Receives each decision. Its errors are warnings of the process and change no decision. */
  onDecision?: OnDecision | undefined;
  /** For tests. */
  clock?: Clock | undefined;
}

/** Checks the options and completes them with their defaults. */
export function withDefaults(options: LimiterOptions) {
  const { timeoutMs = 100, onError = 'allow', maxInFlight = 256, denialCache = 0 } = options;
  const { breakerFailures = 5, breakerPauseMs = 1000, prefetch = 1 } = options;
  const { clock = systemClock } = options;
  integer('timeoutMs', timeoutMs, 1, 60_000);
  integer('maxInFlight', maxInFlight, 1, 1_000_000);
  integer('denialCache', denialCache, 0, 10_000_000);
  integer('prefetch', prefetch, 1, MAX_PREFETCH);
  integer('breakerFailures', breakerFailures, 1, 1_000_000);
  integer('breakerPauseMs', breakerPauseMs, 1, 3_600_000);
  if (!['allow', 'deny', 'local'].includes(onError)) {
    throw new ArgumentError('onError', 'allow, deny or local');
  }
  const limits = { maxInFlight, breakerFailures, breakerPauseMs };
  return { timeoutMs, onError, denialCache, prefetch, clock, ...limits };
}

export interface CallOptions {
  /** Units that the call takes. Default 1. */
  cost?: number | undefined;
  /** One hash tag for the key, in place of the limiter's own. */
  tag?: string | undefined;
  /** Gives the call up; it may have counted. */
  signal?: AbortSignal | undefined;
}

export interface CheckOptions extends CallOptions {
  /** Takes what is left up to the cost, at least 1: see `Decision.granted`. */
  partial?: boolean | undefined;
}

export interface SeveralOptions {
  /** One hash tag for all keys of the call. In a cluster they must be in one slot. */
  tag?: string | undefined;
  /** The holder of the leases among the rules. */
  id?: string | undefined;
  signal?: AbortSignal | undefined;
}

export interface WaitOptions extends CallOptions {
  /** The longest time to sleep, in all, in ms. */
  maxWaitMs: number;
}

/** A rule, the subject, and the cost; 1 by default. */
export type RuleCall = readonly [rule: Rule, subject: string, cost?: number | undefined];

/** The counts of a limiter since it was made. */
export interface Counters {
  readonly allowed: number;
  readonly denied: number;
  /** Of these, decided by `onError`: no answer. */
  readonly degraded: number;
  /** Of these, decided without a call, by the denial cache or from a prefetched stock. */
  readonly local: number;
  /** Errors thrown because the server refused a call: a mistake of the program. */
  readonly mistakes: number;
}
