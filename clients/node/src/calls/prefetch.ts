/**
 * Prefetched permits: one call fetches several, and this process uses them. Unused permits are
 * dropped at the reset time of their grant, because the server then allows those units again.
 */
import { Budget, ROUNDING_MS, type RunClock } from '../net/clock.js';
import { whenAborted } from '../rules/aborting.js';
import { Decision, type DecisionFields } from '../rules/decision.js';
import { microseconds } from '../rules/durations.js';
import { NotSentError, UnavailableError } from '../rules/errors.js';
import { isPrefetchable, isSame, type Rule } from '../rules/forms.js';
import { decisionOf } from '../wire/replies.js';
import { type RuleRequest, single } from '../wire/words.js';
import type { Decider } from './decider.js';
import type { DenialCache, KnownDenials } from './denials.js';
import type { Calls } from './steps.js';

/**
 * The maximum number of keys with a stock. The oldest stock is dropped, which only makes the limit
 * stricter.
 */
const KEYS_MAX = 10_000;

interface Stock {
  rule: Rule;
  left: number;
  expiresAtMs: number;
  /** The units that were left on the server after the grant. */
  remaining: number;
  /**
   * The fields of the next decision. The decisions of a stock share this one object, because this
   * path is hot.
   */
  fields: DecisionFields;
}

/** The denials of keys that a limiter remembers. A fetch adds to them. */
interface Memory {
  readonly known: KnownDenials;
  readonly denials: DenialCache | undefined;
}

interface PrefetchOptions {
  /** The time of a fetch, in ms. */
  readonly timeoutMs: number;
  /** The number of permits of one fetch, for rules without their own. */
  readonly prefetch: number;
}

/** One call for several permits, and its waiters; the first waiter started it. */
interface Fetch {
  readonly rule: Rule;
  readonly permits: number;
  readonly waiters: Waiter[];
  readonly startedAtMs: number;
  readonly budget: Budget;
}

/**
 * Prefetches permits. While a fetch is in flight, each new caller waits for one of its permits.
 * When all of them are promised, the next caller starts another fetch, so no caller waits for two
 * fetches. A fetch starts only if the key has no unpromised permit left, in flight or in stock. So
 * a key never has more than `prefetch` unpromised permits.
 */
export class Prefetcher {
  readonly #stocks = new Map<string, Stock>();
  /** The last fetch of each key that has permits not yet promised. */
  readonly #open = new Map<string, Fetch>();
  readonly #fetches = new Set<Promise<void>>();

  constructor(
    private readonly calls: Calls,
    private readonly decider: Decider,
    private readonly run: RunClock,
    private readonly memory: Memory,
    private readonly options: PrefetchOptions,
  ) {}

