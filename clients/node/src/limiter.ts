/** The limiter: each call is sent once, and answered within its deadline. */
import { randomUUID } from 'node:crypto';
import { type Backend, Backends } from './backends.js';
import { Calls } from './calls.js';
import type { Clock } from './clock.js';
import { combined, type Decision, DeniedError } from './decision.js';
import { DenialCache } from './denial-cache.js';
import { type Client, connectionOf } from './drivers/index.js';
import { CommandRejectedError, InvalidArgumentError, UnavailableError } from './errors.js';
import { Keys } from './keys.js';
import type { Lease } from './lease.js';
import { Leasing } from './leasing.js';
import { LocalLimiter } from './local.js';
import { type Told, tell } from './on-decision.js';
import { withoutAnswer } from './on-error.js';
import {
  type CallOptions,
  type CheckOptions,
  type Counters,
  type LimiterOptions,
  type OnDecision,
  type RuleCall,
  type SeveralOptions,
  type WaitOptions,
  withDefaults,
} from './options.js';
import { Prefetcher } from './prefetch.js';
import * as protocol from './protocol.js';
import { isPrefetchable, LOCAL, type OnError, type Rule } from './rules.js';
import { waited } from './wait.js';
import { Watch } from './watch.js';

export class Limiter {
  readonly #backends: Backends;
  readonly #clock: Clock;
  readonly #keys: Keys;
  readonly #timeoutMs: number;
  readonly #pauseMs: number;
  readonly #onError: OnError;
  readonly #calls: Calls;
  readonly #leasing: Leasing;
  readonly #local: LocalLimiter;
  readonly #denials: DenialCache | undefined;
  readonly #stocks: Prefetcher;
  readonly #prefetch: number;
  readonly #onDecision: OnDecision | undefined;
  readonly #counters = { allowed: 0, denied: 0, degraded: 0, local: 0, rejected: 0 };
  #closed = false;

