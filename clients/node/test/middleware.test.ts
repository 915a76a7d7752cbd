/** Tests the middleware with rules that take no cost: leases and backoffs. */
import express from 'express';
import { describe, expect, it, vi } from 'vitest';
import { backoff, lease, policy } from '../src/index.js';
import type { FakeServer } from '../src/testing.js';
import { type ExpressOptions, rateLimit } from '../src/web/express.js';
import { api, DENIED, GRANTED, over } from './fakes.js';
import { listen, until } from './listening.js';

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
    const backedOff = [1, 3, 2, 0, 3_600_000];
    const held = [1, 3, 2, 0, 60_000];
    const rows = [[1, 6, 2, 0, 24_000], held, backedOff, [...backedOff, 1, 0]];
    const every = [1, 6, 2, 0, 24_000, 1, ...rows];
    server.script(every, 1, backedOff, held, 1, backedOff);
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
  /** The reply that grants both. */
  const GRANTS = [1, 3, 2, 0, 60_000, 2, [1, 3, 2, 0, 60_000], GRANTED];

  it('of one request are taken together, and released together', async () => {
    const { server, limiter } = over();
    server.script(GRANTS, 1, 1, GRANTS, 1, 1);
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
    server.script(GRANTS);
    const app = express().use(rateLimit({ limiter, rules: both }));
    app.get('/', (_, response) => {
      server.fail(new Error('NOPERM no permissions'));
      response.send('ok');
    });
    await fetch(await listen(app));
    await until(() => released(server).length === 2);
    expect(released(server)).toEqual(keys);
  });
});

describe('a denied lease', () => {
  it.each([
    ['one lease', lease('full', 1, '60s')],
    ['several rules', [api, lease('full', 1, '60s')]],
  ])('of %s turns the next() of onDenied into an error', async (_, rules) => {
    const { server, limiter } = over();
    const both = [0, 1, 0, 60_000, 60_000, 2, [1, 6, 6, 0, 0], DENIED];
    server.script(Array.isArray(rules) ? both : DENIED);
    const onDenied: ExpressOptions['onDenied'] = (_request, _response, next) => next();
    const { url, served } = await started({ limiter, rules, onDenied });
    const denied = await fetch(url);
    expect([denied.status, await denied.text()]).toEqual([500, 'RL_DENIED']);
    expect(served).toHaveLength(0);
  });
});
