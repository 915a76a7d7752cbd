/** Tests keys of several header fields, in requests of each framework. */
import { get as request } from 'node:http';
import type { AddressInfo } from 'node:net';
import fastifyRateLimit from '@fastify/rate-limit';
import { serve } from '@hono/node-server';
import { HttpException } from '@nestjs/common';
import express from 'express';
import { rateLimit as expressRateLimit } from 'express-rate-limit';
import fastify from 'fastify';
import { Hono } from 'hono';
import { afterEach, expect, it } from 'vitest';
import { InvalidArgumentError, type Limiter } from '../src/index.js';
import { keyOf, rateLimit } from '../src/web/express.js';
import { RedisThrottleStore, keyOf as storeKeyOf } from '../src/web/express-rate-limit.js';
import { keyOf as fastifyKeyOf, redisThrottleStore } from '../src/web/fastify-rate-limit.js';
import { keyOf as honoKeyOf, rateLimit as honoRateLimit } from '../src/web/hono.js';
import { keyOf as nestKeyOf } from '../src/web/nestjs.js';
import { api, over } from './fakes.js';
import { listen } from './listening.js';

const NAMES = ['X-Tenant', 'x-api-KEY'];

const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

/** Returns the status of the response to a request. An array is a field that occurs repeatedly. */
function get(url: string, headers: Record<string, string | string[]>): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    request(url, { headers, agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode);
    }).on('error', reject);
  });
}

/** Starts an application of each framework, and returns its URL. */
const frameworks: Record<string, (limiter: Limiter) => Promise<string>> = {
  Express: (limiter) => {
    const limit = rateLimit({ limiter, rules: api, key: keyOf(...NAMES) });
    return listen(express().use(limit, (_, response) => void response.send('ok')));
  },
  'express-rate-limit': (limiter) => {
    const store = new RedisThrottleStore({ limiter });
    const keyGenerator = storeKeyOf(...NAMES);
    const limit = expressRateLimit({ store, keyGenerator });
    return listen(express().use(limit, (_, response) => void response.send('ok')));
  },
  Fastify: async (limiter) => {
    const app = fastify();
    const keyGenerator = fastifyKeyOf(...NAMES);
    const store = redisThrottleStore({ limiter });
    await app.register(fastifyRateLimit, { store, keyGenerator });
    const config = { rateLimit: { groupId: 'g' } };
    app.get('/', { config }, async () => 'ok');
    closing.push(() => app.close());
    return app.listen({ port: 0, host: '127.0.0.1' });
  },
  Hono: async (limiter) => {
    const app = new Hono().use(honoRateLimit({ limiter, rules: api, key: honoKeyOf(...NAMES) }));
    app.get('/', (context) => context.text('ok'));
    const server = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' });
    closing.push(() => server.close());
    await new Promise((done) => server.once('listening', done));
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  },
};

it.each(Object.entries(frameworks))('keyOf reads the fields of a request of %s', async (_, app) => {
  const { server, limiter } = over();
  const url = await app(limiter);
  expect(await get(url, { 'x-tenant': 'a|b', 'x-api-key': 'c' })).toBe(200);
  expect(await get(url, { 'x-tenant': 'a', 'x-api-key': 'b|c' })).toBe(200);
  const keys = server.calls.map(([, key]) => key);
  expect(keys[0]).toMatch(/a%(25)?257Cb(\||%257C)c/);
  expect(keys[1]).toMatch(/a(\||%257C)b%(25)?257Cc/);
  expect(await get(url, { 'x-tenant': 'a' })).toBe(400);
  expect(await get(url, { 'x-tenant': ['a', 'a'], 'x-api-key': 'c' })).toBe(400);
  expect(await get(url, { 'x-tenant': 'a', 'X-Api-Key': ['b', ''] })).toBe(400);
  expect(server.calls).toHaveLength(2);
});

it('keyOf of NestJS throws the 400 of a request without one of the fields, or with two', () => {
  const tracker = nestKeyOf(...NAMES);
  expect(tracker({ headers: { 'x-tenant': 'a', 'x-api-key': 'b' } })).toBe('a|b');
  const twice = { 'x-tenant': 'a', 'x-api-key': 'b, c' };
  const rawHeaders = ['X-Tenant', 'a', 'X-Api-Key', 'b', 'x-api-key', 'c'];
  const alone = { headers: { 'x-tenant': 'a' } };
  for (const incoming of [
    alone,
    { headers: twice, rawHeaders },
    { headers: twice, raw: { rawHeaders } },
  ]) {
    const refused = () => tracker(incoming);
    expect(refused).toThrow(HttpException);
    expect(refused).toThrow(expect.objectContaining({ status: 400 }));
  }
});

it('keyOf refuses a name that no header field can have', () => {
  for (const make of [keyOf, storeKeyOf, fastifyKeyOf, honoKeyOf, nestKeyOf]) {
    expect(() => make('X-Tenant', 'X Key')).toThrow(InvalidArgumentError);
  }
});
