/**
 * The user's own connection, under our rules: nothing is queued for a server that is away, and
 * nothing is sent twice. One adapter for each driver, found by what the client can do, so that
 * neither is a dependency.
 */
import { ArgumentError } from './errors.js';
import {
  IoRedisClusterConnection,
  type IoRedisClusterLike,
  IoRedisConnection,
  type IoRedisLike,
} from './ioredis.js';
import {
  NodeRedisClusterConnection,
  type NodeRedisClusterLike,
  NodeRedisConnection,
  type NodeRedisLike,
} from './node-redis.js';
import type { Call } from './protocol.js';

export type { IoRedisClusterLike, IoRedisLike, NodeRedisClusterLike, NodeRedisLike };

/** Whether somebody waits for the answer to a call. */
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

/** Whatever a limiter can be made with. */
export type Client =
  | Connection
  | IoRedisLike
  | IoRedisClusterLike
  | NodeRedisLike
  | NodeRedisClusterLike;

/** Finds out what a client is. */
export function connectionOf(client: Client): Connection {
  if (client !== null && typeof client === 'object') {
    if ('isCluster' in client && client.isCluster) return new IoRedisClusterConnection(client);
    if ('call' in client && 'duplicate' in client) return new IoRedisConnection(client);
    // Version 4 ends the process when its connection breaks at a wrong moment, and has no
    // `destroy`; a client of the callback style (`legacy()`) has no promises, and no `isOpen`.
    const isNodeRedis5 = 'isOpen' in client && 'sendCommand' in client && 'destroy' in client;
    const isCluster = 'masters' in client;
    if (isNodeRedis5 && isCluster)
      return new NodeRedisClusterConnection(client as Client as NodeRedisClusterLike);
    if (isNodeRedis5) return new NodeRedisConnection(client as NodeRedisLike);
    if ('send' in client && typeof client.send === 'function') return client;
  }
  throw new ArgumentError(
    'client',
    'a client of ioredis 5 or node-redis 5, or newer, or a Connection',
  );
}
