/** Makes leases and admissions from the decisions that allowed them. */
import type { Clock } from '../rules/clock.js';
import type { Decision } from '../rules/decision.js';
import { mayHaveRun } from '../rules/errors.js';
import type { Item } from '../rules/forms.js';
import type { Keys } from '../rules/keys.js';
import * as words from '../wire/words.js';
import { Admission, type Part } from './admission.js';
import type { Ending } from './ending.js';
import { End, Hold } from './hold.js';
import { Lease } from './lease.js';

/** A call that took several items. */
export interface Taken {
  /** The id of the leases among them. */
  readonly id: string;
  readonly tag?: string | undefined;
  /** The moment before the call was sent, in ms. */
  readonly askedAtMs: number;
}

export class Holding {
  /** The ends of the leases and admissions that last. */
  readonly #open = new Set<End>();

  constructor(
    private readonly ending: Ending,
    private readonly clock: Clock,
    private readonly keys: Keys,
  ) {}

  /** @param askedAtMs The moment before the call was sent, in ms. */
  lease(ask: words.Held, decision: Decision, askedAtMs: number): Lease {
    const hold = this.#hold(ask, decision, askedAtMs);
    const end = new End(this.#open, [hold], async () => {
      if (mayBeThere(decision)) await this.ending.release(ask, hold.untilMs, false);
    });
    return new Lease(decision, ask.id, hold, end);
  }

  /** Returns the leases among items that were taken together. */
  leases(items: readonly Item[], decision: Decision, { id, tag, askedAtMs }: Taken): Lease[] {
    return items.flatMap(({ rule, subject }, at) => {
      const row = decision.rows[at];
      if (rule.kind !== 'lease' || !decision.allowed || row === undefined) return [];
      const key = this.keys.key(rule.name, subject, tag);
      return this.lease({ rule, subject, key, id }, row, askedAtMs);
    });
  }

  admission(
    asks: readonly words.Ask[],
    decision: Decision,
    id: string,
    askedAtMs: number,
  ): Admission {
    const rowOf = (at: number) => decision.rows[at] ?? decision;
    const parts = asks.map((ask, at): Part => {
      const { rule, subject = '' } = ask;
      const hold = words.isHeld(ask) ? this.#hold(ask, rowOf(at), askedAtMs) : undefined;
      return { rule, subject, hold, units: undefined };
    });
    const holds = parts.flatMap(({ hold }) => (hold === undefined ? [] : [hold]));
    const end = new End(this.#open, holds, async () => {
      await Promise.all(
        asks.map((ask, at) => {
          const { hold, units } = parts[at] as Part;
          if (!words.isHeld(ask)) return this.#settle(ask, rowOf(at), units);
          return this.#end(ask, rowOf(at), hold?.untilMs ?? 0, units);
        }),
      );
    });
    return new Admission(decision, id, parts, end);
  }

  /** Ends all leases and admissions that last. */
  async close(): Promise<void> {
    await Promise.all([...this.#open].map((end) => end.run()));
  }

  #hold(ask: words.Held, row: Decision, askedAtMs: number): Hold {
    const isLease = ask.ttl === undefined;
    const what = isLease ? 'lease' : 'reservation';
    const { clock, ending } = this;
    const isOnServer = row.source === 'server';
    const terms = { what, ttlMs: words.ttlMsOf(ask), askedAtMs, clock, isOnServer } as const;
    return new Hold(terms, (untilMs, signal) =>
      isLease ? ending.renewLease(ask, untilMs) : ending.renewReservation(ask, untilMs, signal),
    );
  }

  /** Ends a lease or a reservation. */
  async #end(
    ask: words.Held,
    row: Decision,
    untilMs: number,
    units: number | undefined,
  ): Promise<void> {
    if (!mayBeThere(row)) return;
    if (ask.ttl === undefined) await this.ending.release(ask, untilMs, true);
    else if (units === undefined) await this.ending.cancel(ask, untilMs, true);
    else await this.ending.commit(ask, units, untilMs, row.source === 'server');
  }

  /** Charges or refunds the difference between the cost of a plain rule and what its work took. */
  async #settle(ask: words.Ask, row: Decision, units: number | undefined): Promise<void> {
    // A call that only shadow mode allowed took nothing.
    if (units === undefined || row.source !== 'server' || !row.wouldAllow) return;
    await this.ending.settle(ask, units - (ask.cost ?? 1));
  }
}

/** Returns true if the server may hold the lease or the reservation of a row. */
function mayBeThere({ source, error }: Decision): boolean {
  return source === 'server' || (source === 'error' && mayHaveRun(error));
}
