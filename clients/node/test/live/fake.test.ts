/** Compares the fake server with a real one: the same calls at the same instants. */
import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, it } from 'vitest';
import {
  type Client,
  fixed,
  gcra,
  Limiter,
  leakyBucket,
  type Rule,
  sliding,
  slidingLog,
  tokenBucket,
} from '../../src/index.js';
import { FakeClock, FakeServer } from '../../src/testing.js';
import { type Server, serve } from './server.js';

const START_MS = 1_700_000_000_000;
const rules: Rule[] = [
  gcra('gcra', 6, 10, '60s'),
  gcra('gcra-odd', 5, 7, '1s'),
  tokenBucket('token', 10, 3, '7s'),
  leakyBucket('leaky', 4, 2, '1s'),
  fixed('fixed', 5, '10s'),
  fixed('aligned', 5, '10s', { aligned: true }),
  sliding('sliding', 20, '10s'),
  slidingLog('log', 5, '10s'),
  slidingLog('log-in-slots', 40, '10s', { slots: 16 }),
];

let server: Server;
let redis: Redis;
beforeAll(async () => {
  server = await serve();
  redis = new Redis({ port: server.port, maxRetriesPerRequest: 0 });
});
afterAll(async () => {
  redis.disconnect();
  server.admin.disconnect();
  await server.stop();
});

/** Returns a generator of small pseudo-random numbers, the same in every run. */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return (state >>> 8) % below;
  };
}

it.each(rules.map((rule) => [rule.name, rule] as const))('equal under %s', async (_, rule) => {
  await server.clock.freeze(START_MS);
  const fake = new FakeServer(new FakeClock(START_MS));
  const real = new Limiter(redis as unknown as Client, { timeoutMs: 60_000 });
  const model = new Limiter(fake, { clock: fake.clock });
  const next = numbers(42);
  for (let step = 0; step < 60; step += 1) {
    const cost = [1, 1, 1, 2, 0, 7][next(6)] as number;
    const partial = cost > 0 && next(4) === 0;
    const leave = [undefined, undefined, 2, '20%'][next(4)];
    const verb = next(12);
    const [wanted, got] = await Promise.all(
      [real, model].map((limiter) => {
        if (verb === 0) return limiter.peek(rule, 's', { cost, leave });
        if (verb === 3) return limiter.block(rule, 's', 2);
        if (verb === 2) return limiter.charge(rule, 's', { cost: Math.max(1, cost) });
        if (verb === 1) return limiter.refund(rule, 's', { cost: 1 });
        return limiter.check(rule, 's', { cost, partial, leave });
      }),
    );
    expect({ step, ...got }).toEqual({ step, ...wanted });
    const ms = [0, 1, 250, 1000, 3333, 9999][next(6)] as number;
    await server.clock.advance(Math.max(1, ms));
    await fake.advance(Math.max(1, ms));
  }
});

it('the fake decides several rules in one call like the server', async () => {
  await server.clock.freeze(START_MS);
  const fake = new FakeServer(new FakeClock(START_MS));
  const real = new Limiter(redis as unknown as Client, { timeoutMs: 60_000, prefix: 'all' });
  const model = new Limiter(fake, { clock: fake.clock, prefix: 'all' });
  const next = numbers(7);
  for (let step = 0; step < 40; step += 1) {
    const items = rules.slice(0, 8).map((rule) => rule.of('s').cost(next(3)).leave(next(2)));
    const [wanted, got] = await Promise.all(
      [real, model].map((limiter) => limiter.checkAll(items)),
    );
    expect({ step, ...got }).toEqual({ step, ...wanted });
    await server.clock.advance(700);
    await fake.advance(700);
  }
});
