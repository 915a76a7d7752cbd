/** Tests keys of several header fields, in requests of each framework. */
import fastifyRateLimit from '@fastify/rate-limit';
import { HttpException } from '@nestjs/common';
import express from 'express';
import { rateLimit as expressRateLimit } from 'express-rate-limit';
import fastify from 'fastify';
import { Hono } from 'hono';
import { expect, it } from 'vitest';
import { keyOf, rateLimit } from '../src/express.js';
import { RedisThrottleStore, keyOf as storeKeyOf } from '../src/express-rate-limit.js';
import { keyOf as fastifyKeyOf, redisThrottleStore } from '../src/fastify-rate-limit.js';
import { keyOf as honoKeyOf, rateLimit as honoRateLimit } from '../src/hono.js';
import { InvalidArgumentError, type Limiter } from '../src/index.js';
import { keyOf as nestKeyOf } from '../src/nestjs.js';
import { listen } from './listening.js';
import { api, over } from './over.js';

const NAMES = ['X-Tenant', 'x-api-KEY'];
type Get = (headers: Record<string, string>) => Promise<number>;

async function withExpress(app: express.Express): Promise<Get> {
  const url = await listen(app);
  return async (headers) => (await fetch(url, { headers })).status;
}

const frameworks: Record<string, (limiter: Limiter) => Get | Promise<Get>> = {
  Express: (limiter) => {
    const limit = rateLimit({ limiter, rules: api, key: keyOf(...NAMES) });
    return withExpress(express().use(limit, (_, response) => void response.send('ok')));
  },
  'express-rate-limit': (limiter) => {
    const store = new RedisThrottleStore({ limiter });
    const keyGenerator = storeKeyOf(...NAMES);
    const limit = expressRateLimit({ store, keyGenerator });
    return withExpress(express().use(limit, (_, response) => void response.send('ok')));
  },
  Fastify: async (limiter) => {
    const app = fastify();
    const keyGenerator = fastifyKeyOf(...NAMES);
    const store = redisThrottleStore({ limiter });
    await app.register(fastifyRateLimit, { store, keyGenerator });
    const config = { rateLimit: { groupId: 'g' } };
    app.get('/', { config }, async () => 'ok');
    return async (headers) => (await app.inject({ url: '/', headers })).statusCode;
  },
  Hono: (limiter) => {
    const app = new Hono().use(honoRateLimit({ limiter, rules: api, key: honoKeyOf(...NAMES) }));
    app.get('/', (context) => context.text('ok'));
    return async (headers) => (await app.request('/', { headers })).status;
  },
};

it.each(Object.entries(frameworks))('keyOf reads the fields of a request of %s', async (_, app) => {
  const { server, limiter } = over();
  const get = await app(limiter);
  expect(await get({ 'x-tenant': 'a|b', 'x-api-key': 'c' })).toBe(200);
  expect(await get({ 'x-tenant': 'a', 'x-api-key': 'b|c' })).toBe(200);
  const keys = server.calls.map(([, key]) => key);
  expect(keys[0]).toMatch(/a%(25)?257Cb(\||%257C)c/);
  expect(keys[1]).toMatch(/a(\||%257C)b%(25)?257Cc/);
  expect(await get({ 'x-tenant': 'a' })).toBe(400);
  expect(server.calls).toHaveLength(2);
});

it('keyOf of NestJS throws the 400 of a request without one of the fields', () => {
  const tracker = nestKeyOf(...NAMES);
  expect(tracker({ headers: { 'x-tenant': 'a', 'x-api-key': 'b' } })).toBe('a|b');
  const refused = () => tracker({ headers: { 'x-tenant': 'a' } });
  expect(refused).toThrow(HttpException);
  expect(refused).toThrow(expect.objectContaining({ status: 400 }));
});

it('keyOf refuses a name that no header field can have', () => {
  for (const make of [keyOf, storeKeyOf, fastifyKeyOf, honoKeyOf, nestKeyOf]) {
    expect(() => make('X-Tenant', 'X Key')).toThrow(InvalidArgumentError);
  }
});
