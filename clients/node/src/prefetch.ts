/**
 * Permits that were taken in one call and are spent here. What is not spent when the reset of its
 * grant has passed is dropped: the server has given it anew by then.
 */
import type { Clock } from './clock.js';
import { Deadlines, type Due } from './deadlines.js';
import { Decision, type DecisionFields } from './decision.js';
import { UnavailableError } from './errors.js';
import { isSame, microseconds, type Rule } from './rules.js';

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

/** Takes up to `prefetch` permits in one call. */
type Ask = () => Promise<Decision>;

interface Limits {
  /** How many are taken at once. */
  prefetch: number;
  /** For all of it: fewer may come than were promised. */
  timeoutMs: number;
  /** Ends the waiting, and not the fetch, which others may wait for. */
  signal: AbortSignal | undefined;
}

/** One call for many permits, and who was promised one: the first to come first. */
interface Fetch {
  readonly rule: Rule;
  readonly permits: number;
  readonly waiters: Waiter[];
  readonly askedAtMs: number;
}

/**
 * While a fetch is on its way its permits are promised, one to each who comes. When all are, the
 * next one begins another fetch: nobody waits for two. So there are never more than `prefetch`
 * permits of a key that nobody waits for, on their way or here.
 */
export class Prefetcher {
  readonly #stocks = new Map<string, Stock>();
  /** Of each key the last fetch that has not ended. */
  readonly #open = new Map<string, Fetch>();
  readonly #fetches = new Set<Promise<void>>();
  readonly #deadlines: Deadlines;

  constructor(private readonly clock: Clock) {
    this.#deadlines = new Deadlines(clock);
  }

  /** A permit from the server, where there is no stock. */
  take(
    { rule, key }: { rule: Rule; key: string },
    { prefetch, timeoutMs, signal }: Limits,
    ask: Ask,
  ): Promise<Decision> {
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      const endsAtMs = this.clock.nowMs() + timeoutMs;
      const waiter = new Waiter(
        { rule, prefetch, ask, endsAtMs, signal },
        this.#deadlines,
        resolve,
        reject,
      );
      this.#promise(key, waiter);
    });
  }

  #promise(key: string, waiter: Waiter): void {
    const { rule, prefetch, ask } = waiter.wanted;
    const open = this.#open.get(key);
    if (open !== undefined && open.waiters.length < open.permits && isSame(open.rule, rule)) {
      open.waiters.push(waiter);
      return;
    }
    const askedAtMs = this.clock.nowMs();
    const fetch: Fetch = { rule, permits: prefetch, waiters: [waiter], askedAtMs };
    this.#open.set(key, fetch);
    const ended = ask()
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

  /** Promises no more of it. Whether it was open: another may have begun since, or a forget. */
  #close(key: string, fetch: Fetch): boolean {
    return this.#open.get(key) === fetch && this.#open.delete(key);
  }

  /** One permit to each in turn; what is promised to nobody is kept. */
  #share(key: string, fetch: Fetch, grant: Decision): void {
    const { rule, askedAtMs } = fetch;
    const waiters = fetch.waiters.filter((one) => one.isWaiting);
    const [first, ...others] = waiters;
    const wasOpen = this.#close(key, fetch);
    const granted = grant.allowed ? 1 : 0;
    const permits = first === undefined ? grant.granted : Math.max(0, grant.granted - 1);
    const remaining = grant.remaining + permits;
    const stock = stockOf(rule, grant, permits, askedAtMs + grant.resetAfterMs);
    first?.resolve(new Decision({ ...grant.fields(), remaining, granted }));
    for (const waiter of others) {
      if (!grant.allowed) waiter.resolve(grant);
      else if (stock.left > 0) waiter.resolve(this.#permit(stock));
      else {
        waiter.smaller = grant;
        this.#promise(key, waiter);
      }
    }
    if (wasOpen && stock.left > 0) this.#store(key, stock);
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
    fields.resetAfterMs = Math.max(0, Math.ceil(stock.lapsesAtMs - this.clock.nowMs()));
    return new Decision(fields);
  }

  /** A permit from the stock, if there is one of this very rule. */
  spend(key: string, rule: Rule): Decision | undefined {
    const stock = this.#stocks.get(key);
    if (stock === undefined) return undefined;
    const hasLapsed = this.clock.nowMs() >= stock.lapsesAtMs;
    if (stock.left < 1 || hasLapsed || !isSame(stock.rule, rule)) {
      this.#stocks.delete(key);
      return undefined;
    }
    return this.#permit(stock);
  }

  /** Also the permits on their way that are promised to nobody. */
  forget(key: string): void {
    this.#stocks.delete(key);
    this.#open.delete(key);
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

interface Wanted {
  readonly rule: Rule;
  readonly prefetch: number;
  readonly ask: Ask;
  readonly endsAtMs: number;
  readonly signal: AbortSignal | undefined;
}

function stockOf(rule: Rule, grant: Decision, left: number, lapsesAtMs: number): Stock {
  const fields = { ...grant.fields(), granted: 1, source: 'local' } as const;
  return { rule, left, lapsesAtMs, remaining: grant.remaining, fields };
}

/**
 * A grant says when all is there again, and of a bucket, which fills evenly, that tells when one
 * unit is; at the latest, for what has come meanwhile is not counted.
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

/** Somebody who waits for a permit: until there is one, the deadline passes, or it is aborted. */
class Waiter implements Due {
  place = -1;
  isWaiting = true;
  /** A grant that was smaller than promised. */
  smaller: Decision | undefined;
  readonly #onAbort: (() => void) | undefined;

  constructor(
    readonly wanted: Wanted,
    private readonly deadlines: Deadlines,
    private readonly onDecision: (decision: Decision) => void,
    private readonly onError: (reason: unknown) => void,
  ) {
    deadlines.add(this);
    const { signal } = wanted;
    if (signal === undefined) return;
    this.#onAbort = () => this.reject(signal.reason);
    signal.addEventListener('abort', this.#onAbort, { once: true });
  }

  get endsAtMs(): number {
    return this.wanted.endsAtMs;
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
    this.fail(new UnavailableError('timeout', 'no permit in time'));
  }

  /** Without an answer: the server did answer who was promised more than came. */
  fail(reason: unknown): void {
    if (this.smaller !== undefined && reason instanceof UnavailableError) {
      this.resolve(noneLeft(this.wanted.rule, this.smaller));
    } else this.reject(reason);
  }

  #end(): void {
    this.isWaiting = false;
    this.deadlines.delete(this);
    if (this.#onAbort !== undefined)
      this.wanted.signal?.removeEventListener('abort', this.#onAbort);
  }
}
