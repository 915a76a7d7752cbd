/**
 * Tests the middleware over real HTTP, and over Request and Response. The Redis server is a fake.
 */
import type { AddressInfo } from 'node:net';
import { connect } from 'node:net';
import { serve as serveHono } from '@hono/node-server';
import express, { type Express } from 'express';
import { rateLimit as expressRateLimit } from 'express-rate-limit';
import { Hono } from 'hono';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { backoff, fixed, gcra, Limiter, type LimiterOptions, lease, quota } from '../src/index.js';
import { FakeServer } from '../src/testing.js';
import { type ExpressOptions, type RateLimited, rateLimit } from '../src/web/express.js';
import { RedisThrottleStore } from '../src/web/express-rate-limit.js';
import { rateLimit as honoRateLimit } from '../src/web/hono.js';

const api = gcra('api', 6, 10, '60s');
const closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.splice(0)) close();
});

function over(options: LimiterOptions = {}) {
  const server = new FakeServer();
  return { server, limiter: new Limiter(server, { clock: server.clock, ...options }) };
}

/** Starts the app, and returns its URL. */
async function listen(app: Express, host = '127.0.0.1'): Promise<string> {
  const server = app.listen(0, host);
  closing.push(
    () => server.closeAllConnections(),
    () => server.close(),
  );
  await new Promise((done) => server.once('listening', done));
  const { port } = server.address() as AddressInfo;
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}/`;
}

function limited(
  options: ExpressOptions,
  answer: express.RequestHandler = (_, res) => void res.send('ok'),
) {
  return express().use(rateLimit(options)).get('/', answer);
}

async function until(test: () => boolean): Promise<void> {
  for (let turn = 0; !test(); turn += 1) {
    if (turn > 2000) throw new Error('waited in vain');
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

describe('Express', () => {
  it('answers a burst with the headers, then with a problem', async () => {
    const { limiter } = over();
    const url = await listen(limited({ limiter, rules: api }));
    for (let call = 0; call < 6; call += 1) {
      const response = await fetch(url);
      expect(response.status).toBe(200);
      expect(response.headers.get('RateLimit-Policy')).toBe('"api";q=6;w=36');
      expect(response.headers.get('RateLimit')).toBe(`"api";r=${5 - call};t=${6 * (call + 1)}`);
    }
    const denied = await fetch(url);
    expect(denied.status).toBe(429);
    expect(denied.headers.get('Content-Type')).toBe('application/problem+json');
    expect(denied.headers.get('Cache-Control')).toBe('no-store');
    expect(denied.headers.get('Retry-After')).toBe('6');
    const body = await denied.json();
    expect(body).toMatchObject({ status: 429, 'violated-policies': ['api'] });
    expect(JSON.stringify(body)).not.toContain('127.0.0.1');
  });

  it.each([
    ['allow', 200, undefined],
    ['deny', 503, '1'],
    ['local', 200, undefined],
  ] as const)('without a server, under %s, answers %s', async (onError, status, retryAfter) => {
    const { server, limiter } = over({ onError });
    server.fail();
    const app = limited({ limiter, rules: api, degradedHeader: 'X-Degraded' }, (req, res) => {
      res.send(req.headers['x-degraded'] ?? 'no');
    });
    const response = await fetch(await listen(app), { headers: { 'X-Degraded': 'spoofed' } });
    expect(response.status).toBe(status);
    expect(response.headers.get('Retry-After') ?? undefined).toBe(retryAfter);
    if (status === 200) expect(await response.text()).toBe('1');
  });

  it('removes a degraded header of the client while the server decides', async () => {
    const { limiter } = over();
    const app = limited({ limiter, rules: api, degradedHeader: 'X-Degraded' }, (req, res) => {
      res.send(req.headers['x-degraded'] ?? 'no');
    });
    const response = await fetch(await listen(app), { headers: { 'X-Degraded': '1' } });
    expect(await response.text()).toBe('no');
  });

  it('passes a CommandRejectedError to the application', async () => {
    const { server, limiter } = over();
    server.fail(new Error('WRONGTYPE no'));
    const app = limited({ limiter, rules: api });
    const codes: string[] = [];
    const onError: express.ErrorRequestHandler = (error, _req, res, _next) => {
      codes.push(error.code);
      res.sendStatus(500);
    };
    expect((await fetch(await listen(app.use(onError)))).status).toBe(500);
    expect(codes).toEqual(['RL_COMMAND_REJECTED']);
  });

  it('ignores X-Forwarded-For of an untrusted proxy', async () => {
    const { server, limiter } = over();
    const headers = { 'X-Forwarded-For': '198.51.100.1, 198.51.100.2' };
    await fetch(await listen(limited({ limiter, rules: api })), { headers });
    const trustedProxies = ['127.0.0.0/8'];
    await fetch(await listen(limited({ limiter, rules: api, trustedProxies })), { headers });
    expect(server.calls.map(([, key]) => key)).toEqual(['rl:api:127.0.0.1', 'rl:api:198.51.100.2']);
  });

  it('limits an IPv6 client by its /64 network', async () => {
    const { server, limiter } = over();
    await fetch(await listen(limited({ limiter, rules: api }), '::1'));
    expect(server.calls[0]?.[1]).toBe('rl:api:%3A%3A/64');
  });

  it('answers 400 to a request without a subject, or applies the anonymous rule', async () => {
    const { server, limiter } = over();
    const key = (request: { headers: { [name: string]: unknown } }) =>
      request.headers['x-user'] as string | undefined;
    const url = await listen(limited({ limiter, rules: api, key }));
    const refused = await fetch(url);
    expect(refused.status).toBe(400);
    expect(refused.headers.get('Content-Type')).toBe('application/problem+json');
    expect(server.calls).toHaveLength(0);
    expect((await fetch(url, { headers: { 'X-User': '42' } })).status).toBe(200);
    const anonymous = fixed('anonymous', 1, '60s');
    const rules = { limiter, rules: [fixed('all', 9, '60s'), { rule: api, key }], anonymous };
    const open = await listen(limited(rules));
    expect((await fetch(open)).headers.get('RateLimit')).toBe('"anonymous";r=0;t=60');
    expect((await fetch(open)).status).toBe(429);
    const keys = server.calls.map(([, at]) => at);
    expect(keys).toEqual(['rl:api:42', ...Array(2).fill('rl:anonymous:127.0.0.1')]);
  });

  it('checks several rules in one call', async () => {
    const { server, limiter } = over();
    const rule = [api, { rule: fixed('tenant', 8, '60s'), key: () => 'acme', cost: 4 }];
    const url = await listen(limited({ limiter, rules: rule, tag: () => 't' }));
    expect((await fetch(url)).headers.get('RateLimit')).toBe('"api";r=5;t=6, "tenant";r=4;t=60');
    await fetch(url);
    const denied = await fetch(url);
    expect(denied.status).toBe(429);
    expect(await denied.json()).toMatchObject({ 'violated-policies': ['tenant'] });
    expect(server.calls[0]).toEqual([
      'RL.ALL',
      'rl:{t}:api:127.0.0.1',
      'GCRA 6 10 60',
      'rl:{t}:tenant:acme',
      'FIXED 8 60 COST 4',
    ]);
  });

  it('answers 413 to a cost above the limit, and 429 through onDenied', async () => {
    const { limiter } = over();
    const url = await listen(limited({ limiter, rules: api, cost: () => 7 }));
    const never = await fetch(url);
    expect(never.status).toBe(413);
    expect(never.headers.get('Retry-After')).toBeNull();
    const onDenied: ExpressOptions['onDenied'] = (_request, response, _next, decision) => {
      response.end(`again in ${decision.retryAfterMs}`);
    };
    const cost = 6;
    const own = await listen(limited({ limiter, rules: api, cost, onDenied }));
    await fetch(own);
    const denied = await fetch(own);
    expect(denied.status).toBe(429);
    expect(denied.headers.get('Retry-After')).toBe('36');
    expect(await denied.text()).toBe('again in 36000');
  });

  it('keeps the headers, the degraded header and the decision of an outer limiter', async () => {
    const { limiter } = over();
    const away = over();
    away.server.fail();
    const degradedHeader = 'X-Degraded';
    const open = gcra('open', 6, 10, '60s', { onError: 'allow' });
    const day = fixed('day', 9, '1d');
    const seen: unknown[] = [];
    const app = express()
      .use(rateLimit({ limiter: away.limiter, rules: open, degradedHeader }))
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

  it('reports a reset for each rule that denies', async () => {
    const { limiter } = over();
    const rule = [api, fixed('day', 6, '1d')];
    const url = await listen(limited({ limiter, rules: rule }));
    for (let call = 0; call < 6; call += 1) await fetch(url);
    const denied = await fetch(url);
    expect(denied.headers.get('RateLimit')).toBe('"api";r=0;t=6, "day";r=0;t=86400');
    expect(denied.headers.get('Retry-After')).toBe('86400');
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

  it('does not limit a skipped request, and adds the decision to a limited one', async () => {
    const { server, limiter } = over();
    const skip = ({ url }: { url?: string | undefined }) => url === '/?health';
    const app = limited({ limiter, rules: api, skip }, (req, res) => {
      res.json({ left: (req as { rateLimit?: { remaining: number } }).rateLimit?.remaining });
    });
    const url = await listen(app);
    expect(await (await fetch(`${url}?health`)).json()).toEqual({});
    expect(await (await fetch(url)).json()).toEqual({ left: 5 });
    expect(server.calls).toHaveLength(1);
  });

  it.each([[false], [true]])(
    'holds a lease until the response ends, with several rules: %s',
    async (several) => {
      const { server, limiter } = over();
      const one = lease('one', 1, '60s');
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
  it('limits, sets the headers, and answers with a problem', async () => {
    const { limiter } = over();
    const app = new Hono<{ Variables: { rateLimit: { remaining: number } } }>();
    app.use(honoRateLimit({ limiter, rules: api, peer: () => '192.0.2.7' }));
    app.get('/', (context) => context.text(String(context.get('rateLimit').remaining)));
    const first = await app.request('/');
    expect(await first.text()).toBe('5');
    expect(first.headers.get('RateLimit')).toBe('"api";r=5;t=6');
    for (let call = 0; call < 5; call += 1) await app.request('/');
    const denied = await app.request('/');
    expect(denied.status).toBe(429);
    expect(denied.headers.get('Content-Type')).toBe('application/problem+json');
    expect(denied.headers.get('Retry-After')).toBe('6');
  });

  it('keeps the headers and the degraded header of an outer limiter', async () => {
    const { limiter } = over();
    const away = over();
    away.server.fail();
    const [key, degradedHeader] = [() => 'x', 'X-Degraded'];
    const day = fixed('day', 9, '1d');
    const app = new Hono();
    app.use(honoRateLimit({ limiter: away.limiter, rules: day, key, degradedHeader }));
    app.use(honoRateLimit({ limiter, rules: api, key, degradedHeader }));
    app.use(honoRateLimit({ limiter, rules: day, key }));
    app.get('/', (context) => context.text(context.req.raw.headers.get('x-degraded') ?? 'none'));
    const response = await app.request('/', { headers: { 'x-degraded': '0' } });
    expect(await response.text()).toBe('1');
    expect(response.headers.get('RateLimit')).toBe('"day";r=8;t=86400, "api";r=5;t=6');
  });

  it('reads the peer, and releases the lease when the body ends or the client leaves', async () => {
    const { server, limiter } = over();
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
      closing.push(() => listening.close());
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

  it('answers 503 when onError denies', async () => {
    const { server, limiter } = over({ onError: 'deny' });
    server.fail();
    const other = new Hono();
    const degradedHeader = 'x-degraded';
    other.use('/closed', honoRateLimit({ limiter, rules: api, key: () => 'x' }));
    const open = gcra('open', 1, 1, '1s', { onError: 'allow' });
    other.use('/open', honoRateLimit({ limiter, rules: open, key: () => 'x', degradedHeader }));
    other.get('/open', (context) => context.text(context.req.header('x-degraded') ?? 'no'));
    expect((await other.request('/closed')).status).toBe(503);
    expect(await (await other.request('/open')).text()).toBe('1');
    server.answer();
  });
});

describe('a CommandRejectedError that the application does not handle', () => {
  it.each([
    ['test', true],
    ['production', false],
  ])('gets the answer of Express in %s, with its stack: %s', async (environment, shown) => {
    const { server, limiter } = over();
    server.fail(new Error('WRONGTYPE of another kind'));
    const app = express().set('env', environment);
    app.use(rateLimit({ limiter, rules: api }));
    // Express also writes the error to the console.
    const silenced = vi.spyOn(console, 'error').mockImplementation(() => {});
    const answer = await fetch(await listen(app));
    expect(answer.status).toBe(500);
    expect((await answer.text()).includes('CommandRejectedError')).toBe(shown);
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

  it('reports the retry time as the reset, never an earlier time', async () => {
    const { limiter } = over();
    const { app, store } = stored(limiter, {});
    const url = await listen(app);
    const all = [];
    for (let call = 0; call < 5; call += 1) all.push(await fetch(url));
    expect(all.map(({ status }) => status)).toEqual([201, 201, 201, 429, 429]);
    expect(all.map(({ headers }) => headers.get('RateLimit-Remaining'))).toEqual([
      '2',
      '1',
      '0',
      '0',
      '0',
    ]);
    expect(all[4]?.headers.get('Retry-After')).toBe('60');
    const before = Date.now();
    const hits = await store.increment('127.0.0.1');
    expect(hits.totalHits).toBe(6);
    expect(hits.resetTime.getTime()).toBeGreaterThanOrEqual(before + 60_000);
    await store.decrement('127.0.0.1');
    expect((await store.get('127.0.0.1'))?.totalHits).toBe(5);
    await store.resetKey('127.0.0.1');
    expect(await store.get('127.0.0.1')).toBeUndefined();
  });

  it('refunds hits that express-rate-limit skips', async () => {
    const { server, limiter } = over();
    const { app } = stored(limiter, { skipSuccessfulRequests: true });
    const url = await listen(app);
    for (let call = 0; call < 6; call += 1) {
      expect((await fetch(url)).status).toBe(201);
      await until(() => server.calls.length === 2 * call + 2);
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

  it('has the errors of hono-rate-limiter answered with their status', async () => {
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
