/** The limiter: each call is sent once, and decided within its deadline. */
import { randomUUID } from 'node:crypto';
import { Builder, checkRule } from './calls/builder.js';
import { Changing } from './calls/changing.js';
import { Decider } from './calls/decider.js';
import { DenialCache, KnownDenials } from './calls/denials.js';
import { Prefetcher } from './calls/prefetch.js';
import { checkEach } from './calls/several.js';
import { Calls } from './calls/steps.js';
import { waited } from './calls/wait.js';
import type { Admission } from './holds/admission.js';
import { Ending } from './holds/ending.js';
import { Holding, type Taken } from './holds/holding.js';
import type { Lease } from './holds/lease.js';
import { Reservation } from './holds/reservation.js';
import { Budget, RunClock } from './net/clock.js';
import { type Client, connectionOf } from './net/drivers.js';
import { Nodes } from './net/node.js';
import { searched } from './net/search.js';
import { type Opened, opened } from './net/url.js';
import { checkOptions } from './rules/arguments.js';
import type { Clock } from './rules/clock.js';
import { type Decision, DeniedError } from './rules/decision.js';
import { InvalidArgumentError } from './rules/errors.js';
import type { Duration, Item, Rule } from './rules/forms.js';
import { Keys, type Subject, textOf } from './rules/keys.js';
import {
  type AdmitOptions,
  type Backend,
  type CallOptions,
  type CheckOptions,
  type Counters,
  checkedUrlOptions,
  type LimiterOptions,
  type OnDecision,
  type PeekOptions,
  type ReserveOptions,
  type SeveralOptions,
  TYPES,
  type UrlOptions,
  type WaitOptions,
  withDefaults,
} from './rules/options.js';
import { Backends, type Searched } from './wire/backends.js';
import type { Hit } from './wire/replies.js';
import * as replies from './wire/replies.js';
import * as words from './wire/words.js';

/** The number of ticks in the silence of a node. */
const TICKS = 4;

export class Limiter {
  readonly #backends: Backends;
  readonly #clock: Clock;
  readonly #keys: Keys;
  readonly #builder: Builder;
  readonly #timeoutMs: number;
  readonly #run: RunClock;
  readonly #calls: Calls;
  readonly #known: KnownDenials;
  readonly #decider: Decider;
  readonly #ending: Ending;
  readonly #holding: Holding;
  readonly #denials: DenialCache | undefined;
  readonly #permits: Prefetcher;
  readonly #changing: Changing;
  /** The client that this limiter has opened. */
  #own: Opened | undefined;
  #closed: Promise<void> | undefined;

