/**
 * Permits that were taken in one call and are spent here. What is not spent when the reset of its
 * grant has passed is dropped: the server has given it anew by then.
 */
import type { Clock } from './clock.js';
import { Decision } from './decision.js';
import { UnavailableError } from './errors.js';
import type { Rule } from './rules.js';

/** Keys with a stock; beyond it the oldest is dropped, which errs to the strict side. */
const KEYS_MAX = 10_000;

interface Stock {
  rule: Rule;
  left: number;
  endsAtMs: number;
  grant: Decision;
  grantedAtMs: number;
}

export class Prefetcher {
  readonly #stocks = new Map<string, Stock>();
  readonly #fetches = new Map<string, Promise<Decision>>();

  constructor(private readonly clock: Clock) {}

  /**
   * A permit from the stock, or from the server when there is none; who comes while one asks waits
   * for the same answer.
   *
   * @param timeoutMs For all of it: others may have spent what came while this one waited.
   * @param fetch Takes up to `rule.prefetch` permits in one call.
   */
  async take(
    rule: Rule,
    key: string,
    timeoutMs: number,
    fetch: () => Promise<Decision>,
  ): Promise<Decision> {
    const endsAtMs = this.clock.nowMs() + timeoutMs;
    for (;;) {
      const spent = this.#spend(key);
      if (spent !== undefined) return spent;
      if (this.clock.nowMs() >= endsAtMs)
        throw new UnavailableError('timeout', 'no permit in time');
      const running = this.#fetches.get(key);
      if (running === undefined) return this.#fetch(rule, key, fetch);
      const decision = await running;
      if (!decision.allowed) return decision;
    }
  }

  #fetch(rule: Rule, key: string, fetch: () => Promise<Decision>): Promise<Decision> {
    const askedAtMs = this.clock.nowMs();
    const running = fetch().then((grant) => {
      const left = grant.granted - 1;
      if (left > 0 && grant.source === 'server') {
        this.forget(key);
        const endsAtMs = askedAtMs + grant.resetAfterMs;
        this.#stocks.set(key, { rule, left, endsAtMs, grant, grantedAtMs: askedAtMs });
        if (this.#stocks.size > KEYS_MAX) this.forget(this.#stocks.keys().next().value as string);
      }
      const remaining = grant.remaining + Math.max(0, left);
      return new Decision({ ...grant.fields(), remaining, granted: grant.allowed ? 1 : 0 });
    });
    const settled = running.finally(() => this.#fetches.delete(key));
    this.#fetches.set(key, settled);
    return settled;
  }

  #spend(key: string): Decision | undefined {
    const stock = this.#stocks.get(key);
    if (stock === undefined) return undefined;
    const nowMs = this.clock.nowMs();
    if (stock.left < 1 || nowMs >= stock.endsAtMs) {
      this.#stocks.delete(key);
      return undefined;
    }
    stock.left -= 1;
    const { grant } = stock;
    return new Decision({
      ...grant.fields(),
      remaining: grant.remaining + stock.left,
      resetAfterMs: Math.ceil(Math.max(0, stock.endsAtMs - nowMs)),
      granted: 1,
      source: 'local',
    });
  }

  forget(key: string): void {
    this.#stocks.delete(key);
  }

  /** All that is left and still counts, taken out of stock: for refunds at the end. */
  drain(): { rule: Rule; key: string; units: number }[] {
    const nowMs = this.clock.nowMs();
    const live = [...this.#stocks].filter(([, { left, endsAtMs }]) => left > 0 && nowMs < endsAtMs);
    this.#stocks.clear();
    return live.map(([key, { rule, left }]) => ({ rule, key, units: left }));
  }
}
