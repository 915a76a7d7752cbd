/** Tests the leases of Hono's middleware when the response body is never read. */
import { serve } from '@hono/node-server';
import { Hono } from 'hono';
import { describe, expect, it, onTestFinished } from 'vitest';
import { lease } from '../src/index.js';
import type { FakeServer } from '../src/testing.js';
import { rateLimit } from '../src/web/hono.js';
import { GRANTED, over } from './fakes.js';
import { until } from './listening.js';

describe('a lease', () => {
  const one = lease('one', 1, '60s');
  const released = ({ calls }: FakeServer) =>
    calls.filter(([command]) => command === 'RL.RELEASE').length;

  async function listen(app: Hono): Promise<string> {
    const port = await new Promise<number>((resolve) => {
      const server = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, (info) =>
        resolve(info.port),
      );
      onTestFinished(() => void server.close());
    });
    return `http://127.0.0.1:${port}/`;
  }

  it.each(['HEAD', 'OPTIONS', 'GET'])('is released after the response to %s', async (method) => {
    const { server, limiter } = over();
    server.script(GRANTED, 1, GRANTED, 1);
    const app = new Hono();
    app.use(rateLimit({ limiter, rules: one }));
    app.on(['GET', 'OPTIONS'], '/', (context) => context.text('hello'));
    const url = await listen(app);
    for (let call = 1; call <= 2; call += 1) {
      const response = await fetch(url, { method });
      expect(response.headers.get('RateLimit')).toBe('"one";r=0;t=60');
      expect(await response.text()).toBe(method === 'HEAD' ? '' : 'hello');
      await until(() => released(server) === call);
    }
    expect(server.clock.pending).toBe(0);
  });

  it('is released after the response to HEAD without node-server', async () => {
    const { server, limiter } = over();
    server.script(GRANTED, 1, GRANTED, 1);
    const app = new Hono();
    app.use(rateLimit({ limiter, rules: one, key: () => 'x' }));
    app.get('/', (context) => context.text('hello'));
    expect((await app.request('/', { method: 'HEAD' })).status).toBe(200);
    await until(() => released(server) === 1);
  });

  it('is released when another middleware replaces the response', async () => {
    const { server, limiter } = over();
    server.script(GRANTED, 1, GRANTED, 1);
    const app = new Hono();
    app.use(async (context, next) => {
      await next();
      context.res = new Response('something else');
    });
    app.use(rateLimit({ limiter, rules: one }));
    app.get('/', (context) => context.text('hello'));
    expect(await (await fetch(await listen(app))).text()).toBe('something else');
    await until(() => released(server) === 1);
  });

  it.each(['fails', 'is cancelled'])('is released when the body %s', async (how) => {
    const { server, limiter } = over();
    server.script(GRANTED, 1, GRANTED, 1);
    const app = new Hono();
    app.use(rateLimit({ limiter, rules: one, key: () => 'x' }));
    app.get('/', () => {
      const begun = new TextEncoder().encode('begun');
      let parts = 0;
      return new Response(
        new ReadableStream({
          pull(controller) {
            parts += 1;
            if (parts > 1 && how === 'fails') controller.error(new Error('broken'));
            else controller.enqueue(begun);
          },
        }),
      );
    });
    const { body } = await app.request('/');
    const reader = (body as ReadableStream<Uint8Array>).getReader();
    await reader.read();
    expect(released(server)).toBe(0);
    if (how === 'fails') await expect(reader.read()).rejects.toThrow('broken');
    else {
      // One part of the body is waiting to be read.
      await new Promise((resolve) => setImmediate(resolve));
      await reader.cancel();
    }
    await until(() => released(server) === 1);
  });
});
