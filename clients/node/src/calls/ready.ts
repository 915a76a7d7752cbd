/** Checks that the server answers. */

import { mayHaveRun, UnavailableError } from '../rules/errors.js';
import { probe } from '../wire/words.js';
import type { Decider } from './decider.js';

/** The shortest time of `ready`, in ms. */
const READY_MIN_MS = 5000;

/** Returns once the server has answered a call of the key; see `Limiter.ready`. */
export async function answered(
  decider: Decider,
  key: string,
  timeoutMs: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  const patienceMs = Math.max(READY_MIN_MS, timeoutMs);
  try {
    await decider.answer(probe(key), { signal, patienceMs });
  } catch (error) {
    if (!mayHaveRun(error)) throw error;
    const { reason, message, cause } = error as UnavailableError;
    const came = 'connected, logged in, no reply to RL.PEEK';
    throw new UnavailableError(reason, `${message}: ${came}`, { cause });
  }
}
