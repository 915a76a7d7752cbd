/** Tests edge cases of the middleware: the end of a response, its headers, unusual requests. */

import { connect } from 'node:net';
import express from 'express';
import { type Context, Hono } from 'hono';
import { describe, expect, it } from 'vitest';
import { fixed, gcra, lease } from '../src/index.js';
import type { FakeServer } from '../src/testing.js';
import { type ExpressOptions, rateLimit } from '../src/web/express.js';
import { type ContextLike, rateLimit as honoRateLimit } from '../src/web/hono.js';
import { api, GRANTED, over } from './fakes.js';
import { listen, sent, until } from './listening.js';

const one = fixed('one', 1, '1h');
const jobs = lease('jobs', 1, '60s');
const key = () => 'x';
function limited(
  options: ExpressOptions,
  respond: express.RequestHandler = (_, res) => void res.send('ok'),
) {
  return express().use(rateLimit(options)).all('/', respond);
}

const released = ({ calls }: FakeServer) =>
  calls.filter(([command]) => command === 'RL.RELEASE').length;

describe('Express', () => {
  it('holds a lease until the last part of the body', async () => {
    const { server, limiter } = over();
    server.script(GRANTED, 1);
    const responses: express.Response[] = [];
    const app = limited({ limiter, rules: jobs }, (_, response) => {
      response.write('one');
      responses.push(response);
    });
    const { body } = await fetch(await listen(app));
    const reader = (body as ReadableStream<Uint8Array>).getReader();
    await reader.read();
    responses[0]?.write('two');
    await reader.read();
    expect(released(server)).toBe(0);
    responses[0]?.end('three');
    await reader.read();
    await until(() => released(server) === 1);
  });

  it('releases a lease that is granted after the client has disconnected', async () => {
    const { server, limiter } = over();
    server.script(GRANTED, 1);
    server.hang();
    let closed = false;
    const app = express().use((_request, response, next) => {
      response.once('close', () => {
        closed = true;
      });
      next();
    });
    const url = await listen(app.use(limited({ limiter, rules: jobs }, () => {})));
    const client = connect(Number(new URL(url).port), '127.0.0.1');
    client.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    await until(() => server.calls.length === 1);
    client.destroy();
    await until(() => closed);
    server.answer();
    await until(() => released(server) === 1);
  });

  it('does not run the application if the client leaves with the grant of a lease', async () => {
    let served = 0;
    let leave = () => {};
    const { server, limiter } = over({ onDecision: () => leave() });
    server.script(GRANTED, 1);
    const app = express().use(({ socket }, _response, next) => {
      leave = () => void socket.destroy();
      next();
    });
    app.use(
      limited({ limiter, rules: jobs }, () => {
        served += 1;
      }),
    );
    sent(await listen(app)).on('error', () => {});
    await until(() => released(server) === 1);
    expect(served).toBe(0);
  });

  it('holds the lease of a pipelined request of a gone client until it ends', async () => {
    const { server, limiter } = over();
    server.script([1, 2, 1, 0, 60_000], [1, 2, 0, 0, 60_000], 1, 1);
    const responses: express.Response[] = [];
    let closed = false;
    const app = limited({ limiter, rules: lease('jobs', 2, '60s') }, ({ socket }, response) => {
      responses.push(response);
      socket.once('close', () => {
        closed = true;
      });
    });
    const client = connect(Number(new URL(await listen(app)).port), '127.0.0.1');
    client.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(2));
    await until(() => responses.length === 2);
    client.destroy();
    await until(() => closed);
    await server.advance(59_000);
    expect(server.calls.filter(([command]) => command === 'RL.RENEW')).toEqual([]);
    for (const [at, response] of responses.entries()) {
      expect(released(server)).toBe(at);
      response.end();
      await until(() => released(server) === at + 1);
    }
    expect(server.clock.pending).toBe(0);
  });

  it.each([
    ['gives back', 0, 1],
    ['forgets', 60_000, 0],
  ])('%s the lease of a gone client at a close after %i ms', async (_, ms, releases) => {
    const { server, limiter } = over();
    server.script(GRANTED, 1);
    const responses: express.Response[] = [];
    const app = limited({ limiter, rules: jobs }, (_request, response) => {
      responses.push(response);
    });
    const client = sent(await listen(app));
    await until(() => responses.length === 1);
    client.destroy();
    await until(() => responses[0]?.closed === true);
    await server.advance(ms);
    await limiter.close();
    expect(released(server)).toBe(releases);
    expect(server.clock.pending).toBe(0);
  });

  it('cancels the call of a pipelined request when the client disconnects', async () => {
    const { server, limiter } = over({ maxInFlight: 1 });
    let [closed, served] = [false, 0];
    const app = express().use((request, _response, next) => {
      request.socket.once('close', () => {
        closed = true;
      });
      next();
    });
    app.use(
      limited({ limiter, rules: api }, () => {
        served += 1;
      }),
    );
    const client = connect(Number(new URL(await listen(app)).port), '127.0.0.1');
    server.hang();
    client.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(2));
    await until(() => server.calls.length === 1);
    client.destroy();
    await until(() => closed);
    server.answer();
    expect((await limiter.check(api, 'other')).source).toBe('server');
    expect(server.calls).toHaveLength(2);
    expect(served).toBe(0);
  });

  it.each(['HEAD', 'OPTIONS', 'POST'])('limits a %s request like any other', async (method) => {
    const { limiter } = over();
    const url = await listen(limited({ limiter, rules: one }));
    const [first, denied] = [await fetch(url, { method }), await fetch(url, { method })];
    expect([first.status, denied.status]).toEqual([200, 429]);
    expect(first.headers.get('RateLimit')).toBe('"one";r=0;t=3600');
    expect((await denied.text()) === '').toBe(method === 'HEAD');
  });

  it('sends the selected forms of headers, and keeps headers of the application', async () => {
    const { limiter } = over();
    const app = limited(
      { limiter, rules: one, headers: ['draft-6', 'x-ratelimit'] },
      (_, response) => {
        response.setHeader('RateLimit-Limit', '7');
        response.send('ok');
      },
    );
    const url = await listen(app);
    const before = Math.floor(Date.now() / 1000);
    const { headers } = await fetch(url);
    expect(headers.get('RateLimit')).toBeNull();
    expect(headers.get('RateLimit-Limit')).toBe('7');
    expect(headers.get('RateLimit-Remaining')).toBe('0');
    expect(headers.get('RateLimit-Reset')).toBe('3600');
    expect(Number(headers.get('X-RateLimit-Reset'))).toBeGreaterThanOrEqual(before + 3600);
    const denied = await fetch(url);
    expect([denied.status, denied.headers.get('X-RateLimit-Remaining')]).toEqual([429, '0']);
  });

  it('sets no-store on the response of onDenied, and passes on its errors', async () => {
    const { limiter } = over();
    const onDenied: ExpressOptions['onDenied'] = async (_request, response) => {
      if (response.getHeader('Cache-Control') !== 'no-store') response.end('cached');
      throw new Error('broken');
    };
    const app = limited({ limiter, rules: one, onDenied });
    const onError: express.ErrorRequestHandler = (error, _req, res, _next) => {
      res.status(500).send(error.message);
    };
    const url = await listen(app.use(onError));
    await fetch(url);
    expect(await (await fetch(url)).text()).toBe('broken');
  });
});

