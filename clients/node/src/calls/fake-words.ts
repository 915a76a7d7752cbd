/** Reads the words of calls, for the fake server. */
import * as rules from '../rules/forms.js';
import type { Algorithm } from './algorithms.js';
import { algorithmOf, delays } from './algorithms.js';
import { calendar } from './windows.js';

/** The server's setting for sliding logs without SLOTS. */
const SLOTS = 1024;

/** A call under one rule. */
export interface Parsed {
  readonly rule: rules.Rule;
  readonly cost: number;
  readonly partial: boolean;
  readonly leave: rules.Leave | undefined;
}

/**
 * Parses the words of a call: the rule and the options.
 *
 * @param policies The policies of the server by name.
 */
export function parsed(
  words: readonly string[],
  policies: ReadonlyMap<string, rules.Rule>,
): Parsed {
  const end = words.indexOf('DEFAULT');
  const { rest, ...options } = optionsOf(end < 0 ? words : words.slice(0, end));
  if (words[0] !== 'USE') return { rule: ruleOf(rest), ...options };
  const rule = policies.get(words[1] as string);
  if (rule !== undefined) return { rule, ...options };
  if (end < 0) throw new Error('NOPOLICY no such policy');
  return { rule: ruleOf(words.slice(end + 1)), ...options };
}

/** Takes the options out of the words of a call. */
export function optionsOf(words: readonly string[]) {
  const rest: string[] = [];
  let [cost, partial, leave] = [1, false, undefined as rules.Leave | undefined];
  for (let at = 0; at < words.length; at += 1) {
    const word = words[at] as string;
    const next = words[at + 1] as string;
    if (word === 'PARTIAL') partial = true;
    else if (word === 'COST') cost = Number(next);
    else if (word === 'LEAVE') leave = next.endsWith('%') ? next : Number(next);
    else rest.push(word);
    if (word === 'COST' || word === 'LEAVE') at += 1;
  }
  return { rest, cost, partial, leave };
}

/** Returns the algorithm of a rule as the server runs it. */
export function algorithmFor(rule: rules.Rule): Algorithm {
  const [word, limit, unit, zone] = rule.words as [string, string, string, string?];
  if (word === 'QUOTA') {
    if (zone !== undefined) throw new Error('ERR the fake server does not know ZONE and START');
    return calendar(Number(limit), unit);
  }
  if (word === 'BACKOFF') return delays(rule);
  return algorithmOf(rule);
}

/** Makes a rule from its words. */
function ruleOf([word, ...args]: readonly string[]): rules.Rule {
  const [first, second = '', third = ''] = args;
  const limit = Number(first);
  if (word === 'GCRA') return rules.gcra('fake', limit, Number(second), third);
  if (word === 'TOKENBUCKET') return rules.tokenBucket('fake', limit, Number(second), third);
  if (word === 'LEAKYBUCKET') return rules.leakyBucket('fake', limit, Number(second), third);
  if (word === 'FIXED') return rules.fixed('fake', limit, second, { aligned: third === 'ALIGNED' });
  if (word === 'SLIDING') return rules.sliding('fake', limit, second);
  if (word === 'SLIDINGLOG') {
    const slots = third === 'SLOTS' ? Number(args[3]) : SLOTS;
    return rules.slidingLog('fake', limit, second, { slots });
  }
  if (word === 'QUOTA') {
    const [zone, start] = ['ZONE', 'START'].map((name) => args[args.indexOf(name) + 1]);
    const has = (name: string) => args.includes(name);
    return rules.quota('fake', limit, second as rules.QuotaUnit, {
      ...(has('ZONE') ? { zone } : {}),
      ...(has('START') ? { start } : {}),
    });
  }
  if (word === 'BACKOFF') {
    return rules.backoff('fake', limit, second, third, args[3] as string);
  }
  throw new Error(`ERR the fake server does not know ${word}`);
}