  get #nowMs(): number {
    return this.run.clock.nowMs();
  }

  /** Returns the number of permits of one fetch; 1 if the rule has no prefetched permits. */
  perFetchOf(rule: Rule): number {
    const prefetch = rule.prefetch ?? this.options.prefetch;
    return prefetch > 1 && isPrefetchable(rule) ? prefetch : 1;
  }

  /**
   * Returns a permit from a fetch. The caller has found no stock.
   *
   * @param signal Ends the wait, but not the fetch, because other callers may wait for the fetch.
   * @param budget The time for the whole wait. It may include a second fetch if the first one
   * brings too few permits. Default: that of a fetch.
   */
  take(
    request: RuleRequest,
    signal: AbortSignal | undefined,
    budget: Budget | undefined,
  ): Promise<Decision> {
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      const { timeoutMs } = this.options;
      const wanted = { request, timeoutMs, budget, signal };
      this.#promise(request.key, new Waiter(wanted, this.run, resolve, reject));
    });
  }

  /** Fetches up to `cost` permits in one call, which has the time of the budget. */
  async #send(one: RuleRequest, cost: number, budget: Budget): Promise<Decision> {
    const { known, denials } = this.memory;
    const whole = { ...one, cost, partial: true };
    const moment = denials?.moment();
    const { turn } = known;
    const decision = decisionOf(await this.calls.send(single('check', whole), { budget }), whole);
    known.note(whole, decision, turn);
    if (moment !== undefined) denials?.put(single('check', one), decision, moment);
    return decision;
  }

  #promise(key: string, waiter: Waiter): void {
    const { rule } = waiter.wanted.request;
    const open = this.#open.get(key);
    if (open !== undefined && open.waiters.length < open.permits && isSame(open.rule, rule)) {
      open.waiters.push(waiter);
      waiter.joins(open.budget);
      return;
    }
    this.#fetch(key, waiter, []);
  }

  /** Fetches the permits of some waiters, and those that are kept. */
  #fetch(key: string, first: Waiter, others: readonly Waiter[]): void {
    const { request } = first.wanted;
    const { rule } = request;
    const waiters = [first, ...others];
    const permits = Math.max(this.perFetchOf(rule), waiters.length);
    const budget = new Budget(this.options.timeoutMs);
    const fetch: Fetch = { rule, permits, waiters, startedAtMs: this.#nowMs, budget };
    for (const one of waiters) one.joins(budget);
    this.#open.set(key, fetch);
    const ended = this.#send(request, permits, budget)
      .then(
        (grant) => this.#share(key, fetch, grant),
        (error) => {
          this.#close(key, fetch);
          for (const one of fetch.waiters) if (one.isWaiting) one.fail(error);
        },
      )
      .then(() => void this.#fetches.delete(ended));
    this.#fetches.add(ended);
  }

  /**
   * Closes a fetch to new waiters. Returns false if another fetch or `forget` has already closed
   * it.
   */
  #close(key: string, fetch: Fetch): boolean {
    return this.#open.get(key) === fetch && this.#open.delete(key);
  }

  /** Gives one permit to each waiter in turn, and stores the rest. */
  #share(key: string, fetch: Fetch, grant: Decision): void {
    const { rule, startedAtMs } = fetch;
    const waiters = fetch.waiters.filter((one) => one.isWaiting);
    const [first, ...others] = waiters;
    const wasOpen = this.#close(key, fetch);
    const granted = grant.allowed ? 1 : 0;
    const permits = first === undefined ? grant.granted : Math.max(0, grant.granted - 1);
    const remaining = grant.remaining + permits;
    const stock = stockOf(rule, grant, permits, startedAtMs + grant.resetAfterMs);
    first?.resolve(new Decision({ ...grant.fields(), remaining, granted }));
    const again: Waiter[] = [];
    for (const waiter of others) {
      if (!grant.allowed) waiter.resolve(grant);
      else if (stock.left > 0) waiter.resolve(this.#permit(stock));
      else if (waiter.smaller !== undefined || waiter.isOver) waiter.resolve(noneLeft(rule, grant));
      else {
        waiter.smaller = grant;
        again.push(waiter);
      }
    }
    if (wasOpen && stock.left > 0) this.#store(key, stock);
    // The others share one more fetch. After a second shortfall they are denied.
    const [next, ...more] = again;
    if (next !== undefined) this.#fetch(key, next, more);
  }

  #store(key: string, stock: Stock): void {
    this.#stocks.delete(key);
    this.#stocks.set(key, stock);
    if (this.#stocks.size > KEYS_MAX) this.forget(this.#stocks.keys().next().value as string);
  }

  #permit(stock: Stock): Decision {
    const { fields } = stock;
    stock.left -= 1;
    fields.remaining = stock.remaining + stock.left;
    fields.resetAfterMs = Math.max(0, Math.ceil(stock.expiresAtMs - this.#nowMs));
    return new Decision(fields);
  }

  /** Takes a permit from the stock, if there is one fetched under this rule. */
  spend(key: string, rule: Rule): Decision | undefined {
    const stock = this.#stocks.get(key);
    if (stock === undefined) return undefined;
    const hasExpired = this.#nowMs >= stock.expiresAtMs;
    if (stock.left < 1 || hasExpired || !isSame(stock.rule, rule)) {
      this.#stocks.delete(key);
      return undefined;
    }
    return this.#permit(stock);
  }

  /** Puts an unused permit back. Returns false if there is no stock, or a full one. */
  putBack(key: string, rule: Rule): boolean {
    const stock = this.#stocks.get(key);
    if (stock === undefined || !isSame(stock.rule, rule)) return false;
    if (stock.left >= this.perFetchOf(rule) || this.#nowMs >= stock.expiresAtMs) return false;
    stock.left += 1;
    return true;
  }

  /** Drops the stock of a key, and those permits of its fetch in flight that are not promised. */
  forget(key: string): void {
    this.#stocks.delete(key);
    this.#open.delete(key);
  }

  /** Refunds all permits that were not used, when the limiter closes. */
  async refund(): Promise<void> {
    await Promise.all(this.#fetches);
    const stocks = [...this.#stocks];
    this.#stocks.clear();
    const refunds = stocks.map(async ([key, { rule, left, expiresAtMs }]) => {
      if (left === 0 || this.#nowMs >= expiresAtMs) return;
      const call = single('refund', { rule, key, cost: left });
      await this.calls.sendAtClose(call).catch((error) => {
        this.decider.noteRejection([], error, 0);
      });
    });
    await Promise.all(refunds);
  }
}

interface Wanted {
  readonly request: RuleRequest;
  readonly timeoutMs: number;
  readonly budget: Budget | undefined;
  readonly signal: AbortSignal | undefined;
}

function stockOf(rule: Rule, grant: Decision, left: number, expiresAtMs: number): Stock {
  const fields = { ...grant.fields(), granted: 1, source: 'local' } as const;
  return { rule, left, expiresAtMs, remaining: grant.remaining, fields };
}

/**
 * Denies a waiter whose fetch brought too few permits. `retryAfterMs` is the grant's reset time,
 * when all units are back; in a bucket, which refills evenly, it is the earlier time when one unit
 * is back. It may be too long: it counts from the grant, and in a window some units may be back
 * before the reset.
 */
function noneLeft({ kind, limit, words }: Rule, grant: Decision): Decision {
  let retryAfterMs = grant.resetAfterMs;
  if (kind === 'gcra' || kind === 'token_bucket') {
    const [, , rate, period] = words as [string, string, string, string];
    const allButOneUs = ((limit - 1) * Number(microseconds('period', period))) / Number(rate);
    retryAfterMs = Math.max(1, retryAfterMs - Math.floor(allButOneUs / 1000));
  }
  return new Decision({
    ...grant.fields(),
    allowed: false,
    remaining: 0,
    retryAfterMs,
    source: 'local',
    wouldAllow: false,
    wouldRetryAfterMs: retryAfterMs,
    granted: 0,
  });
}

/** A caller that waits for a permit, until it gets one, its time is over or it is aborted. */
class Waiter {
  isWaiting = true;
  /** The grant of a fetch that brought no permit for this waiter. */
  smaller: Decision | undefined;
  /** The time that it had left when it began to wait for its fetch, in ms. */
  #budgetMs: number;
  /** The fetch, and the run time at which the wait for it began. */
  #fetch: Budget | undefined;
  #joinedMs = 0;
  #stop: (() => void) | undefined;
  readonly #unfollow: (() => void) | undefined;

  constructor(
    readonly wanted: Wanted,
    private readonly run: RunClock,
    private readonly onDecision: (decision: Decision) => void,
    private readonly onError: (reason: unknown) => void,
  ) {
    const { budget, timeoutMs, signal } = wanted;
    this.#budgetMs = budget?.leftMs ?? timeoutMs;
    if (signal !== undefined) {
      this.#unfollow = whenAborted(signal, () => this.reject(signal.reason));
    }
  }

  /** The time that it has left, in ms. The wait for a first dial does not count. */
  get leftMs(): number {
    const { timeoutMs } = this.wanted;
    const waitedMs = this.run.nowMs() - this.#joinedMs;
    const fetchMs = timeoutMs - (this.#fetch?.leftMs ?? timeoutMs);
    return this.#budgetMs - Math.min(waitedMs, fetchMs);
  }

  get isOver(): boolean {
    return this.leftMs < ROUNDING_MS;
  }

  /** Begins to wait for a fetch, which may have more time than this waiter. */
  joins(fetch: Budget): void {
    if (this.#fetch !== undefined) this.#budgetMs = this.leftMs;
    this.#fetch = fetch;
    this.#joinedMs = this.run.nowMs();
    if (this.#budgetMs < this.wanted.timeoutMs) this.#plan();
  }

  #plan(): void {
    this.#stop?.();
    this.#stop = this.run.after(this.#budgetMs, () => {
      if (this.#fetch?.hasBegun === false) this.#plan();
      else this.fail(new NotSentError('overloaded', 'no prefetched permit in time'));
    });
  }

  resolve(decision: Decision): void {
    this.#end();
    this.onDecision(decision);
  }

  reject(reason: unknown): void {
    this.#end();
    this.onError(reason);
  }

  /**
   * Ends the wait without a permit. If the server had granted too few permits, the call is
   * denied.
   */
  fail(reason: unknown): void {
    if (this.smaller !== undefined && reason instanceof UnavailableError) {
      this.resolve(noneLeft(this.wanted.request.rule, this.smaller));
    } else this.reject(reason);
  }

  #end(): void {
    const { budget } = this.wanted;
    if (budget !== undefined) budget.leftMs = this.leftMs;
    this.isWaiting = false;
    this.#stop?.();
    this.#unfollow?.();
  }
}
