/**
 * Rules are frozen values. They are validated when they are created, and print as the server reads
 * them.
 *
 * A rule has a name, which is part of its keys and of the headers, and the words that follow the
 * key in its command: `gcra('api', 6, 10, 60)` is `RL.GCRA key 6 10 60`.
 */
import { InvalidArgumentError } from './errors.js';

/** A duration: a number of seconds, or a text with a unit, `500ms`, `60s`, `1h`, `7d`. */
export type Duration = number | string;

/** The decision on the calls of a rule if the server does not answer. */
export type OnError = 'allow' | 'deny' | 'local';

export type RuleKind =
  | 'gcra'
  | 'fixed'
  | 'sliding'
  | 'sliding_log'
  | 'token_bucket'
  | 'leaky_bucket'
  | 'backoff'
  | 'quota'
  | 'lease'
  | 'policy';

/** The response to a limited request, at the moment when its head is sent. */
export interface ResponseHead {
  /** 500 after an exception; 499 if the client disconnected before the head was sent. */
  readonly status: number;
}

/**
 * The responses that a rule counts. `all`; `failures`: those with a status of 400 or more; or a
 * function that returns true for a response that counts.
 */
export type Count = 'all' | 'failures' | ((response: ResponseHead) => boolean);

/** Options of each rule, in addition to its limits. */
export interface RuleOptions {
  /**
   * The behavior if the server does not answer. `allow` serves the call, `deny` refuses it (a 503,
   * not a 429), and `local` decides in this process. `local` is not possible for a lease, a quota,
   * a backoff, or a policy without a default. Default: the limiter's `onError`, which is `allow`.
   */
  onError?: OnError | undefined;
  /**
   * The share of the limit that this process may allow by itself under `local`: above 0, at most 1.
   * With ten processes use 0.1, or together they allow ten times the limit. Default 1.
   */
  localShare?: number | undefined;
  /**
   * The number of permits to fetch in one call and use in this process, 1 to 10,000; for hot keys.
   * For each process, a window may then allow up to this number of units above the limit. Default:
   * the limiter's `prefetch`, which is 1.
   */
  prefetch?: number | undefined;
  /**
   * The responses that count, for the middleware: it refunds what a request took if its response
   * does not count. A backoff that counts `failures` limits logins. Not for a lease. Default `all`.
   */
  count?: Count | undefined;
}

/** A limit with a name. Created by `gcra`, `fixed` and the other functions of this file. */
export interface Rule {
  readonly kind: RuleKind;
  /** Part of the keys and of the headers. */
  readonly name: string;
  /** The module's command, such as `RL.GCRA`. */
  readonly command: string;
  /** The words after the key, the algorithm's first: `['GCRA', '6', '10', '60']`. */
  readonly words: readonly string[];
  /** The rule's limit; 0 for a policy without a default, whose limit only the server knows. */
  readonly limit: number;
  /**
   * The window or the time to refill, in ms; undefined if the rule has neither. Sent as `w` in the
   * headers.
   */
  readonly windowMs: number | undefined;
  /** The rule to apply if the server does not have the policy. */
  readonly fallback: Rule | undefined;
  readonly onError: OnError | undefined;
  readonly localShare: number;
  readonly prefetch: number | undefined;
  readonly count: Count;
  /** Returns the rule's name, and the rule as the server reads it. */
  toString(): string;
}

const MAX_LIMIT = 1_000_000_000_000;
const UNIT_US: Record<string, bigint> = {
  ms: 1_000n,
  s: 1_000_000n,
  m: 60_000_000n,
  h: 3_600_000_000n,
  d: 86_400_000_000n,
};
const MAX_DURATION_US = 366n * 86_400_000_000n;

/** Returns an integer from `min` to `max` as text. */
export function integer(argument: string, value: number, min: number, max = MAX_LIMIT): string {
  if (!Number.isSafeInteger(value) || value < min || value > max) {
    throw new InvalidArgumentError(argument, `an integer from ${min} to ${max}`);
  }
  return String(value);
}

