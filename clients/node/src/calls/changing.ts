/** The calls that change a key without a decision: refunds, charges, deletions and blocks. */
import type { Budget } from '../net/clock.js';
import type { Clock } from '../rules/clock.js';
import type { Decision } from '../rules/decision.js';
import { settledOf } from '../wire/replies.js';
import { type Ask, type Call, single } from '../wire/words.js';
import type { Decider } from './decider.js';
import type { DenialCache, KnownDenials } from './denials.js';
import type { Prefetcher } from './prefetch.js';

/** What this process knows of keys. */
interface Memory {
  readonly known: KnownDenials;
  readonly denials: DenialCache | undefined;
  readonly stocks: Prefetcher;
}

/** Sends these calls. Before and after each, this process forgets what it knows of the key. */
export class Changing {
  constructor(
    private readonly decider: Decider,
    private readonly clock: Clock,
    private readonly memory: Memory,
  ) {}

  /** Refunds or charges the cost. */
  async settle(
    verb: 'refund' | 'charge',
    ask: Ask,
    signal: AbortSignal | undefined,
    budget?: Budget,
  ): Promise<Decision> {
    const askedAtMs = this.clock.nowMs();
    const call = single(verb, ask);
    const { denials, known } = this.memory;
    // After a charge, the server would still deny what it has denied before.
    const here = [denials, verb === 'refund' ? known : undefined];
    for (const memory of here) memory?.forget(ask.key);
    const reply = await this.decider.answer(call, { signal, budget }, [ask]);
    for (const memory of here) memory?.forget(ask.key);
    const decision = settledOf(reply, ask.rule);
    this.decider.hooks.tell({ kind: verb, decision, asks: [ask], askedAtMs });
    return decision;
  }

  /** Sends a call that deletes or replaces the state of the key. Returns the reply. */
  async send(ask: Ask, call: Call, signal: AbortSignal | undefined): Promise<unknown> {
    const { denials, known, stocks } = this.memory;
    const here = [denials, known, stocks];
    for (const memory of here) memory?.forget(ask.key);
    const reply = await this.decider.answer(call, { signal }, [ask]);
    // Forget again, because calls in flight may have stored results in the meantime.
    for (const memory of here) memory?.forget(ask.key);
    return reply;
  }
}
