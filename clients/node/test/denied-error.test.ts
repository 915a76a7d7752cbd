/** Tests the response of frameworks to a DeniedError that a handler throws. */
import 'reflect-metadata';
import { Controller, Get, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import express from 'express';
import fastify from 'fastify';
import { Hono } from 'hono';
import { expect, it } from 'vitest';
import { Decision, DeniedError, lease } from '../src/index.js';
import { answerDenied, rateLimit } from '../src/web/express.js';
import { rateLimit as honoRateLimit } from '../src/web/hono.js';
import { DeniedFilter } from '../src/web/nestjs.js';
import { api, DENIED, over } from './fakes.js';
import { listen } from './listening.js';

const one = lease('one', 1, '60s');

/** Returns the denial of a lease. */
async function denied(): Promise<DeniedError> {
  const { server, limiter } = over();
  server.script(DENIED);
  const error = await limiter.lease(one, 'x').catch((thrown) => thrown);
  expect(error).toBeInstanceOf(DeniedError);
  return error;
}

/** Expects the response of the middleware to a denial of the rule `one`. */
async function expectDenial(response: Response, rateLimits: string): Promise<void> {
  expect(response.status).toBe(429);
  expect(response.headers.get('content-type')).toMatch(/^application\/problem\+json/);
  expect(response.headers.get('cache-control')).toBe('no-store');
  expect(response.headers.get('retry-after')).toBe('60');
  expect(response.headers.get('ratelimit')).toBe(rateLimits);
  expect(await response.json()).toEqual({
    type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
    title: 'Too Many Requests',
    status: 429,
    detail: 'Come back in 60 seconds.',
    'violated-policies': ['one'],
  });
}

const ONE = '"one";r=0;t=60';
const BOTH = `"api";r=5;t=6, ${ONE}`;
const key = () => 'x';

it('Express responds to the error as to a denial', async () => {
  const error = await denied();
  const app = express().use(() => {
    throw error;
  });
  const response = await fetch(await listen(app));
  expect(response.status).toBe(429);
  expect(response.headers.get('retry-after')).toBe('60');
  expect(response.headers.get('cache-control')).toBe('no-store');
});

it('answerDenied of Express responds as the middleware does, to denials only', async () => {
  const error = await denied();
  const app = express().use(rateLimit({ limiter: over().limiter, rules: api, key }));
  app
    .get('/', () => Promise.reject(error))
    .get('/late', (_, response, next) => {
      response.write('begun');
      next(error);
    });
  app.get('/other', () => Promise.reject(Object.assign(new Error('broken'), { status: 418 })));
  const url = await listen(app.use(answerDenied()));
  await expectDenial(await fetch(url), BOTH);
  expect((await fetch(`${url}other`)).status).toBe(418);
  await expect((await fetch(`${url}late`)).text()).rejects.toThrow();
  expect(() => answerDenied({ headers: ['draft-7' as never] })).toThrow(/^invalid headers/);
});

it('Hono responds to the error as its middleware does to a denial', async () => {
  const error = await denied();
  const app = new Hono().get('/alone', () => Promise.reject(error));
  app.use(honoRateLimit({ limiter: over().limiter, rules: api, key }));
  app.get('/', () => Promise.reject(error));
  await expectDenial(await app.request('/alone'), ONE);
  await expectDenial(await app.request('/'), `${ONE}, "api";r=5;t=6`);
});

it('the filter of NestJS responds as a middleware does', async () => {
  const error = await denied();
  @Controller()
  class AppController {
    @Get()
    hello() {
      throw error;
    }
  }
  @Module({ controllers: [AppController] })
  class AppModule {}
  const app = await NestFactory.create(AppModule, { logger: false });
  app.useGlobalFilters(new DeniedFilter());
  await app.listen(0, '127.0.0.1');
  await expectDenial(await fetch(await app.getUrl()), ONE);
  await app.close();
});

it('Fastify responds to the error as to a denial', async () => {
  const error = await denied();
  const app = fastify();
  app.get('/', async () => {
    throw error;
  });
  const { statusCode, headers } = await app.inject('/');
  expect(statusCode).toBe(429);
  expect(headers['ratelimit-policy']).toBe('"one";q=1');
  expect(headers['cache-control']).toBe('no-store');
});

it('has the status of its decision', () => {
  const [limit, remaining, resetAfterMs] = [0, 0, 0];
  const banned = { allowed: false, rule: one, limit, remaining, resetAfterMs, banned: true };
  const decision = new Decision({ ...banned, retryAfterMs: Number.MAX_SAFE_INTEGER });
  expect(new DeniedError(decision).status).toBe(403);
});
