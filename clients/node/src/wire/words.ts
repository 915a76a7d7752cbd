/** Builds the commands of calls from rules and keys. It does no I/O and reads no clock. */
import { type Duration, duration, integer, MAX_LIMIT, microseconds } from '../rules/durations.js';
import { InvalidArgumentError } from '../rules/errors.js';
import type { Leave, Rule } from '../rules/forms.js';
import { checkLeave } from '../rules/rule.js';

/** A call as it is sent: the command with its arguments, and which arguments are keys. */
export interface Call {
  readonly args: readonly string[];
  readonly keys: readonly string[];
  readonly readOnly: boolean;
  /**
   * @internal Returns the call for a server without the module, where a policy is its default.
   * Undefined if the call is the same.
   */
  readonly withoutModule?: (() => Call) | undefined;
  /**
   * @internal Its rule, or its rules, whose denials this process may remember and use. Undefined
   * for other calls.
   */
  readonly requests?: RuleRequest | readonly RuleRequest[] | undefined;
}

export type Deciding = 'check' | 'peek' | 'refund' | 'charge';

/** One rule with its key and cost; for a lease or a reservation, with its id. */
export interface RuleRequest {
  rule: Rule;
  key: string;
  /** The subject, for `onDecision`. It is not sent. */
  subject?: string | undefined;
  cost?: number | undefined;
  partial?: boolean | undefined;
  leave?: Leave | undefined;
  id?: string | undefined;
  /** The ttl of a reservation, in the server's words; undefined for any other call. */
  ttl?: string | undefined;
}

/** A lease or a reservation, under its id. */
export type Held = RuleRequest & { readonly id: string };

/** Returns true if the server keeps the call under its id. */
export function isHeld(request: RuleRequest): request is Held {
  return request.ttl !== undefined || request.rule.kind === 'lease';
}

/** Returns the ttl of a lease or of a reservation, in ms. */
export function ttlMsOf({ rule, ttl = rule.words[2] as string }: RuleRequest): number {
  return Number(microseconds('ttl', ttl)) / 1000;
}

/** Validates the options of a call, which depend on the rule. */
function check(request: RuleRequest): void {
  const { rule, cost = 1, partial = false, leave } = request;
  if (cost !== 1) integer('cost', cost, partial ? 1 : 0);
  const { kind, name } = rule;
  if (kind === 'lease' || kind === 'backoff') {
    if (cost !== 1) throw new InvalidArgumentError('cost', `1 for the ${kind} ${name}`);
    if (partial) throw new InvalidArgumentError('partial', `false for the ${kind} ${name}`);
  }
  if (kind === 'backoff' && leave !== undefined) {
    throw new InvalidArgumentError('leave', `nothing for the backoff ${name}`);
  }
  if (leave !== undefined) checkLeave(leave);
  if (isHeld(request))
    checkedId(request.id, request.ttl === undefined ? LEASE_ID_MAX : ID_MAX, name);
}

/** The longest ids of leases and of reservations, in bytes. */
const LEASE_ID_MAX = 128;
const ID_MAX = 64;

function checkedId(id: string | undefined, max: number, name: string): string {
  if (id === undefined) throw new InvalidArgumentError('id', `an id for ${name}`);
  const length = Buffer.byteLength(id);
  if (length < 1 || length > max) throw new InvalidArgumentError('id', `1 to ${max} bytes`);
  return id;
}

/** Validates the id of an admission. */
export function checkAdmissionId(id: string): void {
  checkedId(id, ID_MAX, 'the admission');
  checkSpaces(id);
}

function checkSpaces(id: string): void {
  if (/\s/.test(id)) throw new InvalidArgumentError('id', 'no white space');
}

/** Returns the words after the key: those of the rule, with the options inserted. */
function words(request: RuleRequest): readonly string[] {
  const { rule, cost = 1, partial = false, leave, id, ttl } = request;
  // Nearly all calls have no options.
  if (cost === 1 && !partial && leave === undefined && !isHeld(request)) return rule.words;
  const options = cost === 1 && !partial ? [] : ['COST', String(cost)];
  if (partial) options.push('PARTIAL');
  if (leave !== undefined) options.push('LEAVE', String(leave));
  const all = withOptions(rule, options);
  if (rule.kind === 'lease') return [all[0] as string, id as string, ...all.slice(1)];
  return ttl === undefined ? all : ['RESERVE', id as string, ttl, ...all];
}

/** Inserts options where the server reads them. */
function withOptions({ kind, words }: Rule, options: readonly string[]): readonly string[] {
  if (options.length === 0) return words;
  let at = words.length;
  // All words after `FOR` and `DEFAULT` belong to the policy's variants and its default.
  if (kind === 'policy') at = 2;
  else if (words.at(-1) === 'ALIGNED') at -= 1;
  else if (words.at(-2) === 'SLOTS') at -= 2;
  return [...words.slice(0, at), ...options, ...words.slice(at)];
}

