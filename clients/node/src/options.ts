/** What a limiter and its calls may be told. */
import type { Backend } from './backends.js';
import { type Clock, systemClock } from './clock.js';
import type { Decision } from './decision.js';
import { ArgumentError } from './errors.js';
import type { KeyOptions } from './keys.js';
import { integer, MAX_PREFETCH, type OnError, type Rule } from './rules.js';

/**
 * Called once after each decision, with the rule that decided, for metrics and logs. Never gets the
 * subject itself.
 */
export type OnDecision = (
  decision: Decision,
  rule: Rule,
  subjectHash: string,
  latencyMs: number,
) => unknown;

export interface LimiterOptions extends KeyOptions {
  /**
   * Who decides. Default `auto`: the module where the server has it, else the library, which is
   * loaded, as functions where they may be, else as a script.
   */
  backend?: Backend | 'auto' | undefined;
  /** For the whole call, in ms. Default 100: a limiter must not be slower than what it protects. */
  timeoutMs?: number | undefined;
  /** For rules that do not say. Default `allow`. */
  onError?: OnError | undefined;
  /** Calls at once; one more is answered as by an error. Default 256. */
  maxInFlight?: number | undefined;
  /** After so many failures in a row nobody asks for a while. Default 5. */
  breakerFailures?: number | undefined;
  /** For how long, in ms; then one call tries. Default 1000. */
  breakerPauseMs?: number | undefined;
  /**
   * How many denials are remembered until their retry, default 0: none. Exact while nobody deletes,
   * refunds or changes the limit elsewhere, which then shows after the retry.
   */
  denialCache?: number | undefined;
  /** Permits that one call takes, for rules that do not say and can: see there. Default 1. */
  prefetch?: number | undefined;
  /** What it throws, or rejects with, is a warning of the process and changes no decision. */
  onDecision?: OnDecision | undefined;
  /** For tests. */
  clock?: Clock | undefined;
}

/** The options that are checked here, complete. */
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
  /** How much the call takes. Default 1. */
  cost?: number | undefined;
  /** One hash tag for the key, in place of the limiter's own. */
  tag?: string | undefined;
  /** Gives the call up; it may have counted. */
  signal?: AbortSignal | undefined;
}

export interface CheckOptions extends CallOptions {
  /** Takes what is there up to the cost, at least 1: see `Decision.granted`. */
  partial?: boolean | undefined;
}

export interface SeveralOptions {
  /** One hash tag for all keys of the call, which in a cluster have to lie in one slot. */
  tag?: string | undefined;
  /** Who holds the leases among the rules. */
  id?: string | undefined;
  signal?: AbortSignal | undefined;
}

export interface WaitOptions extends CallOptions {
  /** How long to sleep at most, all in all. */
  maxWaitMs: number;
}

/** A rule, whom it is asked for, and what it costs; 1 if not given. */
export type RuleCall = readonly [rule: Rule, subject: string, cost?: number | undefined];

/** What a limiter has counted since it was made. */
export interface Counters {
  readonly allowed: number;
  readonly denied: number;
  /** Of these, decided by `onError`: no answer. */
  readonly degraded: number;
  /** Of these, decided without asking, by the denial cache or from a prefetched stock. */
  readonly local: number;
  /** Thrown: the server refused the call, a mistake of the program. */
  readonly mistakes: number;
}
