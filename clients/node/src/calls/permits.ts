/** The prefetched permits of a limiter: fetches them, and refunds what was not used. */

import type { RunClock } from '../net/clock.js';
import type { Decision } from '../rules/decision.js';
import { isPrefetchable, type Rule } from '../rules/forms.js';
import { type Ask, decisionOf, single } from '../wire/words.js';
import type { Budget } from './budget.js';
import type { Decider } from './decider.js';
import type { DenialCache } from './denial-cache.js';
import type { KnownDenials } from './denials.js';
import { Prefetcher } from './prefetch.js';
import type { Calls } from './steps.js';

/** What a limiter knows of the denials of keys. A fetch adds to it. */
interface Memory {
  readonly known: KnownDenials;
  readonly denials: DenialCache | undefined;
}

interface PermitOptions {
  readonly timeoutMs: number;
  /** The number of permits of one fetch, for rules without their own. */
  readonly prefetch: number;
}

export class Permits {
  readonly stocks: Prefetcher;

  constructor(
    private readonly calls: Calls,
    private readonly decider: Decider,
    run: RunClock,
    private readonly memory: Memory,
    private readonly options: PermitOptions,
  ) {
    this.stocks = new Prefetcher(run);
  }

  /** Returns the number of permits of one fetch; 1 if the rule has no prefetched permits. */
  perFetchOf(rule: Rule): number {
    const prefetch = rule.prefetch ?? this.options.prefetch;
    return prefetch > 1 && isPrefetchable(rule) ? prefetch : 1;
  }

  /** Takes a permit from a fetch. Other callers may share the fetch, so no signal ends it. */
  take(ask: Ask, signal: AbortSignal | undefined, budget: Budget | undefined): Promise<Decision> {
    const { known, denials } = this.memory;
    const fetch = async (cost: number, time: Budget) => {
      const whole = { ...ask, cost, partial: true };
      const asked = denials?.asked();
      const { turn } = known;
      const reply = await this.calls.send(single('check', whole), { budget: time });
      const decision = decisionOf(reply, whole);
      known.note(whole, decision, turn);
      if (asked !== undefined) denials?.put(single('check', ask), decision, asked);
      return decision;
    };
    const { timeoutMs } = this.options;
    const limits = { prefetch: this.perFetchOf(ask.rule), timeoutMs, budget, signal };
    return this.stocks.take(ask, limits, fetch);
  }

  /** Puts an unused permit back. Returns false if there is no stock, or a full one. */
  putBack(key: string, rule: Rule): boolean {
    return this.stocks.putBack(key, rule, this.perFetchOf(rule));
  }

  /** Refunds all permits that were not used, when the limiter closes. */
  async refund(): Promise<void> {
    const stocks = await this.stocks.drain();
    const refunds = stocks.map(({ rule, key, units }) =>
      this.calls
        .sendAtClose(single('refund', { rule, key, cost: units }))
        .catch((error) => this.decider.noteRejection([], error, 0)),
    );
    await Promise.all(refunds);
  }
}