/** Builds a call under one rule. */
export function single(deciding: Deciding, request: RuleRequest): Call {
  const { kind, name } = request.rule;
  if (kind === 'lease' && (deciding === 'refund' || deciding === 'charge')) {
    throw new InvalidArgumentError('rule', `a rule with a cost; ${name} is a lease`);
  }
  if (kind === 'lease' && request.id === undefined) {
    throw new InvalidArgumentError('rule', `no lease; use limiter.lease for ${name}`);
  }
  check(request);
  return one(deciding, request);
}

function one(deciding: Deciding, request: RuleRequest): Call {
  const { rule, key } = request;
  const all = words(request);
  const isCheck = deciding === 'check';
  const args = [isCheck ? rule.command : `RL.${deciding.toUpperCase()}`, key];
  for (let at = isCheck ? 1 : 0; at < all.length; at += 1) args.push(all[at] as string);
  const { fallback } = rule;
  const withoutModule = fallback && (() => one(deciding, { ...request, rule: fallback }));
  const readOnly = deciding === 'peek';
  const requests = (isCheck || readOnly) && !isHeld(request) ? request : undefined;
  return { args, keys: [key], readOnly, withoutModule, requests };
}

/** Builds a call under up to 16 rules at once. */
export function all(requests: readonly RuleRequest[], peek = false): Call {
  if (requests.length < 1 || requests.length > 16)
    throw new InvalidArgumentError('items', '1 to 16 items');
  const keys = requests.map(({ key }) => key);
  if (new Set(keys).size < keys.length) throw new InvalidArgumentError('items', 'no repeated key');
  for (const request of requests) {
    if (request.partial) throw new InvalidArgumentError('partial', 'a call of one rule');
    check(request);
    if (isHeld(request)) checkSpaces(request.id);
  }
  return several(requests, keys, peek);
}

function several(requests: readonly RuleRequest[], keys: readonly string[], peek: boolean): Call {
  const args = [peek ? 'RL.PEEKALL' : 'RL.ALL'];
  for (const request of requests) args.push(request.key, words(request).join(' '));
  const isPolicy = requests.some(({ rule }) => rule.fallback !== undefined);
  const defaults = () =>
    requests.map((request) => ({ ...request, rule: request.rule.fallback ?? request.rule }));
  const withoutModule = isPolicy ? () => several(defaults(), keys, peek) : undefined;
  return { args, keys, readOnly: peek, withoutModule, requests };
}

/**
 * Converts a call for a server without the module: to a call of its function, or of the script with
 * this SHA-1. The keys of all rules come first, then the rules.
 */
export function inLibrary(call: Call, scriptSha1?: string): Call {
  const { keys, readOnly } = call;
  const [command, ...rest] = call.args as [string, ...string[]];
  if (!command.startsWith('RL.')) return call;
  const verb = command.slice(3);
  const words = verb.endsWith('ALL') ? rest.filter((_, at) => at % 2 === 1) : rest.slice(1);
  const named = [String(keys.length), ...keys];
  const args =
    scriptSha1 === undefined
      ? [readOnly ? 'FCALL_RO' : 'FCALL', `rl_${verb.toLowerCase()}`, ...named, ...words]
      : ['EVALSHA', scriptSha1, ...named, verb, ...words];
  return { args, keys, readOnly };
}

function written(key: string, ...args: readonly string[]): Call {
  const [command = '', ...rest] = args;
  return { args: [command, key, ...rest], keys: [key], readOnly: false };
}

export function forget(key: string): Call {
  return written(key, 'DEL');
}

export function block(key: string, time: Duration): Call {
  return written(key, 'RL.BLOCK', duration('duration', time));
}

export function renew({ rule, key, id }: Held): Call {
  return written(key, 'RL.RENEW', checkedId(id, LEASE_ID_MAX, rule.name), rule.words[2] as string);
}

export function release({ rule, key, id }: Held): Call {
  return written(key, 'RL.RELEASE', checkedId(id, LEASE_ID_MAX, rule.name));
}

/** Builds the call that renews a reservation, also if less is left to others than it requested. */
export function reserve(request: Held): Call {
  const [word = '', ...rest] = words({ ...request, leave: undefined });
  return written(request.key, `RL.${word}`, ...rest);
}

/** Builds the call that charges the units that a reservation's work took. */
export function commit({ rule, key, id }: Held, units: number): Call {
  // Without COST the server would charge what was reserved.
  return written(key, 'RL.COMMIT', id, ...withOptions(rule, ['COST', String(units)]));
}

export function cancel({ rule, key, id }: Held): Call {
  return written(key, 'RL.CANCEL', id, ...rule.words);
}

/** Builds a call that every back end supports and that writes nothing. */
export function probe(key: string): Call {
  const args = ['RL.PEEK', key, 'GCRA', '1', '1', '1', 'COST', '0'];
  return { args, keys: [key], readOnly: true };
}

/** Returns the rule that counts every hit of the window of a rule. The keys are the same. */
export function withoutLimit(rule: Rule): Rule {
  const [word, , ...rest] = rule.words;
  const words = Object.freeze([word as string, String(MAX_LIMIT), ...rest]);
  return Object.freeze({ ...rule, words, limit: MAX_LIMIT });
}

/** Builds the call that counts a hit. */
export function hitCall(request: RuleRequest): Call {
  return single('charge', { ...request, rule: withoutLimit(request.rule) });
}
