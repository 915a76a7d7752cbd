/** Tests the stores of other packages, on a real server, with more calls than the line holds. */
import { expect, it } from 'vitest';
import type { Limiter } from '../../src/index.js';
import { RedisThrottleStore as ExpressStore } from '../../src/web/express-rate-limit.js';
import { type FastifyHits, redisThrottleStore } from '../../src/web/fastify-rate-limit.js';
import { RedisThrottleStorage } from '../../src/web/nestjs.js';
import { frozen, limiting } from './frozen.js';

const live = frozen();
const WINDOW_MS = 60_000;
const LIMIT = 5;
const [IN_LINE, CALLS] = [10, 200];

/** Each store as a function that counts a hit, and returns true if the request may pass. */
const stores: Record<string, (limiter: Limiter) => () => Promise<boolean>> = {
  'express-rate-limit': (limiter) => {
    const store = new ExpressStore({ limiter });
    store.init({ windowMs: WINDOW_MS, limit: LIMIT });
    return async () => (await store.increment('1')).totalHits <= LIMIT;
  },
  Fastify: (limiter) => {
    const Store = redisThrottleStore({ limiter });
    const store = new Store({});
    const hits = () =>
      new Promise<FastifyHits | undefined>((resolve, reject) => {
        const done = (error: Error | null, counted?: FastifyHits) =>
          error === null ? resolve(counted) : reject(error);
        store.incr('1', done, WINDOW_MS, LIMIT);
      });
    return async () => ((await hits())?.current ?? 0) <= LIMIT;
  },
  NestJS: (limiter) => {
    const storage = new RedisThrottleStorage({ limiter });
    return async () => {
      const { isBlocked } = await storage.increment('1', WINDOW_MS, LIMIT, WINDOW_MS, 'default');
      return !isBlocked;
    };
  },
  'NestJS with bans': (limiter) => {
    const storage = new RedisThrottleStorage({ limiter });
    return async () => !(await storage.increment('1', WINDOW_MS, LIMIT, 1000, 'default')).isBlocked;
  },
};

it.each(Object.entries(stores))(
  'the store of %s keeps the limit of a burst beyond the line',
  async (_, counting) => {
    const limiter = limiting(live.redis, {
      maxInFlight: 1,
      maxWaiting: IN_LINE,
      logErrors: false,
    });
    await limiter.ready();
    const count = counting(limiter);
    const passed = await Promise.all(Array.from({ length: CALLS }, count));
    // This process and the server keep the limit, each for the calls that it decides.
    expect(passed.filter(Boolean)).toHaveLength(2 * LIMIT);
    expect(limiter.counters.degraded).toBe(CALLS - IN_LINE - 1);
    expect(await count()).toBe(false);
    await limiter.close();
  },
);
