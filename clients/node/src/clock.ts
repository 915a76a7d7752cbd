/**
 * The one clock: time-outs, the breaker, caches and leases run on it, so that a test can move it.
 */
export interface Clock {
  /** Ms since some moment; never goes back. */
  nowMs(): number;
  /**
   * Calls back after so many ms; what it returns takes that back. Does not keep a process alive.
   */
  after(ms: number, call: () => void): () => void;
}

export const systemClock: Clock = Object.freeze({
  nowMs: () => performance.now(),
  after(ms: number, call: () => void) {
    const timer = setTimeout(call, ms);
    timer.unref();
    return () => clearTimeout(timer);
  },
});