/** Returns a duration in whole microseconds. */
export function microseconds(argument: string, value: Duration): bigint {
  const text = typeof value === 'number' ? plain(value) : value;
  const parts = /^(\d+)(?:\.(\d{1,6}))?(ms|s|m|h|d)?$/.exec(text);
  const unit = UNIT_US[parts?.[3] ?? 's'] as bigint;
  const scale = 1_000_000n;
  const scaled = parts ? BigInt(`${parts[1]}${(parts[2] ?? '').padEnd(6, '0')}`) * unit : 0n;
  if (scaled % scale !== 0n || scaled < 1_000n * scale || scaled > MAX_DURATION_US * scale) {
    throw new InvalidArgumentError(
      argument,
      'a duration from 1ms to 366d, such as 60, 0.5, 500ms or 1h',
    );
  }
  return scaled / scale;
}

/** Writes a number without an exponent, rounded to the microsecond. */
function plain(value: number): string {
  if (!Number.isFinite(value)) return '';
  return value.toFixed(6).replace(/\.?0+$/, '');
}

/** Writes a duration as the server reads it: whole seconds without a unit, otherwise in ms. */
function duration(argument: string, value: Duration): string {
  const us = microseconds(argument, value);
  if (us % 1_000_000n === 0n) return String(us / 1_000_000n);
  const [whole, rest] = [us / 1000n, us % 1000n];
  const decimals = rest === 0n ? '' : `.${String(rest).padStart(3, '0').replace(/0+$/, '')}`;
  return `${whole}${decimals}ms`;
}

const NAME = /^[A-Za-z0-9._:/-]{1,64}$/;

function checkedName(name: string): string {
  if (typeof name !== 'string' || !NAME.test(name)) {
    throw new InvalidArgumentError('name', '1 to 64 of A-Z a-z 0-9 . _ : / -');
  }
  return name;
}

/** The kinds of rules that this process can enforce by itself. */
export const LOCAL: ReadonlySet<RuleKind> = new Set([
  'gcra',
  'fixed',
  'sliding',
  'sliding_log',
  'token_bucket',
  'leaky_bucket',
]);

/**
 * Returns true if two rules have the same content. A program may create a new rule for each
 * request.
 */
export function isSame(one: Rule, other: Rule): boolean {
  if (one === other) return true;
  return one.name === other.name && one.words.join(' ') === other.words.join(' ');
}

export const MAX_PREFETCH = 10_000;

/** Returns true if permits of this kind may be prefetched. */
export function isPrefetchable({ kind }: Pick<Rule, 'kind'>): boolean {
  return !['lease', 'backoff', 'leaky_bucket', 'policy'].includes(kind);
}

interface Shape {
  kind: RuleKind;
  name: string;
  words: readonly string[];
  limit: number;
  windowMs?: number | undefined;
  fallback?: Rule | undefined;
}

function made(shape: Shape, options: RuleOptions): Rule {
  const { onError, localShare = 1, prefetch, count = 'all' } = options;
  if (onError !== undefined && !['allow', 'deny', 'local'].includes(onError)) {
    throw new InvalidArgumentError('onError', 'allow, deny or local');
  }
  const hasLocal = LOCAL.has((shape.fallback ?? shape).kind);
  if (onError === 'local' && !hasLocal) {
    throw new InvalidArgumentError('onError', `allow or deny: a ${shape.kind} has no local limit`);
  }
  if (!(localShare > 0 && localShare <= 1)) {
    throw new InvalidArgumentError('localShare', 'a number above 0 and at most 1');
  }
  if (prefetch !== undefined) integer('prefetch', prefetch, 1, MAX_PREFETCH);
  if (prefetch !== undefined && prefetch > 1 && !isPrefetchable(shape)) {
    throw new InvalidArgumentError(
      'prefetch',
      `1 for a ${shape.kind}, whose permits cannot be kept`,
    );
  }
  if (count !== 'all' && count !== 'failures' && typeof count !== 'function') {
    throw new InvalidArgumentError('count', 'all, failures or a function of the response');
  }
  if (count !== 'all' && shape.kind === 'lease') {
    throw new InvalidArgumentError('count', 'all for a lease, which ends with the response');
  }
  return Object.freeze({
    ...shape,
    name: checkedName(shape.name),
    command: `RL.${shape.words[0]}`,
    words: Object.freeze([...shape.words]),
    windowMs: shape.windowMs,
    fallback: shape.fallback,
    onError,
    localShare,
    prefetch,
    count,
    toString: () => `${shape.name}: ${shape.words.join(' ')}`,
  });
}

