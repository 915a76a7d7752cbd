/** Tests a cluster client of the application that has no configuration yet, behind a proxy. */
import { Cluster } from 'ioredis';
import * as redis from 'redis';
import * as redis5 from 'redis-5';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Client, gcra, Limiter } from '../../src/index.js';
import { proxy, type SilentProxy } from './proxy.js';
import { HEALED_MS, type Server, serveCluster, until } from './server.js';

const api = gcra('api', 6000, 6000, '60s');

interface Cold {
  client: Client;
  close(): void;
}

const nodeRedis = ({ createCluster }: Pick<typeof redis, 'createCluster'>, port: number): Cold => {
  const cluster = createCluster({ rootNodes: [{ socket: { port } }] });
  cluster.on('error', () => {});
  return { client: cluster as unknown as Client, close: () => {} };
};

const cold: Record<string, (port: number) => Cold> = {
  'node-redis-6': (port) => nodeRedis(redis, port),
  'node-redis-5': (port) => nodeRedis(redis5 as unknown as typeof redis, port),
  'ioredis-6': (port) => {
    const cluster = new Cluster([{ host: '127.0.0.1', port }], { lazyConnect: true });
    cluster.on('error', () => {});
    return { client: cluster, close: () => cluster.disconnect() };
  },
};

describe('a cluster behind a silent path', () => {
  let nodes: Server[];
  let between: SilentProxy;

  beforeAll(async () => {
    nodes = await serveCluster();
    between = await proxy(nodes[0]?.port as number);
  }, 30_000);
  afterAll(async () => {
    await between.stop();
    for (const { admin, stop } of nodes) {
      admin.disconnect();
      await stop();
    }
  });

  it.each(Object.entries(cold))('decides soon after the path works, by %s', async (_, open) => {
    between.silence('new connections');
    const { client, close } = open(between.port);
    const limiter = new Limiter(client, { breakerFailures: 1000 });
    expect(await limiter.check(api, '1')).toMatchObject({ source: 'error' });
    const end = performance.now() + 500;
    await until('half a second is over', () => performance.now() > end);
    between.heal();
    const begin = performance.now();
    await until('it decides', async () => (await limiter.check(api, '1')).source === 'server');
    expect(performance.now() - begin).toBeLessThan(HEALED_MS);
    await limiter.close();
    close();
  });
});
