/** The time for the waiting of several calls together. */
import { ROUNDING_MS } from '../net/clock.js';

export class Budget {
  /** False until the first dial to the node of the first call has ended. */
  hasBegun = false;

  constructor(public leftMs: number) {}

  get isOver(): boolean {
    return this.leftMs < ROUNDING_MS;
  }
}
