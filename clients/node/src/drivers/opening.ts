/** Waiting for a client of a driver to open. */
import { MistakeError, UnavailableError } from '../errors.js';

/** Nobody was asked. */
export function away(message: string): UnavailableError {
  return new UnavailableError('connection', message);
}

/** As Node declares it. */
// biome-ignore lint/suspicious/noExplicitAny: what an event has is its own affair
export type Listener = (...args: any[]) => void;

/** What both drivers' clients are. */
export interface Emitter {
  on(event: string, listener: Listener): unknown;
  off(event: string, listener: Listener): unknown;
}

/** Of each client that opens: many calls wait for it, and listen to it once. */
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
  // Who waited for it may have given up.
  opening.catch(() => {});
  openings.set(client, opening);
  return opening;
}

/** Waits for a client that is on its way for the first time, no longer than `signal` allows. */
export function untilReady(client: Emitter, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(away('the connection could not be opened'));
    signal.addEventListener('abort', onAbort, { once: true });
    const stop = () => signal.removeEventListener('abort', onAbort);
    openingOf(client).then(resolve, reject).finally(stop);
  });
}

/** Waits for what ends by itself, no longer than `signal` allows. */
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
 * What a server said when it did not let a client in: a mistake of the program that no call would
 * hear of, for none is sent.
 */
export class Refusal {
  readonly #client: Emitter;
  #error: MistakeError | undefined;

  readonly #onError = (error: unknown) => {
    // A cluster of ioredis tells of its nodes together.
    const { message = '' } = (error as { lastNodeError?: Error }).lastNodeError ?? (error as Error);
    // ioredis writes before it what it was about to do.
    const said = /(?:^|: )((WRONGPASS|NOAUTH|NOPERM) .*)/s.exec(message);
    this.#error = said
      ? new MistakeError(said[2] as string, said[1] as string, { cause: error })
      : undefined;
  };
  readonly #onReady = () => {
    this.#error = undefined;
  };

  constructor(client: Emitter) {
    this.#client = client;
    // Of our own clients it is the only listener, without which an error would end the process.
    client.on('error', this.#onError);
    client.on('ready', this.#onReady);
  }

  /** Of a client that is not there: throws what keeps it away. */
  throwIfAny(): void {
    if (this.#error !== undefined) throw this.#error;
  }

  /** What ends with the refusal where that came first. */
  async during(opening: Promise<void>): Promise<void> {
    await opening.catch((error) => {
      this.throwIfAny();
      throw error;
    });
  }

  /** Listens no longer to a client that lives on. */
  end(): void {
    this.#client.off('error', this.#onError);
    this.#client.off('ready', this.#onReady);
  }
}
