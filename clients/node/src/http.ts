/**
 * What the middleware of all frameworks share: who asks, what is asked, and the answer. A
 * framework's own file only reads its requests and writes its responses.
 */
import { randomUUID } from 'node:crypto';
import { ClientAddress } from './address.js';
import type { Decision } from './decision.js';
import { ArgumentError } from './errors.js';
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
import type { RuleCall } from './options.js';
import type { Rule } from './rules.js';

/** A value, or what gives it for a request. */
export type PerRequest<Incoming, Value> = Value | ((request: Incoming) => Value | Promise<Value>);

/** One rule of a request. */
export interface RequestRule<Incoming> {
  rule: PerRequest<Incoming, Rule>;
  /** Whom it is asked for; default: the middleware's `key`. */
  key?: KeyFunction<Incoming> | undefined;
  /** Default: the middleware's `cost`. */
  cost?: PerRequest<Incoming, number> | undefined;
}

/**
 * Who a request is from. Undefined or empty: it does not say, though it should, and is answered
 * 400, or takes the `anonymous` rule.
 */
export type KeyFunction<Incoming> = (
  request: Incoming,
) => string | undefined | Promise<string | undefined>;

/** The options that all frameworks have. */
export interface MiddlewareOptions<Incoming> {
  limiter: Limiter;
  /** One rule, or several, which are one call: all of them or none. At most one a lease. */
  rule: PerRequest<Incoming, Rule> | readonly (Rule | RequestRule<Incoming>)[];
  /** Default: the client's address. */
  key?: KeyFunction<Incoming> | undefined;
  /**
   * The rule, for the client's address, of a request one of whose keys says nothing; it stands for
   * all of its rules. Default: none, it is answered 400.
   */
  anonymous?: Rule | undefined;
  /** Proxies whose `X-Forwarded-For` is believed: addresses, networks, `unix`. Default: none. */
  trustedProxies?: readonly string[] | undefined;
  cost?: PerRequest<Incoming, number> | undefined;
  /** Requests that are not limited. */
  skip?: ((request: Incoming) => boolean | Promise<boolean>) | undefined;
  /** One hash tag for all keys of a request, for clusters. */
  tag?: ((request: Incoming) => string | undefined) | undefined;
  /** Which forms of the headers. Default `['draft-11']`; an empty list: only `Retry-After`. */
  headers?: readonly HeaderStyle[] | undefined;
  /** The name of a request header that tells services behind when nobody decided. Default: none. */
  degradedHeader?: string | undefined;
}

/** How a framework's requests are read. */
export interface RequestReader<Incoming> {
  peer(request: Incoming): string | undefined;
  forwarded(request: Incoming): readonly string[];
}

/** What to do with a request. */
export interface Outcome {
  /** Undefined: it is not limited. */
  decision: Decision | undefined;
  headers: Record<string, string>;
  /** Undefined: it goes on. */
  problem: Problem | undefined;
  /** To be released when the response has ended, however it ends. */
  leases: readonly Lease[];
}

const PASSED: Outcome = Object.freeze({
  decision: undefined,
  headers: {},
  problem: undefined,
  leases: [],
});

