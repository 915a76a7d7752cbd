/**
 * The one clock: time-outs, the breaker, caches and leases run on it, so that a test can move it.
 */
export interface Clock {
  /** Ms since some moment; never goes back. */
  nowMs(): number;
  /**
   * Calls back after so many ms, at the earliest; what it returns takes that back. Does not keep a
   * process alive.
   */
  after(ms: number, call: () => void): () => void;
}

/** The longest that a timer of Node can wait; it would fire at once for anything above. */
const TIMER_MAX_MS = 2 ** 31 - 1;

export const systemClock: Clock = Object.freeze({
  nowMs: () => performance.now(),
  after(ms: number, call: () => void) {
    if (ms <= TIMER_MAX_MS) {
      let late: NodeJS.Immediate | undefined;
      // A turn of the loop later: who was busy for longer than that finds what has come meanwhile
      // first. Else an answer that is there would be taken for one that did not come.
      const timer = setTimeout(() => {
        // Not one that the loop may sleep before: it would until something else wakes it.
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

/** Waits so many ms of a clock; rejects with the signal's reason. */
export function sleep(clock: Clock, ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = clock.after(ms, () => {
      signal?.removeEventListener('abort', onAbort);
      resolve();
    });
    const onAbort = () => {
      stop();
      reject(signal?.reason);
    };
    if (signal?.aborted) onAbort();
    else signal?.addEventListener('abort', onAbort, { once: true });
  });
}
