/**
 * The code that the middleware of all frameworks shares: the subject, the calls and the result. A
 * framework's own file only reads its requests and writes its responses.
 */
import { randomUUID } from 'node:crypto';
import type { Lease } from '../holds/lease.js';
import type { Limiter } from '../limiter.js';
import { checkLimiter, checkOptions, type Types, typesOf } from '../rules/arguments.js';
import { type Decision, DeniedError } from '../rules/decision.js';
import { integer, isCost } from '../rules/durations.js';
import { InvalidArgumentError } from '../rules/errors.js';
import { type Item, isRule, type Rule } from '../rules/forms.js';
import {
  checkStyles,
  type HeaderStyle,
  isHeaderName,
  noCostProblem,
  noSubjectProblem,
  type Problem,
  rateLimitHeaders,
} from '../rules/headers.js';
import { isSubject, type Subject, textOf } from '../rules/keys.js';
import { warnOnce, warnOnceOf } from '../rules/warnings.js';
import { ClientAddress } from './address.js';
import { headListener, type OnHead } from './counting.js';

/** A value, or a function, sync or async, that returns the value for a request. */
export type PerRequest<Incoming, Value> = Value | ((request: Incoming) => Value | Promise<Value>);

/**
 * A rule, or a function, sync or async, that returns the rule for a request, such as that of its
 * tenant. If the function returns nothing, the rule does not apply.
 */
export type RuleFor<Incoming> =
  | Rule
  | ((request: Incoming) => Rule | null | undefined | Promise<Rule | null | undefined>);

/** A rule for requests, with its own subject and cost if given. */
export interface RequestRule<Incoming> {
  rule: RuleFor<Incoming>;
  /** Returns the subject. Default: the middleware's `key`. */
  key?: KeyFunction<Incoming> | undefined;
  /** The cost of the request under this rule. Default: that of the middleware. */
  cost?: PerRequest<Incoming, number> | undefined;
}

/**
 * Returns the subject of a request. If it is null, undefined or empty, the `anonymous` rule
 * applies, or the request gets a 400 response. The same if it is not a subject, such as an array of
 * a body, or if the function throws; the process then emits a warning, once for the function.
 */
export type KeyFunction<Incoming> = (
  request: Incoming,
) => Subject | null | undefined | Promise<Subject | null | undefined>;

/** The options of the middleware, the same for every framework. */
export interface MiddlewareOptions<Incoming> {
  limiter: Limiter;
  /**
   * One rule, or several that are checked in one call, which takes from all or from none. A request
   * to which none applies is not limited.
   */
  rules: RuleFor<Incoming> | readonly (RuleFor<Incoming> | RequestRule<Incoming>)[];
  /** Returns the subject. Default: the client's address. */
  key?: KeyFunction<Incoming> | undefined;
  /**
   * The rule for a request without a subject. It limits by the client's address and replaces all
   * other rules. Default: none; the request gets a 400 response.
   */
  anonymous?: Rule | undefined;
  /**
   * The proxies whose `X-Forwarded-For` is trusted: addresses, networks, `unix`. Default: none; the
   * process then emits a warning when the header first arrives. An empty list silences it.
   */
  trustedProxies?: readonly string[] | undefined;
  /**
   * The cost of a request. Rules that take no cost ignore it. Default 1. A request for which a
   * function returns no integer from 0 to 10^12 gets a 400 response.
   */
  cost?: PerRequest<Incoming, number> | undefined;
  /** Returns true for a request that is not to be limited. */
  skip?: ((request: Incoming) => boolean | Promise<boolean>) | undefined;
  /**
   * Returns a hash tag for all keys of a request, which a cluster needs for several rules. A
   * request with a tag that is empty or no text gets a 400 response.
   */
  tag?: ((request: Incoming) => string | undefined | Promise<string | undefined>) | undefined;
  /**
   * The forms of the headers. Default `['draft-11']`. With an empty list only `Retry-After` is
   * sent.
   */
  headers?: readonly HeaderStyle[] | undefined;
  /** A request header that reports to the application that `onError` decided. Default: none. */
  degradedHeader?: string | undefined;
}

/** The types of the options of the middleware for every framework. */
export const OF_MIDDLEWARE = {
  limiter: 'any',
  rules: 'any',
  key: 'function',
  anonymous: 'any',
  trustedProxies: 'any',
  cost: 'any',
  skip: 'function',
  tag: 'function',
  headers: 'any',
  degradedHeader: 'any',
} as const;

const OF_RULE = typesOf<RequestRule<unknown>>({ rule: 'any', key: 'function', cost: 'any' });

