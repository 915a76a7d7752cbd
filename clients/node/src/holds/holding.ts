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
  readonly startedAtMs: number;
}

export class Holding {
  /** The ends of the leases and admissions that last. */
  readonly #open = new Set<End>();

  constructor(
    private readonly ending: Ending,
    private readonly clock: Clock,
    private readonly keys: Keys,
  ) {}

  /** @param startedAtMs The moment before the call was sent, in ms. */
  lease(request: words.Held, decision: Decision, startedAtMs: number): Lease {
    const hold = this.#hold(request, decision, startedAtMs);
    const end = new End(this.#open, [hold], async () => {
      if (mayBeThere(decision)) await this.ending.release(request, hold.untilMs, false);
    });
    return new Lease(decision, request.id, hold, end);
  }

  /** Returns the leases among items that were taken together. */
  leases(items: readonly Item[], decision: Decision, { id, tag, startedAtMs }: Taken): Lease[] {
    return items.flatMap(({ rule, subject }, at) => {
      const row = decision.rows[at];
      if (rule.kind !== 'lease' || !decision.allowed || row === undefined) return [];
      const key = this.keys.key(rule.name, subject, tag);
      return this.lease({ rule, subject, key, id }, row, startedAtMs);
    });
  }

  admission(
    requests: readonly words.RuleRequest[],
    decision: Decision,
    id: string,
    startedAtMs: number,
  ): Admission {
    const rowOf = (at: number) => decision.rows[at] ?? decision;
    const parts = requests.map((request, at): Part => {
      const { rule, subject = '' } = request;
      const hold = words.isHeld(request) ? this.#hold(request, rowOf(at), startedAtMs) : undefined;
      return { rule, subject, hold, units: undefined };
    });
    const holds = parts.flatMap(({ hold }) => (hold === undefined ? [] : [hold]));
    const end = new End(this.#open, holds, async () => {
      await Promise.all(
        requests.map((request, at) => {
          const { hold, units } = parts[at] as Part;
          if (!words.isHeld(request)) return this.#settle(request, rowOf(at), units);
          return this.#end(request, rowOf(at), hold?.untilMs ?? 0, units);
        }),
      );
    });
    return new Admission(decision, id, parts, end);
  }

  /** Ends all leases and admissions that last. */
  async close(): Promise<void> {
    await Promise.all([...this.#open].map((end) => end.run()));
  }

  #hold(request: words.Held, row: Decision, startedAtMs: number): Hold {
    const isLease = request.ttl === undefined;
    const what = isLease ? 'lease' : 'reservation';
    const { clock, ending } = this;
    const isOnServer = row.source === 'server';
    const terms = { what, ttlMs: words.ttlMsOf(request), startedAtMs, clock, isOnServer } as const;
    return new Hold(terms, (untilMs, signal) =>
      isLease
        ? ending.renewLease(request, untilMs)
        : ending.renewReservation(request, untilMs, signal),
    );
  }

  /** Ends a lease or a reservation. */
  async #end(
    request: words.Held,
    row: Decision,
    untilMs: number,
    units: number | undefined,
  ): Promise<void> {
    if (!mayBeThere(row)) return;
    if (request.ttl === undefined) await this.ending.release(request, untilMs, true);
    else if (units === undefined) await this.ending.cancel(request, untilMs, true);
    else await this.ending.commit(request, units, untilMs, row.source === 'server');
  }

  /** Charges or refunds the difference between the cost of a plain rule and what its work took. */
  async #settle(
    request: words.RuleRequest,
    row: Decision,
    units: number | undefined,
  ): Promise<void> {
    // A call that only shadow mode allowed took nothing.
    if (units === undefined || row.source !== 'server' || !row.wouldAllow) return;
    await this.ending.settle(request, units - (request.cost ?? 1));
  }
}

/** Returns true if the server may hold the lease or the reservation of a row. */
function mayBeThere({ source, error }: Decision): boolean {
  return source === 'server' || (source === 'error' && mayHaveRun(error));
}
