/** Follows signals of the application and of the limiter. */

/** The acts of one signal, and the listener that runs them. */
interface Following {
  readonly acts: Set<() => void>;
  readonly listener: () => void;
}

const bySignal = new WeakMap<AbortSignal, Following>();

function followed(signal: AbortSignal): Following {
  const acts = new Set<() => void>();
  const listener = () => {
    bySignal.delete(signal);
    for (const act of acts) act();
  };
  const following = { acts, listener };
  bySignal.set(signal, following);
  signal.addEventListener('abort', listener, { once: true });
  return following;
}

/**
 * Calls `act` when a signal is aborted. All calls for a signal share one listener, because Node
 * warns of more than ten.
 *
 * @param signal A signal that is not aborted yet.
 * @returns A function that takes the call back.
 */
export function whenAborted(signal: AbortSignal, act: () => void): () => void {
  const following = bySignal.get(signal) ?? followed(signal);
  const { acts, listener } = following;
  acts.add(act);
  return () => {
    acts.delete(act);
    if (acts.size > 0 || bySignal.get(signal) !== following) return;
    bySignal.delete(signal);
    signal.removeEventListener('abort', listener);
  };
}
