/** What a limiter asks: the user's own connection, behind the adapter of its driver. */
import type { Call } from '../protocol.js';

/** Whether a caller still waits for the answer to a call. */
export interface Waiting {
  readonly ended: boolean;
  /** Aborted when it ends. Made when it is first read: it costs more than the rest of a call. */
  readonly signal: AbortSignal;
}

/** What a limiter asks. Own transports and fakes implement it. */
export interface Connection {
  /**
   * Sends a call once. When nobody waits for it any more, what is not yet sent is not to be sent.
   * Rejects with the driver's own error.
   */
  send(call: Call, waiting: Waiting): Promise<unknown>;
  /** Of a cluster: the node that a call goes to, by a name of its own, as far as it is known. */
  nodeOf?(call: Pick<Call, 'keys'>): string | undefined;
  /** Of a cluster: a connection to each node that has slots, for what has no key. */
  primaries?(): Connection[];
  /** Ends what the adapter opened by itself; never the user's client. */
  close?(): void;
}
