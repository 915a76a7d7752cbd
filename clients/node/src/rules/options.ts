/** The options of a limiter and of its calls. */
import { checkOptions, type Types, typesOf } from './arguments.js';
import { type Clock, systemClock } from './clock.js';
import type { Decision } from './decision.js';
import { type Duration, integer } from './durations.js';
import {
  type CommandRejectedError,
  InvalidArgumentError,
  type UnavailableError,
} from './errors.js';
import { type Leave, MAX_PREFETCH, type OnError, type Rule } from './forms.js';
import type { KeyOptions } from './keys.js';

/** The code that decides on the server: the module, or the library as functions or as a script. */
export type Backend = 'module' | 'functions' | 'script';

/**
 * The kind of an event. `lease`: the decision on a lease, or a release by an admission that got no
 * reply. `commit` and `cancel`: the end of a reservation. `rejected`: the server refused the call.
 */
export type DecisionKind =
  | 'check'
  | 'peek'
  | 'charge'
  | 'refund'
  | 'lease'
  | 'commit'
  | 'cancel'
  | 'rejected';

/** A decision, a charge, a refund, the end of an item of an admission, or a rejection. */
export interface DecisionEvent {
  readonly kind: DecisionKind;
  /** Undefined if the call was rejected, or got no reply at the end of an admission. */
  readonly decision: Decision | undefined;
  /** The rule that decided; of a rejected call, its first rule. */
  readonly rule: Rule;
  /**
   * 16 hexadecimal digits of the subject's HMAC, under `hmacSecret` or a random key of the process.
   * The subject itself is never passed on.
   */
  readonly keyHash: string;
  /** 0 if no call was sent. */
  readonly latencyMs: number;
  /** True if `onError` decided. */
  readonly degraded: boolean;
  /**
   * The error of a rejected call, or of an end of an admission that failed; otherwise undefined.
   */
  readonly error: CommandRejectedError | UnavailableError | undefined;
}

/**
 * Called once after each decision, charge, refund, end of an admission and rejection, for metrics
 * and logs.
 */
export type OnDecision = (event: DecisionEvent) => unknown;

export interface LimiterOptions extends KeyOptions {
  /**
   * The back end. Default `auto`: the module if the server has it, otherwise the library, as
   * functions if the server allows them, otherwise as a script.
   */
  backend?: Backend | 'auto' | undefined;
  /**
   * The most that a call takes, in ms. Default 1000. Only a call that meets congestion takes so
   * long.
   */
  timeoutMs?: number | undefined;
  /**
   * The time in which nothing is heard from a node before it counts as silent, in ms. It must
   * exceed a round trip and the longest stall of the server. Default 100, or `timeoutMs` if only
   * that is set.
   */
  silenceMs?: number | undefined;
  /** The `onError` of rules that do not set their own. Default `allow`. */
  onError?: OnError | undefined;
  /**
   * The maximum number of commands to which a node has not replied. Further calls stand in line.
   * Default 256.
   */
  maxInFlight?: number | undefined;
  /**
   * The maximum number of calls in line for a node. Further calls are not sent, and `onError`
   * decides them at once. Default 16,384.
   */
  maxWaiting?: number | undefined;
  /**
   * The maximum number of keys whose last denial is remembered, for calls without a
   * reply. Default 10,000; 0: none is remembered.
   */
  knownDenials?: number | undefined;
  /**
   * The number of failures in a row after which the circuit breaker pauses the calls to a node.
   * Default 5.
   */
  breakerFailures?: number | undefined;
  /**
   * The length of the circuit breaker's pause, in ms. After the pause, one call probes the server.
   * Default 1000.
   */
  breakerPauseMs?: number | undefined;
  /**
   * The maximum number of denials to cache. Default 0: no cache. If another process deletes or
   * refunds the key or changes the limit, a cached denial still applies until it expires.
   */
  denialCache?: number | undefined;
  /**
   * The longest life of a cached denial, in ms. It expires earlier at its retry time. Default 1000.
   */
  denialCacheMaxMs?: number | undefined;
  /**
   * The number of permits that one call fetches in advance, under rules that allow it. Default 1.
   */
  prefetch?: number | undefined;
  /**
   * Called after each decision. If it throws, the process emits a warning, and the decision does
   * not change.
   */
  onDecision?: OnDecision | undefined;
  /**
   * Whether decisions without the server are logged with `console.warn`, at most once per second
   * and reason. Default true.
   */
  logErrors?: boolean | undefined;
  /** The clock, which a test can replace. */
  clock?: Clock | undefined;
}

