/** The shape of an algorithm and of its decisions. */

/** An algorithm's decision and the state after it; a denial has no state. */
export interface Verdict<State> {
  allowed: boolean;
  limit: number;
  remaining: number;
  retryAfterMs: number;
  resetAfterMs: number;
  state: State | undefined;
}

/** One algorithm with its limits. The state is `undefined` for a key without calls. */
export interface Algorithm<State = unknown> {
  decide(state: State | undefined, nowUs: bigint, cost: number): Verdict<State>;
  /**
   * Takes units even if fewer are left; the difference is a debt. The verdict's `retryAfterMs` is
   * the time until the debt is paid. Cost 0 only reports the debt.
   */
  charge(state: State | undefined, nowUs: bigint, cost: number): Verdict<State>;
  /** Gives units back. Returns undefined if no units are in use any more. */
  refund(state: State, nowUs: bigint, cost: number): State | undefined;
  /**
   * Only of an algorithm that refills evenly: returns the state of a key whose full allowance is
   * available after `resetUs`.
   */
  until?(resetUs: bigint, nowUs: bigint): State;
}

export const max = (a: bigint, b: bigint): bigint => (a > b ? a : b);
export const ceilDiv = (a: bigint, b: bigint): bigint => (a + b - 1n) / b;
/** Returns a time in ms, rounded up. */
export const ms = (us: bigint): number => Number(ceilDiv(us, 1000n));
