/** The drivers, each in the lowest and the highest version that the client supports. */
import * as ioredis from 'ioredis';
import Redis5 from 'ioredis-5';
import * as redis from 'redis';
import * as redis5 from 'redis-5';
import type { Client } from '../../src/index.js';

/** A client of the application, as the limiter and the tests use it. */
export interface Opened {
  client: Client;
  ping(): Promise<unknown>;
  close(): unknown;
}

/** Opens a client, or a cluster, for the servers on these ports. */
export type Open = (ports: readonly number[], options?: object) => Promise<Opened>;

const RETRY_MS = 20;
/** The oldest versions of ioredis have one export only. */
const ioredis5 = { Redis: Redis5, Cluster: Redis5.Cluster } as unknown as typeof ioredis;

const nodeRedis =
  ({ createClient }: Pick<typeof redis, 'createClient'>): Open =>
  async ([port], { socket, ...options }: { socket?: object } = {}) => {
    const reached = { port, reconnectStrategy: RETRY_MS, ...socket };
    const client = createClient({ ...options, socket: reached as { port: number } });
    client.on('error', () => {});
    await client.connect();
    const ping = () => client.ping();
    return { client: client as unknown as Client, ping, close: () => client.destroy() };
  };

/** Opens a pool of node-redis. */
const nodeRedisPool =
  ({ createClientPool }: Pick<typeof redis, 'createClientPool'>): Open =>
  async ([port], options) => {
    const socket = { port: port as number, reconnectStrategy: RETRY_MS };
    const pool = createClientPool({ socket }, options);
    pool.on('error', () => {});
    await pool.connect();
    const ping = () => pool.ping();
    return { client: pool as unknown as Client, ping, close: () => pool.destroy() };
  };

const nodeRedisCluster =
  ({ createCluster }: Pick<typeof redis, 'createCluster'>): Open =>
  async (ports, options) => {
    const rootNodes = ports.map((port) => ({ socket: { port } }));
    const cluster = createCluster({ rootNodes, ...options });
    cluster.on('error', () => {});
    await cluster.connect();
    const ping = () => cluster.get('ping');
    return { client: cluster as unknown as Client, ping, close: () => cluster.destroy() };
  };

const ioRedis =
  ({ Redis }: Pick<typeof ioredis, 'Redis'>): Open =>
  async ([port], options) => {
    const client = new Redis({ port: port as number, retryStrategy: () => RETRY_MS, ...options });
    client.on('error', () => {});
    const ping = () => client.ping();
    return { client: client as unknown as Client, ping, close: () => client.disconnect() };
  };

const ioRedisCluster =
  ({ Cluster }: Pick<typeof ioredis, 'Cluster'>): Open =>
  async ([port], options) => {
    const cluster = new Cluster([{ port: port as number }], options);
    cluster.on('error', () => {});
    const ping = () => cluster.get('ping');
    return { client: cluster as unknown as Client, ping, close: () => cluster.disconnect() };
  };

/** A driver: how it opens a client of one server, and a cluster. */
export interface Version {
  single: Open;
  cluster: Open;
}

export const versions: Record<string, Version> = {
  'node-redis-6': { single: nodeRedis(redis), cluster: nodeRedisCluster(redis) },
  'node-redis-5': {
    single: nodeRedis(redis5 as unknown as typeof redis),
    cluster: nodeRedisCluster(redis5 as unknown as typeof redis),
  },
  'ioredis-6': { single: ioRedis(ioredis), cluster: ioRedisCluster(ioredis) },
  'ioredis-5': {
    single: ioRedis(ioredis5),
    cluster: ioRedisCluster(ioredis5),
  },
};

/** The pools of node-redis, by version. */
export const pools: Record<string, Open> = {
  'a pool of node-redis-6': nodeRedisPool(redis),
  'a pool of node-redis-5': nodeRedisPool(redis5 as unknown as typeof redis),
};
