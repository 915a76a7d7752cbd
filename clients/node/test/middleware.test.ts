/** Tests the middleware with rules that take no cost: leases and backoffs. */
import type { AddressInfo } from 'node:net';
import express, { type Express } from 'express';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { type ExpressOptions, rateLimit } from '../src/express.js';
import { backoff, lease, policy } from '../src/index.js';
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

/** Starts an application that counts the requests that reach it. */
async function started(options: ExpressOptions) {
  const served: express.Response[] = [];
  const app = express().use(rateLimit(options));
  app.get('/', (_, response) => {
    served.push(response);
    response.send('ok');
  });
  return { url: await listen(app), served };
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
