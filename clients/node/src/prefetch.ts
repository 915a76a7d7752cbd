/**
 * Permits that were taken in one call and are spent here. What is not spent when the reset of its
 * grant has passed is dropped: the server has given it anew by then.
 */
import { type Clock, sleep } from './clock.js';
import { Decision, type DecisionFields } from './decision.js';
import { UnavailableError } from './errors.js';
import { isSame, type Rule } from './rules.js';

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

function late(): UnavailableError {
  return new UnavailableError('timeout', 'no permit in time');
}

export class Prefetcher {
  readonly #stocks = new Map<string, Stock>();
  readonly #fetches = new Map<string, { grant: Promise<Decision>; endsAtMs: number }>();

  constructor(private readonly clock: Clock) {}

  /**
   * A permit from the server, where there is no stock; who comes while one asks waits for the same
   * answer.
   *
   * @param limits `timeoutMs` is for all of it: others may have spent what came while this one
   * waited. `signal` ends the waiting, and not the fetch, which others may wait for.
   * @param fetch Takes up to `prefetch` permits in one call, within so many ms.
   */
  async take(
    { rule, key }: { rule: Rule; key: string },
    { timeoutMs, signal }: { timeoutMs: number; signal: AbortSignal | undefined },
    fetch: (leftMs: number) => Promise<Decision>,
  ): Promise<Decision> {
    signal?.throwIfAborted();
    const endsAtMs = this.clock.nowMs() + timeoutMs;
    for (;;) {
      const leftMs = endsAtMs - this.clock.nowMs();
      if (leftMs <= 0) throw late();
      const running = this.#fetches.get(key);
      if (running === undefined) {
        const mine = this.#fetch(rule, key, endsAtMs, () => fetch(leftMs));
        return await this.#within(mine, undefined, signal);
      }
      const laterThanMine = running.endsAtMs > endsAtMs;
      const decision = await this.#within(
        running.grant,
        laterThanMine ? leftMs : undefined,
        signal,
      );
      if (!decision.allowed) return decision;
      const left = this.spend(key, rule);
      if (left !== undefined) return left;
    }
  }

  /** What others wait for, too: ours ends by its own deadline and signal. */
  async #within<T>(
    answer: Promise<T>,
    leftMs: number | undefined,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    if (leftMs === undefined && signal === undefined) return answer;
    const done = new AbortController();
    const end = signal === undefined ? done.signal : AbortSignal.any([done.signal, signal]);
    const tooLate = sleep(this.clock, leftMs ?? Number.MAX_SAFE_INTEGER, end);
    try {
      return await Promise.race([
        answer,
        tooLate.then(() => {
          throw late();
        }),
      ]);
    } finally {
      done.abort();
    }
  }

  #fetch(
    rule: Rule,
    key: string,
    endsAtMs: number,
    fetch: () => Promise<Decision>,
  ): Promise<Decision> {
    const askedAtMs = this.clock.nowMs();
    const running = fetch().then((grant) => {
      const left = grant.granted - 1;
      if (left > 0 && grant.source === 'server') {
        this.forget(key);
        const lapsesAtMs = askedAtMs + grant.resetAfterMs;
        const fields = { ...grant.fields(), granted: 1, source: 'local' } as const;
        this.#stocks.set(key, { rule, left, lapsesAtMs, remaining: grant.remaining, fields });
        if (this.#stocks.size > KEYS_MAX) this.forget(this.#stocks.keys().next().value as string);
      }
      const remaining = grant.remaining + Math.max(0, left);
      return new Decision({ ...grant.fields(), remaining, granted: grant.allowed ? 1 : 0 });
    });
    const settled = running.finally(() => this.#fetches.delete(key));
    this.#fetches.set(key, { grant: settled, endsAtMs });
    return settled;
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
  drain(): { rule: Rule; key: string; units: number }[] {
    const nowMs = this.clock.nowMs();
    const live = [...this.#stocks].filter(
      ([, { left, lapsesAtMs }]) => left > 0 && nowMs < lapsesAtMs,
    );
    this.#stocks.clear();
    return live.map(([key, { rule, left }]) => ({ rule, key, units: left }));
  }
}
