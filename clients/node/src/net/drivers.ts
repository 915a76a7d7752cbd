/**
 * Finds the adapter for the application's client by the methods that the client has, so that no
 * driver is a dependency. Every adapter sends a call once, and queues no call for a server that is
 * down.
 */
import { InvalidArgumentError } from '../rules/errors.js';
import type { Connection } from './connection.js';
import type { Dialling } from './generations.js';
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

/** The clients that a limiter accepts. */
export type Client =
  | Connection
  | IoRedisLike
  | IoRedisClusterLike
  | NodeRedisLike
  | NodeRedisClusterLike;

/** Returns the adapter for a client. */
export function connectionOf(client: Client, terms: Dialling): Connection {
  if (client !== null && typeof client === 'object') {
    if ('isCluster' in client && client.isCluster)
      return new IoRedisClusterConnection(client, terms);
    if ('call' in client && 'duplicate' in client) return new IoRedisConnection(client, terms);
    // node-redis 4, which has no `destroy`, ends the process if its connection breaks at a wrong
    // moment. A client in callback style (`legacy()`) has no promises and no `isOpen`.
    const isNodeRedis5 = 'isOpen' in client && 'sendCommand' in client && 'destroy' in client;
    const isCluster = 'masters' in client;
    if (isNodeRedis5 && isCluster)
      return new NodeRedisClusterConnection(client as Client as NodeRedisClusterLike, terms);
    if (isNodeRedis5) return new NodeRedisConnection(client as NodeRedisLike, terms);
    if ('send' in client && typeof client.send === 'function') {
      // Without it, no call would be sent after a dial.
      if (client.connect !== undefined && client.isUp === undefined) {
        throw new InvalidArgumentError('client', 'a Connection with `isUp`, as it has `connect`');
      }
      return client;
    }
  }
  const expected = 'a client of ioredis 5 or 6, of node-redis 5.9 or 6, or a Connection';
  const isText = typeof client === 'string';
  const hint = isText ? '; Limiter.fromUrl makes a limiter of a URL' : '';
  throw new InvalidArgumentError('client', `${expected}${hint}`);
}
