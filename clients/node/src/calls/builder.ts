/** Builds the calls of rules from the arguments of the limiter's methods. */
import { checkOptions, type Types } from '../rules/arguments.js';
import { ClosedError, InvalidArgumentError } from '../rules/errors.js';
import { type Item, isRule, type OnError, type Rule } from '../rules/forms.js';
import { type Keys, type Subject, textOf } from '../rules/keys.js';
import { type PeekOptions, type SeveralOptions, TYPES } from '../rules/options.js';
import type { RuleRequest } from '../wire/words.js';
import { assertLocal } from './fallback.js';

export function checkRule(rule: Rule): void {
  if (isRule(rule)) return;
  throw new InvalidArgumentError('rule', 'a rule, made by gcra, fixed or another function');
}

export class Builder {
  #isClosed = false;

  constructor(
    private readonly keys: Keys,
    private readonly onError: OnError,
  ) {}

  /** Closes the builder: later calls throw a ClosedError. */
  close(): void {
    this.#isClosed = true;
  }

  /** Throws if the `onError` of the rule cannot decide its calls. */
  assertDecides(rule: Rule): void {
    assertLocal(rule, rule.onError ?? this.onError);
  }

  /** Returns the key of a call. */
  keyOf(rule: Rule, subject: Subject, tag: string | undefined): string {
    if (this.#isClosed) throw new ClosedError();
    checkRule(rule);
    this.assertDecides(rule);
    return this.keys.key(rule.name, textOf(subject), tag);
  }

  /** @param types The types of the options of the method, which are validated. */
  one(rule: Rule, subject: Subject, options: PeekOptions, types: Types): RuleRequest {
    checkOptions(options, types);
    const { cost, leave, tag } = options;
    return { rule, key: this.keyOf(rule, subject, tag), subject: textOf(subject), cost, leave };
  }

  all(
    items: readonly Item[],
    options: SeveralOptions,
    types: Types = TYPES.several,
  ): RuleRequest[] {
    checkOptions(options, types);
    const { tag, id } = options;
    if (!Array.isArray(items)) throw new InvalidArgumentError('items', 'an array of items');
    return items.map((item) => {
      if (item?.rule === undefined) {
        throw new InvalidArgumentError('items', 'items made by rule.of(subject)');
      }
      const { rule, subject, units: cost, spare: leave, ttl } = item;
      const key = this.keyOf(rule, subject, tag);
      return { rule, key, subject: textOf(subject), cost, leave, id, ttl };
    });
  }
}
