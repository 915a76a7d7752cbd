/**
 * The time in which the process runs. The deadlines of calls, dials and searches count it, so that
 * a process that stood still for a while takes no server for silent.
 */
import type { Clock } from '../rules/clock.js';

/** The ms that a firing may be late and still count in full. */
const LATE_MAX_MS = 10;
/** A deadline that is this near is over: sums of fractions are not exact. */
export const ROUNDING_MS = 0.001;

interface Timer {
  readonly atMs: number;
  readonly call: () => void;
}

/**
 * Fires once per tick, or at the next deadline if that is earlier, while something waits. Each
 * firing adds the time since the last one, but at most the time after which it was due and 10 ms.
 */
export class RunClock implements Clock {
  #ranMs = 0;
  /** The instant of the last firing, in ms of `clock`. */
  #firedAtMs = 0;
  /** The time after which the next firing is due, in ms. */
  #plannedMs = 0;
  #stop: (() => void) | undefined;
  readonly #timers = new Set<Timer>();
  /**
   * Called at each firing. Ends what is due, and returns the next deadline; infinity if nothing
   * waits.
   */
  onTick: (ranMs: number, nowMs: number) => number = () => Number.POSITIVE_INFINITY;
  /** Returns true if no call waits. */
  isIdle: () => boolean = () => true;

  constructor(
    readonly clock: Clock,
    private readonly tickMs: number,
  ) {}

  nowMs(): number {
    return this.at(this.clock.nowMs());
  }

  /** Returns the run time at this instant of `clock`, which is not before the last firing. */
  at(nowMs: number): number {
    if (this.#stop === undefined) return this.#ranMs;
    return this.#ranMs + Math.min(nowMs - this.#firedAtMs, this.#plannedMs + LATE_MAX_MS);
  }

  after(ms: number, call: () => void): () => void {
    const nowMs = this.clock.nowMs();
    const timer = { atMs: this.at(nowMs) + ms, call };
    this.#timers.add(timer);
    this.wake(timer.atMs, nowMs);
    return () => {
      if (this.#timers.delete(timer) && this.isIdle()) this.rest();
    };
  }

  /**
   * Makes the clock fire at `atMs` of its own time at the latest. A clock that fires earlier anyway
   * is left alone, which costs nothing.
   */
  wake(atMs: number, nowMs: number): void {
    if (this.#stop !== undefined) {
      if (atMs >= this.#ranMs + this.#plannedMs) return;
      this.#stop();
      this.#add(nowMs);
    }
    this.#firedAtMs = nowMs;
    this.#plannedMs = Math.max(0, Math.min(this.tickMs, atMs - this.#ranMs));
    this.#stop = this.clock.after(this.#plannedMs, () => this.#fire());
  }

  /** Stops the clock, if no timer of its own waits. Called when no call waits. */
  rest(): void {
    if (this.#stop === undefined || this.#timers.size > 0) return;
    this.#stop();
    this.#stop = undefined;
    // The next call must not come earlier than what was heard. Nothing else depends on this time.
    this.#ranMs += this.#plannedMs + LATE_MAX_MS;
  }

  /** Adds the time since the last firing. */
  #add(nowMs: number): void {
    this.#ranMs = this.at(nowMs);
    this.#firedAtMs = nowMs;
  }

  #fire(): void {
    const nowMs = this.clock.nowMs();
    this.#add(nowMs);
    this.#stop = undefined;
    const dueMs = this.#ranMs + ROUNDING_MS;
    let nextMs = this.onTick(dueMs, nowMs);
    for (const timer of [...this.#timers]) {
      if (timer.atMs > dueMs) nextMs = Math.min(nextMs, timer.atMs);
      else if (this.#timers.delete(timer)) timer.call();
    }
    if (nextMs < Number.POSITIVE_INFINITY) this.wake(nextMs, nowMs);
  }
}

export class Budget {
  /** False until the first dial to the node of the first call has ended. */
  hasBegun = false;

  constructor(public leftMs: number) {}

  get isOver(): boolean {
    return this.leftMs < ROUNDING_MS;
  }
}
