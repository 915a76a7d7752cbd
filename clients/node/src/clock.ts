/** The only clock: time-outs, the breaker, caches and leases use it, so that a test can move it. */
export interface Clock {
  /** Ms since some moment; never goes back. */
  nowMs(): number;
  /**
   * Runs `call` after `ms` at the earliest, and returns a function that cancels it. Does not keep
   * the process alive.
   */
  after(ms: number, call: () => void): () => void;
}

/** The longest time that a timer of Node can wait; a longer one fires at once. */
const TIMER_MAX_MS = 2 ** 31 - 1;

export const systemClock: Clock = Object.freeze({
  nowMs: () => performance.now(),
  after(ms: number, call: () => void) {
    if (ms <= TIMER_MAX_MS) {
      let late: NodeJS.Immediate | undefined;
      // One turn of the loop later: a process that was busy past the deadline reads first what has
      // arrived meanwhile. Otherwise an answer that is there would count as missing.
      const timer = setTimeout(() => {
        // Not unref'ed, or the loop may sleep until something else wakes it.
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

/** Waits `ms` by a clock; rejects with the signal's reason. */
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
