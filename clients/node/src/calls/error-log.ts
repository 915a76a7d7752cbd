/** Logs that decisions are made without an answer, so that an outage does not go unnoticed. */
import type { Clock } from '../rules/clock.js';
import type { UnavailableReason } from '../rules/errors.js';

/** The shortest time between two lines of one reason, in ms. */
const PAUSE_MS = 1000;

/** The calls since the last line of a reason. */
interface Since {
  calls: number;
  stop: () => void;
}

/** Writes at most one warning per second and reason. No line has a key or a subject. */
export class ErrorLog {
  readonly #since = new Map<UnavailableReason, Since>();

  constructor(private readonly clock: Clock) {}

  /** Counts a call that was decided without an answer. The first of a reason is logged at once. */
  add(reason: UnavailableReason): void {
    const since = this.#since.get(reason);
    if (since === undefined) this.#write(reason, 1);
    else since.calls += 1;
  }

  #write(reason: UnavailableReason, calls: number): void {
    console.warn(`redis-throttle: ${calls} calls decided without an answer: ${reason}`);
    const since: Since = {
      calls: 0,
      stop: this.clock.after(PAUSE_MS, () => {
        if (since.calls > 0) this.#write(reason, since.calls);
        else this.#since.delete(reason);
      }),
    };
    this.#since.set(reason, since);
  }

  /** Logs the rest. */
  close(): void {
    for (const [reason, { calls, stop }] of [...this.#since]) {
      stop();
      this.#since.delete(reason);
      if (calls === 0) continue;
      this.#write(reason, calls);
      this.#since.get(reason)?.stop();
    }
  }
}
