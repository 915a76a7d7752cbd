/**
 * Tests the store as express-rate-limit uses it, against a real server whose clock the test moves.
 *
 * Not tested, because they do not apply: `resetAll` and `shutdown`, which are optional (there is no
 * list of keys, and the application owns the connection); a window that each hit extends (the rule
 * decides how hits count); scripts that the server has lost (see backends.test.ts); stores in
 * callback style; `passOnStoreError` (rejected at setup: http.test.ts).
 */
import type { AddressInfo } from 'node:net';
import express, { type RequestHandler } from 'express';
import { type Options, rateLimit } from 'express-rate-limit';
import { Redis } from 'ioredis';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { type Client, fixed, gcra, Limiter, slidingLog } from '../../src/index.js';
import { RedisThrottleStore } from '../../src/web/express-rate-limit.js';
import { frozen } from './frozen.js';
import { until } from './server.js';

const WINDOW_MS = 60_000;
const live = frozen();
const closing: (() => void)[] = [];

afterEach(() => {
  for (const close of closing.splice(0)) close();
});

const advance = (ms: number) => live.server.clock.advance(ms);

function stored(limit = 3, name = 'express'): RedisThrottleStore {
  const store = new RedisThrottleStore({ limiter: live.limiter, name });
  store.init({ windowMs: WINDOW_MS, limit });
  return store;
}

describe('the store', () => {
  it('counts hits from 1, each key separately', async () => {
    const store = stored();
    const hits = async (key: string) => (await store.increment(key)).totalHits;
    expect([await hits('a'), await hits('a'), await hits('b'), await hits('a')]).toEqual([
      1, 2, 1, 3,
    ]);
    expect(await live.server.admin.keys('*')).toEqual(
      expect.arrayContaining(['rl:express:a', 'rl:express:b']),
    );
  });

  it('reports the same end of the window for every hit in it', async () => {
    const store = stored();
    const begin = Date.now();
    const first = (await store.increment('a')).resetTime;
    expect(first).toBeInstanceOf(Date);
    expect(first.getTime()).toBeGreaterThanOrEqual(begin + WINDOW_MS);
    expect(first.getTime()).toBeLessThanOrEqual(Date.now() + WINDOW_MS);
    await advance(20_000);
    const later = Date.now();
    const { resetTime } = await store.increment('a');
    expect(resetTime.getTime()).toBeGreaterThanOrEqual(later + 40_000);
    expect(resetTime.getTime()).toBeLessThanOrEqual(Date.now() + 40_000);
  });

  it('starts again when the window ends, and not one ms earlier', async () => {
    const store = stored();
    for (let hit = 0; hit < 5; hit += 1) await store.increment('a');
    await advance(WINDOW_MS - 1);
    expect((await store.increment('a')).totalHits).toBe(6);
    await advance(1);
    expect((await store.increment('a')).totalHits).toBe(1);
  });

  it('counts denied hits too', async () => {
    const store = stored(2);
    const hits = [];
    for (let hit = 0; hit < 5; hit += 1) hits.push((await store.increment('a')).totalHits);
    expect(hits).toEqual([1, 2, 3, 4, 5]);
    expect((await store.get('a'))?.totalHits).toBe(5);
  });

  it('reports the hits of a key, and undefined without a hit', async () => {
    const store = stored();
    expect(await store.get('a')).toBeUndefined();
    expect(await live.server.admin.dbsize()).toBe(0);
    await store.increment('a');
    const count = await store.get('a');
    expect(count?.totalHits).toBe(1);
    expect(count?.resetTime).toBeInstanceOf(Date);
    expect((await store.get('a'))?.totalHits).toBe(1);
  });

  it('refunds a hit, never below zero, and does not move the window', async () => {
    const store = stored();
    await store.decrement('unknown');
    expect(await live.server.admin.dbsize()).toBe(0);
    await store.increment('a');
    await store.increment('a');
    await advance(59_000);
    await store.decrement('a');
    expect((await store.get('a'))?.totalHits).toBe(1);
    for (let hit = 0; hit < 3; hit += 1) await store.decrement('a');
    expect((await store.increment('a')).totalHits).toBe(1);
  });

  it('gives nothing away to a package that takes a denied hit back at once', async () => {
    const store = stored();
    const hits = async () => {
      const { totalHits } = await store.increment('a');
      // hono-rate-limiter does so under `skipSuccessfulRequests`.
      if (totalHits > 3) await store.decrement('a');
      return totalHits;
    };
    for (let hit = 1; hit <= 8; hit += 1) expect(await hits()).toBe(Math.min(hit, 4));
  });

  it('resets one key, and no other', async () => {
    const store = stored();
    for (const key of ['a', 'a', 'b']) await store.increment(key);
    await store.resetKey('a');
    expect(await store.get('a')).toBeUndefined();
    expect((await store.increment('a')).totalHits).toBe(1);
    expect((await store.increment('b')).totalHits).toBe(2);
  });

  it('counts every one of many concurrent hits', async () => {
    const store = stored(200);
    const all = await Promise.all(Array.from({ length: 150 }, () => store.increment('a')));
    const hits = all.map(({ totalHits }) => totalHits).sort((a, b) => a - b);
    expect(hits).toEqual(Array.from({ length: 150 }, (_, at) => at + 1));
  });

  it('accepts the keys of express-rate-limit, and any other', async () => {
    const store = stored();
    const keys = ['2001:db8:1:2::/56', '{a}', 'b c', '%', 'ü', 'x'.repeat(500)];
    for (const key of keys) expect((await store.increment(key)).totalHits).toBe(1);
    expect(await live.server.admin.dbsize()).toBe(keys.length);
  });

  it('throws when the server rejects the call', async () => {
    await live.server.admin.set('rl:express:a', 'something else');
    await expect(stored().increment('a')).rejects.toMatchObject({ kind: 'WRONGTYPE' });
  });

  it.each([
    ['gcra', gcra('own', 3, 3, '60s'), 21_000],
    ['sliding log', slidingLog('own', 3, '60s'), 60_000],
  ])('decides by its own rule, %s', async (_, rule, resetMs) => {
    const store = new RedisThrottleStore({ limiter: live.limiter, rule });
    store.init({ windowMs: WINDOW_MS, limit: 3 });
    const hits = [];
    for (let hit = 0; hit < 4; hit += 1) hits.push((await store.increment('a')).totalHits);
    expect(hits).toEqual([1, 2, 3, 4]);
    const { resetTime } = await store.increment('a');
    expect(resetTime.getTime() - Date.now()).toBeLessThanOrEqual(resetMs);
  });
});

