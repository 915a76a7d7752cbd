/** What few calls have. */
import type { Budget } from './budget.js';

export interface Extras {
  signal?: AbortSignal | undefined;
  /** Default: the whole time, for this call alone. */
  budget?: Budget | undefined;
  /**
   * Called if the call was sent and its caller has gone: with the late reply, or with undefined
   * when its connection closed.
   */
  onLate?: ((reply: unknown) => void) | undefined;
  /** The time of `ready`, in ms, which no silence ends and which its dial has too. */
  patienceMs?: number | undefined;
}
