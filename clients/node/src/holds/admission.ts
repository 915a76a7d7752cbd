/** Admissions: several rules, leases and reservations taken at once, and ended together. */
import type { Decision } from '../rules/decision.js';
import { integer } from '../rules/durations.js';
import { InvalidArgumentError } from '../rules/errors.js';
import { type Item, isRule, isSame, type Rule } from '../rules/rule.js';
import type { End, Hold } from './hold.js';

/** The part of an admission under one of its items. */
export interface Part {
  readonly rule: Rule;
  readonly subject: string;
  /** Undefined for a plain rule. */
  readonly hold: Hold | undefined;
  /** The units that the work took; undefined until they are settled. */
  units: number | undefined;
}

/**
 * Items that `Limiter.admit` took. While the admission lasts, its leases and reservations renew
 * themselves. End it with `await using`, or with `finish` in `finally`.
 */
export class Admission {
  /** The decision, with a row for each item. */
  readonly decision: Decision;
  /** The id of the leases and reservations. */
  readonly id: string;
  readonly #parts: readonly Part[];
  readonly #lost = new AbortController();
  readonly #end: End;

  /** @internal Called by `Limiter.admit`. */
  constructor(decision: Decision, id: string, parts: readonly Part[], end: End) {
    this.decision = decision;
    this.id = id;
    this.#parts = parts;
    this.#end = end;
    // The listeners must not keep the admission from being collected.
    const lost = this.#lost;
    for (const { hold } of parts) {
      hold?.signal.addEventListener('abort', () => lost.abort(hold.signal.reason));
    }
    end.follow(this);
  }

  /**
   * True if the admission lasts and no lease and no reservation is lost, by the clock of this
   * process. If `onError` allowed it, true until its end.
   */
  get held(): boolean {
    return !this.#end.hasRun && this.#parts.every(({ hold }) => hold?.held ?? true);
  }

  /** Aborted when a lease or a reservation is lost. */
  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  /**
   * Notes the units that the work took under a rule. Sends nothing; the last call wins. At the end
   * a reservation is committed with them, and a plain rule is charged or refunded the difference.
   *
   * @param rule A rule of the admission, or its item if two items have this rule.
   * @param actual An integer from 0 to 10^12.
   * @throws InvalidArgumentError for a rule that is not in the admission, a lease or a backoff, and
   * after the end.
   *
   * @example
   * const tokens = tokenBucket('tokens', 9000, '9000/minute');
   * const admitted = await limiter.admit([tokens.of('42').cost(500)]);
   * admitted.settle(tokens, 420);
   * await admitted.finish();
   * (await limiter.peek(tokens, '42', { cost: 0 })).remaining; // 8580
   */
  settle(rule: Rule | Item, actual: number): void {
    const part = this.#partOf(rule);
    integer('actual', actual, 0);
    part.units = actual;
  }

  /**
   * Ends the admission: releases leases, commits reservations that were settled and cancels the
   * others, and charges or refunds plain rules that were settled. Resolves after the first attempt
   * of each and never rejects: what failed is counted in `Limiter.counters.unsettled`. Releases,
   * commits and cancellations without a reply are repeated until the ttl is over or the limiter
   * is closed. A second call waits for the first; after `Limiter.close` it sends nothing.
   */
  async finish(): Promise<void> {
    await this.#end.run();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.finish();
  }

  #partOf(given: Rule | Item): Part {
    if (!isRule(given) && !isRule(given?.rule))
      throw new InvalidArgumentError('rule', 'a rule or item');
    const [rule, subject] = 'subject' in given ? [given.rule, given.subject] : [given, undefined];
    const refuse: (expected: string) => never = (expected) => {
      throw new InvalidArgumentError('rule', `${expected}; ${rule.name} is not`);
    };
    if (this.#end.hasRun) refuse('a rule of an admission that has not ended');
    const [part, ...more] = this.#parts.filter(
      (one) => isSame(one.rule, rule) && (subject ?? one.subject) === one.subject,
    );
    if (part === undefined) return refuse('a rule of the admission');
    if (more.length > 0) refuse('an item, because two items have the rule');
    const { kind } = rule;
    if (kind === 'lease' || kind === 'backoff') refuse('a rule that takes a cost');
    return part;
  }
}