/** The longest time of an option, in ms. */
const HOUR_MS = 3_600_000;
/** The largest count of an option. */
const COUNT_MAX = 1_000_000;

const LIMITER = typesOf<LimiterOptions>({
  backend: 'any',
  timeoutMs: 'any',
  silenceMs: 'any',
  onError: 'any',
  maxInFlight: 'any',
  maxWaiting: 'any',
  knownDenials: 'any',
  breakerFailures: 'any',
  breakerPauseMs: 'any',
  denialCache: 'any',
  denialCacheMaxMs: 'any',
  prefetch: 'any',
  onDecision: 'function',
  logErrors: 'flag',
  clock: 'clock',
  prefix: 'text',
  hashTag: 'any',
  hmacSecret: 'text',
});

/** The options of `Limiter.fromUrl`. */
export interface UrlOptions extends LimiterOptions {
  /** True if the URL is that of a node of a cluster. Default false. */
  cluster?: boolean | undefined;
}

const FROM_URL: Types = new Map([...LIMITER, ['cluster', 'flag']]);

/** Returns the options of `Limiter.fromUrl` if each of them is one. */
export function checkedUrlOptions(options: UrlOptions): UrlOptions {
  checkOptions(options, FROM_URL);
  return options;
}

/** Validates the options and adds the defaults. */
export function withDefaults(options: LimiterOptions) {
  checkOptions(options, LIMITER);
  const { timeoutMs = 1000, silenceMs = options.timeoutMs ?? 100 } = options;
  const { onError = 'allow', logErrors = true } = options;
  const { maxInFlight = 256, maxWaiting = 16_384, knownDenials = 10_000 } = options;
  const { denialCache = 0, denialCacheMaxMs = 1000 } = options;
  const { breakerFailures = 5, breakerPauseMs = 1000, prefetch = 1 } = options;
  const { backend = 'auto', prefix = 'rl', clock = systemClock } = options;
  const { hashTag, hmacSecret, onDecision } = options;
  integer('timeoutMs', timeoutMs, 1, HOUR_MS);
  integer('silenceMs', silenceMs, 1, HOUR_MS);
  if (silenceMs > timeoutMs) {
    const expected = `at most timeoutMs, which is ${timeoutMs}; it is ${silenceMs}`;
    throw new InvalidArgumentError('silenceMs', expected);
  }
  integer('maxInFlight', maxInFlight, 1, COUNT_MAX);
  integer('maxWaiting', maxWaiting, 0, COUNT_MAX);
  integer('knownDenials', knownDenials, 0, COUNT_MAX);
  integer('denialCache', denialCache, 0, COUNT_MAX);
  integer('denialCacheMaxMs', denialCacheMaxMs, 1, HOUR_MS);
  integer('prefetch', prefetch, 1, MAX_PREFETCH);
  integer('breakerFailures', breakerFailures, 1, COUNT_MAX);
  integer('breakerPauseMs', breakerPauseMs, 1, HOUR_MS);
  if (!['allow', 'deny', 'local'].includes(onError)) {
    throw new InvalidArgumentError('onError', 'allow, deny or local');
  }
  const limits = { timeoutMs, silenceMs, maxInFlight, maxWaiting, breakerFailures, breakerPauseMs };
  const memory = { denialCache, denialCacheMaxMs, knownDenials, prefetch };
  const keys = { prefix, hashTag, hmacSecret };
  return { onError, backend, onDecision, logErrors, clock, ...memory, ...keys, ...limits };
}

