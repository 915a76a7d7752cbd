/**
 * The only clock. Deadlines, the breaker, caches and leases use it, so that a test can advance it.
 */
import { whenAborted } from './aborting.js';

export interface Clock {
  /** The ms since some fixed moment. The value never goes back. */
  nowMs(): number;
  /**
   * Runs `call` after at least `ms`, and returns a function that cancels it. A pending call does
   * not keep the process alive.
   */
  after(ms: number, call: () => void): () => void;
}

/** The longest time that a timer of Node can wait; a longer timer fires at once. */
const TIMER_MAX_MS = 2 ** 31 - 1;

export const systemClock: Clock = Object.freeze({
  nowMs: () => performance.now(),
  after(ms: number, call: () => void) {
    if (ms <= TIMER_MAX_MS) {
      let late: NodeJS.Immediate | undefined;
      // Run `call` one turn of the event loop later. If the process was busy past the deadline, it
      // then first reads the replies that have arrived. Otherwise those replies would count as
      // missing.
      const timer = setTimeout(() => {
        // Do not `unref` it: the loop might then sleep until another event wakes it.
        late = setImmediate(call);
      }, ms);
      timer.unref();
      return () => {
        clearTimeout(timer);
        clearImmediate(late);
      };
    }
    let stop = systemClock.after(TIMER_MAX_MS, () => {
      stop = systemClock.after(ms - TIMER_MAX_MS, call);
    });
    return () => stop();
  },
});

/** Waits `ms` on the given clock. Rejects with the signal's reason if it is aborted. */
export function sleep(clock: Clock, ms: number, signal: AbortSignal | undefined): Promise<void> {
  if (signal?.aborted) return Promise.reject(signal.reason);
  return new Promise((resolve, reject) => {
    let unfollow = () => {};
    const stop = clock.after(ms, () => {
      unfollow();
      resolve();
    });
    if (signal === undefined) return;
    unfollow = whenAborted(signal, () => {
      stop();
      reject(signal.reason);
    });
  });
}
