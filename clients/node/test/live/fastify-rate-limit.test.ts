/** Tests the store as @fastify/rate-limit uses it, in a real application with a real server. */
import rateLimit, { type RateLimitPluginOptions } from '@fastify/rate-limit';
import Fastify, { type FastifyInstance } from 'fastify';
import { Redis } from 'ioredis';
import { afterEach, expect, it } from 'vitest';
import { redisThrottleStore } from '../../src/fastify-rate-limit.js';
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
    [0, 60_000, true],
  ]);
});

it.each([[undefined], [null], ['']])('answers 400 if the key is %j', async (key) => {
  const app = await registered({ keyGenerator: () => key as string });
  const call = await started(app.get('/', () => 'hello') && app);
  expect((await call())[0]).toBe(400);
  expect(await live.server.admin.dbsize()).toBe(0);
});

it('answers 503 under onError deny, and serves under allow, when the server is down', async () => {
  const away = new Redis({ port: 1, retryStrategy: null, lazyConnect: true });
  away.on('error', () => {});
  const answers = [];
  for (const onError of ['deny', 'allow'] as const) {
    const own = limiting(away, { onError });
    const app = await registered({}, own);
    answers.push(await (await started(app.get('/', () => 'hello') && app))());
    await own.close();
  }
  expect(answers).toEqual([
    [503, null, null, '1'],
    [200, '1', '60', null],
  ]);
});

it.each([
  ['ban', { ban: 1 }],
  ['continueExceeding', { continueExceeding: true }],
  ['exponentialBackoff', { exponentialBackoff: true }],
  ['skipOnError', { skipOnError: true }],
  ['max', { max: 0 }],
  ['timeWindow', { timeWindow: 0 }],
])('refuses the option %s at setup, also for one route', async (name, options) => {
  const refused = new RegExp(`^invalid ${name}: expected`);
  await expect(registered(options)).rejects.toThrow(refused);
  const app = await registered({ global: false });
  expect(() => app.get('/', { config: { rateLimit: options } }, () => 'hello')).toThrow(refused);
});
