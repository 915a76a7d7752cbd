/** Gives back what requests took whose responses do not count. */
import { inspect } from 'node:util';
import type { Limiter } from '../limiter.js';
import type { Decision } from '../rules/decision.js';
import { InvalidArgumentError } from '../rules/errors.js';
import type { Item, ResponseHead, Rule } from '../rules/forms.js';
import { warnOnceOf } from '../rules/warnings.js';

/** A listener for the status of a response, or for undefined if the client left before its head. */
export type OnHead = (status: number | undefined) => void;

/**
 * Returns the listener for the head of the response to a request: it gives back what the request
 * took under the rules that do not count the response, without waiting for the reply. Only its
 * first call has an effect. Returns undefined if there is nothing to give back.
 *
 * A client that left before the head counts under every rule. Otherwise it could reset each request
 * and be given back what it took, while the application still works for it.
 */
export function headListener(
  limiter: Limiter,
  items: readonly Item[],
  decision: Decision,
  tag: string | undefined,
): OnHead | undefined {
  const rows = decision.rows.length > 0 ? decision.rows : [decision];
  const taken = items.flatMap(({ rule, subject }, at) => {
    const row = rows[at];
    if (row === undefined || rule.count === 'all' || !hasTaken(row)) return [];
    return [{ rule, subject, row }];
  });
  if (!decision.allowed || taken.length === 0) return undefined;
  let isDecided = false;
  return (status) => {
    if (isDecided) return;
    isDecided = true;
    if (status === undefined) return;
    for (const { rule, subject, row } of taken) {
      if (isCounted(rule, status)) continue;
      if (row.source === 'local' && limiter.putBack(rule, subject, row, tag)) continue;
      // The limiter counts a rejected refund. Without a reply, the units stay taken.
      limiter.refund(rule, subject, { cost: row.granted, tag }).catch(() => {});
    }
  };
}

/** Returns true if an allowed call took units. A call that only shadow mode allows takes none. */
function hasTaken({ source, granted, wouldAllow }: Decision): boolean {
  return source !== 'error' && granted > 0 && wouldAllow;
}

/** Throws where an object would be undefined, with which a predicate would count nothing. */
const CHECKED = new Proxy(Object.prototype, {
  get(prototype, name, head) {
    if (typeof name === 'symbol' || name in prototype) return Reflect.get(prototype, name, head);
    throw new TypeError(`the response has no ${name}, only status and statusCode`);
  },
});

/** The prototype of a head. What prints it may read any field, so it prints a copy. */
const HEAD = Object.assign(Object.create(CHECKED), {
  toJSON: plain,
  [inspect.custom]: plain,
});

function plain(this: ResponseHead): ResponseHead {
  return { ...this };
}

function headOf(status: number): ResponseHead {
  return Object.freeze(Object.assign(Object.create(HEAD), { status, statusCode: status }));
}

function isCounted({ name, count }: Rule, status: number): boolean {
  if (typeof count !== 'function') return count === 'all' || status >= 400;
  try {
    const counts: unknown = count(headOf(status));
    if (!(counts instanceof Promise)) return Boolean(counts);
    // Its error would end the process.
    counts.catch(() => {});
    throw new InvalidArgumentError('count', 'a function that is not async');
  } catch (error) {
    const message = `the count of the rule ${name} failed, so the response counts`;
    warnOnceOf(count, 'RL_COUNT', message, error);
    return true;
  }
}
