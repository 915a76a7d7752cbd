/** Tests the answer of frameworks to a DeniedError that a handler throws. */
import express from 'express';
import fastify from 'fastify';
import { expect, it } from 'vitest';
import { Decision, DeniedError, lease } from '../src/index.js';
import { listen } from './listening.js';
import { over } from './over.js';

const one = lease('one', 1, '60s');

/** Takes the permit, and returns the denial of another call. */
async function denied(): Promise<DeniedError> {
  const { limiter } = over();
  await limiter.lease(one, 'x');
  const error = await limiter.lease(one, 'x').catch((thrown) => thrown);
  expect(error).toBeInstanceOf(DeniedError);
  return error;
}

it('Express answers the error as a denial', async () => {
  const error = await denied();
  const app = express().use(() => {
    throw error;
  });
  const response = await fetch(await listen(app));
  expect(response.status).toBe(429);
  expect(response.headers.get('retry-after')).toBe('60');
  expect(response.headers.get('cache-control')).toBe('no-store');
});

it('Fastify answers the error as a denial', async () => {
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
