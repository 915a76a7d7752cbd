/**
 * Rules are frozen values. They are validated when they are created, and print as the server reads
 * them.
 *
 * A rule has a name, which is part of its keys and of the headers, and the words that follow the
 * key in its command: `gcra('api', 6, 10, 60)` is `RL.GCRA key 6 10 60`.
 */
import { checkOptions, type Types, typesOf } from './arguments.js';
import { type Duration, duration, integer, microseconds } from './durations.js';
import { InvalidArgumentError } from './errors.js';
import { type Rate, rateOf } from './rate.js';
import { type Count, Item, isRule, LOCAL, type OnError, type Rule, type RuleKind } from './rule.js';

export type { Duration } from './durations.js';
export { type Rate, rate } from './rate.js';
export {
  type Count,
  Item,
  isRule,
  isSame,
  type Leave,
  LOCAL,
  type OnError,
  type ResponseHead,
  type Rule,
  type RuleKind,
} from './rule.js';

/** Options of each rule, in addition to its limits. */
export interface RuleOptions {
  /**
   * The behavior if the server does not reply. `allow` serves the call, `deny` refuses it (a 503,
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

const OF_ALL = { onError: 'any', localShare: 'any', prefetch: 'any', count: 'any' } as const;
const TYPES = typesOf<RuleOptions>(OF_ALL);

const NAME = /^[A-Za-z0-9._:/-]{1,64}$/;

function checkedName(name: string): string {
  if (typeof name !== 'string' || !NAME.test(name)) {
    throw new InvalidArgumentError('name', '1 to 64 of A-Z a-z 0-9 . _ : / -');
  }
  return name;
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

function build(shape: Shape, options: RuleOptions): Rule {
  const { onError, localShare = 1, prefetch, count = 'all' } = options;
  if (onError !== undefined && !['allow', 'deny', 'local'].includes(onError)) {
    throw new InvalidArgumentError('onError', 'allow, deny or local');
  }
  const hasLocal = LOCAL.has((shape.fallback ?? shape).kind);
  if (onError === 'local' && !hasLocal) {
    throw new InvalidArgumentError('onError', `allow or deny: a ${shape.kind} has no local limit`);
  }
  if (typeof localShare !== 'number' || !(localShare > 0 && localShare <= 1)) {
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
  const rule: Rule = {
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
    of: (subject) => new Item(rule, subject),
    toString: () => `${shape.name}: ${shape.words.join(' ')}`,
  };
  return Object.freeze(rule);
}

function ms(us: bigint): number {
  return Number((us + 999n) / 1000n);
}

/** A count with its period, or a rate in place of both, and the options of the rule. */
type Counted<Options> =
  | [count: number, period: Duration, options?: Options | undefined]
  | [rate: string | Rate, options?: Options | undefined];

/** Returns the count, the period and the options, which follow the rate or the period. */
function counted<Options>([count, second, third]: Counted<Options>) {
  const isPeriod = typeof second === 'string' || typeof second === 'number';
  if (isPeriod || typeof count === 'number') {
    return [count as number, second as Duration, third] as const;
  }
  if (third !== undefined) throw new InvalidArgumentError('options', 'nothing after the options');
  const { rate, period } = rateOf(count);
  return [rate, period, second] as const;
}

/**
 * Creates a rule with a burst or capacity, of which `rate` units become available again per period.
 * A rate such as `10/minute` stands in place of both.
 */
export interface RateRule {
  (name: string, burst: number, rate: number, period: Duration, options?: RuleOptions): Rule;
  (name: string, burst: number, rate: string | Rate, options?: RuleOptions): Rule;
}

function rateRule(kind: RuleKind, word: string, argument: 'burst' | 'capacity'): RateRule {
  return (name: string, burst: number, ...given: Counted<RuleOptions>) => {
    const limit = integer(argument, burst, 1);
    const [rate, period, options = {}] = counted(given);
    checkOptions(options, TYPES);
    const words = [word, limit, integer('rate', rate, 1), duration('period', period)];
    const us = microseconds('period', period);
    const refillUs = (BigInt(burst) * us + BigInt(rate) - 1n) / BigInt(rate);
    if (refillUs > 36_525n * 86_400_000_000n) {
      throw new InvalidArgumentError(argument, 'at most 36525 days to refill from empty');
    }
    if (BigInt(rate) * 1_000_000n > 1_000_000_000n * us) {
      throw new InvalidArgumentError('rate', 'at most 1000000000 per second');
    }
    return build({ kind, name, words, limit: burst, windowMs: ms(refillUs) }, options);
  };
}

/**
 * Creates a rule that allows `burst` at once, then `rate` per `period`. It stores one timestamp.
 * The default choice.
 *
 * @example
 * const decision = await limiter.check(gcra('api', 10, '10/minute'), '42');
 * decision.remaining; // 9
 */
export const gcra: RateRule = rateRule('gcra', 'GCRA', 'burst');

/**
 * Creates a bucket that starts full and gains `rate` per `period`, for limits that change at run
 * time.
 *
 * @example
 * const tokens = tokenBucket('tokens', 9000, '9000/minute');
 * const decision = await limiter.check(tokens, '42', { cost: 500 });
 * decision.remaining; // 8500
 */
export const tokenBucket: RateRule = rateRule('token_bucket', 'TOKENBUCKET', 'capacity');

/**
 * Creates a queue that drains at `rate` per `period`: an allowed call gets the time to wait before
 * it acts. `capacity` is the length of the queue.
 *
 * @example
 * const mails = leakyBucket('mails', 10, '1/second');
 * await limiter.check(mails, '42');
 * const second = await limiter.check(mails, '42');
 * second.retryAfterMs; // 1000
 */
export const leakyBucket: RateRule = rateRule('leaky_bucket', 'LEAKYBUCKET', 'capacity');

/** Creates a rule of `limit` units in a window. A rate such as `10/minute` stands for both. */
export interface WindowRule<Options extends RuleOptions = RuleOptions> {
  (name: string, limit: number, window: Duration, options?: Options): Rule;
  (name: string, rate: string | Rate, options?: Options): Rule;
}

function windowRule<Options extends RuleOptions>(
  kind: RuleKind,
  word: string,
  types: Types = TYPES,
  more: (options: Options) => readonly string[] = () => [],
): WindowRule<Options> {
  return (name: string, ...given: Counted<Options>) => {
    const [limit, window, options = {} as Options] = counted(given);
    checkOptions(options, types);
    const words = [word, integer('limit', limit, 1), duration('window', window), ...more(options)];
    const windowMs = ms(microseconds('window', window));
    return build({ kind, name, words, limit, windowMs }, options);
  };
}

/**
 * Creates a counter per window. A window opens at the first allowed call; with `aligned`, at
 * multiples of its length since 1970.
 *
 * @example
 * const decision = await limiter.check(fixed('exports', 5, '1h'), '42');
 * decision.resetAfterMs; // 3_600_000
 */
export const fixed: WindowRule<RuleOptions & { aligned?: boolean | undefined }> = windowRule(
  'fixed',
  'FIXED',
  typesOf<RuleOptions & { aligned?: boolean }>({ ...OF_ALL, aligned: 'flag' }),
  ({ aligned }) => (aligned === true ? ['ALIGNED'] : []),
);

/**
 * Creates a sliding window: it counts the current window and a decreasing part of the one before.
 *
 * @example
 * const decision = await limiter.check(sliding('posts', '100/hour'), '42');
 * decision.remaining; // 99
 */
export const sliding: WindowRule = windowRule('sliding', 'SLIDING');

/**
 * Creates a rule that never allows more than `limit` in any window. It stores the instants of the
 * calls. Of a limit above `slots`, 16 to 65,536, it stores one entry for each part of the window,
 * so a call may count for up to a part longer. Default: the server's setting, which is 1024.
 *
 * @example
 * const decision = await limiter.check(slidingLog('codes', 3, '10m'), '42');
 * decision.remaining; // 2
 */
export const slidingLog: WindowRule<RuleOptions & { slots?: number | undefined }> = windowRule(
  'sliding_log',
  'SLIDINGLOG',
  typesOf<RuleOptions & { slots?: number }>({ ...OF_ALL, slots: 'any' }),
  ({ slots }) => (slots === undefined ? [] : ['SLOTS', integer('slots', slots, 16, 65_536)]),
);

/**
 * Creates a rule for logins: some attempts without delay, then a delay that doubles with each
 * further attempt, from `base` to `max`. It resets after `forget` without an allowed attempt.
 *
 * @example
 * const decision = await limiter.check(backoff('login', 3, '1s', '1h', '1d'), '42');
 * decision.remaining; // 2
 */
export function backoff(
  name: string,
  attempts: number,
  base: Duration,
  max: Duration,
  forget: Duration,
  options: RuleOptions = {},
): Rule {
  checkOptions(options, TYPES);
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
  return build({ kind: 'backoff', name, words, limit: attempts }, options);
}

export type QuotaUnit = 'day' | 'week' | 'month' | 'quarter' | 'year';

const STARTS: Partial<Record<QuotaUnit, RegExp>> = {
  week: /^(mon|tue|wed|thu|fri|sat|sun)$/i,
  month: /^([1-9]|[12]\d|3[01])$/,
  year: /^([1-9]|1[0-2])$/,
};

const QUOTA_TYPES = typesOf<RuleOptions & { zone?: string; start?: string }>({
  ...OF_ALL,
  zone: 'text',
  start: 'any',
});

/**
 * Creates an allowance per calendar period of a time zone.
 *
 * @example
 * const tokens = quota('tokens', 100_000, 'month', { zone: 'Europe/Berlin' });
 * const decision = await limiter.check(tokens, '42', { cost: 500 });
 * decision.remaining; // 99_500
 */
export function quota(
  name: string,
  limit: number,
  unit: QuotaUnit,
  options: RuleOptions & { zone?: string | undefined; start?: string | number | undefined } = {},
): Rule {
  if (!['day', 'week', 'month', 'quarter', 'year'].includes(unit)) {
    throw new InvalidArgumentError('unit', 'day, week, month, quarter or year');
  }
  checkOptions(options, QUOTA_TYPES);
  const { zone, start } = options;
  if (zone !== undefined && !/^[A-Za-z0-9_+/-]+$/.test(zone)) {
    throw new InvalidArgumentError(
      'zone',
      'a name of the IANA time zone database, such as Europe/Berlin',
    );
  }
  const isStart = typeof start === 'string' || typeof start === 'number';
  if (start !== undefined && !(isStart && STARTS[unit]?.test(String(start)))) {
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
  return build({ kind: 'quota', name, words, limit, windowMs }, options);
}

/**
 * Allows `limit` holders at once. A permit expires after `ttl`. Use it with `Limiter.lease`.
 *
 * @example
 * const held = await limiter.lease(lease('jobs', 4, '30s'), '42');
 * held.decision.remaining; // 3
 * await held.release();
 */
export function lease(name: string, limit: number, ttl: Duration, options: RuleOptions = {}): Rule {
  checkOptions(options, TYPES);
  const words = ['LEASE', integer('limit', limit, 1, 1_000_000), duration('ttl', ttl)];
  return build({ kind: 'lease', name, words, limit }, options);
}

const POLICY_TYPES = typesOf<RuleOptions & { default?: Rule; variants?: string[] }>({
  ...OF_ALL,
  default: 'any',
  variants: 'any',
});

/**
 * A limit that the server stores under a name. `default` applies if the server has none of that
 * name. `variants` are looked up first, the most specific one first, such as `['tenant:acme',
 * 'plan:gold']`.
 *
 * @example
 * const plan = policy('plan', { default: gcra('default', 10, '10/minute') });
 * const decision = await limiter.check(plan, '42');
 * decision.remaining; // 9
 */
export function policy(
  name: string,
  options: RuleOptions & {
    default?: Rule | undefined;
    variants?: readonly string[] | undefined;
  } = {},
): Rule {
  checkOptions(options, POLICY_TYPES);
  const { default: fallback, variants = [] } = options;
  if (fallback !== undefined && !isRule(fallback)) {
    throw new InvalidArgumentError('default', 'a rule');
  }
  if (fallback && (fallback.kind === 'lease' || fallback.kind === 'policy')) {
    throw new InvalidArgumentError('default', 'a rule that is neither a lease nor a policy');
  }
  const isName = (variant: unknown) => typeof variant === 'string' && NAME.test(variant);
  if (!Array.isArray(variants) || variants.length > 2 || !variants.every(isName)) {
    throw new InvalidArgumentError(
      'variants',
      'at most two, each 1 to 64 of A-Z a-z 0-9 . _ : / -',
    );
  }
  const words = ['USE', name, ...variants.flatMap((variant) => ['FOR', variant])];
  if (fallback) words.push('DEFAULT', ...fallback.words);
  return build({ kind: 'policy', name, words, limit: fallback?.limit ?? 0, fallback }, options);
}
