/** Passes the clients of both drivers with their own types. The compiler is the test. */
import { Cluster, Redis } from 'ioredis';
import { createClient, createClientPool, createCluster } from 'redis';
import { expect, it } from 'vitest';
import { Limiter } from '../src/index.js';

it('the limiter accepts the client of each driver without a cast', () => {
  const made = [
    () => new Limiter(createClient()),
    () => new Limiter(createClientPool()),
    () => new Limiter(createCluster({ rootNodes: [] })),
    () => new Limiter(new Redis()),
    () => new Limiter(new Cluster([])),
  ];
  expect(made).toHaveLength(5);
});