  /**
   * @param client A client or cluster of node-redis or ioredis; you open and close it.
   *
   * @example
   * import { Redis } from 'ioredis';
   * const client = new Redis('redis://127.0.0.1:7777');
   * const limiter = new Limiter(client);
   * const decision = await limiter.check(gcra('api', 10, '10/minute'), '42');
   * decision.remaining; // 9
   *
   * @example
   * import { createClient } from 'redis';
   * const client = await createClient({ url: 'redis://127.0.0.1:7777' }).connect();
   * const limiter = new Limiter(client);
   * const decision = await limiter.check(gcra('api', 10, '10/minute'), '42');
   * decision.remaining; // 9
   */
  constructor(client: Client, options: LimiterOptions = {}) {
    const checked = withDefaults(options);
    const { timeoutMs, silenceMs, onError, clock } = checked;
    this.#keys = new Keys(checked);
    this.#builder = new Builder(this.#keys, onError);
    const run = new RunClock(clock, silenceMs / TICKS);
    const terms = { run, timeoutMs, silenceMs, pauseMs: checked.breakerPauseMs };
    const connection = connectionOf(client, terms);
    const nodes = new Nodes(connection, run, checked);
    const send: Searched = (sender, call, search) =>
      searched(nodes, sender, call, connection.nodeOf?.(call), search);
    this.#backends = new Backends(connection, run, send, timeoutMs, checked.backend);
    this.#clock = clock;
    this.#run = run;
    this.#timeoutMs = timeoutMs;
    const { denialCache, denialCacheMaxMs, knownDenials } = checked;
    this.#known = new KnownDenials(clock, knownDenials, denialCacheMaxMs);
    this.#calls = new Calls(this.#backends, nodes, this.#known, timeoutMs, silenceMs);
    this.#decider = new Decider(this.#calls, clock, this.#keys, this.#known, checked);
    this.#denials =
      denialCache > 0 ? new DenialCache(clock, denialCache, denialCacheMaxMs) : undefined;
    this.#ending = new Ending(this.#calls, clock, timeoutMs, this.#decider, {
      ofAny: this.#denials === undefined ? [] : [this.#denials],
      ofLess: this.#known,
    });
    this.#holding = new Holding(this.#ending, clock, this.#keys);
    const memory = { known: this.#known, denials: this.#denials };
    this.#permits = new Prefetcher(this.#calls, this.#decider, run, memory, checked);
    this.#changing = new Changing(this.#decider, clock, { ...memory, stocks: this.#permits });
  }

  /**
   * Creates a limiter with a client of its own, of the package `redis` or else `ioredis`, whichever
   * is installed. `close` closes it. The first call connects, or `ready`.
   *
   * @param url `redis://[user:password@][host][:port][/database]`, `rediss://` for TLS, or
   * `redis+unix:///path?user=&pass=&db=`; or `valkey`. With `cluster`, any node of a cluster.
   * @throws InvalidArgumentError for another URL or without a driver.
   *
   * @example
   * const limiter = Limiter.fromUrl('redis://127.0.0.1:7777');
   * const decision = await limiter.check(gcra('api', 10, '10/minute'), '42');
   * decision.remaining; // 9
   */
  static fromUrl(url: string, options: UrlOptions = {}): Limiter {
    const { cluster = false, ...rest } = checkedUrlOptions(options);
    const own = opened(url, cluster);
    const limiter = new Limiter(own.client, rest);
    limiter.#own = own;
    return limiter;
  }

  /** @internal The clock of the limiter. */
  get clock(): Clock {
    return this.#clock;
  }

  get counters(): Counters {
    return { ...this.#decider.counters };
  }

  /** The number of nodes whose circuit breaker is open: calls to them end at once. */
  get openBreakers(): number {
    return this.#calls.nodes.openBreakers;
  }

  /** Adds a hook to that of the options. It gets the same events, after the earlier ones. */
  onDecision(hook: OnDecision): void {
    this.#decider.hooks.add(hook);
  }

  /**
   * Decides a call, and takes the cost if the call is allowed.
   *
   * @example
   * const decision = await limiter.check(gcra('api', 10, '10/minute'), '42');
   * decision.allowed; // true
   * decision.remaining; // 9
   */
  check(rule: Rule, subject: Subject, options: CheckOptions = {}): Promise<Decision> {
    return this.#check(rule, subject, options, undefined);
  }

  async #check(
    rule: Rule,
    given: Subject,
    options: CheckOptions,
    budget: Budget | undefined,
  ): Promise<Decision> {
    checkOptions(options, TYPES.check);
    const { cost = 1, partial = false, leave, signal } = options;
    const key = this.#builder.keyOf(rule, given, options.tag);
    const subject = textOf(given);
    signal?.throwIfAborted();
    const request = { rule, key, subject, cost, partial, leave };
    const isPlain = cost === 1 && !partial && leave === undefined;
    const fromStock = isPlain && this.#permits.perFetchOf(rule) > 1;
    const denials = partial || rule.kind === 'lease' ? undefined : this.#denials;
    const permit = fromStock ? this.#permits.spend(key, rule) : undefined;
    const decider = this.#decider;
    if (permit !== undefined) return decider.counted(permit, request, undefined);
    const call = words.single('check', request);
    const denied = denials?.get(call);
    if (denied !== undefined) return decider.counted(denied, request, undefined);
    const moment = denials?.moment();
    const startedAtMs = this.#clock.nowMs();
    const { turn } = this.#known;
    let decision: Decision;
    // The same as `decided`, but without another function call: nearly all calls take this path.
    try {
      if (fromStock) decision = await this.#permits.take(request, signal, budget);
      else {
        const extras =
          signal === undefined && budget === undefined ? undefined : { signal, budget };
        const reply = await this.#calls.send(call, extras, startedAtMs);
        decision = replies.decisionOf(reply, request);
        this.#known.note(request, decision, turn);
        if (moment !== undefined) denials?.put(call, decision, moment);
      }
    } catch (error) {
      decision = decider.without([request], error, { isPeek: false, isKnown: true, startedAtMs });
    }
    return decider.counted(decision, request, startedAtMs);
  }

  /**
   * Returns the decision that `check` would make. Takes nothing.
   *
   * @example
   * const decision = await limiter.peek(gcra('api', 10, '10/minute'), '42', { cost: 0 });
   * decision.remaining; // 10
   */
  async peek(rule: Rule, subject: Subject, options: PeekOptions = {}): Promise<Decision> {
    const request = this.#builder.one(rule, subject, options, TYPES.peek);
    const call = words.single('peek', request);
    return this.#decider.single('peek', request, call, { signal: options.signal });
  }

  /**
   * Gives units back, up to the full allowance.
   *
   * @throws UnavailableError without a reply. The refund may have been applied, so do not repeat
   * the call.
   *
   * @example
   * const api = gcra('api', 10, '10/minute');
   * await limiter.check(api, '42', { cost: 5 });
   * const decision = await limiter.refund(api, '42', { cost: 3 });
   * decision.remaining; // 8
   */
  async refund(rule: Rule, subject: Subject, options: CallOptions = {}): Promise<Decision> {
    const request = this.#builder.one(rule, subject, options, TYPES.call);
    return this.#changing.settle('refund', request, options.signal);
  }

  /**
   * Takes a cost even if fewer units are left, as a debt. Throws as `refund` does.
   *
   * @example
   * const tokens = tokenBucket('tokens', 9000, '9000/minute');
   * const decision = await limiter.charge(tokens, '42', { cost: 9150 });
   * decision.retryAfterMs; // 1000
   */
  async charge(rule: Rule, subject: Subject, options: CallOptions = {}): Promise<Decision> {
    const request = this.#builder.one(rule, subject, options, TYPES.call);
    return this.#changing.settle('charge', request, options.signal);
  }

  /** Deletes the state of a subject under a rule. Returns true if there was one. */
  async forget(
    rule: Rule,
    subject: Subject,
    options: Omit<CallOptions, 'cost'> = {},
  ): Promise<boolean> {
    const request = this.#builder.one(rule, subject, options, TYPES.key);
    this.#decider.forgetLocal(request);
    const reply = await this.#changing.send(request, words.forget(request.key), options.signal);
    // Forget again, because calls may have been decided here in the meantime.
    this.#decider.forgetLocal(request);
    return replies.replyInteger(reply) > 0;
  }

  /**
   * Denies all calls of a subject under a rule for a time, which replaces the state of the key.
   * `forget` ends it.
   *
   * @param duration 1 ms to 366 days.
   * @throws UnavailableError without a reply.
   */
  async block(
    rule: Rule,
    subject: Subject,
    duration: Duration,
    options: Omit<CallOptions, 'cost'> = {},
  ): Promise<void> {
    const request = this.#builder.one(rule, subject, options, TYPES.key);
    await this.#changing.send(request, words.block(request.key, duration), options.signal);
  }

  /**
   * Checks several items at once, and takes from all or none. `rows` has their decisions. The
   * caller ends the leases and reservations among them; `admit` does that by itself.
   *
   * @example
   * const calls = gcra('calls', 10, '10/minute');
   * const tokens = tokenBucket('tokens', 9000, '9000/minute');
   * const decision = await limiter.checkAll([calls.of('42'), tokens.of('42').cost(500)]);
   * decision.allowed; // true
   * decision.rows.map(({ remaining }) => remaining); // [9, 8500]
   */
  async checkAll(items: readonly Item[], options: SeveralOptions = {}): Promise<Decision> {
    const requests = this.#builder.all(items, options);
    const call = words.all(requests);
    const isHeld = requests.some(words.isHeld);
    const denials = isHeld ? undefined : this.#denials;
    const denied = denials?.get(call);
    if (denied !== undefined) return this.#decider.counted(denied, requests, undefined);
    const { signal } = options;
    if (!isHeld) return this.#decider.several('check', requests, call, { signal }, denials);
    return this.#ending.abandoning(requests, false, (onLate) =>
      this.#decider.several('check', requests, call, { signal, onLate }, undefined),
    );
  }

  /** Returns the decision that `checkAll` would make. Takes nothing. */
  async peekAll(items: readonly Item[], options: SeveralOptions = {}): Promise<Decision> {
    const requests = this.#builder.all(items, options);
    const { signal } = options;
    return this.#decider.several(
      'peek',
      requests,
      words.all(requests, true),
      { signal },
      undefined,
    );
  }

  /**
   * Takes several items at once, leases and reservations among them, and returns what ends them
   * together. Neither prefetched permits nor cached denials decide.
   *
   * @throws DeniedError if an item is denied; nothing was taken. InvalidArgumentError;
   * CommandRejectedError; the signal's reason.
   *
   * @example
   * const calls = gcra('calls', 10, '10/minute');
   * const jobs = lease('jobs', 4, '30s');
   * const admitted = await limiter.admit([calls.of('42'), jobs.of('42')]);
   * admitted.held; // true
   * await admitted.finish();
   */
  async admit(items: readonly Item[], options: AdmitOptions = {}): Promise<Admission> {
    checkOptions(options, TYPES.several);
    const { id = randomUUID(), tag, signal } = options;
    words.checkAdmissionId(id);
    const requests = this.#builder.all(items, { tag, id });
    const call = { ...words.all(requests), requests: undefined };
    const startedAtMs = this.#clock.nowMs();
    const decision = await this.#ending.abandoning(requests, true, (onLate) =>
      this.#decider.several('check', requests, call, { signal, onLate }, undefined),
    );
    if (!decision.allowed) throw new DeniedError(decision);
    return this.#holding.admission(requests, decision, id, startedAtMs);
  }

  /**
   * Reserves units until the work's real cost is known. An admission of one reservation: the rule
   * is `fixed`, `quota` or a policy of them. Throws as `admit` does.
   *
   * @example
   * const tokens = quota('tokens', 100_000, 'month');
   * const reserved = await limiter.reserve(tokens, '42', { cost: 500 });
   * reserved.decision.remaining; // 99_500
   * await reserved.cancel();
   */
  async reserve(rule: Rule, subject: Subject, options: ReserveOptions = {}): Promise<Reservation> {
    checkOptions(options, TYPES.reserve);
    const { cost = 1, ttl, ...rest } = options;
    checkRule(rule);
    return new Reservation(await this.admit([rule.of(subject).reserve(cost, ttl)], rest), rule);
  }

  /**
   * Checks one item after the other, for keys in different slots, such as a global ceiling and a
   * tenant's rule. If a later rule denies, refunds what the earlier ones took. Until then other
   * callers cannot use those units. If the server becomes unavailable in between, they stay taken.
   */
  async checkEach(
    items: readonly Item[],
    options: Omit<SeveralOptions, 'tag' | 'id'> = {},
  ): Promise<Decision> {
    return checkEach(
      this.#within(),
      this.#builder.all(items, options, TYPES.signal),
      options.signal,
    );
  }

  /**
   * Waits until the call is allowed: after a denial it sleeps for `retryAfterMs` and checks again;
   * in a leaky bucket it then sleeps until the call's turn. If a sleep would end after `maxWaitMs`,
   * returns a denial and takes nothing.
   *
   * @example
   * const api = gcra('api', 10, '10/minute');
   * const decision = await limiter.wait(api, '42', { maxWaitMs: 5000 });
   * decision.allowed; // true
   */
  async wait(rule: Rule, subject: Subject, options: WaitOptions): Promise<Decision> {
    return waited(this.#within(), rule, subject, options);
  }

  /** Returns this limiter for several calls that have one time together. */
  #within() {
    const budget = new Budget(this.#timeoutMs);
    return {
      budget,
      clock: this.#clock,
      check: (rule: Rule, subject: Subject, options: CheckOptions) =>
        this.#check(rule, subject, options, budget),
      refund: async (rule: Rule, subject: Subject, options: CallOptions) => {
        const request = this.#builder.one(rule, subject, options, TYPES.call);
        return this.#changing.settle('refund', request, options.signal, budget);
      },
    };
  }

  /**
   * Takes one of the rule's permits. The lease renews itself until released: use `await using` or
   * `finally`.
   *
   * @param options.id The name of the holder, 1 to 128 bytes. Random by default. Each piece of work
   * needs its own name.
   * @throws DeniedError if the rule denies the permit.
   *
   * @example
   * const held = await limiter.lease(lease('jobs', 4, '30s'), '42');
   * held.held; // true
   * await held.release();
   */
  async lease(rule: Rule, subject: Subject, options: SeveralOptions = {}): Promise<Lease> {
    if (rule?.kind !== 'lease') throw new InvalidArgumentError('rule', 'a rule made by lease()');
    const { id = randomUUID(), signal } = options;
    const request = { ...this.#builder.one(rule, subject, options, TYPES.several), id };
    const call = words.single('check', request);
    const startedAtMs = this.#clock.nowMs();
    const decision = await this.#ending.abandoning([request], false, (onLate) =>
      this.#decider.single('lease', request, call, { signal, onLate }),
    );
    if (!decision.allowed) throw new DeniedError(decision);
    return this.#holding.lease(request, decision, startedAtMs);
  }

  /** @internal Returns the leases that a `checkAll` with this `id` took. For the middleware. */
  leasesOf(items: readonly Item[], decision: Decision, options: Taken): Lease[] {
    return this.#holding.leases(items, decision, options);
  }

  /** @internal Counts a hit of a fixed window, also above its limit. For the stores of others. */
  async hit(rule: Rule, subject: Subject): Promise<Hit> {
    return this.#decider.hit(this.#builder.one(rule, subject, {}, TYPES.call));
  }

  /** @internal Puts back what an allowed call took in this process. Returns false if it cannot. */
  putBack(rule: Rule, subject: string, row: Decision, tag: string | undefined): boolean {
    const key = this.#keys.key(rule.name, subject, tag);
    this.#denials?.forget(key);
    if (!row.degraded) return this.#permits.putBack(key, rule);
    this.#decider.refundLocal({ rule, key, cost: row.granted }, row.reason);
    return true;
  }

  /**
   * Checks, at startup, that the server replies, and returns the back end in use. Waits for a
   * connection and the reply for 5 s, or `timeoutMs` if that is longer. A refused connection ends
   * it at once.
   *
   * @throws CommandRejectedError if there is no back end or the user may not call it;
   * UnavailableError if the server does not reply. Its text says how far the call came.
   */
  async ready(options: { signal?: AbortSignal | undefined } = {}): Promise<Backend> {
    checkOptions(options, TYPES.signal);
    const key = this.#keys.key('ready', 'ready');
    await this.#decider.ready(key, this.#timeoutMs, options.signal);
    return this.#backends.current;
  }

  /**
   * Ends the leases and admissions that last, refunds the prefetched permits that were not used,
   * and waits for the calls that were sent, for at most `timeoutMs`. Later calls throw a
   * ClosedError, as do those in line. Closes the client only if `fromUrl` created it. A second call
   * waits for the first.
   */
  async close(options: Record<never, never> = {}): Promise<void> {
    if (typeof options === 'object') checkOptions(options, TYPES.none); // Events pass their names.
    this.#closed ??= this.#close();
    await this.#closed;
  }

  async #close(): Promise<void> {
    this.#builder.close();
    this.#ending.close();
    this.#calls.close();
    let stop = () => {};
    const over = new Promise<void>((resolve) => {
      stop = this.#run.after(this.#timeoutMs, resolve);
    });
    await Promise.race([over, this.#finish()]);
    stop();
    this.#backends.close();
    this.#own?.close();
    this.#calls.end();
    // Calls without a reply have an error now, and are counted.
    await this.#ending.settled();
    this.#decider.close();
  }

  /** Ends what lasts, and waits for it and for the calls in flight. */
  async #finish(): Promise<void> {
    await Promise.all([this.#holding.close(), this.#calls.idle(), this.#permits.refund()]);
    await this.#ending.settled();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** @internal Throws if the `onError` of the rule cannot decide its calls. For the middleware. */
  assertDecides(rule: Rule): void {
    this.#builder.assertDecides(rule);
  }
}
