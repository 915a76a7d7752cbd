/** Tests the storage as @nestjs/throttler uses it, in a real application with a real server. */
import 'reflect-metadata';
import { Controller, Get, type INestApplication, Module } from '@nestjs/common';
import { APP_GUARD, NestFactory } from '@nestjs/core';
import { ThrottlerGuard, ThrottlerModule, type ThrottlerOptions } from '@nestjs/throttler';
import { Redis } from 'ioredis';
import { afterEach, expect, it } from 'vitest';
import { RedisThrottleStorage } from '../../src/web/nestjs.js';
import { frozen, limiting } from './frozen.js';

const live = frozen();
const running: INestApplication[] = [];

afterEach(async () => {
  for (const app of running.splice(0)) await app.close();
});

/** Starts an application with one route, and returns a function that calls it. */
async function started(throttlers: ThrottlerOptions[], own = live.limiter) {
  @Controller()
  class AppController {
    @Get()
    hello() {
      return 'hello';
    }
  }
  const storage = new RedisThrottleStorage({ limiter: own });
  @Module({
    imports: [ThrottlerModule.forRoot({ throttlers, storage })],
    controllers: [AppController],
    providers: [{ provide: APP_GUARD, useClass: ThrottlerGuard }],
  })
  class AppModule {}
  const app = await NestFactory.create(AppModule, { logger: false });
  running.push(app);
  await app.listen(0, '127.0.0.1');
  const url = await app.getUrl();
  return async () => {
    const { status, headers } = await fetch(url);
    return [status, headers.get('X-RateLimit-Remaining'), headers.get('Retry-After')];
  };
}

const [NONE, LEFT_1, LEFT_0] = [null, [200, '1', null], [200, '0', null]];

it('limits a route, and reports seconds', async () => {
  const call = await started([{ limit: 2, ttl: 60_000 }]);
  expect([await call(), await call()]).toEqual([LEFT_1, LEFT_0]);
  await live.server.clock.advance(500);
  expect(await call()).toEqual([429, NONE, '60']);
  await live.server.clock.advance(59_000);
  expect(await call()).toEqual([429, NONE, '1']);
  await live.server.clock.advance(500);
  expect(await call()).toEqual(LEFT_1);
  const [key] = await live.server.admin.keys('*');
  expect(key).toMatch(/^rl:nestjs\/default:default\|[0-9a-f]{64}$/);
});

it('counts each throttler separately', async () => {
  const throttlers = [
    { name: 'short', limit: 1, ttl: 1000 },
    { name: 'long', limit: 2, ttl: 60_000 },
  ];
  const call = await started(throttlers);
  const statuses = [];
  for (let times = 0; times < 2; times += 1) {
    statuses.push((await call())[0], (await call())[0]);
    await live.server.clock.advance(1000);
  }
  expect([...statuses, (await call())[0]]).toEqual([200, 429, 200, 429, 429]);
});

it.each([
  ['longer', 300_000],
  ['shorter', 10_000],
])('bans the key for a blockDuration %s than the ttl', async (_, blockDuration) => {
  const call = await started([{ limit: 2, ttl: 60_000, blockDuration }]);
  expect([await call(), await call()]).toEqual([LEFT_1, LEFT_0]);
  const slots = await live.server.admin.keys('*');
  expect(await call()).toEqual([429, NONE, String(blockDuration / 1000)]);
  slots.push(...(await live.server.admin.keys('*')));
  // In a cluster, the window and the ban are in one slot.
  expect(
    slots.map((key) => /^rl:\{default\|[0-9a-f]{64}\}:nestjs\/default(\/ban)?:/.exec(key)?.[1]),
  ).toEqual([undefined, '/ban']);
  await live.server.clock.advance(4000);
  // A request during the ban does not extend it.
  expect(await call()).toEqual([429, NONE, String(blockDuration / 1000 - 4)]);
  await live.server.clock.advance(blockDuration - 4000);
  expect([await call(), await call()]).toEqual([LEFT_1, LEFT_0]);
});

it.each([
  [{ limit: 0, ttl: 30_000 }, [429, NONE, '30']],
  [{ limit: 0, ttl: 30_000, blockDuration: 5000 }, [429, NONE, '5']],
  [{ limit: Number.POSITIVE_INFINITY, ttl: 30_000 }, [200, 'Infinity', null]],
])('responds under %j without a call', async (throttler, status) => {
  const call = await started([throttler]);
  expect([await call(), await call()]).toEqual([status, status]);
  expect(await live.server.admin.dbsize()).toBe(0);
});

it('bans the key for the longest time if the blockDuration is infinite', async () => {
  const blockDuration = Number.POSITIVE_INFINITY;
  const call = await started([{ limit: 1, ttl: 60_000, blockDuration }]);
  expect([await call(), await call()]).toEqual([LEFT_0, [429, NONE, '31622400']]);
});

it('counts throttlers separately whose names and keys join to the same text', async () => {
  const storage = new RedisThrottleStorage({ limiter: live.limiter });
  const count = (key: string, throttler: string) =>
    storage.increment(key, 1000, 1, 5000, throttler);
  const pairs = [
    ['a', 'b'],
    ['a', 'b/ban'],
    ['a', 'b c'],
    ['a', 'b_c'],
    ['b|a', 'b'],
  ] as const;
  for (const [key, throttler] of pairs) {
    expect((await count(key, throttler)).isBlocked).toBe(false);
    expect((await count(key, throttler)).isBlocked).toBe(true);
  }
});

it.each([[undefined], [['a']], ['\ud800']])('responds with 400 if the key is %j', async (key) => {
  const call = await started([{ limit: 1, ttl: 60_000, generateKey: () => key as string }]);
  expect((await call())[0]).toBe(400);
});

it('responds with 503 under deny, and serves under allow, when the server is down', async () => {
  const down = new Redis({ port: 1, retryStrategy: null, lazyConnect: true });
  down.on('error', () => {});
  const statuses = [];
  for (const onError of ['deny', 'allow'] as const) {
    const own = limiting(down, { onError });
    for (const blockDuration of [60_000, 5000]) {
      const call = await started([{ limit: 2, ttl: 60_000, blockDuration }], own);
      statuses.push((await call())[0]);
    }
    await own.close();
  }
  expect(statuses).toEqual([503, 503, 200, 200]);
});

it('keeps a ban under allow when the server falls silent', async () => {
  const own = limiting(live.redis, { onError: 'allow', silenceMs: 1000 });
  const call = await started([{ limit: 1, ttl: 60_000, blockDuration: 300_000 }], own);
  expect([await call(), await call()]).toEqual([LEFT_0, [429, NONE, '300']]);
  live.server.signal('SIGSTOP');
  try {
    expect((await call())[0]).toBe(429);
  } finally {
    live.server.signal('SIGCONT');
    await own.close();
  }
});

it('refuses a name that a rule cannot have, at setup', () => {
  expect(() => new RedisThrottleStorage({ limiter: live.limiter, name: 'a b' })).toThrow(
    /^invalid name/,
  );
});
