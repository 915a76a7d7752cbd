/** Tests subjects that are no text, as a key function finds them in a body. */
import fastifyRateLimit from '@fastify/rate-limit';
import express from 'express';
import { rateLimit as expressRateLimit } from 'express-rate-limit';
import fastify, { type FastifyRequest } from 'fastify';
import { type Context, Hono } from 'hono';
import { describe, expect, it } from 'vitest';
import type { Limiter } from '../src/index.js';
import { rateLimit } from '../src/web/express.js';
import { RedisThrottleStore } from '../src/web/express-rate-limit.js';
import { redisThrottleStore } from '../src/web/fastify-rate-limit.js';
import { rateLimit as honoRateLimit } from '../src/web/hono.js';
import { api, over } from './fakes.js';
import { listen } from './listening.js';

/** Sends a body, and returns the status of the response. */
type Post = (body: string) => Promise<number>;

const headers = { 'content-type': 'application/json' };

const frameworks: Record<string, (limiter: Limiter) => Post | Promise<Post>> = {
  Express: async (limiter) => {
    const limit = rateLimit({ limiter, rules: api, key: ({ body }) => body.user });
    const app = express().use(express.json(), limit, (_, response) => void response.send('ok'));
    const url = await listen(app);
    return async (body) => (await fetch(url, { method: 'POST', headers, body })).status;
  },
  'express-rate-limit': async (limiter) => {
    const keyGenerator = ({ body }: express.Request) => body.user;
    const limit = expressRateLimit({ store: new RedisThrottleStore({ limiter }), keyGenerator });
    const app = express().use(express.json(), limit, (_, response) => void response.send('ok'));
    const url = await listen(app);
    return async (body) => (await fetch(url, { method: 'POST', headers, body })).status;
  },
  Fastify: async (limiter) => {
    const app = fastify();
    const keyGenerator = ({ body }: FastifyRequest) => (body as { user: string }).user;
    const store = redisThrottleStore({ limiter });
    await app.register(fastifyRateLimit, { store, keyGenerator, hook: 'preHandler' });
    app.post('/', async () => 'ok');
    return async (body) =>
      (await app.inject({ method: 'POST', url: '/', headers, body })).statusCode;
  },
  Hono: (limiter) => {
    const app = new Hono();
    const key = async ({ req }: Context) => (await req.json()).user;
    app.use(honoRateLimit<Context>({ limiter, rules: api, key }));
    app.post('/', (context) => context.text('ok'));
    return async (body) => (await app.request('/', { method: 'POST', headers, body })).status;
  },
};

const refused = [
  '["42"]',
  '{"id":42}',
  'true',
  '1.5',
  '-1',
  '9007199254740992',
  'null',
  '"\\ud800"',
];

describe.each(Object.entries(frameworks))('a subject in a body of %s', (_, app) => {
  it.each(refused)('gets a 400 response if it is %s', async (user) => {
    const { server, limiter } = over();
    const post = await app(limiter);
    expect(await post(`{"user":${user}}`)).toBe(400);
    expect(server.calls).toEqual([]);
  });

  it.each([
    ['0', '0'],
    ['42', '42'],
    ['"42"', '42'],
  ])('counts %s under the subject %s', async (user, subject) => {
    const { server, limiter } = over();
    const post = await app(limiter);
    expect(await post(`{"user":${user}}`)).toBe(200);
    expect(server.calls[0]?.[1]?.split(':').at(-1)).toBe(subject);
  });
});

it.each(refused.filter((text) => text !== 'null'))(
  'a tag of %s gets a 400 response',
  async (user) => {
    const { server, limiter } = over();
    const limit = rateLimit({ limiter, rules: api, tag: ({ body }) => body.user });
    const app = express().use(express.json(), limit, (_, response) => void response.send('ok'));
    const url = await listen(app);
    const post = (body: string) => fetch(url, { method: 'POST', headers, body });
    expect((await post(`{"user":${user}}`)).status).toBe(400);
    expect((await post('{"user":null}')).status).toBe(200);
    expect(server.calls.map(([, at]) => at)).toEqual(['rl:api:127.0.0.1']);
  },
);

describe('a subject of a call', () => {
  it.each(refused)('refuses %s', async (text) => {
    const { server, limiter } = over();
    const wrong = expect.objectContaining({ argument: 'subject' });
    const subject = JSON.parse(text);
    await expect(limiter.check(api, subject)).rejects.toThrow(wrong);
    await expect(limiter.charge(api, subject)).rejects.toThrow(wrong);
    await expect(async () => limiter.checkAll([api.of(subject)])).rejects.toThrow(wrong);
    expect(server.calls).toEqual([]);
  });

  it('is the same as a number and as its text', async () => {
    const { limiter } = over({ onDecision: ({ keyHash }) => void hashes.add(keyHash) });
    const hashes = new Set<string>();
    await limiter.check(api, 0);
    await limiter.check(api, '0');
    await limiter.checkAll([api.of(0)]);
    expect((await limiter.peek(api, '0')).remaining).toBe(2);
    expect(hashes.size).toBe(1);
  });
});