  /** @param client A client or cluster of node-redis or ioredis; you open and close it. */
  constructor(client: Client, options: LimiterOptions = {}) {
    const checked = withDefaults(options);
    const { timeoutMs, onError, denialCache, prefetch, clock } = checked;
    this.#keys = new Keys(checked);
    const connection = connectionOf(client, { clock, timeoutMs, pauseMs: checked.breakerPauseMs });
    const watch = new Watch(clock, timeoutMs);
    this.#backends = new Backends(connection, clock, timeoutMs, checked.backend, watch);
    this.#clock = clock;
    this.#timeoutMs = timeoutMs;
    this.#pauseMs = checked.breakerPauseMs;
    this.#onError = onError;
    this.#calls = new Calls(this.#backends, clock, checked, watch);
    this.#leasing = new Leasing(this.#calls, clock, timeoutMs, (error) =>
      this.#noteRejection([], error, undefined),
    );
    this.#local = new LocalLimiter(clock);
    this.#denials =
      denialCache > 0 ? new DenialCache(clock, denialCache, checked.denialCacheMaxMs) : undefined;
    this.#stocks = new Prefetcher(clock);
    this.#prefetch = prefetch;
    this.#onDecision = checked.onDecision;
  }

  /** @internal The clock of the limiter. */
  get clock(): Clock {
    return this.#clock;
  }

  get counters(): Counters {
    return { ...this.#counters };
  }

  /** Decides a call, and takes the cost if the call is allowed. */
  async check(rule: Rule, subject: string, options: CheckOptions = {}): Promise<Decision> {
    const { cost = 1, partial = false, signal } = options;
    const key = this.#keyOf(rule, subject, options.tag);
    signal?.throwIfAborted();
    const ask = { rule, key, subject, cost, partial };
    const fromStock = cost === 1 && !partial && this.#prefetchOf(rule) > 1;
    const denials = partial || rule.kind === 'lease' ? undefined : this.#denials;
    const permit = fromStock ? this.#stocks.spend(key, rule) : undefined;
    if (permit !== undefined) return this.#counted(permit, [ask], undefined);
    const call = protocol.single('check', ask);
    const denied = denials?.get(call);
    if (denied !== undefined) return this.#counted(denied, [ask], undefined);
    const asked = denials?.asked();
    const askedAtMs = this.#onDecision === undefined ? 0 : this.#clock.nowMs();
    let decision: Decision;
    // The same as `#decided`, but without another function call: nearly all calls take this path.
    try {
      decision = fromStock
        ? await this.#stock(ask, signal)
        : protocol.decisionOf(await this.#send(call, signal), ask);
      if (asked !== undefined && !fromStock) denials?.put(call, decision, asked);
    } catch (error) {
      decision = this.#without([ask], error, false, askedAtMs);
    }
    return this.#counted(decision, [ask], askedAtMs);
  }

  /** Returns the decision that `check` would make. Takes nothing. */
  async peek(rule: Rule, subject: string, options: CallOptions = {}): Promise<Decision> {
    const ask = this.#asked(rule, subject, options);
    const call = protocol.single('peek', ask);
    const decide = async () => protocol.decisionOf(await this.#send(call, options.signal), ask);
    return this.#decided('peek', [ask], decide);
  }

  /**
   * Gives units back, up to the full allowance.
   *
   * @throws UnavailableError without an answer. The refund may have been applied, so do not repeat
   * the call.
   */
  async refund(rule: Rule, subject: string, options: CallOptions = {}): Promise<Decision> {
    return this.#settle('refund', rule, subject, options);
  }

  /** Takes a cost even if fewer units are left, as a debt. Throws as `refund` does. */
  async charge(rule: Rule, subject: string, options: CallOptions = {}): Promise<Decision> {
    return this.#settle('charge', rule, subject, options);
  }

  /** Deletes the state of a subject under a rule. Returns true if there was one. */
  async forget(
    rule: Rule,
    subject: string,
    options: Omit<CallOptions, 'cost'> = {},
  ): Promise<boolean> {
    const ask = this.#asked(rule, subject, options);
    const { key } = ask;
    const here = [this.#denials, this.#stocks];
    for (const memory of here) memory?.forget(key);
    const reply = await this.#answer(protocol.forget(key), options.signal, [ask]);
    // Forget again, because calls in flight may have stored results in the meantime.
    for (const memory of here) memory?.forget(key);
    return protocol.replyInteger(reply) > 0;
  }

  /** Checks several rules at once, and takes from all or none. `rows` has their decisions. */
  async checkAll(calls: readonly RuleCall[], options: SeveralOptions = {}): Promise<Decision> {
    return this.#several(calls, options, false);
  }

  /** Returns the decision that `checkAll` would make. Takes nothing. */
  async peekAll(calls: readonly RuleCall[], options: SeveralOptions = {}): Promise<Decision> {
    return this.#several(calls, options, true);
  }

  /**
   * Checks one rule after the other, for keys in different slots, such as a global ceiling and a
   * tenant's rule. If a later rule denies, refunds what the earlier ones took. Until then other
   * callers cannot use those units. If the server becomes unavailable in between, they stay taken.
   */
  async checkEach(
    calls: readonly RuleCall[],
    options: Omit<SeveralOptions, 'tag' | 'id'> = {},
  ): Promise<Decision> {
    if (calls.length === 0) throw new InvalidArgumentError('calls', 'at least one call');
    if (calls.some(([rule]) => rule.kind === 'lease' || rule.kind === 'backoff')) {
      throw new InvalidArgumentError('calls', 'no lease and no backoff, which cannot be refunded');
    }
    const rows: Decision[] = [];
    try {
      for (const [rule, subject, cost] of calls) {
        const row = await this.check(rule, subject, { cost, signal: options.signal });
        rows.push(row);
        if (!row.allowed) break;
      }
    } catch (error) {
      await this.#giveBack(calls, rows);
      throw error;
    }
    if (rows.at(-1)?.allowed === false) await this.#giveBack(calls, rows);
    return combined(
      rows,
      calls.map(([, , cost]) => cost ?? 1),
    );
  }

  async #giveBack(calls: readonly RuleCall[], rows: readonly Decision[]): Promise<void> {
    for (const [at, row] of rows.entries()) {
      const [rule, subject, cost = 1] = calls[at] as RuleCall;
      if (!row.allowed || row.degraded || cost === 0) continue;
      await this.refund(rule, subject, { cost }).catch(() => {});
    }
  }

  /**
   * Waits until the call is allowed: after a denial it sleeps for `retryAfterMs` and checks again;
   * in a leaky bucket it then sleeps until the call's turn. If a sleep would end after `maxWaitMs`,
   * returns a denial and takes nothing.
   */
  async wait(rule: Rule, subject: string, options: WaitOptions): Promise<Decision> {
    return waited(this, rule, subject, options);
  }

  /**
   * Takes one of the rule's permits. The lease renews itself until released: use `await using` or
   * `finally`.
   *
   * @param options.id The name of the holder, 1 to 128 bytes. Random by default. Each piece of work
   * needs its own name.
   * @throws DeniedError if the rule denies the permit.
   */
  async lease(
    rule: Rule,
    subject: string,
    options: {
      id?: string | undefined;
      tag?: string | undefined;
      signal?: AbortSignal | undefined;
    } = {},
  ): Promise<Lease> {
    if (rule.kind !== 'lease') throw new InvalidArgumentError('rule', 'a rule made by lease()');
    const { id = randomUUID(), signal } = options;
    const ask = { ...this.#asked(rule, subject, options), id };
    const call = protocol.single('check', ask);
    const askedAtMs = this.#clock.nowMs();
    const take = async () => protocol.decisionOf(await this.#send(call, signal), ask);
    const decide = () => this.#decided('lease', [ask], take);
    const decision = await this.#leasing.abandoning([ask], signal, decide);
    if (!decision.allowed) throw new DeniedError(decision);
    return this.#leasing.lease(ask, decision, askedAtMs);
  }

  /**
   * @internal Returns the leases that a `checkAll` with this `id` took. For the middleware.
   */
  leasesOf(
    calls: readonly RuleCall[],
    decision: Decision,
    options: { id: string; tag?: string | undefined; askedAtMs: number },
  ): Lease[] {
    const { id, tag, askedAtMs } = options;
    return calls.flatMap(([rule, subject], at) => {
      const row = decision.rows[at];
      if (rule.kind !== 'lease' || !decision.allowed || row === undefined) return [];
      const key = this.#keys.key(rule.name, subject, tag);
      return this.#leasing.lease({ rule, key, id }, row, askedAtMs);
    });
  }

  /**
   * Checks, at startup, that the server answers, and returns the back end in use.
   *
   * @throws CommandRejectedError if there is no back end or the user may not call it;
   * UnavailableError if the server gives no answer.
   */
  async ready(options: { signal?: AbortSignal | undefined } = {}): Promise<Backend> {
    await this.#answer(protocol.probe(this.#keys.key('ready', 'ready')), options.signal);
    return this.#backends.answering;
  }

  /** Refunds the prefetched permits that were not used. Does not close the application's client. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#leasing.close();
    // Send one at a time: more than `maxInFlight` at once would not be sent.
    for (const { rule, key, units } of await this.#stocks.drain()) {
      const refund = protocol.single('refund', { rule, key, cost: units });
      await this.#answer(refund, undefined).catch(() => {});
    }
    this.#backends.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Returns the key. Throws if the `onError` of the rule cannot decide its calls. */
  #keyOf(rule: Rule, subject: string, tag: string | undefined): string {
    const { kind } = rule.fallback ?? rule;
    if ((rule.onError ?? this.#onError) === 'local' && !LOCAL.has(kind)) {
      throw new InvalidArgumentError('onError', `allow or deny: a ${kind} has no local limit`);
    }
    return this.#keys.key(rule.name, subject, tag);
  }

  #prefetchOf(rule: Rule): number {
    const prefetch = rule.prefetch ?? this.#prefetch;
    return prefetch > 1 && isPrefetchable(rule) ? prefetch : 1;
  }

  #asked(rule: Rule, subject: string, { cost, tag }: CallOptions): protocol.Ask {
    return { rule, key: this.#keyOf(rule, subject, tag), subject, cost };
  }

  async #several(
    calls: readonly RuleCall[],
    { tag, id, signal }: SeveralOptions,
    peek: boolean,
  ): Promise<Decision> {
    const asks = calls.map(([rule, subject, cost]) => {
      const ask = this.#asked(rule, subject, { cost, tag });
      return rule.kind === 'lease' ? { ...ask, id } : ask;
    });
    const call = protocol.all(asks, peek);
    const isLease = ({ rule }: protocol.Ask) => !peek && rule.kind === 'lease';
    const leases = asks.filter(isLease).map((ask) => ({ ...ask, id: id as string }));
    const denials = peek || leases.length > 0 ? undefined : this.#denials;
    const denied = denials?.get(call);
    if (denied !== undefined) return this.#counted(denied, asks, undefined);
    const ask = async () => {
      const asked = denials?.asked();
      const decision = protocol.allDecisionOf(await this.#send(call, signal), asks);
      if (asked !== undefined) denials?.put(call, decision, asked);
      return decision;
    };
    return this.#leasing.abandoning(leases, signal, () =>
      this.#decided(peek ? 'peek' : 'check', asks, ask),
    );
  }

  async #settle(
    verb: 'refund' | 'charge',
    rule: Rule,
    subject: string,
    options: CallOptions,
  ): Promise<Decision> {
    const ask = this.#asked(rule, subject, options);
    const askedAtMs = this.#clock.nowMs();
    this.#denials?.forget(ask.key);
    const reply = await this.#answer(protocol.single(verb, ask), options.signal, [ask]);
    this.#denials?.forget(ask.key);
    const decision = protocol.settledOf(reply, rule);
    this.#tell({ kind: verb, decision, asks: [ask], askedAtMs });
    return decision;
  }

  /** Takes a permit from a fetch. Other callers may share the fetch, so no signal ends it. */
  #stock(ask: protocol.Ask, signal: AbortSignal | undefined): Promise<Decision> {
    const prefetch = this.#prefetchOf(ask.rule);
    const fetch = async (cost: number) => {
      const whole = { ...ask, cost, partial: true };
      const asked = this.#denials?.asked();
      const reply = await this.#send(protocol.single('check', whole), undefined);
      const decision = protocol.decisionOf(reply, whole);
      if (asked !== undefined) this.#denials?.put(protocol.single('check', ask), decision, asked);
      return decision;
    };
    const limits = { prefetch, timeoutMs: this.#timeoutMs, signal };
    return this.#stocks.take(ask, limits, fetch);
  }

  /** Decides a call, by `onError` if there is no answer. Counts it and calls the hook. */
  async #decided(
    kind: 'check' | 'peek' | 'lease',
    asks: readonly protocol.Ask[],
    decide: () => Promise<Decision>,
  ): Promise<Decision> {
    const askedAtMs = this.#clock.nowMs();
    let decision: Decision;
    try {
      decision = await decide();
    } catch (error) {
      decision = this.#without(asks, error, kind === 'peek', askedAtMs);
    }
    return this.#counted(decision, asks, askedAtMs, kind);
  }

  /** @param askedAtMs Undefined if no call was sent. */
  #counted(
    decision: Decision,
    asks: readonly protocol.Ask[],
    askedAtMs: number | undefined,
    kind: 'check' | 'peek' | 'lease' = 'check',
  ): Decision {
    if (kind !== 'peek') {
      this.#counters[decision.allowed ? 'allowed' : 'denied'] += 1;
      if (decision.degraded) this.#counters.degraded += 1;
      else if (decision.source === 'local') this.#counters.local += 1;
    }
    if (this.#onDecision !== undefined) this.#tell({ kind, decision, asks, askedAtMs });
    return decision;
  }

  #tell(told: Omit<Told, 'latencyMs'> & { askedAtMs: number | undefined }): void {
    const { askedAtMs, ...rest } = told;
    if (this.#onDecision === undefined) return;
    const latencyMs = askedAtMs === undefined ? 0 : this.#clock.nowMs() - askedAtMs;
    tell(this.#onDecision, this.#keys, { ...rest, latencyMs });
  }

  /** Decides by `onError` if the server was unavailable. Throws any other error. */
  #without(
    asks: readonly protocol.Ask[],
    error: unknown,
    peek: boolean,
    askedAtMs: number,
  ): Decision {
    this.#noteRejection(asks, error, askedAtMs);
    if (!(error instanceof UnavailableError)) throw error;
    const onErrors = asks.map(({ rule }) => rule.onError ?? this.#onError);
    const retryAfterMs = this.#pauseMs;
    return withoutAnswer({ asks, onErrors, error, peek, retryAfterMs }, this.#local);
  }

  #noteRejection(
    asks: readonly protocol.Ask[],
    error: unknown,
    askedAtMs: number | undefined,
  ): void {
    if (!(error instanceof CommandRejectedError)) return;
    this.#counters.rejected += 1;
    if (asks.length === 0) return;
    this.#tell({ kind: 'rejected', decision: undefined, error, asks, askedAtMs });
  }

  /** Sends a call that `onError` does not decide. Throws its error, and counts a rejection. */
  async #answer(
    call: protocol.Call,
    signal: AbortSignal | undefined,
    asks: readonly protocol.Ask[] = [],
  ): Promise<unknown> {
    const askedAtMs = this.#clock.nowMs();
    try {
      return await this.#send(call, signal);
    } catch (error) {
      this.#noteRejection(asks, error, askedAtMs);
      throw error;
    }
  }

  #send(call: protocol.Call, signal: AbortSignal | undefined): Promise<unknown> {
    return this.#calls.send(call, this.#timeoutMs, signal);
  }
}
