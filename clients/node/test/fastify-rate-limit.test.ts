/** Tests denials that extend themselves, when the server goes down. */
import { expect, it } from 'vitest';
import type { Limiter } from '../src/index.js';
import { type FastifyHits, redisThrottleStore } from '../src/web/fastify-rate-limit.js';
import { over } from './fakes.js';

/** Returns a function that counts a hit of the one that a minute allows. */
function counting(limiter: Limiter) {
  const Store = redisThrottleStore({ limiter });
  const store = new Store({ continueExceeding: true });
  return () =>
    new Promise<FastifyHits | undefined>((resolve, reject) => {
      store.incr('x', (error, hits) => (error ? reject(error) : resolve(hits)), 60_000, 1);
    });
}

it('a denial that cannot be extended ends as it would have', async () => {
  let isDown = false;
  const { server, limiter } = over({
    onDecision: ({ decision }) => {
      isDown ||= decision?.allowed === false;
      if (isDown) server.fail();
    },
  });
  const hit = counting(limiter);
  await hit();
  await server.advance(20_000);
  expect(await hit()).toEqual({ current: 2, ttl: 40_000 });
});

it('a denial that was extended lasts while the server is down', async () => {
  const { server, limiter } = over();
  const hit = counting(limiter);
  await hit();
  await server.advance(20_000);
  expect(await hit()).toEqual({ current: 2, ttl: 60_000 });
  server.fail();
  await server.advance(50_000);
  expect(await hit()).toEqual({ current: 2, ttl: 10_000 });
});
