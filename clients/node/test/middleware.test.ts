/** Tests the middleware with rules that take no cost: leases and backoffs. */
import type { AddressInfo } from 'node:net';
import express, { type Express } from 'express';
import { Hono } from 'hono';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { backoff, lease, policy } from '../src/index.js';
import type { FakeServer } from '../src/testing.js';
import { type ExpressOptions, rateLimit } from '../src/web/express.js';
import { rateLimit as honoRateLimit } from '../src/web/hono.js';
import { api, over } from './over.js';

const closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.splice(0)) close();
});

async function listen(app: Express): Promise<string> {
  const server = app.listen(0, '127.0.0.1');
  closing.push(() => server.close());
  await new Promise((done) => server.once('listening', done));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

async function until(test: () => boolean): Promise<void> {
  for (let turn = 0; !test(); turn += 1) {
    if (turn > 2000) throw new Error('waited in vain');
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

/** Starts an application that counts the requests that reach it. */
async function started(options: ExpressOptions) {
  const served: express.Response[] = [];
  const app = express().use(rateLimit(options));
  const onError: express.ErrorRequestHandler = (error, _request, response, _next) => {
    response.status(500).send(error.code);
  };
  app.get('/', (_, response) => {
    served.push(response);
    response.send('ok');
  });
  return { url: await listen(app.use(onError)), served };
}

const steps = backoff('steps', 3, '1s', '1m', '1h');
const one = lease('one', 3, '60s');

describe('a cost', () => {
  it('is ignored by rules that take none', async () => {
    const { server, limiter } = over();
    const cost = vi.fn(() => 4);
    const all = [api, one, steps, policy('set', { default: steps })].map((rule) => ({ rule }));
    await fetch((await started({ limiter, rules: all, cost })).url);
    const words = server.calls[0]?.filter((_, at) => at > 0 && at % 2 === 0);
    expect(words?.map((text) => text.includes('COST 4'))).toEqual([true, false, false, false]);
    expect(cost).toHaveBeenCalledTimes(1);
    for (const rules of [[{ rule: steps, cost: 4 }], one, steps]) {
      const { url } = await started({ limiter, rules, cost: 4 });
      expect((await fetch(url)).status).toBe(200);
    }
  });
});

describe('two leases', () => {
  const other = lease('other', 1, '60s');
  const both = [one, other];
  const released = (server: FakeServer) =>
    server.calls.filter(([command]) => command === 'RL.RELEASE').map(([, key]) => key);
  const keys = ['rl:one:127.0.0.1', 'rl:other:127.0.0.1'];

  it('of one request are taken together, and released together', async () => {
    const { server, limiter } = over();
    const { url, served } = await started({ limiter, rules: both });
    for (let call = 1; call <= 2; call += 1) {
      expect((await fetch(url)).status).toBe(200);
      await until(() => released(server).length === 2 * call);
    }
    expect(released(server).slice(0, 2)).toEqual(keys);
    expect(served).toHaveLength(2);
    expect(server.clock.pending).toBe(0);
  });

  it('of one request are both released although one release is rejected', async () => {
    const { server, limiter } = over();
    const app = express().use(rateLimit({ limiter, rules: both }));
    app.get('/', (_, response) => {
      server.fail(new Error('NOPERM no permissions'));
      response.send('ok');
    });
    await fetch(await listen(app));
    await until(() => released(server).length === 2);
    expect(released(server)).toEqual(keys);
  });

  it('keep the application from running if one is denied', async () => {
    const { server, limiter } = over();
    const { url, served } = await started({ limiter, rules: both });
    const held = await limiter.lease(other, '127.0.0.1');
    const denied = await fetch(url);
    expect(denied.status).toBe(429);
    expect(await denied.json()).toMatchObject({ 'violated-policies': ['other'] });
    expect(served).toHaveLength(0);
    expect(released(server)).toEqual([]);
    const free = await Promise.all([1, 2, 3].map(() => limiter.lease(one, '127.0.0.1')));
    for (const lease of [held, ...free]) await lease.release();
  });

  it('of one request are released by Hono when the body ends', async () => {
    const { server, limiter } = over();
    const app = new Hono().use(honoRateLimit({ limiter, rules: both, key: () => '127.0.0.1' }));
    app.get('/', (context) => context.text('ok'));
    expect(await (await app.request('/')).text()).toBe('ok');
    await until(() => released(server).length === 2);
    expect(released(server)).toEqual(keys);
  });
});

describe('a denied lease', () => {
  it.each([
    ['one lease', lease('full', 1, '60s')],
    ['several rules', [api, lease('full', 1, '60s')]],
  ])('of %s turns the next() of onDenied into an error', async (_, rules) => {
    const { limiter } = over();
    const onDenied: ExpressOptions['onDenied'] = (_request, _response, next) => next();
    const { url, served } = await started({ limiter, rules, onDenied });
    const held = await limiter.lease(lease('full', 1, '60s'), '127.0.0.1');
    const denied = await fetch(url);
    expect([denied.status, await denied.text()]).toEqual([500, 'RL_DENIED']);
    expect(served).toHaveLength(0);
    await held.release();
  });
});
