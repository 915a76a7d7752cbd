/**
 * Watches the sent commands whose callers gave up. If all callers give up early, no call times out,
 * and a connection that fell silent would stay.
 */
import type { Clock } from './clock.js';
import { CommandRejectedError, type UnavailableError } from './errors.js';

/** The number of answers that arrived from a node. */
export interface Arrivals {
  count: number;
}

/** Returns true if the server sent this error. */
export function isAnswer(error: CommandRejectedError | UnavailableError): boolean {
  return error instanceof CommandRejectedError || error.reason === 'server';
}

export class Watch {
  readonly #arrivals = new Map<string | undefined, Arrivals>();
  /** Called with the name of the node whose connection is silent. */
  onSilent: (node: string | undefined) => void = () => {};

  constructor(
    private readonly clock: Clock,
    private readonly timeoutMs: number,
  ) {}

  of(node: string | undefined): Arrivals {
    let arrivals = this.#arrivals.get(node);
    if (arrivals === undefined) {
      arrivals = { count: 0 };
      this.#arrivals.set(node, arrivals);
    }
    return arrivals;
  }

  /**
   * Watches a command until `timeoutMs` after it was sent.
   *
   * @param arrived The number of answers from the node when the command was sent.
   * @returns A function that ends the watch. Called when the driver settles the command.
   */
  begin(node: string | undefined, sentAtMs: number, arrived: number): () => void {
    const arrivals = this.of(node);
    const leftMs = Math.max(0, sentAtMs + this.timeoutMs - this.clock.nowMs());
    return this.clock.after(leftMs, () => {
      if (arrivals.count === arrived) this.onSilent(node);
    });
  }
}