/** Reads the requests of a framework. */
export interface RequestReader<Incoming> {
  /** The types of the options of its middleware. */
  readonly types: Types;
  /** Returns null if the client has left, as its socket then has no address. */
  peer(request: Incoming): string | null | undefined;
  forwarded(request: Incoming): readonly string[];
}

/** The result of the check of a request. */
export interface Outcome {
  /** Undefined if the request is not limited. */
  decision: Decision | undefined;
  headers: Record<string, string>;
  /** Undefined if the request may proceed. */
  problem: Problem | undefined;
  /** The leases to release when the response ends for whatever reason. */
  leases: readonly Lease[];
  /** True if a lease is among the rules. Without the lease the application must not run. */
  needsLease: boolean;
  /** To be called with the head of the response; undefined if every response counts. */
  onHead: OnHead | undefined;
}

const PASSED: Outcome = Object.freeze({
  decision: undefined,
  headers: {},
  problem: undefined,
  leases: [],
  needsLease: false,
  onHead: undefined,
});

/** Returns the rules of the options, those that are known at setup validated. */
function rulesOf<Incoming>(options: MiddlewareOptions<Incoming>): RequestRule<Incoming>[] {
  const { limiter, rules: wanted, anonymous } = options;
  checkLimiter(limiter);
  const listed = Array.isArray(wanted) ? wanted : [wanted as RuleFor<Incoming>];
  const rules: RequestRule<Incoming>[] = listed.map((one) =>
    typeof one === 'function' || isRule(one) ? { rule: one } : one,
  );
  if (rules.length < 1 || rules.length > 16)
    throw new InvalidArgumentError('rules', '1 to 16 rules');
  const known: Rule[] = [];
  for (const one of rules) {
    const rule = one?.rule;
    if (isRule(rule)) known.push(rule);
    else if (typeof rule !== 'function') {
      throw new InvalidArgumentError('rules', 'rules, or functions that return a rule');
    }
    checkOptions(one, OF_RULE);
    checkCost(one.cost);
  }
  if (new Set(known.map(({ name }) => name)).size < known.length) {
    throw new InvalidArgumentError('rules', 'no repeated name');
  }
  if (anonymous !== undefined) {
    if (!isRule(anonymous)) throw new InvalidArgumentError('anonymous', 'a rule');
    known.push(anonymous);
  }
  for (const rule of known) limiter.assertDecides(rule);
  return rules;
}

function checkCost(cost: unknown): void {
  if (cost !== undefined && typeof cost !== 'function') integer('cost', cost as number, 0);
}

/** Validates the options, and returns a function that checks a request. */
export function requestLimiter<Incoming>(
  options: MiddlewareOptions<Incoming>,
  reader: RequestReader<Incoming>,
): (request: Incoming, signal?: AbortSignal) => Promise<Outcome> {
  checkOptions(options, reader.types);
  const { limiter, anonymous, cost = 1, skip, tag: tagOf } = options;
  checkCost(cost);
  const { trustedProxies, headers: styles, degradedHeader } = options;
  const address = new ClientAddress(trustedProxies);
  const rules = rulesOf(options);
  if (styles !== undefined) checkStyles('headers', styles);
  if (degradedHeader !== undefined && !isHeaderName(degradedHeader)) {
    throw new InvalidArgumentError('degradedHeader', 'the name of a header');
  }

  function fromAddress(request: Incoming): string | undefined {
    const forwarded = reader.forwarded(request);
    if (forwarded.length > 0 && trustedProxies === undefined) warnOnce('RL_FORWARDED', FORWARDED);
    return address.client(reader.peer(request), forwarded);
  }
  const key = options.key ?? fromAddress;

  /** Returns the items for a request without a subject, or the problem of the request. */
  async function anonymousItems(request: Incoming): Promise<Item[] | Problem> {
    const subject = fromAddress(request);
    if (anonymous === undefined || subject === undefined) return noSubjectProblem();
    const units = await costOf(anonymous, cost, request);
    return units === undefined ? noCostProblem() : [anonymous.of(subject).cost(units)];
  }

  /** Returns the items for a request, or the problem of one without a subject or valid cost. */
  async function itemsOf(request: Incoming): Promise<Item[] | Problem> {
    const items: Item[] = [];
    for (const one of rules) {
      const rule = await given(one.rule, request);
      if (rule === undefined || rule === null) continue;
      if (!isRule(rule))
        throw new InvalidArgumentError('rules', 'a rule or nothing from a function');
      const subject = await subjectOf(one.key ?? key, request);
      if (subject === undefined) return anonymousItems(request);
      const units = await costOf(rule, one.cost ?? cost, request);
      if (units === undefined) return noCostProblem();
      items.push(rule.of(subject).cost(units));
    }
    return items;
  }

  async function check(items: readonly Item[], tag: string | undefined, signal?: AbortSignal) {
    const [first, ...more] = items as [Item, ...Item[]];
    const { rule, subject, units } = first;
    if (more.length === 0 && rule.kind === 'lease') {
      try {
        const lease = await limiter.lease(rule, subject, { tag, signal });
        return { decision: lease.decision, leases: [lease] };
      } catch (error) {
        if (!(error instanceof DeniedError)) throw error;
        return { decision: error.decision, leases: [] };
      }
    }
    if (more.length === 0) {
      const decision = await limiter.check(rule, subject, { cost: units, tag, signal });
      return { decision, leases: [] };
    }
    const [id, startedAtMs] = [randomUUID(), limiter.clock.nowMs()];
    const decision = await limiter.checkAll(items, { tag, id, signal });
    return { decision, leases: limiter.leasesOf(items, decision, { id, tag, startedAtMs }) };
  }

  return async function decide(request, signal) {
    if (await skip?.(request)) return PASSED;
    const items = await itemsOf(request);
    if (!Array.isArray(items)) return { ...PASSED, problem: items };
    if (items.length === 0) return PASSED;
    const given: unknown = await tagOf?.(request);
    const isTagged = given !== undefined && given !== null;
    if (isTagged && !isSubject(given)) return { ...PASSED, problem: noSubjectProblem() };
    const tag = isTagged ? textOf(given) : undefined;
    const { decision, leases } = await check(items, tag, signal);
    return {
      decision,
      headers: rateLimitHeaders(decision, { styles }),
      leases,
      needsLease: items.some(({ rule: { kind } }) => kind === 'lease'),
      onHead: headListener(limiter, items, decision, tag),
      problem: decision.allowed ? undefined : decision.problem(),
    };
  };
}