function ms(us: bigint): number {
  return Number((us + 999n) / 1000n);
}

/**
 * Creates a rule with a burst or capacity, of which `rate` units become available again per period.
 */
export type RateRule = (
  name: string,
  burst: number,
  rate: number,
  period: Duration,
  options?: RuleOptions,
) => Rule;

function rateRule(kind: RuleKind, word: string, argument: 'burst' | 'capacity'): RateRule {
  return (name, burst, rate, period, options = {}) => {
    const limits = [integer(argument, burst, 1), integer('rate', rate, 1)];
    const words = [word, ...limits, duration('period', period)];
    const us = microseconds('period', period);
    const refillUs = (BigInt(burst) * us + BigInt(rate) - 1n) / BigInt(rate);
    if (refillUs > 36_525n * 86_400_000_000n) {
      throw new InvalidArgumentError(argument, 'at most 36525 days to refill from empty');
    }
    if (BigInt(rate) * 1_000_000n > 1_000_000_000n * us) {
      throw new InvalidArgumentError('rate', 'at most 1000000000 per second');
    }
    return made({ kind, name, words, limit: burst, windowMs: ms(refillUs) }, options);
  };
}

/**
 * Creates a rule that allows `burst` at once, then `rate` per `period`. It stores one timestamp.
 * The default choice.
 */
export const gcra: RateRule = rateRule('gcra', 'GCRA', 'burst');

/**
 * Creates a bucket that starts full and gains `rate` per `period`, for limits that change at run
 * time.
 */
export const tokenBucket: RateRule = rateRule('token_bucket', 'TOKENBUCKET', 'capacity');

/**
 * Creates a queue that drains at `rate` per `period`: an allowed call gets the time to wait before
 * it acts. `capacity` is the length of the queue.
 */
export const leakyBucket: RateRule = rateRule('leaky_bucket', 'LEAKYBUCKET', 'capacity');

/** Creates a rule of `limit` units in a window. */
export type WindowRule<Options extends RuleOptions = RuleOptions> = (
  name: string,
  limit: number,
  window: Duration,
  options?: Options,
) => Rule;

function windowRule(
  kind: RuleKind,
  word: string,
): WindowRule<RuleOptions & { aligned?: boolean | undefined }> {
  return (name, limit, window, options = {}) => {
    const words = [word, integer('limit', limit, 1), duration('window', window)];
    if (kind === 'fixed' && options.aligned === true) words.push('ALIGNED');
    const windowMs = ms(microseconds('window', window));
    return made({ kind, name, words, limit, windowMs }, options);
  };
}

/**
 * Creates a counter per window. A window opens at the first allowed call; with `aligned`, at
 * multiples of its length since 1970.
 */
export const fixed: WindowRule<RuleOptions & { aligned?: boolean | undefined }> = windowRule(
  'fixed',
  'FIXED',
);

/**
 * Creates a sliding window: it counts the current window and a decreasing part of the one before.
 */
export const sliding: WindowRule = windowRule('sliding', 'SLIDING');

/**
 * Creates a rule that never allows more than `limit` in any window. It stores the instants of the
 * calls.
 */
export const slidingLog: WindowRule = windowRule('sliding_log', 'SLIDINGLOG');

