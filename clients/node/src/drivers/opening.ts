/** Waits until a driver's client is open. */
import { CommandRejectedError, NotSentError } from '../errors.js';

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

/** One entry per client that is being opened: all calls wait for it with one set of listeners. */
const openings = new WeakMap<Emitter, Promise<void>>();

function openingOf(client: Emitter): Promise<void> {
  const known = openings.get(client);
  if (known !== undefined) return known;
  const opening = new Promise<void>((resolve, reject) => {
    const settle = (act: () => void) => () => {
      openings.delete(client);
      client.off('ready', onReady);
      for (const event of ['error', 'close', 'end']) client.off(event, onEnd);
      act();
    };
    const onReady = settle(resolve);
    const onEnd = settle(() => reject(away('the connection could not be opened')));
    client.on('ready', onReady);
    for (const event of ['error', 'close', 'end']) client.on(event, onEnd);
  });
  // All callers may have given up. A rejection that no code handles ends the process.
  opening.catch(() => {});
  openings.set(client, opening);
  return opening;
}

/** Waits until a client that is being opened is ready, or until `signal` is aborted. */
export function untilReady(client: Emitter, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(away('the connection could not be opened'));
    signal.addEventListener('abort', onAbort, { once: true });
    const stop = () => signal.removeEventListener('abort', onAbort);
    openingOf(client).then(resolve, reject).finally(stop);
  });
}

/** Returns the result of `opening`, or rejects when `signal` is aborted. */
export function unlessAborted<T>(opening: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(away('the connection could not be opened'));
    signal.addEventListener('abort', onAbort, { once: true });
    const stop = () => signal.removeEventListener('abort', onAbort);
    opening.then(resolve, reject).finally(stop);
  });
}

/** Waits for `ending`, or until `signal` is aborted. */
export function endedBy(ending: Promise<unknown>, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(away('the connection could not be opened'));
    signal.addEventListener('abort', onAbort, { once: true });
    ending.finally(() => {
      signal.removeEventListener('abort', onAbort);
      resolve();
    });
  });
}

/**
 * Keeps the error with which the server refused a client's login, so that calls can throw it: after
 * a refused login no call is sent. The error is one in the program or its setup.
 */
export class Refusal {
  readonly #client: Emitter;
  #error: CommandRejectedError | undefined;

  readonly #onError = (error: unknown) => {
    // A cluster of ioredis reports the errors of its nodes together.
    const { message = '' } = (error as { lastNodeError?: Error }).lastNodeError ?? (error as Error);
    // ioredis puts a text of its own in front of the server's text.
    const said = /(?:^|: )((WRONGPASS|NOAUTH|NOPERM) .*)/s.exec(message);
    this.#error = said
      ? new CommandRejectedError(said[2] as string, said[1] as string, { cause: error })
      : undefined;
  };
  readonly #onReady = () => {
    this.#error = undefined;
  };

  constructor(client: Emitter) {
    this.#client = client;
    // The adapter's own clients have no other listener. Without a listener, an error ends the
    // process.
    client.on('error', this.#onError);
    client.on('ready', this.#onReady);
  }

  /** Throws the refusal, if there was one. */
  throwIfAny(): void {
    if (this.#error !== undefined) throw this.#error;
  }

  /** Waits for `opening`. If it fails after a refusal, throws the refusal. */
  async during(opening: Promise<unknown>): Promise<void> {
    await opening.catch((error) => {
      this.throwIfAny();
      throw error;
    });
  }

  /** Removes the listeners from a client that stays open. */
  end(): void {
    this.#client.off('error', this.#onError);
    this.#client.off('ready', this.#onReady);
  }
}
