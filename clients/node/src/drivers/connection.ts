/** The connection of a limiter: the user's own client, behind the adapter of its driver. */
import type { Call } from '../protocol.js';

/** A call's caller: whether it still waits for the answer. */
export interface Waiting {
  readonly ended: boolean;
  /** Aborted when the call ends. Made on first use: it costs more than the rest of a call. */
  readonly signal: AbortSignal;
}

/** The connection of a limiter. Custom transports and fakes implement it. */
export interface Connection {
  /**
   * Sends a call once. If the caller gives up before the call is sent, it must not be sent. Rejects
   * with the driver's own error.
   */
  send(call: Call, waiting: Waiting): Promise<unknown>;
  /** Cluster only: returns a name for the node that a call goes to, if it is known. */
  nodeOf?(call: Pick<Call, 'keys'>): string | undefined;
  /** Cluster only: returns a connection to each primary, for commands without a key. */
  primaries?(): Connection[];
  /** Ends what the adapter opened itself; never the user's client. */
  close?(): void;
}
