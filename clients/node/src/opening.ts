/** Waiting for a client of a driver to open. */
import { UnavailableError } from './errors.js';

/** Nobody was asked. */
export function away(message: string): UnavailableError {
  return new UnavailableError('connection', message);
}

/** What both drivers' clients are. */
export interface Emitter {
  on(event: string, listener: (...args: never[]) => void): unknown;
  off(event: string, listener: (...args: never[]) => void): unknown;
}

/** Waits for a client that is on its way for the first time, no longer than `signal` allows. */
export function untilReady(client: Emitter, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (act: () => void) => () => {
      client.off('ready', onReady);
      for (const event of ['error', 'close', 'end']) client.off(event, onEnd);
      signal.removeEventListener('abort', onEnd);
      act();
    };
    const onReady = settle(resolve);
    const onEnd = settle(() => reject(away('the connection could not be opened')));
    client.on('ready', onReady);
    for (const event of ['error', 'close', 'end']) client.on(event, onEnd);
    signal.addEventListener('abort', onEnd, { once: true });
  });
}
