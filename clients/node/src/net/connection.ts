/** The connection of a limiter: the application's own client, behind the adapter for its driver. */
import type { Waiting } from '../rules/aborting.js';
import type { Call } from '../wire/words.js';

/** The connection of a limiter. Custom transports and fakes can implement it. */
export interface Connection {
  /**
   * Sends a call once, on a connection that is open. Rejects with the driver's own error. A call
   * stays in flight until its promise is settled or its node is silent.
   */
  send(call: Call, waiting: Waiting): Promise<unknown>;
  /**
   * Opens a connection to a node, or rejects. No call is sent before. Without this method `send`
   * dials by itself, and each rejection without a reply is a failure for the circuit breaker.
   *
   * @param node The name that `nodeOf` has returned; undefined for a single server.
   * @param patienceMs The time after which the dial has failed. Default: the usual one.
   */
  connect?(node: string | undefined, patienceMs?: number | undefined): Promise<unknown>;
  /**
   * Closes every connection to a node that is open now; the next call dials again. Returns false if
   * none is open. Without this method no connection is retired.
   */
  retire?(node: string | undefined): boolean;
  /** Returns true if a connection to a node is open. Required with `connect`. */
  isUp?(node: string | undefined): boolean;
  /** Only in a cluster: returns a name for the node that a call goes to, if it is known. */
  nodeOf?(call: Pick<Call, 'keys'>): string | undefined;
  /** Only in a cluster: returns a connection to each primary, for commands without a key. */
  primaries?(): Connection[] | Promise<Connection[]>;
  /** Closes what the adapter itself has opened, never the application's client. */
  close?(): void;
}
