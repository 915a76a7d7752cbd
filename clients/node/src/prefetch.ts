/**
 * Permits that were taken in one call and are spent here. What is not spent when the reset of its
 * grant has passed is dropped: the server has given it anew by then.
 */
import type { Clock } from './clock.js';
import { Deadlines, type Due } from './deadlines.js';
import { Decision, type DecisionFields } from './decision.js';
import { UnavailableError } from './errors.js';
import { isSame, MAX_PREFETCH, type Rule } from './rules.js';

/** Keys with a stock; beyond it the oldest is dropped, which errs to the strict side. */
const KEYS_MAX = 10_000;

interface Stock {
  rule: Rule;
  left: number;
  lapsesAtMs: number;
  /** `remaining` of the grant. */
  remaining: number;
  /** What its next decision is made of: one for all of them, for the hot path. */
  fields: DecisionFields;
}

/** Takes up to so many permits in one call. */
type Fetch = (permits: number) => Promise<Decision>;

interface Limits {
  /** How many are taken at once, or as many as wait for one, where that is more. */
  prefetch: number;
  /** For all of it: others may have spent what came while this one waited. */
  timeoutMs: number;
  /** Ends the waiting, and not the fetch, which others may wait for. */
  signal: AbortSignal | undefined;
}

export class Prefetcher {
  readonly #stocks = new Map<string, Stock>();
  /** Of each key that is asked for: who waits for the answer, the first to come first. */
  readonly #queues = new Map<string, Waiter[]>();
  readonly #fetches = new Set<Promise<void>>();
  readonly #deadlines: Deadlines;

  constructor(private readonly clock: Clock) {
    this.#deadlines = new Deadlines(clock);
  }

  /**
   * A permit from the server, where there is no stock; who comes while one asks waits for the same
   * answer.
   */
  take(
    { rule, key }: { rule: Rule; key: string },
    { prefetch, timeoutMs, signal }: Limits,
    fetch: Fetch,
  ): Promise<Decision> {
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      const fetchFor = (waiting: number) =>
        fetch(Math.max(prefetch, Math.min(waiting, MAX_PREFETCH)));
      const endsAtMs = this.clock.nowMs() + timeoutMs;
      const waiter = new Waiter(rule, fetchFor, endsAtMs, signal, this.#deadlines, resolve, reject);
      const queue = this.#queues.get(key);
      if (queue === undefined) this.#ask(key, [waiter]);
      else queue.push(waiter);
    });
  }

  /** For the first who waits, and all who wait for a permit of the same rule. */
  #ask(key: string, queue: Waiter[]): void {
    const { rule, fetchFor } = queue[0] as Waiter;
    const ofRule = () => queue.filter((one) => one.isWaiting && isSame(one.rule, rule));
    this.#queues.set(key, queue);
    const askedAtMs = this.clock.nowMs();
    const asked = fetchFor(ofRule().length).then(
      (grant) => this.#share(ofRule(), rule, key, grant, askedAtMs),
      (error) => {
        for (const waiter of ofRule()) waiter.reject(error);
      },
    );
    const ended = asked.then(() => {
      this.#fetches.delete(ended);
      const left = queue.filter((waiter) => waiter.isWaiting);
      if (left.length > 0) this.#ask(key, left);
      else this.#queues.delete(key);
    });
    this.#fetches.add(ended);
  }

  /** One permit to each in turn; what is left over is kept. */
  #share(
    waiters: readonly Waiter[],
    rule: Rule,
    key: string,
    grant: Decision,
    askedAtMs: number,
  ): void {
    const [first, ...others] = waiters;
    const permits = first === undefined ? grant.granted : grant.granted - 1;
    if (permits > 0) this.#store(rule, key, { grant, permits, askedAtMs });
    const remaining = grant.remaining + Math.max(0, permits);
    const granted = grant.allowed ? 1 : 0;
    const answer = new Decision({ ...grant.fields(), remaining, granted });
    first?.resolve(answer);
    for (const waiter of others) {
      const decision = grant.allowed ? this.spend(key, rule) : answer;
      if (decision === undefined) return;
      waiter.resolve(decision);
    }
  }

  #store(
    rule: Rule,
    key: string,
    { grant, permits, askedAtMs }: { grant: Decision; permits: number; askedAtMs: number },
  ): void {
    this.forget(key);
    const { remaining, resetAfterMs } = grant;
    const lapsesAtMs = askedAtMs + resetAfterMs;
    const fields = { ...grant.fields(), granted: 1, source: 'local' } as const;
    this.#stocks.set(key, { rule, left: permits, lapsesAtMs, remaining, fields });
    if (this.#stocks.size > KEYS_MAX) this.forget(this.#stocks.keys().next().value as string);
  }

  /** A permit from the stock, if there is one of this very rule. */
  spend(key: string, rule: Rule): Decision | undefined {
    const stock = this.#stocks.get(key);
    if (stock === undefined) return undefined;
    const nowMs = this.clock.nowMs();
    if (stock.left < 1 || nowMs >= stock.lapsesAtMs || !isSame(stock.rule, rule)) {
      this.#stocks.delete(key);
      return undefined;
    }
    stock.left -= 1;
    const { fields } = stock;
    fields.remaining = stock.remaining + stock.left;
    fields.resetAfterMs = Math.ceil(stock.lapsesAtMs - nowMs);
    return new Decision(fields);
  }

  forget(key: string): void {
    this.#stocks.delete(key);
  }

  /** All that is left and still counts, taken out of stock: for refunds at the end. */
  async drain(): Promise<{ rule: Rule; key: string; units: number }[]> {
    await Promise.all(this.#fetches);
    const nowMs = this.clock.nowMs();
    const live = [...this.#stocks].filter(
      ([, { left, lapsesAtMs }]) => left > 0 && nowMs < lapsesAtMs,
    );
    this.#stocks.clear();
    return live.map(([key, { rule, left }]) => ({ rule, key, units: left }));
  }
}

/** Somebody who waits for a permit: until there is one, the deadline passes, or it is aborted. */
class Waiter implements Due {
  place = -1;
  isWaiting = true;
  readonly #onAbort: (() => void) | undefined;

  constructor(
    readonly rule: Rule,
    readonly fetchFor: (waiting: number) => Promise<Decision>,
    readonly endsAtMs: number,
    private readonly signal: AbortSignal | undefined,
    private readonly deadlines: Deadlines,
    private readonly onDecision: (decision: Decision) => void,
    private readonly onError: (reason: unknown) => void,
  ) {
    deadlines.add(this);
    if (signal === undefined) return;
    this.#onAbort = () => this.reject(signal.reason);
    signal.addEventListener('abort', this.#onAbort, { once: true });
  }

  resolve(decision: Decision): void {
    this.#end();
    this.onDecision(decision);
  }

  reject(reason: unknown): void {
    this.#end();
    this.onError(reason);
  }

  expire(): void {
    this.reject(new UnavailableError('timeout', 'no permit in time'));
  }

  #end(): void {
    this.isWaiting = false;
    this.deadlines.delete(this);
    if (this.#onAbort !== undefined) this.signal?.removeEventListener('abort', this.#onAbort);
  }
}
