/** Tests the middleware of Express and Hono, and the store for express-rate-limit, over HTTP. */
import { connect } from 'node:net';
import { serve as serveHono } from '@hono/node-server';
import express from 'express';
import { rateLimit as expressRateLimit } from 'express-rate-limit';
import { Hono } from 'hono';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { backoff, fixed, gcra, type Limiter, lease, quota } from '../src/index.js';
import { type ExpressOptions, type RateLimited, rateLimit } from '../src/web/express.js';
import { RedisThrottleStore } from '../src/web/express-rate-limit.js';
import { rateLimit as honoRateLimit } from '../src/web/hono.js';
import { api, DENIED, GRANTED, over } from './fakes.js';
import { listen, until } from './listening.js';

function limited(
  options: ExpressOptions,
  respond: express.RequestHandler = (_, res) => void res.send('ok'),
) {
  return express().use(rateLimit(options)).get('/', respond);
}

describe('Express', () => {
  it('limits an IPv6 client by its /64 network', async () => {
    const { server, limiter } = over();
    await fetch(await listen(limited({ limiter, rules: api }), '::1'));
    expect(server.calls[0]?.[1]).toBe('rl:api:%3A%3A/64');
  });

  it('keeps the headers, the degraded header and the decision of an outer limiter', async () => {
    const { limiter } = over();
    const down = over();
    down.server.fail();
    const degradedHeader = 'X-Degraded';
    const open = gcra('open', 6, 10, '60s', { onError: 'allow' });
    const day = fixed('day', 9, '1d');
    const seen: unknown[] = [];
    const app = express()
      .use(rateLimit({ limiter: down.limiter, rules: open, degradedHeader }))
      .use(rateLimit({ limiter, rules: api, degradedHeader }))
      .use(rateLimit({ limiter, rules: day, degradedHeader }))
      .use(rateLimit({ limiter, rules: lease('one', 1, '1s'), skip: () => true, degradedHeader }))
      .get('/', (request: express.Request & RateLimited, response) => {
        seen.push(request.rateLimit?.rule, request.headers['x-degraded']);
        response.send('ok');
      });
    const headers = { 'x-degraded': '0' };
    const response = await fetch(await listen(app), { headers });
    expect(seen).toEqual(['day', '1']);
    expect(response.headers.get('RateLimit')).toBe('"api";r=5;t=6, "day";r=8;t=86400');
    expect(response.headers.get('RateLimit-Policy')).toBe('"api";q=6;w=36, "day";q=9;w=86400');
  });

  it('rejects invalid options at setup', () => {
    const { limiter } = over();
    expect(() => rateLimit({ limiter, rules: [api, fixed('api', 9, '1d')] })).toThrow(
      /no repeated name/,
    );
    expect(() => rateLimit({ limiter, rules: api, degradedHeader: 'X Y' })).toThrow(
      /the name of a/,
    );
    const anonymous = 'nobody' as never;
    expect(() => rateLimit({ limiter, rules: api, anonymous })).toThrow(
      /anonymous: expected a rule/,
    );
    const headers = ['draft-7'] as unknown as [];
    expect(() => rateLimit({ limiter, rules: api, headers })).toThrow(/headers: expected some of/);
  });

  it.each([[false], [true]])(
    'holds a lease until the response ends, with several rules: %s',
    async (several) => {
      const { server, limiter } = over();
      const one = lease('one', 1, '60s');
      const all = (own: number[]) => [...own, 2, [1, 6, 5, 0, 6000], own];
      const [grant, deny] = [GRANTED, DENIED].map((own) => (several ? all(own) : own));
      server.script(grant, deny, 1, grant, 1, grant, deny, 1);
      const waiting: express.Response[] = [];
      const rule = several ? [api, one] : one;
      const app = limited({ limiter, rules: rule }, (_, res) => void waiting.push(res));
      const url = await listen(app);
      const first = fetch(url);
      await until(() => waiting.length === 1);
      expect((await fetch(url)).status).toBe(429);
      waiting[0]?.send('ok');
      await first;
      await until(() => server.calls.some(([command]) => command === 'RL.RELEASE'));
      const second = fetch(url);
      await until(() => waiting.length === 2);
      const port = Number(new URL(url).port);
      const sent = (wanted: string) => server.calls.filter(([name]) => name === wanted).length;
      waiting[1]?.send('ok');
      await second;
      await until(() => sent('RL.RELEASE') === 2);
      // If the client disconnects before, the handler may go on.
      const client = connect(port, '127.0.0.1');
      client.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
      await until(() => waiting.length === 3);
      client.destroy();
      await until(() => waiting[2]?.closed === true);
      await server.advance(59_000);
      expect([sent('RL.RENEW'), sent('RL.RELEASE')]).toEqual([0, 2]);
      expect((await fetch(url)).status).toBe(429);
      waiting[2]?.send('ok');
      await until(() => sent('RL.RELEASE') === 3);
      expect(server.clock.pending).toBe(0);
    },
  );
});

