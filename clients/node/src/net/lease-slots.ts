/** The slots of renewals and ends, in addition to the places of calls. */
import type { Clock } from '../rules/clock.js';

/** The slots of one node, either of its renewals or of its ends. */
export class LeaseSlots {
  #free: number;
  readonly #waiting = new Set<(isGiven: boolean) => void>();

  constructor(
    private readonly clock: Clock,
    size: number,
  ) {
    this.#free = size;
  }

  /** Takes a slot, or waits for one until `untilMs`. Returns false if none was free in time. */
  take(untilMs: number): Promise<boolean> {
    if (this.#free > 0) {
      this.#free -= 1;
      return Promise.resolve(true);
    }
    return new Promise((resolve) => {
      const end = (isGiven: boolean) => {
        stop();
        this.#waiting.delete(end);
        resolve(isGiven);
      };
      const stop = this.clock.after(Math.max(0, untilMs - this.clock.nowMs()), () => end(false));
      this.#waiting.add(end);
    });
  }

  /** Returns a slot. The one that has waited longest gets it. */
  put(): void {
    const [next] = this.#waiting;
    if (next === undefined) this.#free += 1;
    else next(true);
  }

  /** Ends all that wait for a slot. */
  close(): void {
    for (const end of [...this.#waiting]) end(false);
  }
}
