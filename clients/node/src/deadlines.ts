/**
 * The deadlines of calls. They share one timer, because nearly all calls end before their deadline.
 */
import type { Clock } from './clock.js';

/** A call that has a deadline. */
export interface Due {
  /** The instant of the deadline, in ms of the limiter's clock. */
  readonly endsAtMs: number;
  /** The call's index in the list of deadlines; -1 while it is not in the list. */
  place: number;
  /** Called when the deadline passes before the call has ended. */
  expire(): void;
}

/** A timer that fires later than this shows that the process was busy, in ms. */
const BUSY_MS = 20;
/**
 * The maximum time that calls get in addition if the process was busy at their deadline, in ms.
 * They may not even have been sent.
 */
const EXTRA_MAX_MS = 100;

export class Deadlines {
  /** The calls, in no order. A `Set` would delay the garbage collection of deleted entries. */
  readonly #due: Due[] = [];
  #timer: { atMs: number; stop: () => void } | undefined;
  /** True if the calls that are due have had their additional time. */
  #isExtended = false;

  constructor(private readonly clock: Clock) {}

  add(due: Due): void {
    due.place = this.#due.push(due) - 1;
    this.#wakeAt(due.endsAtMs);
  }

  /** Removes a call that has ended. */
  delete(due: Due): void {
    const { place } = due;
    if (place < 0) return;
    due.place = -1;
    const last = this.#due.pop() as Due;
    if (last !== due) {
      this.#due[place] = last;
      last.place = place;
    }
    if (this.#due.length > 0) return;
    this.#timer?.stop();
    this.#timer = undefined;
  }

  /** Calls `act` for each call. `act` may end calls. */
  each(act: (due: Due) => void): void {
    for (const due of [...this.#due]) act(due);
  }

  #wakeAt(atMs: number): void {
    if (this.#timer !== undefined && this.#timer.atMs <= atMs) return;
    this.#timer?.stop();
    const stop = this.clock.after(atMs - this.clock.nowMs(), () => this.#pass(atMs));
    this.#timer = { atMs, stop };
  }

  /** Expires the calls that are due at `atMs`. A timer may fire slightly earlier, by rounding. */
  #pass(atMs: number): void {
    this.#timer = undefined;
    const nowMs = Math.max(atMs, this.clock.nowMs());
    const lateMs = nowMs - atMs;
    if (lateMs > BUSY_MS && !this.#isExtended) {
      this.#isExtended = true;
      this.#wakeAt(nowMs + Math.min(lateMs, EXTRA_MAX_MS));
      return;
    }
    this.#isExtended = false;
    let nextMs = Number.POSITIVE_INFINITY;
    for (const due of [...this.#due]) {
      if (due.endsAtMs > nowMs) {
        nextMs = Math.min(nextMs, due.endsAtMs);
      } else {
        this.delete(due);
        due.expire();
      }
    }
    if (nextMs < Number.POSITIVE_INFINITY) this.#wakeAt(nextMs);
  }
}
