/** A caller that waits for an answer until it gives up. */
import type { Waiting } from './connection.js';

export class UntilGivenUp implements Waiting {
  #controller: AbortController | undefined;
  ended = false;

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.ended) this.#controller.abort();
    }
    return this.#controller.signal;
  }

  end(): void {
    this.ended = true;
    this.#controller?.abort();
  }
}