/** What the name of a header is made of. */
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/** Compiles the options once; what it returns decides a request. */
export function requestLimiter<Incoming>(
  options: MiddlewareOptions<Incoming>,
  reader: RequestReader<Incoming>,
): (request: Incoming, signal?: AbortSignal) => Promise<Outcome> {
  const { limiter, rule, anonymous, cost = 1, skip, tag: tagOf } = options;
  const { trustedProxies = [], headers: styles, degradedHeader } = options;
  const address = new ClientAddress(trustedProxies);
  const fromAddress = (request: Incoming) =>
    address.subject(reader.peer(request), reader.forwarded(request));
  const key = options.key ?? fromAddress;
  const several: readonly (Rule | RequestRule<Incoming>)[] = Array.isArray(rule)
    ? rule
    : [{ rule: rule as PerRequest<Incoming, Rule> }];
  const rules = several.map((one) => ('words' in one ? { rule: one } : one));
  if (rules.length < 1 || rules.length > 16) throw new ArgumentError('rule', '1 to 16 rules');
  if (limiter === undefined) throw new ArgumentError('limiter', 'a Limiter');
  if (styles?.some((style) => !STYLES.includes(style))) {
    throw new ArgumentError('headers', `some of ${STYLES.join(', ')}`);
  }
  // Of those that are functions nobody knows yet.
  const known = rules.flatMap((one) => (typeof one.rule === 'function' ? [] : [one.rule]));
  if (known.filter(({ kind }) => kind === 'lease').length > 1) {
    throw new ArgumentError('rule', 'at most one lease');
  }
  if (new Set(known.map(({ name }) => name)).size < known.length) {
    throw new ArgumentError('rule', 'no name twice');
  }
  if (anonymous !== undefined && !(anonymous as Partial<Rule>)?.words) {
    throw new ArgumentError('anonymous', 'a rule');
  }
  if (degradedHeader !== undefined && !TOKEN.test(degradedHeader)) {
    throw new ArgumentError('degradedHeader', 'the name of a header');
  }

  /** Of a request that does not say who it is from. */
  async function anonymousCalls(request: Incoming): Promise<RuleCall[] | undefined> {
    const subject = fromAddress(request);
    if (anonymous === undefined || subject === undefined) return undefined;
    const isCounted = anonymous.kind === 'lease' || anonymous.kind === 'backoff';
    return [[anonymous, subject, isCounted ? 1 : await given(cost, request)]];
  }

  async function callsOf(request: Incoming): Promise<RuleCall[] | undefined> {
    const calls: RuleCall[] = [];
    for (const one of rules) {
      const subject = await (one.key ?? key)(request);
      if (!subject) return anonymousCalls(request);
      const asked = await given(one.rule, request);
      calls.push([asked, subject, await given(one.cost ?? cost, request)]);
    }
    if (calls.filter(([{ kind }]) => kind === 'lease').length > 1) {
      throw new ArgumentError('rule', 'at most one lease');
    }
    // A lease is one permit, whatever the request costs.
    return calls.map(([asked, subject, units]) => [
      asked,
      subject,
      asked.kind === 'lease' ? 1 : units,
    ]);
  }

  async function ask(calls: readonly RuleCall[], tag: string | undefined, signal?: AbortSignal) {
    const [first, ...more] = calls as [RuleCall, ...RuleCall[]];
    const [asked, subject, units] = first;
    if (more.length === 0 && asked.kind === 'lease') {
      const lease = await limiter.lease(asked, subject, { tag, signal });
      return { decision: lease.decision, leases: lease.allowed ? [lease] : [] };
    }
    if (more.length === 0) {
      const decision = await limiter.check(asked, subject, { cost: units, tag, signal });
      return { decision, leases: [] };
    }
    const [id, askedAtMs] = [randomUUID(), limiter.clock.nowMs()];
    const decision = await limiter.checkAll(calls, { tag, id, signal });
    return { decision, leases: limiter.leasesOf(calls, decision, { id, tag, askedAtMs }) };
  }

  return async function decide(request, signal) {
    if (await skip?.(request)) return PASSED;
    const calls = await callsOf(request);
    if (calls === undefined) return { ...PASSED, problem: noSubjectProblem() };
    const { decision, leases } = await ask(calls, tagOf?.(request), signal);
    const headers = rateLimitHeaders(decision, { styles });
    return {
      decision,
      headers,
      leases,
      problem: decision.allowed ? undefined : problemOf(decision),
    };
  };
}

async function given<Incoming, Value>(
  value: PerRequest<Incoming, Value>,
  request: Incoming,
): Promise<Value> {
  type Function = (request: Incoming) => Value | Promise<Value>;
  return typeof value === 'function' ? (value as Function)(request) : value;
}

/** The headers of a refusal, beside those of the decision. */
export const PROBLEM_HEADERS: Readonly<Record<string, string>> = Object.freeze({
  'Content-Type': 'application/problem+json',
  'Cache-Control': 'no-store',
});

/** Fields that are lists, so that those of another limiter stand beside ours. */
export const LISTS: ReadonlySet<string> = new Set(['RateLimit', 'RateLimit-Policy']);