describe('Hono', () => {
  it('keeps the headers of the application, and supports the other options', async () => {
    const { server, limiter } = over();
    const app = new Hono();
    const trustedProxies = ['192.0.2.0/24'];
    const skip = ({ req }: ContextLike) => req.raw.url.endsWith('/health');
    const headers = ['draft-6'] as const;
    const peer = () => '192.0.2.7';
    app.use(honoRateLimit({ limiter, rules: one, trustedProxies, peer, skip, headers, cost: 1 }));
    app.get('*', (context) => context.text('hello', 200, { 'RateLimit-Limit': '7' }));
    expect((await app.request('/health')).headers.get('RateLimit-Remaining')).toBeNull();
    expect(server.calls).toEqual([]);
    const forwarded = { headers: { 'X-Forwarded-For': '1.1.1.1, 198.51.100.1' } };
    const response = await app.request('/', forwarded);
    expect(response.headers.get('RateLimit-Limit')).toBe('7');
    expect(response.headers.get('RateLimit-Remaining')).toBe('0');
    expect(server.calls[0]?.[1]).toBe('rl:one:198.51.100.1');
  });

  it('removes a degraded header of the client while the server decides', async () => {
    const { limiter } = over();
    const app = new Hono();
    app.use(honoRateLimit({ limiter, rules: api, key, degradedHeader: 'X-Degraded' }));
    app.post('/', async ({ req, text }: Context) => {
      return text(`${req.raw.headers.get('x-degraded')} ${await req.raw.text()}`);
    });
    const headers = { 'X-Degraded': '1' };
    const response = await app.request('/', { method: 'POST', body: 'body', headers });
    expect(await response.text()).toBe('null body');
  });

  it('releases a lease if there is no body, or when the body is cancelled', async () => {
    const { server, limiter } = over();
    server.script(GRANTED, 1, GRANTED, 1);
    const app = new Hono();
    app.use(honoRateLimit({ limiter, rules: jobs, key }));
    app.get('/empty', (context) => context.body(null, 204));
    app.get('/', (context) => context.text('hello'));
    expect((await app.request('/empty')).status).toBe(204);
    await until(() => released(server) === 1);
    const gone = new AbortController();
    const { body } = await app.request(new Request('http://x/', { signal: gone.signal }));
    gone.abort();
    await server.advance(59_000);
    expect(server.calls.filter(([command]) => command === 'RL.RENEW')).toEqual([]);
    expect(released(server)).toBe(1);
    await body?.cancel();
    await until(() => released(server) === 2);
    expect(server.clock.pending).toBe(0);
  });

  it('holds the lease of a client that leaves until the handlers have returned', async () => {
    const { server, limiter } = over();
    server.script(GRANTED, 1);
    const app = new Hono();
    app.use(honoRateLimit({ limiter, rules: jobs, key }));
    const gone = new AbortController();
    app.get('/', async (context) => {
      gone.abort();
      await server.advance(59_000);
      expect(server.calls.filter(([command]) => command === 'RL.RENEW')).toEqual([]);
      expect(released(server)).toBe(0);
      return context.text('hello');
    });
    const request = new Request('http://x/', { signal: gone.signal });
    expect((await app.request(request)).status).toBe(200);
    await until(() => released(server) === 1);
    expect(server.clock.pending).toBe(0);
  });

  it('does not run the application if the client leaves with the grant of a lease', async () => {
    const gone = new AbortController();
    const { server, limiter } = over({ onDecision: () => gone.abort() });
    server.script(GRANTED, 1);
    const app = new Hono();
    app.use(honoRateLimit({ limiter, rules: jobs, key }));
    app.get('/', (context) => context.text('hello'));
    const request = new Request('http://x/', { signal: gone.signal });
    expect((await app.request(request)).status).toBe(499);
    await until(() => released(server) === 1);
  });

  it('releases the lease when the application throws', async () => {
    const { server, limiter } = over();
    server.script(GRANTED, 1);
    const middleware = honoRateLimit<ContextLike>({ limiter, rules: jobs, key });
    const context = { req: { raw: new Request('http://x/') }, res: new Response(), set: () => {} };
    const broken = async () => {
      throw new Error('broken');
    };
    await expect(middleware(context, broken)).rejects.toThrow('broken');
    await until(() => released(server) === 1);
  });

  it('does not change the response to an upgrade', async () => {
    const { server, limiter } = over();
    server.script([1, 6, 5, 0, 6000, 1, [1, 6, 5, 0, 6000], GRANTED], 1);
    const upgraded = Object.defineProperty(new Response(null), 'status', { value: 101 });
    const middleware = honoRateLimit<ContextLike>({
      limiter,
      rules: [gcra('api', 6, 10, '60s'), jobs],
      key,
    });
    const context = { req: { raw: new Request('http://x/') }, res: new Response(), set: () => {} };
    await middleware(context, async () => {
      context.res = upgraded;
    });
    expect(context.res).toBe(upgraded);
    await until(() => released(server) === 1);
  });
});
