/** The deadlines of calls, nearly all of which end before: one timer for all of them. */
import type { Clock } from './clock.js';

/** What has to end in time. */
export interface Due {
  /** By the clock. */
  readonly endsAtMs: number;
  /** Where it is kept until then; -1 before and after. */
  place: number;
  /** It has not. */
  expire(): void;
}

export class Deadlines {
  /** In no order. A `Set` would keep what it has forgotten from the garbage collector for long. */
  readonly #due: Due[] = [];
  #timer: { atMs: number; stop: () => void } | undefined;

  constructor(private readonly clock: Clock) {}

  add(due: Due): void {
    due.place = this.#due.push(due) - 1;
    this.#wakeAt(due.endsAtMs);
  }

  /** It has ended. */
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

  /** A timer may be a bit early, by rounding: what it was set for is over. */
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
