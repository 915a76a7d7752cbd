/** Makes asks from the arguments of the limiter's methods. */
import { ClosedError, InvalidArgumentError } from './errors.js';
import { type Keys, type Subject, textOf } from './keys.js';
import { assertLocal } from './on-error.js';
import type { PeekOptions, SeveralOptions } from './options.js';
import type { Ask } from './protocol.js';
import { type Item, isRule, type OnError, type Rule } from './rules.js';

export class Asking {
  #isClosed = false;

  constructor(
    private readonly keys: Keys,
    private readonly onError: OnError,
  ) {}

  /** Ends the asking: later calls throw a ClosedError. */
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
    if (!isRule(rule)) {
      throw new InvalidArgumentError('rule', 'a rule, made by gcra, fixed or another function');
    }
    this.assertDecides(rule);
    return this.keys.key(rule.name, textOf(subject), tag);
  }

  one(rule: Rule, subject: Subject, { cost, leave, tag }: PeekOptions): Ask {
    return { rule, key: this.keyOf(rule, subject, tag), subject: textOf(subject), cost, leave };
  }

  all(items: readonly Item[], { tag, id }: SeveralOptions): Ask[] {
    if (!Array.isArray(items)) throw new InvalidArgumentError('items', 'an array of items');
    return items.map((item) => {
      if (item?.rule === undefined) {
        throw new InvalidArgumentError('items', 'items made by rule.of(subject)');
      }
      const { rule, subject, units: cost, spare: leave, ttl } = item;
      return { ...this.one(rule, subject, { cost, leave, tag }), id, ttl };
    });
  }
}
