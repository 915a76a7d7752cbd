/** The wire protocol: builds calls and reads replies. It does no I/O and reads no clock. */
import { Decision, orNever } from './decision.js';
import { CommandRejectedError, InvalidArgumentError } from './errors.js';
import { integer, type Rule } from './rules.js';

/** A call as it is sent: the command with its arguments, and which arguments are keys. */
export interface Call {
  readonly args: readonly string[];
  readonly keys: readonly string[];
  readonly readOnly: boolean;
}

export type Deciding = 'check' | 'peek' | 'refund' | 'charge';

/** One rule with its key and cost; for a lease, with the holder's name. */
export interface Ask {
  rule: Rule;
  key: string;
  /** The subject, for `onDecision`. It is not sent. */
  subject?: string | undefined;
  cost?: number | undefined;
  partial?: boolean | undefined;
  id?: string | undefined;
}

/** Returns the words after the key: those of the rule, with the cost inserted. */
function words({ rule, cost = 1, partial = false, id }: Ask): readonly string[] {
  if (cost === 1 && !partial && rule.kind !== 'lease') return rule.words;
  const text = integer('cost', cost, 0);
  if (rule.kind === 'lease') {
    if (id === undefined)
      throw new InvalidArgumentError('id', `a holder for the lease ${rule.name}`);
    if (cost !== 1) throw new InvalidArgumentError('cost', `1 for the lease ${rule.name}`);
    const [word, ...limits] = rule.words;
    return [word as string, checkedId(id), ...limits];
  }
  const option = cost === 1 && !partial ? [] : ['COST', text];
  if (option.length > 0 && rule.kind === 'backoff') {
    throw new InvalidArgumentError('cost', `1 for the backoff ${rule.name}`);
  }
  if (partial) option.push('PARTIAL');
  // Insert the cost after the name of a policy: all words after `DEFAULT` belong to the default
  // rule.
  const end = rule.words.at(-1) === 'ALIGNED' ? -1 : rule.words.length;
  const at = rule.kind === 'policy' ? 2 : end;
  return [...rule.words.slice(0, at), ...option, ...rule.words.slice(at)];
}

function checkedId(id: string): string {
  const length = Buffer.byteLength(id);
  if (length < 1 || length > 128) throw new InvalidArgumentError('id', '1 to 128 bytes');
  return id;
}

/** Builds a call under one rule. */
export function single(deciding: Deciding, ask: Ask): Call {
  const { key } = ask;
  const keys = [key];
  const all = words(ask);
  if (deciding === 'check') {
    const args = [ask.rule.command, key];
    for (let at = 1; at < all.length; at += 1) args.push(all[at] as string);
    return { args, keys, readOnly: false };
  }
  const [word, ...rest] = all;
  if (deciding !== 'peek' && ask.rule.kind === 'lease') {
    throw new InvalidArgumentError('rule', `a rule with a cost; ${ask.rule.name} is a lease`);
  }
  const args = [`RL.${deciding.toUpperCase()}`, key, word as string, ...rest];
  return { args, keys, readOnly: deciding === 'peek' };
}

/** Builds a call under up to 16 rules at once. */
export function all(asks: readonly Ask[], peek = false): Call {
  if (asks.length < 1 || asks.length > 16) throw new InvalidArgumentError('rules', '1 to 16 rules');
  const keys = asks.map(({ key }) => key);
  if (new Set(keys).size < keys.length) throw new InvalidArgumentError('rules', 'no repeated key');
  const args = [peek ? 'RL.PEEKALL' : 'RL.ALL'];
  for (const ask of asks) {
    if (ask.partial) throw new InvalidArgumentError('partial', 'a call of one rule');
    if (ask.id !== undefined && /\s/.test(ask.id))
      throw new InvalidArgumentError('id', 'no white space');
    args.push(ask.key, words(ask).join(' '));
  }
  return { args, keys, readOnly: peek };
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

export function forget(key: string): Call {
  return { args: ['DEL', key], keys: [key], readOnly: false };
}

export function renew(rule: Rule, key: string, id: string): Call {
  return {
    args: ['RL.RENEW', key, checkedId(id), rule.words[2] as string],
    keys: [key],
    readOnly: false,
  };
}

export function release(key: string, id: string): Call {
  return { args: ['RL.RELEASE', key, checkedId(id)], keys: [key], readOnly: false };
}

/** Builds a call that every back end answers and that writes nothing. */
export function probe(key: string): Call {
  const args = ['RL.PEEK', key, 'GCRA', '1', '1', '1', 'COST', '0'];
  return { args, keys: [key], readOnly: true };
}

/** Reads an integer of a reply. A driver may be configured to return bigints. */
export function replyInteger(value: unknown): number {
  const number = typeof value === 'bigint' ? Number(value) : value;
  if (typeof number !== 'number' || !Number.isSafeInteger(number)) throw unexpected();
  return number;
}

function unexpected(): CommandRejectedError {
  return new CommandRejectedError('PROTOCOL', 'the reply is not a decision');
}

/** Reads a decision: five integers, or seven under a policy. */
export function decisionOf(
  reply: unknown,
  { rule, cost = 1, partial = false }: Answered,
): Decision {
  const isPolicy = rule.kind === 'policy';
  if (!Array.isArray(reply) || reply.length !== (isPolicy ? 7 : 5)) throw unexpected();
  const taken = replyInteger(reply[0]);
  if (taken < 0 || taken > (partial ? cost : 1)) throw unexpected();
  const allowed = taken > 0;
  const retryAfterMs = orNever(replyInteger(reply[3]));
  return new Decision({
    allowed,
    rule,
    limit: replyInteger(reply[1]),
    remaining: replyInteger(reply[2]),
    retryAfterMs,
    resetAfterMs: replyInteger(reply[4]),
    granted: allowed && !partial ? cost : taken,
    wouldAllow: isPolicy ? replyInteger(reply[5]) > 0 : allowed,
    wouldRetryAfterMs: isPolicy ? orNever(replyInteger(reply[6])) : retryAfterMs,
  });
}

type FiveIntegers = [number, number, number, number, number];
type Answered = Pick<Ask, 'rule' | 'cost' | 'partial'>;

/** Reads the reply of a refund or a charge: five integers, also under a policy. */
export function settledOf(reply: unknown, rule: Rule): Decision {
  if (!Array.isArray(reply) || reply.length !== 5) throw unexpected();
  const fields = reply.map(replyInteger);
  const [settled, limit, remaining, waitMs, resetAfterMs] = fields as FiveIntegers;
  const [allowed, retryAfterMs] = [settled > 0, orNever(waitMs)];
  return new Decision({ allowed, rule, limit, remaining, retryAfterMs, resetAfterMs });
}

/**
 * Reads a reply of `RL.ALL`: five integers, the number of the rule that decided, and a row per
 * rule.
 */
export function allDecisionOf(reply: unknown, asks: readonly Ask[]): Decision {
  if (!Array.isArray(reply) || reply.length !== 6 + asks.length) throw unexpected();
  const rows = asks.map((ask, at) => decisionOf(reply[6 + at], ask));
  const number = replyInteger(reply[5]);
  const rule = asks[number - 1]?.rule;
  if (rule === undefined) throw unexpected();
  const whole = settledOf(reply.slice(0, 5), rule);
  const waits = rows.filter((row) => !row.wouldAllow).map((row) => row.wouldRetryAfterMs);
  return new Decision({
    ...whole.fields(),
    rows,
    deciding: number - 1,
    wouldAllow: waits.length === 0,
    wouldRetryAfterMs: Math.max(whole.retryAfterMs, ...waits),
  });
}
