/** A permit or a reservation that a process holds on the server, and that renews itself. */
import type { Clock } from '../rules/clock.js';

/** The terms of a hold. */
interface Terms {
  /** The kind of the hold, for the reason of its signal. */
  what: 'lease' | 'reservation';
  ttlMs: number;
  /** The moment before the call was sent, in ms. */
  startedAtMs: number;
  clock: Clock;
  /** True if the server granted it. Otherwise `onError` did, and it is not renewed. */
  isOnServer: boolean;
}

/**
 * Sends a renewal. Returns true if the hold continues. Rejects if there is no reply.
 *
 * @param untilMs The end of the hold.
 * @param signal Aborted at the end of the renewals.
 */
type Renew = (untilMs: number, signal: AbortSignal) => Promise<boolean>;

const dropped = new FinalizationRegistry<End>((end) => end.drop());

/** The end of a lease or an admission. It runs once: by its guard, or by `close`. */
export class End {
  #run: Promise<void> | undefined;
  #isExpiring = false;

  /**
   * @param open The ends that have not run.
   * @param holds What renews itself until then.
   * @param act Sends the end.
   */
  constructor(
    private readonly open: Set<End>,
    private readonly holds: readonly Hold[],
    private readonly act: () => Promise<void>,
  ) {
    open.add(this);
  }

  get hasRun(): boolean {
    return this.#run !== undefined;
  }

  /** Ends the renewals, and sends the end. Later calls wait for the first. */
  run(): Promise<void> {
    if (this.#run === undefined) {
      this.#close();
      this.#run = this.act();
    }
    return this.#run;
  }

  /**
   * Ends the renewals when `guard` is collected: no caller can end it any more, and renewed it
   * would be held as long as the process runs. On the server it expires.
   */
  follow(guard: object): void {
    dropped.register(guard, this);
  }

  /** Ends the renewals, and sends nothing. If they have ended already, has no effect. */
  drop(): void {
    if (!this.#isExpiring) this.#close();
  }

  /** Ends the renewals. The guard may still end it, and so may `close` until the ttl is over. */
  letExpire(): void {
    if (this.#isExpiring || !this.open.has(this)) return;
    this.#isExpiring = true;
    let left = this.holds.length;
    const onOver = () => {
      left -= 1;
      if (left === 0) this.open.delete(this);
    };
    for (const hold of this.holds) hold.letExpire(onOver);
  }

  #close(): void {
    this.open.delete(this);
    for (const hold of this.holds) hold.end();
  }
}

/** Renews itself after each third of its ttl, until it ends or is lost. */
export class Hold {
  readonly #terms: Terms;
  readonly #renew: Renew;
  readonly #lost = new AbortController();
  readonly #ended = new AbortController();
  #untilMs: number;
  #stop: (() => void) | undefined;

  constructor(terms: Terms, renew: Renew) {
    this.#terms = terms;
    this.#renew = renew;
    this.#untilMs = terms.startedAtMs + terms.ttlMs;
    if (terms.isOnServer) this.#schedule(terms.startedAtMs);
  }

  /** The end of the ttl since the last successful renewal was sent, in ms. */
  get untilMs(): number {
    return this.#untilMs;
  }

  /** True if this process still holds it, by its own clock. */
  get held(): boolean {
    if (this.#ended.signal.aborted || this.#lost.signal.aborted) return false;
    return !this.#terms.isOnServer || this.#terms.clock.nowMs() < this.#untilMs;
  }

  /** Aborted when it is lost. */
  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  /** Renews it for another ttl, and returns `held`. Rejects if there is no reply. */
  async renew(): Promise<boolean> {
    const { clock, isOnServer, ttlMs } = this.#terms;
    if (!this.held || !isOnServer) return this.held;
    const startedAtMs = clock.nowMs();
    const isKept = await this.#renew(this.#untilMs, this.#ended.signal);
    if (!isKept) this.#lose();
    // The replies to two renewals may arrive in any order.
    else this.#untilMs = Math.max(this.#untilMs, startedAtMs + ttlMs);
    return this.held;
  }

  /** Ends the renewals. */
  end(): void {
    this.#stop?.();
    this.#ended.abort();
  }

  /** Ends the renewals, and calls `onOver` when the ttl is over, unless `end` is called before. */
  letExpire(onOver: () => void): void {
    this.end();
    const { clock } = this.#terms;
    const leftMs = this.#untilMs - clock.nowMs();
    // A renewal under way may extend the ttl.
    if (leftMs > 0) this.#stop = clock.after(leftMs, () => this.letExpire(onOver));
    else onOver();
  }

  #lose(): void {
    if (this.#ended.signal.aborted) return;
    this.#stop?.();
    this.#lost.abort(new Error(`the ${this.#terms.what} is lost`));
  }

  /** Plans the renewal that follows a third of the ttl after the last one was sent. */
  #schedule(sentAtMs: number): void {
    const { clock, ttlMs } = this.#terms;
    const dueMs = Math.min(sentAtMs + ttlMs / 3, this.#untilMs);
    this.#stop = clock.after(Math.max(0, dueMs - clock.nowMs()), () => {
      const nowMs = clock.nowMs();
      if (nowMs >= this.#untilMs) {
        this.#lose();
        return;
      }
      // The next renewal does not wait for the reply to this one.
      this.#schedule(nowMs);
      // Ignore an error: further renewals follow before the ttl is over.
      this.renew().catch(() => {});
    });
  }
}
