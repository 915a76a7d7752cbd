/** A server with a frozen clock and a limiter over it, for the tests of the frameworks' stores. */
import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach } from 'vitest';
import { type Client, Limiter, type LimiterOptions } from '../../src/index.js';
import { type Server, serve } from './server.js';

interface Frozen {
  server: Server;
  redis: Redis;
  /** Denies without a reply. */
  limiter: Limiter;
}

export const limiting = (client: Redis, options: LimiterOptions): Limiter =>
  new Limiter(client as unknown as Client, { timeoutMs: 60_000, ...options });

/** Starts the server for the tests of a file. It is empty and its clock frozen before each. */
export function frozen(): Frozen {
  const scene = {} as Frozen;
  beforeAll(async () => {
    scene.server = await serve();
    scene.redis = new Redis({ port: scene.server.port });
    scene.limiter = limiting(scene.redis, { onError: 'deny' });
  });
  afterAll(async () => {
    await scene.limiter.close();
    scene.redis.disconnect();
    scene.server.admin.disconnect();
    await scene.server.stop();
  });
  beforeEach(async () => {
    await scene.server.admin.flushall();
    await scene.server.clock.freeze();
  });
  return scene;
}