/**
 * Creates a rule for logins: some attempts without delay, then a delay that doubles with each
 * further attempt, from `base` to `max`. It resets after `forget` without an allowed attempt.
 */
export function backoff(
  name: string,
  attempts: number,
  base: Duration,
  max: Duration,
  forget: Duration,
  options: RuleOptions = {},
): Rule {
  const words = [
    'BACKOFF',
    integer('attempts', attempts, 1, 1_000_000),
    duration('base', base),
    duration('max', max),
    duration('forget', forget),
  ];
  if (microseconds('base', base) > microseconds('max', max)) {
    throw new InvalidArgumentError('base', 'at most max');
  }
  if (microseconds('max', max) >= microseconds('forget', forget)) {
    throw new InvalidArgumentError('forget', 'more than max');
  }
  return made({ kind: 'backoff', name, words, limit: attempts }, options);
}

export type QuotaUnit = 'day' | 'week' | 'month' | 'quarter' | 'year';

const STARTS: Partial<Record<QuotaUnit, RegExp>> = {
  week: /^(mon|tue|wed|thu|fri|sat|sun)$/i,
  month: /^([1-9]|[12]\d|3[01])$/,
  year: /^([1-9]|1[0-2])$/,
};

/** Creates an allowance per calendar period of a time zone. */
export function quota(
  name: string,
  limit: number,
  unit: QuotaUnit,
  options: RuleOptions & { zone?: string | undefined; start?: string | number | undefined } = {},
): Rule {
  if (!['day', 'week', 'month', 'quarter', 'year'].includes(unit)) {
    throw new InvalidArgumentError('unit', 'day, week, month, quarter or year');
  }
  const { zone, start } = options;
  if (zone !== undefined && !/^[A-Za-z0-9_+/-]+$/.test(zone)) {
    throw new InvalidArgumentError(
      'zone',
      'a name of the IANA time zone database, such as Europe/Berlin',
    );
  }
  if (start !== undefined && !STARTS[unit]?.test(String(start))) {
    throw new InvalidArgumentError(
      'start',
      'mon to sun of a week, 1 to 31 of a month, 1 to 12 of a year',
    );
  }
  const words = ['QUOTA', integer('limit', limit, 1), unit];
  if (zone !== undefined) words.push('ZONE', zone);
  if (start !== undefined) words.push('START', String(start));
  const days = { day: 1, week: 7 }[unit as string];
  const windowMs = days && days * 86_400_000;
  return made({ kind: 'quota', name, words, limit, windowMs }, options);
}

/** Allows `limit` holders at once. A permit expires after `ttl`. Use it with `Limiter.lease`. */
export function lease(name: string, limit: number, ttl: Duration, options: RuleOptions = {}): Rule {
  const words = ['LEASE', integer('limit', limit, 1, 1_000_000), duration('ttl', ttl)];
  return made({ kind: 'lease', name, words, limit }, options);
}

/**
 * A limit that the server stores under a name. `default` applies if the server has none of that
 * name. `variants` are looked up first, the most specific one first, such as `['tenant:acme',
 * 'plan:gold']`.
 */
export function policy(
  name: string,
  options: RuleOptions & {
    default?: Rule | undefined;
    variants?: readonly string[] | undefined;
  } = {},
): Rule {
  const { default: fallback, variants = [] } = options;
  if (fallback && (fallback.kind === 'lease' || fallback.kind === 'policy')) {
    throw new InvalidArgumentError('default', 'a rule that is neither a lease nor a policy');
  }
  if (variants.length > 2 || !variants.every((variant) => NAME.test(variant))) {
    throw new InvalidArgumentError(
      'variants',
      'at most two, each 1 to 64 of A-Z a-z 0-9 . _ : / -',
    );
  }
  const words = ['USE', name, ...variants.flatMap((variant) => ['FOR', variant])];
  if (fallback) words.push('DEFAULT', ...fallback.words);
  return made({ kind: 'policy', name, words, limit: fallback?.limit ?? 0, fallback }, options);
}
