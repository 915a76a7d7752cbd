/** Runs the test cases that all clients share. */
import { describe, expect, it } from 'vitest';
import { strictest } from '../src/calls/fallback.js';
import { Decision } from '../src/rules/decision.js';
import { CommandRejectedError, classified, InvalidArgumentError } from '../src/rules/errors.js';
import * as rules from '../src/rules/forms.js';
import { noSubjectProblem, rateLimitHeaders, retryAfterSeconds } from '../src/rules/headers.js';
import { Keys } from '../src/rules/keys.js';
import { withDefaults } from '../src/rules/options.js';
import { ClientAddress } from '../src/web/address.js';
import { keyOf } from '../src/web/key-of.js';
import * as replies from '../src/wire/replies.js';
import * as words from '../src/wire/words.js';
import { type Any, itemOf, ruleOf, table } from './shared-cases.js';

/** Returns the fields of a decision under the names that the cases use. */
function plain(decision: Decision, wanted: Any): Any {
  const all: Any = {
    allowed: decision.allowed,
    limit: decision.limit,
    remaining: decision.remaining,
    retry_after_ms: decision.retryAfterMs,
    never: decision.never,
    banned: decision.banned,
    reset_after_ms: decision.resetAfterMs,
    rule: decision.rule,
    source: decision.source,
    degraded: decision.degraded,
    would_allow: decision.wouldAllow,
    would_retry_after_ms: decision.wouldRetryAfterMs,
    granted: decision.granted,
  };
  return Object.fromEntries(Object.keys(wanted).map((field) => [field, all[field]]));
}

/** Creates the decision that a case about headers or problems describes. */
function decisionOf(input: Any): Decision {
  const requests = input.rules.map((rule: Any) => ({ rule: ruleOf(rule), key: 'k' }));
  const rule = requests[0].rule;
  if (input.source === 'error') {
    const { allowed, retry_after_ms: retryAfterMs = 0 } = input;
    const error = new Error('down');
    const [limit, remaining, resetAfterMs] = [6, 0, 0];
    const source = 'error';
    return new Decision({
      allowed,
      rule,
      limit,
      remaining,
      retryAfterMs,
      resetAfterMs,
      source,
      error,
    });
  }
  if (requests.length > 1) return replies.allDecisionOf(input.reply, requests);
  return replies.decisionOf(input.reply, { rule, cost: input.cost });
}

const camel = (name: string) => name.replace(/_(.)/g, (_, char) => char.toUpperCase());

/** Returns options under the names of this language. */
const camelled = (input: Any) =>
  Object.fromEntries(Object.entries(input).map(([name, value]) => [camel(name), value]));

const sections: Record<string, (input: Any, wanted: Any) => unknown> = {
  defaults: (input, wanted) => {
    const options: Any = withDefaults(camelled(input));
    return Object.fromEntries(
      Object.keys(wanted).map((name) => [name, options[camel(name)] ?? null]),
    );
  },
  rates: (input) => rules.rate(input),
  durations: (input) => rules.fixed('name', 1, input).words[2],
  calls: ({ method, subject, cost, partial, leave, id, duration, rule: spec }) => {
    const rule = ruleOf(spec);
    const key = new Keys().key(rule.name, subject);
    if (method === 'forget') return words.forget(key).args;
    if (method === 'block') return words.block(key, duration).args;
    if (method === 'renew') return words.renew({ rule, key, id }).args;
    if (method === 'release') return words.release({ rule, key, id }).args;
    const deciding = method === 'lease' ? 'check' : method;
    return words.single(deciding, { rule, key, cost, partial, leave, id }).args;
  },
  calls_all: ({ calls, tag, id, method }) => {
    const requests = calls.map((call: Any) => {
      const { rule, subject, units: cost, spare: leave, ttl } = itemOf(ruleOf(call.rule), call);
      return { rule, key: new Keys().key(rule.name, subject, tag), cost, leave, ttl, id };
    });
    return words.all(requests, method === 'peek_all').args;
  },
  keys: ({ subject, rule, prefix, tag, hash_tag: hashTag, hmac_secret: hmacSecret }) =>
    new Keys({ prefix, hashTag, hmacSecret }).key(rule, subject, tag),
  replies: ({ rule, reply, cost, partial, leave }, wanted) =>
    plain(replies.decisionOf(reply, { rule: ruleOf(rule), cost, partial, leave }), wanted),
  replies_all: ({ rules: specs, reply }, wanted) => {
    const requests = specs.map((spec: Any) => ({ rule: ruleOf(spec), key: 'k' }));
    const decision = replies.allDecisionOf(reply, requests);
    const rows = wanted.rows?.map((row: Any, at: number) =>
      plain(decision.rows[at] as Decision, row),
    );
    return { decision: plain(decision, wanted.decision), rows };
  },
  retry_after: (input) => retryAfterSeconds(input)?.toString() ?? null,
  headers: (input) => {
    const { styles, now_ms: nowMs } = input;
    return rateLimitHeaders(decisionOf(input), { styles, nowMs });
  },
  problems: (input) => {
    const body = input.no_subject ? noSubjectProblem() : decisionOf(input).problem();
    return { status: body.status, body };
  },
  addresses: ({ peer, forwarded, trusted }) =>
    new ClientAddress(trusted).subject(peer ?? undefined, forwarded) ?? null,
  key_parts: (input: (string | null)[]) => {
    const names = input.map((_, at) => `X-${at}`);
    const headers = Object.fromEntries(input.map((value, at) => [`x-${at}`, value ?? undefined]));
    return keyOf(...names)({ headers }) ?? null;
  },
  failure: (input) => strictest(input),
  errors: (input) => {
    return classified(new Error(input)) instanceof CommandRejectedError
      ? 'rejected'
      : 'unavailable';
  },
};

// These groups are for tests of their own.
const { timelines: _, responses: __, events: ___, ...tables } = table;
for (const [section, cases] of Object.entries(tables)) {
  describe(section, () => {
    it.each(cases)('$name', ({ input, expect: wanted }) => {
      if (section === 'invalid_rules') {
        const argument = camel(wanted);
        expect(() => ruleOf(input)).toThrow(expect.objectContaining({ argument }));
        return;
      }
      if (section === 'invalid_options') {
        const named = expect.objectContaining({ code: 'RL_INVALID_ARGUMENT' });
        expect(() => withDefaults(camelled(input))).toThrow(named);
        for (const name of wanted) {
          expect(() => withDefaults(camelled(input))).toThrow(camel(name));
        }
        return;
      }
      const run = sections[section];
      if (run === undefined) throw new Error(`nothing runs the section ${section}`);
      if (wanted?.error === undefined) {
        expect(run(input, wanted)).toEqual(wanted);
      } else {
        const kind = wanted.error === 'protocol' ? CommandRejectedError : InvalidArgumentError;
        expect(() => run(input, wanted)).toThrow(kind);
      }
    });
  });
}
