/** Tests requests whose peer has no address: over a Unix socket, or without a connection. */
import { mkdtempSync, rmSync } from 'node:fs';
import { get } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import express from 'express';
import { Hono } from 'hono';
import { afterEach, describe, expect, it } from 'vitest';
import { ClientAddress } from '../src/web/address.js';
import { type ExpressOptions, rateLimit } from '../src/web/express.js';
import { rateLimit as honoRateLimit } from '../src/web/hono.js';
import { api, over } from './fakes.js';

const closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.splice(0)) close();
});

/** Serves on a Unix socket, and returns the status of the response to a request there. */
async function overUnix(options: ExpressOptions, headers: Record<string, string>) {
  const folder = mkdtempSync(join(tmpdir(), 'redis-throttle-peer-'));
  const socketPath = join(folder, 's');
  const app = express().use(rateLimit(options), (_, response) => void response.send('ok'));
  const server = app.listen(socketPath);
  closing.push(
    () => server.close(),
    () => rmSync(folder, { recursive: true }),
  );
  await new Promise((done) => server.once('listening', done));
  return new Promise((resolve, reject) => {
    get({ socketPath, headers, agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode);
    }).on('error', reject);
  });
}

describe('a peer without an address', () => {
  it.each([
    ['without trust', [], '198.51.100.1', 200, 'peer%3A'],
    ['that is a trusted proxy', ['unix'], '198.51.100.1', 200, '198.51.100.1'],
    ['that is a trusted proxy without a client', ['unix'], ' ,', 200, 'peer%3A'],
    ['that is a trusted proxy and sends no address', ['unix'], 'unknown', 400, undefined],
  ])('over a Unix socket %s', async (_, trustedProxies, forwarded, status, subject) => {
    const { server, limiter } = over();
    const options = { limiter, rules: api, trustedProxies };
    expect(await overUnix(options, { 'X-Forwarded-For': forwarded })).toBe(status);
    expect(server.calls[0]?.[1]?.split(':').at(-1)).toBe(subject);
  });

  it('may be an empty text, with which a framework names a Unix socket', async () => {
    const { server, limiter } = over();
    const options = { limiter, rules: api, trustedProxies: ['unix'], peer: () => '' };
    const app = new Hono().get('/', honoRateLimit(options), (context) => context.text('ok'));
    const headers = { 'X-Forwarded-For': '198.51.100.1' };
    expect((await app.request('/', { headers })).status).toBe(200);
    headers['X-Forwarded-For'] = 'unknown';
    expect((await app.request('/', { headers })).status).toBe(400);
    expect(server.calls.map(([, key]) => key)).toEqual(['rl:api:198.51.100.1']);
    expect(new ClientAddress(['1.2.3.4', 'unix']).subject(' 1.2.3.4', ['5.6.7.8'])).toBeUndefined();
  });

  it('in a request of Hono without a connection is a subject of its own', async () => {
    const { server, limiter } = over();
    const named = () => 'testclient';
    const app = new Hono().get('/', honoRateLimit({ limiter, rules: api }), (c) => c.text('ok'));
    app.get('/named', honoRateLimit({ limiter, rules: api, peer: named }), (c) => c.text('ok'));
    expect((await app.request('/')).status).toBe(200);
    expect((await app.request('/named')).status).toBe(200);
    const keys = server.calls.map(([, key]) => key);
    expect(keys).toEqual(['rl:api:peer%3A', 'rl:api:peer%3A']);
  });

  it.each([
    '10.0.0.0/08',
    '10.0.0.0/00',
    '10.0.0.0/',
    '10.0.0.0/+8',
    '10.0.0.0/255.0.0.0',
    '::/ 1',
  ])('is no trusted proxy of the network %s', (network) => {
    expect(() => new ClientAddress([network])).toThrow(/^invalid trustedProxies/);
  });

  it('has no subject if its client has left', () => {
    expect(new ClientAddress().client(null, [])).toBeUndefined();
  });
});
