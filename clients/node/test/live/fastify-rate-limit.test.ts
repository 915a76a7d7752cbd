/** Tests the store as @fastify/rate-limit uses it, in a real application with a real server. */
import rateLimit, { type RateLimitPluginOptions } from '@fastify/rate-limit';
import Fastify, { type FastifyInstance, type FastifyRequest } from 'fastify';
import { Redis } from 'ioredis';
import { afterEach, expect, it } from 'vitest';
import { redisThrottleStore } from '../../src/web/fastify-rate-limit.js';
import { frozen, limiting } from './frozen.js';

const live = frozen();
const running: FastifyInstance[] = [];

afterEach(async () => {
  for (const app of running.splice(0)) await app.close();
});

async function registered(options: RateLimitPluginOptions = {}, own = live.limiter) {
  const app = Fastify();
  running.push(app);
  const store = redisThrottleStore({ limiter: own });
  await app.register(rateLimit, { max: 2, timeWindow: '1 minute', ...options, store });
  return app;
}

/** Starts an application, and returns a function that calls one of its routes. */
async function started(app: FastifyInstance) {
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  return async (path = '/', method = 'GET') => {
    const { status, headers } = await fetch(`${url}${path}`, { method });
    const names = ['x-ratelimit-remaining', 'x-ratelimit-reset', 'retry-after'];
    return [status, ...names.map((name) => headers.get(name))];
  };
}

it('limits a route until its window ends', async () => {
  const app = await registered();
  const call = await started(app.get('/', () => 'hello') && app);
  expect(await call()).toEqual([200, '1', '60', null]);
  await live.server.clock.advance(30_000);
  expect(await call()).toEqual([200, '0', '30', null]);
  for (let denial = 0; denial < 2; denial += 1) {
    expect(await call()).toEqual([429, '0', '30', '30']);
  }
  await live.server.clock.advance(30_000);
  expect(await call()).toEqual([200, '1', '60', null]);
  expect(await live.server.admin.keys('*')).toEqual(['rl:fastify:127.0.0.1']);
});

it('counts routes with their own options separately, and those of a group together', async () => {
  const app = await registered();
  const own = { config: { rateLimit: { max: 1 } } };
  const group = { config: { rateLimit: { max: 3, groupId: 'otp' } } };
  app.get('/', () => 'hello').get('/own', own, () => 'own');
  app.post('/own', own, () => 'own');
  app.get('/send', group, () => 'send').get('/again', group, () => 'again');
  const call = await started(app);
  const left = async (path: string, method?: string) => (await call(path, method)).slice(0, 2);
  expect(await left('/')).toEqual([200, '1']);
  expect([await left('/own'), await left('/own')]).toEqual([
    [200, '0'],
    [429, '0'],
  ]);
  expect(await left('/own', 'POST')).toEqual([200, '0']);
  expect([await left('/send'), await left('/again'), await left('/send')]).toEqual([
    [200, '2'],
    [200, '1'],
    [200, '0'],
  ]);
});

it('counts routes separately whose names and keys join to the same text', async () => {
  const keyGenerator = ({ headers }: FastifyRequest) => headers['x-key'] as string;
  const app = await registered({ keyGenerator });
  const config = { rateLimit: { max: 1 } };
  app
    .get('/a', { config }, () => 'a')
    .get('/a-b', { config }, () => 'a-b')
    .get('/', () => 'all');
  const pairs = [
    ['/a', 'b-ip'],
    ['/a-b', 'ip'],
    ['/', 'GET|/a|b-ip'],
    ['/', 'GET%7C/a%7Cb-ip'],
  ] as const;
  for (const [url, key] of pairs) {
    expect((await app.inject({ url, headers: { 'x-key': key } })).statusCode).toBe(200);
  }
  expect(await live.server.admin.dbsize()).toBe(pairs.length);
});

it('counts denied requests, and bans a key that has too many', async () => {
  const app = await registered({ max: 1, ban: 1 });
  const call = await started(app.get('/', () => 'hello') && app);
  const statuses = [];
  for (let times = 0; times < 5; times += 1) statuses.push((await call())[0]);
  expect(statuses).toEqual([200, 429, 403, 403, 403]);
});

