/**
 * The code that the middleware of all frameworks shares: the subject, the calls and the answer. A
 * framework's own file only reads its requests and writes its responses.
 */
import { randomUUID } from 'node:crypto';
import { ClientAddress } from './address.js';
import { type Decision, DeniedError } from './decision.js';
import { InvalidArgumentError } from './errors.js';
import {
  type HeaderStyle,
  noSubjectProblem,
  type Problem,
  problemOf,
  rateLimitHeaders,
  STYLES,
} from './headers.js';
import type { Lease } from './lease.js';
import type { Limiter } from './limiter.js';
import type { Item, Rule } from './rules.js';

/** A value, or a function that returns the value for a request. */
export type PerRequest<Incoming, Value> = Value | ((request: Incoming) => Value | Promise<Value>);

/** A rule for requests, with its own subject and cost if given. */
export interface RequestRule<Incoming> {
  rule: PerRequest<Incoming, Rule>;
  /** Returns the subject. Default: the middleware's `key`. */
  key?: KeyFunction<Incoming> | undefined;
  /** The cost of the request under this rule. Default: that of the middleware. */
  cost?: PerRequest<Incoming, number> | undefined;
}

/**
 * Returns the subject of a request. If it is undefined or empty, the `anonymous` rule applies, or
 * the request is answered 400.
 */
export type KeyFunction<Incoming> = (
  request: Incoming,
) => string | undefined | Promise<string | undefined>;

/** The options of the middleware, the same for every framework. */
export interface MiddlewareOptions<Incoming> {
  limiter: Limiter;
  /**
   * One rule, or several that are checked in one call, which takes from all or from none.
   */
  rules: PerRequest<Incoming, Rule> | readonly (Rule | RequestRule<Incoming>)[];
  /** Returns the subject. Default: the client's address. */
  key?: KeyFunction<Incoming> | undefined;
  /**
   * The rule for a request without a subject. It limits by the client's address and replaces all
   * other rules. Default: none; the request is answered 400.
   */
  anonymous?: Rule | undefined;
  /** The proxies whose `X-Forwarded-For` is trusted: addresses, networks, `unix`. Default: none. */
  trustedProxies?: readonly string[] | undefined;
  /** The cost of a request. Rules that take no cost ignore it. Default 1. */
  cost?: PerRequest<Incoming, number> | undefined;
  /** Returns true for a request that is not to be limited. */
  skip?: ((request: Incoming) => boolean | Promise<boolean>) | undefined;
  /** Returns a hash tag for all keys of a request, which a cluster needs for several rules. */
  tag?: ((request: Incoming) => string | undefined) | undefined;
  /**
   * The forms of the headers. Default `['draft-11']`. With an empty list only `Retry-After` is
   * sent.
   */
  headers?: readonly HeaderStyle[] | undefined;
  /** A request header that tells the application that `onError` decided. Default: none. */
  degradedHeader?: string | undefined;
}

/** Reads the requests of a framework. */
export interface RequestReader<Incoming> {
  peer(request: Incoming): string | undefined;
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
}

const PASSED: Outcome = Object.freeze({
  decision: undefined,
  headers: {},
  problem: undefined,
  leases: [],
  needsLease: false,
});

/** The syntax of a header's name. */
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/** Validates the options, and returns a function that checks a request. */
export function requestLimiter<Incoming>(
  options: MiddlewareOptions<Incoming>,
  reader: RequestReader<Incoming>,
): (request: Incoming, signal?: AbortSignal) => Promise<Outcome> {
  const { limiter, anonymous, cost = 1, skip, tag: tagOf } = options;
  const { trustedProxies = [], headers: styles, degradedHeader } = options;
  const address = new ClientAddress(trustedProxies);
  const fromAddress = (request: Incoming) =>
    address.subject(reader.peer(request), reader.forwarded(request));
  const key = options.key ?? fromAddress;
  const several: readonly (Rule | RequestRule<Incoming>)[] = Array.isArray(options.rules)
    ? options.rules
    : [{ rule: options.rules as PerRequest<Incoming, Rule> }];
  const rules = several.map((one) => ('words' in one ? { rule: one } : one));
  if (rules.length < 1 || rules.length > 16)
    throw new InvalidArgumentError('rules', '1 to 16 rules');
  if (limiter === undefined) throw new InvalidArgumentError('limiter', 'a Limiter');
  if (styles?.some((style) => !STYLES.includes(style))) {
    throw new InvalidArgumentError('headers', `some of ${STYLES.join(', ')}`);
  }
  // A rule that a function returns is validated for each request.
  const known = rules.flatMap((one) => (typeof one.rule === 'function' ? [] : [one.rule]));
  if (new Set(known.map(({ name }) => name)).size < known.length) {
    throw new InvalidArgumentError('rules', 'no repeated name');
  }
  if (anonymous !== undefined && !(anonymous as Partial<Rule>)?.words) {
    throw new InvalidArgumentError('anonymous', 'a rule');
  }
  if (degradedHeader !== undefined && !TOKEN.test(degradedHeader)) {
    throw new InvalidArgumentError('degradedHeader', 'the name of a header');
  }

  /** Returns the items for a request without a subject. */
  async function anonymousItems(request: Incoming): Promise<Item[] | undefined> {
    const subject = fromAddress(request);
    if (anonymous === undefined || subject === undefined) return undefined;
    return [anonymous.of(subject).cost(await costOf(anonymous, cost, request))];
  }

  async function itemsOf(request: Incoming): Promise<Item[] | undefined> {
    const items: Item[] = [];
    for (const one of rules) {
      const subject = await (one.key ?? key)(request);
      if (!subject) return anonymousItems(request);
      const asked = await given(one.rule, request);
      items.push(asked.of(subject).cost(await costOf(asked, one.cost ?? cost, request)));
    }
    return items;
  }

  async function ask(items: readonly Item[], tag: string | undefined, signal?: AbortSignal) {
    const [first, ...more] = items as [Item, ...Item[]];
    const { rule: asked, subject, units } = first;
    if (more.length === 0 && asked.kind === 'lease') {
      try {
        const lease = await limiter.lease(asked, subject, { tag, signal });
        return { decision: lease.decision, leases: [lease] };
      } catch (error) {
        if (!(error instanceof DeniedError)) throw error;
        return { decision: error.decision, leases: [] };
      }
    }
    if (more.length === 0) {
      const decision = await limiter.check(asked, subject, { cost: units, tag, signal });
      return { decision, leases: [] };
    }
    const [id, askedAtMs] = [randomUUID(), limiter.clock.nowMs()];
    const decision = await limiter.checkAll(items, { tag, id, signal });
    return { decision, leases: limiter.leasesOf(items, decision, { id, tag, askedAtMs }) };
  }

  return async function decide(request, signal) {
    if (await skip?.(request)) return PASSED;
    const items = await itemsOf(request);
    if (items === undefined) return { ...PASSED, problem: noSubjectProblem() };
    const { decision, leases } = await ask(items, tagOf?.(request), signal);
    const headers = rateLimitHeaders(decision, { styles });
    return {
      decision,
      headers,
      leases,
      needsLease: items.some(({ rule: { kind } }) => kind === 'lease'),
      problem: decision.allowed ? undefined : problemOf(decision),
    };
  };
}

/** Returns the cost of a request under a rule. Leases and backoffs take no cost. */
async function costOf<Incoming>(
  rule: Rule,
  cost: PerRequest<Incoming, number>,
  request: Incoming,
): Promise<number> {
  const { kind } = rule.fallback ?? rule;
  return kind === 'lease' || kind === 'backoff' ? 1 : given(cost, request);
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
