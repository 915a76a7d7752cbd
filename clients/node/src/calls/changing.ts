/** The calls that change a key without a decision: refunds, charges, deletions and blocks. */
import type { Budget } from '../net/clock.js';
import type { Clock } from '../rules/clock.js';
import type { Decision } from '../rules/decision.js';
import { settledOf } from '../wire/replies.js';
import { type Call, type RuleRequest, single } from '../wire/words.js';
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
    request: RuleRequest,
    signal: AbortSignal | undefined,
    budget?: Budget,
  ): Promise<Decision> {
    const startedAtMs = this.clock.nowMs();
    const call = single(verb, request);
    const { denials, known } = this.memory;
    // After a charge, the server would still deny what it has denied before.
    const here = [denials, verb === 'refund' ? known : undefined];
    for (const memory of here) memory?.forget(request.key);
    const reply = await this.decider.send(call, { signal, budget }, [request]);
    for (const memory of here) memory?.forget(request.key);
    const decision = settledOf(reply, request.rule);
    this.decider.hooks.report({ kind: verb, decision, requests: [request], startedAtMs });
    return decision;
  }

  /** Sends a call that deletes or replaces the state of the key. Returns the reply. */
  async send(request: RuleRequest, call: Call, signal: AbortSignal | undefined): Promise<unknown> {
    const { denials, known, stocks } = this.memory;
    const here = [denials, known, stocks];
    for (const memory of here) memory?.forget(request.key);
    const reply = await this.decider.send(call, { signal }, [request]);
    // Forget again, because calls in flight may have stored results in the meantime.
    for (const memory of here) memory?.forget(request.key);
    return reply;
  }
}