export interface CallOptions {
  /** Units that the call takes. Default 1. */
  cost?: number | undefined;
  /** The hash tag of the key, instead of the limiter's own. */
  tag?: string | undefined;
  /** Gives the call up when it is aborted. The call may have counted. */
  signal?: AbortSignal | undefined;
}

export interface PeekOptions extends CallOptions {
  /**
   * The units, or the share of the limit such as `20%`, that the call leaves to others: it is
   * denied if fewer would remain. Not for a backoff.
   */
  leave?: Leave | undefined;
}

export interface CheckOptions extends PeekOptions {
  /** Takes as many units as are left, at least 1 and at most the cost: see `Decision.granted`. */
  partial?: boolean | undefined;
}

export interface SeveralOptions {
  /** The hash tag of all keys of the call. In a cluster these keys must be in one slot. */
  tag?: string | undefined;
  /** The id of the leases and reservations among the items. The caller ends them. */
  id?: string | undefined;
  signal?: AbortSignal | undefined;
}

export interface AdmitOptions {
  /** The hash tag of all keys of the call. In a cluster these keys must be in one slot. */
  tag?: string | undefined;
  /**
   * The id of the leases and reservations among the items, 1 to 64 bytes without spaces. Random by
   * default. Each piece of work needs its own.
   */
  id?: string | undefined;
  /** Gives the call up when it is aborted. What it may have taken is given back. */
  signal?: AbortSignal | undefined;
}

export interface ReserveOptions extends AdmitOptions {
  /** The units to reserve. Default 1. */
  cost?: number | undefined;
  /** The time after which an abandoned reservation ends, at least 1 ms. Default 30 s. */
  ttl?: Duration | undefined;
}

export interface WaitOptions extends CallOptions {
  /** The maximum total time to sleep, in ms. */
  maxWaitMs: number;
}

/** The types of the options of calls that take no cost, and of those that take one. */
const OF_KEY = { tag: 'text', signal: 'signal' } as const;
const OF_CALL = { ...OF_KEY, cost: 'any' } as const;

/** The types of the options of each method. */
export const TYPES = {
  none: typesOf<Record<never, never>>({}),
  signal: typesOf<Pick<CallOptions, 'signal'>>({ signal: 'signal' }),
  key: typesOf<Omit<CallOptions, 'cost'>>(OF_KEY),
  call: typesOf<CallOptions>(OF_CALL),
  peek: typesOf<PeekOptions>({ ...OF_CALL, leave: 'any' }),
  check: typesOf<CheckOptions>({ ...OF_CALL, leave: 'any', partial: 'flag' }),
  wait: typesOf<WaitOptions>({ ...OF_CALL, maxWaitMs: 'any' }),
  several: typesOf<SeveralOptions>({ ...OF_KEY, id: 'text' }),
  reserve: typesOf<ReserveOptions>({ ...OF_CALL, id: 'text', ttl: 'any' }),
};

/** The counts of a limiter since it was created. */
export interface Counters {
  readonly allowed: number;
  readonly denied: number;
  /** Decisions, allowed or denied, that `onError` made because there was no reply. */
  readonly degraded: number;
  /**
   * Decisions, allowed or denied, made without a call to the server: by the denial cache, by a
   * prefetched permit, or under pressure by a known denial.
   */
  readonly local: number;
  /**
   * Errors thrown because the server refused a call: a bug in the program or in the server's setup.
   */
  readonly rejected: number;
  /**
   * The ends of admissions that failed: a charge, a refund, a commit, a cancellation or a release
   * that got no reply or was refused; and ends of leases without a reply by the end of `close`.
   */
  readonly unsettled: number;
}
