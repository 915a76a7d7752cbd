/** Follows signals and clients of the application, and callers that may give up. */

/** The acts that follow an event of one source, and the listener that runs them. */
interface Following {
  readonly acts: Set<() => void>;
  readonly listener: () => void;
}

/**
 * Follows an event of many sources. All calls for a source share one listener, because Node warns
 * of more than ten.
 */
export class Followers<Source extends object> {
  readonly #bySource = new WeakMap<Source, Following>();

  /**
   * Calls `act` at each event of a source.
   *
   * @param on Adds the listener to the source. Called for the first act.
   * @param off Removes it. Called when the last act is taken back.
   * @returns A function that takes the act back.
   */
  add(
    source: Source,
    act: () => void,
    on: (listener: () => void) => unknown,
    off: (listener: () => void) => unknown,
  ): () => void {
    let following = this.#bySource.get(source);
    if (following === undefined) {
      const acts = new Set<() => void>();
      const listener = () => {
        for (const one of [...acts]) one();
      };
      following = { acts, listener };
      this.#bySource.set(source, following);
      on(listener);
    }
    const { acts, listener } = following;
    acts.add(act);
    return () => {
      acts.delete(act);
      if (acts.size > 0 || this.#bySource.get(source)?.acts !== acts) return;
      this.#bySource.delete(source);
      off(listener);
    };
  }
}

const aborts = new Followers<AbortSignal>();

/**
 * Calls `act` when a signal is aborted.
 *
 * @param signal A signal that is not aborted yet.
 * @returns A function that takes the call back.
 */
export function whenAborted(signal: AbortSignal, act: () => void): () => void {
  return aborts.add(
    signal,
    act,
    (listener) => signal.addEventListener('abort', listener, { once: true }),
    (listener) => signal.removeEventListener('abort', listener),
  );
}

/** The caller that waits for a call, and may have given up. */
export interface Waiting {
  readonly ended: boolean;
  /**
   * Aborted when the caller stops waiting. Created on first use, because creating it costs more
   * than the rest of a call.
   */
  readonly signal: AbortSignal;
  /**
   * Called by an adapter that must wait before it can send the call again, after a redirection.
   *
   * @param node The name of the node that the connection leads to, if it is known.
   */
  waits?(node?: string): void;
  /**
   * Called when a call that waited is sent. Other calls count as sent when `send` is called.
   *
   * @param node The name of the node that the call goes to; undefined for a single server.
   */
  sends?(node: string | undefined): void;
}

/** A caller that waits for a result until it gives up. */
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
