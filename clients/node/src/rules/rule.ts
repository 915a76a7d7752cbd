/** The shapes of rules and items. `forms.ts` makes the rules. */
import { type Duration, duration, integer } from './durations.js';
import { InvalidArgumentError } from './errors.js';
import { type Subject, textOf } from './keys.js';

/** The decision on the calls of a rule if the server does not reply. */
export type OnError = 'allow' | 'deny' | 'local';

export type RuleKind =
  | 'gcra'
  | 'fixed'
  | 'sliding'
  | 'sliding_log'
  | 'token_bucket'
  | 'leaky_bucket'
  | 'backoff'
  | 'quota'
  | 'lease'
  | 'policy';

/**
 * The response to a limited request, at the moment when its head is sent. Reading a field that it
 * does not have throws a TypeError, so the response counts and the process emits a warning once.
 */
export interface ResponseHead {
  /** 500 after an exception. */
  readonly status: number;
  /** The same, under the name that it has in Express. */
  readonly statusCode: number;
}

/**
 * The responses that a rule counts. `all`; `failures`: those with a status of 400 or more; or a
 * function that returns true for a response that counts. A request whose client leaves before the
 * head of the response counts in any case, and the function is not called.
 */
export type Count = 'all' | 'failures' | ((response: ResponseHead) => boolean);

/** A limit with a name. Created by `gcra`, `fixed` and the other functions of `forms.ts`. */
export interface Rule {
  readonly kind: RuleKind;
  /** Part of the keys and of the headers. */
  readonly name: string;
  /** The module's command, such as `RL.GCRA`. */
  readonly command: string;
  /** The words after the key, the algorithm's first: `['GCRA', '6', '10', '60']`. */
  readonly words: readonly string[];
  /** The rule's limit; 0 for a policy without a default, whose limit only the server knows. */
  readonly limit: number;
  /**
   * The window or the time to refill, in ms; undefined if the rule has neither. Sent as `w` in the
   * headers.
   */
  readonly windowMs: number | undefined;
  /** The rule to apply if the server does not have the policy, or no module. */
  readonly fallback: Rule | undefined;
  readonly onError: OnError | undefined;
  readonly localShare: number;
  readonly prefetch: number | undefined;
  readonly count: Count;
  /** Returns the item of a subject under this rule, for the calls that take several items. */
  of(subject: Subject): Item;
  /** Returns the rule's name, and the rule as the server reads it. */
  toString(): string;
}

/** Returns true for a rule, created by a function of `forms.ts`. */
export function isRule(value: unknown): value is Rule {
  return (value as Partial<Rule> | null | undefined)?.words !== undefined;
}

/** The options of an item. */
interface Given {
  readonly units: number | undefined;
  readonly spare: Leave | undefined;
  readonly ttl: string | undefined;
}

/** The ttl of a reservation, unless it is given. */
const RESERVATION_TTL = '30s';

/**
 * A rule with a subject, and what the call takes: 1 unit, unless it has a `cost` or a `reserve`.
 * Created by `rule.of(subject)`. Items do not change: each method returns another item.
 */
export class Item {
  readonly rule: Rule;
  readonly subject: string;
  /** @internal The cost or the reserved units; undefined if neither is given. */
  readonly units: number | undefined;
  /** @internal The units, or the share of the limit, that remain for other calls. */
  readonly spare: Leave | undefined;
  /** @internal The ttl of a reservation, as the server reads it; otherwise undefined. */
  readonly ttl: string | undefined;

  /** @internal Called by `rule.of`. */
  constructor(rule: Rule, subject: Subject, given: Partial<Given> = {}) {
    this.rule = rule;
    this.subject = textOf(subject);
    this.units = given.units;
    this.spare = given.spare;
    this.ttl = given.ttl;
    Object.freeze(this);
  }

  /**
   * Returns the item with another cost.
   *
   * @param units An integer from 0 to 10^12.
   * @throws InvalidArgumentError also if the item is a reservation, which has its own number of
   * units.
   */
  cost(units: number): Item {
    integer('cost', units, 0);
    if (this.ttl !== undefined) {
      throw new InvalidArgumentError(
        'cost',
        `no cost next to the reservation of ${this.rule.name}`,
      );
    }
    return new Item(this.rule, this.subject, { ...this, units });
  }

  /**
   * Returns the item as one that leaves units to other calls: it is denied if fewer would remain.
   *
   * @param units A number of units, or a share of the limit such as `20%`.
   */
  leave(units: Leave): Item {
    checkLeave(units);
    return new Item(this.rule, this.subject, { ...this, spare: units });
  }

  /**
   * Returns the item as a reservation: its units count as used until it is committed or cancelled,
   * or its ttl is over. For `fixed`, `quota` and policies of them, on servers with the module.
   *
   * @param units The units to reserve.
   * @param ttl The time after which an abandoned reservation ends, at least 1 ms. Default 30 s.
   * @throws InvalidArgumentError if the item has a cost, or the rule cannot reserve.
   */
  reserve(units: number, ttl: Duration = RESERVATION_TTL): Item {
    const { kind, name } = this.rule;
    if (!RESERVING.has(kind)) {
      throw new InvalidArgumentError('rule', `fixed, quota or a policy; ${name} is a ${kind}`);
    }
    if (this.units !== undefined && this.ttl === undefined) {
      throw new InvalidArgumentError('reserve', `no reservation next to the cost of ${name}`);
    }
    integer('cost', units, 0);
    return new Item(this.rule, this.subject, { ...this, units, ttl: duration('ttl', ttl) });
  }
}

/** The kinds of rules that can reserve. */
const RESERVING: ReadonlySet<RuleKind> = new Set(['fixed', 'quota', 'policy']);

/**
 * The units that a call leaves to others: a number of units, or a share of the limit such as
 * `20%`, rounded down.
 */
export type Leave = number | string;

export function checkLeave(leave: Leave): void {
  if (typeof leave === 'number') {
    integer('leave', leave, 0);
  } else if (typeof leave !== 'string' || !/^(\d\d?|100)%$/.test(leave)) {
    throw new InvalidArgumentError('leave', 'units, or a share from 0% to 100%');
  }
}

/** Returns the number of units that a call leaves to others. */
export function unitsOf(leave: Leave | undefined, limit: number): number {
  if (typeof leave === 'number') return leave;
  const percent = leave?.endsWith('%') ? BigInt(leave.slice(0, -1)) : undefined;
  return percent === undefined ? Number(leave ?? 0) : Number((BigInt(limit) * percent) / 100n);
}

/** The kinds of rules that this process can enforce by itself. */
export const LOCAL: ReadonlySet<RuleKind> = new Set([
  'gcra',
  'fixed',
  'sliding',
  'sliding_log',
  'token_bucket',
  'leaky_bucket',
]);

/**
 * Returns true if two rules have the same content. A program may create a new rule for each
 * request.
 */
export function isSame(one: Rule, other: Rule): boolean {
  if (one === other) return true;
  return one.name === other.name && one.words.join(' ') === other.words.join(' ');
}