describe('the middleware over the store', () => {
  async function listen(
    options: Partial<Options>,
    respond: RequestHandler = (_, res) => void res.send('ok'),
    stores: [RedisThrottleStore, ...RedisThrottleStore[]] = [
      new RedisThrottleStore({ limiter: live.limiter }),
    ],
  ) {
    const middleware = stores.map((store) =>
      rateLimit({ windowMs: WINDOW_MS, limit: 2, standardHeaders: 'draft-8', ...options, store }),
    );
    const listening = express()
      .use(...middleware)
      .get('/', respond)
      .listen(0, '127.0.0.1');
    closing.push(
      () => listening.closeAllConnections(),
      () => listening.close(),
    );
    await new Promise((done) => listening.once('listening', done));
    const { port } = listening.address() as AddressInfo;
    return { url: `http://127.0.0.1:${port}/`, port, middleware: middleware[0] };
  }

  it('serves the limit, reports the rest in headers, and denies further requests', async () => {
    const { url } = await listen({ legacyHeaders: true });
    const all = [];
    for (let call = 0; call < 4; call += 1) all.push(await fetch(url));
    expect(all.map(({ status }) => status)).toEqual([200, 200, 429, 429]);
    const left = all.map(({ headers }) => headers.get('X-RateLimit-Remaining'));
    expect(left).toEqual(['1', '0', '0', '0']);
    expect(all[3]?.headers.get('Retry-After')).toBe('60');
  });

  it('sets the request property, and offers getKey and resetKey', async () => {
    const seen: { used: number; remaining: number; limit: number }[] = [];
    const { url, middleware } = await listen({ keyGenerator: () => 'a' }, (req, res) => {
      seen.push((req as typeof req & { rateLimit: (typeof seen)[0] }).rateLimit);
      res.send('ok');
    });
    await fetch(url);
    expect(seen[0]).toMatchObject({ used: 1, remaining: 1, limit: 2 });
    expect((await middleware?.getKey('a'))?.totalHits).toBe(1);
    await middleware?.resetKey('a');
    await until('it is reset', async () => (await middleware?.getKey('a')) === undefined);
  });

  it.each([
    ['skipSuccessfulRequests', 200, true],
    ['skipSuccessfulRequests', 404, false],
  ])('%s refunds the hit of a response with status %s: %s', async (option, status, back) => {
    const options = { [option]: true, keyGenerator: () => 'a' };
    const { url, middleware } = await listen(options, (_, res) => void res.sendStatus(status));
    for (let call = 0; call < 2; call += 1) {
      expect((await fetch(url)).status).toBe(status);
      if (back) {
        await until('it is given back', async () => {
          return (await middleware?.getKey('a')) === undefined;
        });
      }
    }
    expect((await fetch(url)).status).toBe(back ? status : 429);
  });

  it.each([1, 12])('skipFailedRequests gives no denied hit away, %i at once', async (atOnce) => {
    const options = { limit: 3, skipFailedRequests: true, keyGenerator: () => 'a' };
    const { url, middleware } = await listen(options);
    const statuses: number[] = [];
    while (statuses.length < 12) {
      const some = await Promise.all(Array.from({ length: atOnce }, () => fetch(url)));
      statuses.push(...some.map(({ status }) => status));
      await until('the denied hits are given back', async () => {
        return (await middleware?.getKey('a'))?.totalHits === Math.min(3, statuses.length);
      });
    }
    expect(statuses.sort()).toEqual([200, 200, 200, ...Array(9).fill(429)]);
  });

  it('takes a limit that is a function of the request', async () => {
    const { url } = await listen({ limit: async ({ query }) => Number(query.limit) });
    const statuses = async (limit: number) => {
      const all = [];
      for (let call = 0; call < 3; call += 1)
        all.push((await fetch(`${url}?limit=${limit}`)).status);
      return all;
    };
    expect(await statuses(2)).toEqual([200, 200, 429]);
    expect(await statuses(5)).toEqual([200, 200, 429]);
    expect(await statuses(0)).toEqual([429, 429, 429]);
    expect(await statuses(Number.POSITIVE_INFINITY)).toEqual([200, 200, 200]);
  });

  it.each([
    [0, 429],
    [Number.POSITIVE_INFINITY, 200],
  ])('responds under the limit %s without a call', async (limit, status) => {
    const { url } = await listen({ limit, skipFailedRequests: true, skipSuccessfulRequests: true });
    for (let call = 0; call < 2; call += 1) expect((await fetch(url)).status).toBe(status);
    expect(await live.server.admin.dbsize()).toBe(0);
  });

  it('may run twice on a request under two names, without a warning', async () => {
    const complaints = vi.spyOn(console, 'error').mockImplementation(() => {});
    const stores = ['one', 'two'].map(
      (name) => new RedisThrottleStore({ limiter: live.limiter, name }),
    );
    const { url } = await listen({}, undefined, stores as [RedisThrottleStore]);
    expect((await fetch(url)).status).toBe(200);
    expect((await live.server.admin.keys('*')).sort()).toEqual([
      'rl:one:127.0.0.1',
      'rl:two:127.0.0.1',
    ]);
    expect(complaints).not.toHaveBeenCalled();
    complaints.mockRestore();
  });

  it('responds with 400 if there is no key', async () => {
    const { url } = await listen({ keyGenerator: (request) => request.header('X-User') as string });
    expect((await fetch(url)).status).toBe(400);
    expect(await live.server.admin.dbsize()).toBe(0);
  });

  it('responds with 503 under onError deny when the server is down', async () => {
    const down = new Redis({ port: 1, retryStrategy: null, lazyConnect: true });
    const closed = new Limiter(down as unknown as Client, { onError: 'deny' });
    const rule = fixed('down', 2, '60s');
    const { url } = await listen({}, undefined, [
      new RedisThrottleStore({ limiter: closed, rule }),
    ]);
    expect((await fetch(url)).status).toBe(503);
    await closed.close();
  });
});