describe('Hono', () => {
  it('keeps the headers and the degraded header of an outer limiter', async () => {
    const { limiter } = over();
    const down = over();
    down.server.fail();
    const [key, degradedHeader] = [() => 'x', 'X-Degraded'];
    const day = fixed('day', 9, '1d');
    const app = new Hono();
    app.use(honoRateLimit({ limiter: down.limiter, rules: day, key, degradedHeader }));
    app.use(honoRateLimit({ limiter, rules: api, key, degradedHeader }));
    app.use(honoRateLimit({ limiter, rules: day, key }));
    app.get('/', (context) => context.text(context.req.raw.headers.get('x-degraded') ?? 'none'));
    const response = await app.request('/', { headers: { 'x-degraded': '0' } });
    expect(await response.text()).toBe('1');
    expect(response.headers.get('RateLimit')).toBe('"day";r=8;t=86400, "api";r=5;t=6');
  });

  it('reads the peer, and releases the lease when the body ends or the client leaves', async () => {
    const { server, limiter } = over();
    server.script(GRANTED, DENIED, 1, GRANTED, 1);
    const app = new Hono();
    app.use(honoRateLimit({ limiter, rules: lease('one', 1, '60s') }));
    let end = () => {};
    app.get('/', () => {
      const body = new ReadableStream({
        start(controller) {
          controller.enqueue(new TextEncoder().encode('begun'));
          end = () => controller.close();
        },
      });
      return new Response(body);
    });
    const port = await new Promise<number>((resolve) => {
      const listening = serveHono({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, (info) => {
        resolve(info.port);
      });
      onTestFinished(() => void listening.close());
    });
    const released = () => server.calls.filter(([command]) => command === 'RL.RELEASE').length;
    const url = `http://127.0.0.1:${port}/`;
    const first = await fetch(url);
    expect(server.calls[0]?.[1]).toBe('rl:one:127.0.0.1');
    expect((await fetch(url)).status).toBe(429);
    expect(released()).toBe(0);
    end();
    expect(await first.text()).toBe('begun');
    await until(() => released() === 1);
    const gone = new AbortController();
    await fetch(url, { signal: gone.signal });
    gone.abort();
    await until(() => released() === 2);
  });
});

describe('a CommandRejectedError that the application does not handle', () => {
  it.each([
    ['test', true],
    ['production', false],
  ])('gets the response of Express in %s, with its stack: %s', async (environment, hasStack) => {
    const { server, limiter } = over();
    server.fail(new Error('WRONGTYPE of another kind'));
    const app = express().set('env', environment);
    app.use(rateLimit({ limiter, rules: api }));
    // Express also writes the error to the console.
    const silenced = vi.spyOn(console, 'error').mockImplementation(() => {});
    const response = await fetch(await listen(app));
    expect(response.status).toBe(500);
    expect((await response.text()).includes('CommandRejectedError')).toBe(hasStack);
    silenced.mockRestore();
  });
});

describe('the store for express-rate-limit', () => {
  const stored = (limiter: Limiter, options: object, rule?: typeof api) => {
    const store = new RedisThrottleStore({ limiter, rule });
    const validate = { creationStack: false };
    const middleware = expressRateLimit({
      windowMs: 60_000,
      limit: 3,
      standardHeaders: 'draft-6',
      validate,
      ...options,
      store,
    });
    return {
      store,
      app: express()
        .use(middleware)
        .get('/', (_, res) => void res.sendStatus(201)),
    };
  };

  it('calls the server for each hit, even if the limiter prefetches', async () => {
    for (const rule of [undefined, gcra('own', 3, 3, '60s')]) {
      const { server, limiter } = over({ prefetch: 10 });
      const { app } = stored(limiter, {}, rule);
      const url = await listen(app);
      const left = [];
      for (let call = 0; call < 2; call += 1) {
        left.push((await fetch(url)).headers.get('RateLimit-Remaining'));
      }
      expect(left).toEqual(['2', '1']);
      expect(server.calls.flat()).not.toContain('PARTIAL');
    }
  });

  it('serves or denies as onError says when the server is down', async () => {
    const open = over();
    open.server.fail();
    expect((await fetch(await listen(stored(open.limiter, {}).app))).status).toBe(201);
    const closed = over({ onError: 'deny' });
    closed.server.fail();
    const { store } = stored(closed.limiter, {});
    await expect(store.increment('x')).rejects.toMatchObject({ code: 'RL_UNAVAILABLE' });
    await expect(store.decrement('x')).resolves.toBeUndefined();
  });

  it('keeps denying a key that was denied when the server goes down', async () => {
    const { server, limiter } = over();
    const store = new RedisThrottleStore({ limiter });
    store.init({ windowMs: 60_000, limit: 1 });
    for (let hit = 1; hit <= 3; hit += 1) expect((await store.increment('x')).totalHits).toBe(hit);
    server.fail();
    expect((await store.increment('x')).totalHits).toBe(2);
    expect((await store.increment('y')).totalHits).toBe(1);
  });

  it('gives the errors of hono-rate-limiter their status', async () => {
    const { server, limiter } = over({ onError: 'deny' });
    server.fail();
    const store = new RedisThrottleStore({ limiter, rule: api });
    const app = new Hono().get('*', async ({ req, json }) => {
      return json(await store.increment(req.query('key') as string));
    });
    expect((await app.request('/')).status).toBe(400);
    expect((await app.request('/?key=x')).status).toBe(503);
  });

  it('has a prefix that joins with keys to different texts', () => {
    const { limiter } = over();
    const prefixes = ['a', 'a:b'].map((name) => new RedisThrottleStore({ limiter, name }).prefix);
    expect(`${prefixes[0]}b:c`).not.toBe(`${prefixes[1]}c`);
  });

  it('rejects, at setup, rules that it cannot express', async () => {
    const { limiter } = over();
    expect(() => new RedisThrottleStore({ limiter, rule: lease('x', 1, '1s') })).toThrow();
    const steps = backoff('x', 1, '1s', '2s', '1m');
    expect(() => new RedisThrottleStore({ limiter, rule: steps })).toThrow();
    const failures = fixed('f', 6, '60s', { count: 'failures' });
    expect(() => new RedisThrottleStore({ limiter, rule: failures })).toThrow(/counts all/);
    const local = over({ onError: 'local' }).limiter;
    const daily = quota('q', 6, 'day');
    expect(() => new RedisThrottleStore({ limiter: local, rule: daily })).toThrow(/onError/);
    const init = (options: object, rule = api) => {
      const store = new RedisThrottleStore({ limiter, rule });
      return () => store.init({ windowMs: 60_000, limit: 6, ...options });
    };
    expect(init({})).not.toThrow();
    expect(init({ limit: 5 })).toThrow(/6, the limit of the rule/);
    expect(init({ limit: () => 6 })).toThrow(/6, the limit of the rule/);
    expect(init({ passOnStoreError: true })).toThrow(/passOnStoreError/);
    expect(init({ skipFailedRequests: true })).toThrow(/skipFailedRequests/);
    expect(init({ skipSuccessfulRequests: true })).toThrow(/skipSuccessfulRequests/);
    expect(init({ windowMs: 1 }, fixed('f', 6, '60s'))).toThrow(/60000, the window/);
    const store = new RedisThrottleStore({ limiter, rule: api });
    expect(() => store.init({ windowMs: 1, limit: 5 })).toThrow();
    expect((await store.increment('x')).totalHits).toBe(Number.MAX_SAFE_INTEGER);
    // express-rate-limit 8 logs the error of `init`.
    const silenced = vi.spyOn(console, 'error').mockImplementation(() => {});
    for (const limit of [1.5, Number.NaN]) {
      expect(() => stored(limiter, { limit })).toThrow(/^invalid limit: expected an integer/);
    }
    silenced.mockRestore();
  });
});
