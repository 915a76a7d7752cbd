/** The deadlines of calls: one timer for all, because nearly all calls end before theirs. */
import type { Clock } from './clock.js';

/** A call that has a deadline. */
export interface Due {
  /** By the clock. */
  readonly endsAtMs: number;
  /** Index in the list of deadlines; -1 before and after. */
  place: number;
  /** Called when the deadline passes first. */
  expire(): void;
}

export class Deadlines {
  /** Unordered. Not a `Set`, which keeps deleted entries from the garbage collector for long. */
  readonly #due: Due[] = [];
  #timer: { atMs: number; stop: () => void } | undefined;

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

  #wakeAt(atMs: number): void {
    if (this.#timer !== undefined && this.#timer.atMs <= atMs) return;
    this.#timer?.stop();
    const stop = this.clock.after(atMs - this.clock.nowMs(), () => this.#pass(atMs));
    this.#timer = { atMs, stop };
  }

  /** Expires calls. A timer may fire a bit early, by rounding, so `atMs` counts as passed. */
  #pass(atMs: number): void {
    this.#timer = undefined;
    const nowMs = Math.max(atMs, this.clock.nowMs());
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
