/** A server with a frozen clock and a limiter over it, for the tests of the frameworks' stores. */
import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach } from 'vitest';
import { type Client, Limiter, type LimiterOptions } from '../../src/index.js';
import { type Server, serve } from './server.js';

interface Frozen {
  server: Server;
  redis: Redis;
  /** Denies without an answer. */
  limiter: Limiter;
}

export const limiting = (client: Redis, options: LimiterOptions): Limiter =>
  new Limiter(client as unknown as Client, { timeoutMs: 60_000, ...options });

/** Starts the server for the tests of a file. It is empty and its clock frozen before each. */
export function frozen(): Frozen {
  const made = {} as Frozen;
  beforeAll(async () => {
    made.server = await serve();
    made.redis = new Redis({ port: made.server.port });
    made.limiter = limiting(made.redis, { onError: 'deny' });
  });
  afterAll(async () => {
    await made.limiter.close();
    made.redis.disconnect();
    made.server.admin.disconnect();
    await made.server.stop();
  });
  beforeEach(async () => {
    await made.server.admin.flushall();
    await made.server.clock.freeze();
  });
  return made;
}
