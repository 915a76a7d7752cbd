/** The cases that all clients share, and the rules that they describe. */
import { readFileSync } from 'node:fs';
import * as rules from '../src/rules/forms.js';

// biome-ignore lint/suspicious/noExplicitAny: the cases are untyped
export type Any = any;
type Case = { name: string; input: Any; expect: Any };
export const table = JSON.parse(
  readFileSync(new URL('../../cases.json', import.meta.url), 'utf8'),
) as Record<string, Case[]>;

/** Creates the rule that a case describes. */
export function ruleOf(spec: Any): rules.Rule {
  const { kind, name } = spec;
  const options = {
    onError: spec.on_error,
    localShare: spec.local_share,
    prefetch: spec.prefetch,
    count: spec.count,
    slots: spec.slots,
    aligned: spec.aligned,
    zone: spec.zone,
    start: spec.start,
    variants: spec.variants,
    default: spec.default && ruleOf(spec.default),
  };
  const { burst, capacity, rate, period, limit, window } = spec;
  if (kind === 'gcra') return rules.gcra(name, burst, rate, period, options);
  if (kind === 'token_bucket') return rules.tokenBucket(name, capacity, rate, period, options);
  if (kind === 'leaky_bucket') return rules.leakyBucket(name, capacity, rate, period, options);
  if (kind === 'fixed') return rules.fixed(name, limit, window, options);
  if (kind === 'sliding') return rules.sliding(name, limit, window, options);
  if (kind === 'sliding_log') return rules.slidingLog(name, limit, window, options);
  if (kind === 'backoff') {
    return rules.backoff(name, spec.attempts, spec.base, spec.max, spec.forget, options);
  }
  if (kind === 'quota') return rules.quota(name, limit, spec.unit, options);
  if (kind === 'lease') return rules.lease(name, limit, spec.ttl, options);
  if (kind === 'policy') return rules.policy(name, options);
  throw new Error(`the table has a rule of kind ${kind}`);
}

/** Creates the item of a rule that a case or a timeline describes. */
export function itemOf(rule: rules.Rule, { subject, cost, leave, reserve, ttl }: Any): rules.Item {
  let item = rule.of(subject);
  if (cost !== undefined) item = item.cost(cost);
  if (leave !== undefined) item = item.leave(leave);
  return reserve === undefined ? item : item.reserve(reserve, ttl);
}