const FORWARDED =
  'X-Forwarded-For arrived, but no proxy is trusted: all clients behind a proxy share one limit. ' +
  'Set `trustedProxies` to the networks of the proxies, or to [] if there are none.';

const NO_SUBJECT =
  'a key function returned neither text nor an integer, so its requests have no subject';

/**
 * Returns the subject of a request, or undefined. A function that fails, such as for a header that
 * is missing, finds no subject. An error with a status is a response, and passes.
 */
async function subjectOf<Incoming>(
  key: KeyFunction<Incoming>,
  request: Incoming,
): Promise<string | undefined> {
  try {
    const subject: unknown = await key(request);
    if (isSubject(subject)) return textOf(subject);
    const isNone = subject === undefined || subject === null || subject === '';
    if (!isNone) warnOnceOf(key, 'RL_KEY', NO_SUBJECT);
    return undefined;
  } catch (error) {
    const { status, statusCode } = (error ?? {}) as { status?: unknown; statusCode?: unknown };
    if (typeof (status ?? statusCode) === 'number') throw error;
    warnOnceOf(key, 'RL_KEY', 'a key function failed, so its requests have no subject', error);
    return undefined;
  }
}

const NO_COST =
  'a cost function returned no integer from 0 to 10^12, so the request gets a 400 response';

/**
 * Returns the cost of a request under a rule, or undefined if a function returned what no call can
 * cost. Leases and backoffs take no cost.
 */
async function costOf<Incoming>(
  rule: Rule,
  cost: PerRequest<Incoming, number>,
  request: Incoming,
): Promise<number | undefined> {
  const { kind } = rule.fallback ?? rule;
  if (kind === 'lease' || kind === 'backoff') return 1;
  if (typeof cost === 'number') return cost;
  const units: unknown = await cost(request);
  if (isCost(units)) return units;
  warnOnceOf(cost, 'RL_COST', NO_COST);
  return undefined;
}

async function given<Incoming, Value>(
  value: PerRequest<Incoming, Value>,
  request: Incoming,
): Promise<Value> {
  type Function = (request: Incoming) => Value | Promise<Value>;
  return typeof value === 'function' ? (value as Function)(request) : value;
}

/** The headers of a denial, in addition to those of the decision. */
export const PROBLEM_HEADERS: Readonly<Record<string, string>> = Object.freeze({
  'Content-Type': 'application/problem+json',
  'Cache-Control': 'no-store',
});

/** The header fields that are lists. A limiter appends its values to those of another limiter. */
export const LISTS: ReadonlySet<string> = new Set(['RateLimit', 'RateLimit-Policy']);

/** The names of the request headers that this package controls, by request. */
const cleaned = new WeakMap<object, Set<string>>();

/** Removes the client's value of a header that only the middleware may set, once per request. */
export function cleanOnce(request: object, name: string, remove: () => unknown): void {
  const names = cleaned.get(request) ?? new Set();
  if (!names.has(name)) remove();
  cleaned.set(request, names.add(name));
}

export function release(leases: readonly Lease[]): void {
  for (const lease of leases) void lease.release();
}