it.each([
  ['continueExceeding', ['60', '60', '60', '60', '60']],
  ['exponentialBackoff', ['60', '60', '120', '240', '480']],
])('extends the denial under %s', async (option, retries) => {
  const app = await registered({ max: 1, ban: 3, [option]: true });
  const call = await started(app.get('/', () => 'hello') && app);
  for (const [at, retry] of retries.entries()) {
    const status = at === 0 ? 200 : at < 4 ? 429 : 403;
    expect((await call()).slice(0, 3)).toEqual([status, '0', retry]);
    await live.server.clock.advance(30_000);
  }
  await live.server.clock.advance(Number(retries.at(-1)) * 1000 - 30_001);
  expect((await call())[0]).toBe(403);
  await live.server.clock.advance(2 * Number(retries.at(-1)) * 1000);
  expect([await call(), (await call())[3]]).toEqual([[200, '0', '60', null], '60']);
});

it('keeps the limit of requests that come at once and extend their denial', async () => {
  const app = await registered({ max: 3, exponentialBackoff: true });
  const call = await started(app.get('/', () => 'hello') && app);
  const all = await Promise.all(Array.from({ length: 12 }, () => call()));
  expect(all.filter(([status]) => status === 200)).toHaveLength(3);
  await live.server.clock.advance(60_000);
  expect((await call())[0]).toBe(429);
});

it.each([
  [{ max: 0 }, 429, '0'],
  [{ max: () => 0 }, 429, '0'],
  [{ max: () => Number.POSITIVE_INFINITY }, 200, 'Infinity'],
])('responds under %j without a call', async (options, status, left) => {
  const app = await registered(options);
  const call = await started(app.get('/', () => 'hello') && app);
  for (let times = 0; times < 2; times += 1) {
    expect((await call()).slice(0, 3)).toEqual([status, left, '60']);
  }
  expect(await live.server.admin.dbsize()).toBe(0);
});

it('takes limits and windows that are functions of the request', async () => {
  const max = async () => 3;
  const app = await registered({ max, timeWindow: () => 10_000 });
  const call = await started(app.get('/', () => 'hello') && app);
  expect(await call()).toEqual([200, '2', '10', null]);
});

it('reads the hits of a key, and counts nothing', async () => {
  const app = await registered({ global: false });
  const check = app.createRateLimit();
  const seen: unknown[] = [];
  app.get('/', async (request) => {
    const read = await check(request, { increment: false });
    seen.push('remaining' in read && [read.remaining, read.ttl, read.isExceeded]);
    await check(request);
    return 'hello';
  });
  const call = await started(app);
  for (let times = 0; times < 3; times += 1) await call();
  expect(seen).toEqual([
    [2, 0, false],
    [1, 60_000, false],
    [0, 60_000, false],
  ]);
});

it.each([[undefined], [null], ['']])('responds with 400 if the key is %j', async (key) => {
  const app = await registered({ keyGenerator: () => key as string });
  const call = await started(app.get('/', () => 'hello') && app);
  expect((await call())[0]).toBe(400);
  expect(await live.server.admin.dbsize()).toBe(0);
});

it('responds with 503 under deny, and serves under allow, when the server is down', async () => {
  const down = new Redis({ port: 1, retryStrategy: null, lazyConnect: true });
  down.on('error', () => {});
  const responses = [];
  for (const onError of ['deny', 'allow'] as const) {
    const own = limiting(down, { onError });
    const app = await registered({}, own);
    responses.push(await (await started(app.get('/', () => 'hello') && app))());
    await own.close();
  }
  expect(responses).toEqual([
    [503, null, null, '1'],
    [200, '1', '60', null],
  ]);
});

it.each([
  ['skipOnError', { skipOnError: true }],
  ['timeWindow', { timeWindow: 0 }],
])('refuses the option %s at setup, also for one route', async (name, options) => {
  const refused = new RegExp(`^invalid ${name}: expected`);
  await expect(registered(options)).rejects.toThrow(refused);
  const app = await registered({ global: false });
  expect(() => app.get('/', { config: { rateLimit: options } }, () => 'hello')).toThrow(refused);
});
