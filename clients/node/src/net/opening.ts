/** Waits until a driver's client is open. */
import { Followers, whenAborted } from '../rules/aborting.js';
import type { Clock } from '../rules/clock.js';
import { CommandRejectedError, NotSentError } from '../rules/errors.js';

/** Makes the error of a call that was not sent. */
export function away(message: string): NotSentError {
  return new NotSentError('connection', message);
}

/** The type of a listener, as Node declares it. */
// biome-ignore lint/suspicious/noExplicitAny: an event may have any arguments
export type Listener = (...args: any[]) => void;

/** The methods that the clients of both drivers have. */
export interface Emitter {
  on(event: string, listener: Listener): unknown;
  off(event: string, listener: Listener): unknown;
}

const endings = new Followers<Emitter>();

/**
 * Calls `act` when a client of the application ends.
 *
 * @returns A function that takes the call back.
 */
export function whenEnded(client: Emitter, event: string, act: () => void): () => void {
  return endings.add(
    client,
    act,
    (listener) => client.on(event, listener),
    (listener) => client.off(event, listener),
  );
}

/** Returns the result of `opening`, or rejects with this text after `ms`. */
export async function within<T>(
  clock: Clock,
  ms: number,
  opening: Promise<T>,
  text: string,
): Promise<T> {
  let stop = () => {};
  const late = new Promise<never>((_, reject) => {
    stop = clock.after(ms, () => reject(away(text)));
  });
  try {
    return await Promise.race([late, opening]);
  } finally {
    stop();
  }
}

/** Returns the result of `opening`, or rejects when `signal` is aborted. */
export function unlessAborted<T>(opening: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const unfollow = whenAborted(signal, () => {
      reject(away('the connection could not be opened'));
    });
    opening.then(resolve, reject).finally(unfollow);
  });
}

/**
 * Keeps the error with which the server refused a client's login, so that calls can throw it: after
 * a refused login no call is sent. The error is one in the program or its setup.
 */
export class Refusal {
  #error: CommandRejectedError | undefined;
  #fail: (error: unknown) => void = () => {};

  /** @param client A client of the adapter. Without a listener, its errors end the process. */
  constructor(client: Emitter) {
    client.on('error', (cause: Error) => {
      // ioredis puts a text of its own in front of the server's text.
      const said = /(?:^|: )((WRONGPASS|NOAUTH|NOPERM) .*)/s.exec(cause.message);
      this.#error = said
        ? new CommandRejectedError(said[2] as string, said[1] as string, { cause })
        : undefined;
      this.#fail(this.#error ?? cause);
    });
  }

  /** Waits for `opening`. If it fails after a refusal, throws the refusal. */
  async during(opening: Promise<unknown>): Promise<void> {
    await opening.catch((error) => {
      throw this.#error ?? error;
    });
  }

  /**
   * Waits for `opening`, or until the client reports an error. node-redis 5 waits for ever if the
   * connection closes before the login has ended.
   */
  duringOrError(opening: Promise<unknown>): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#fail = reject;
      this.during(opening).then(resolve, reject);
    });
  }
}
