/** Tests the rules that count only some responses. */
import type { AddressInfo } from 'node:net';
import { inspect } from 'node:util';
import { serve } from '@hono/node-server';
import type { Response as ExpressResponse, RequestHandler } from 'express';
import { Hono } from 'hono';
import { describe, expect, it, vi } from 'vitest';
import {
  backoff,
  type Count,
  fixed,
  gcra,
  type Limiter,
  lease,
  type ResponseHead,
} from '../src/index.js';
import type { FakeServer } from '../src/testing.js';
import { type ContextLike, rateLimit as honoRateLimit } from '../src/web/hono.js';
import { api, over } from './fakes.js';
import { limited, listen, sent, until } from './listening.js';

const rules = (count: Count) => fixed('api', 2, '60s', { count });
const refunds = ({ calls }: FakeServer) => calls.filter(([command]) => command === 'RL.REFUND');
const REFUND = ['RL.REFUND', 'rl:api:x', 'FIXED', '2', '60'];
const key = () => 'x';
const throws = (): never => {
  throw new Error('broken');
};

/** Responds with the status in the query. */
const respond: RequestHandler = ({ query }, response) => {
  if (query.status === 'throw') throw new Error('broken');
  response.status(Number(query.status ?? 200)).send('ok');
};

it('a rule rejects a count that it cannot have', () => {
  expect(gcra('api', 6, 10, '60s').count).toBe('all');
  const unknown = { count: 'success' as never };
  expect(() => gcra('api', 6, 10, '60s', unknown)).toThrow(/^invalid count: expected all, fail/);
  expect(() => lease('one', 1, '60s', { count: 'failures' })).toThrow(
    /^invalid count: expected all/,
  );
});

describe('Express', () => {
  it.each<[Count, string, boolean]>([
    ['all', '200', true],
    ['failures', '200', false],
    ['failures', '399', false],
    ['failures', '400', true],
    ['failures', 'throw', true],
    [({ status }) => status === 401, '401', true],
    [({ status }) => status === 401, '404', false],
    [({ statusCode }) => statusCode === 401, '401', true],
    [({ statusCode }) => statusCode === 401, '404', false],
    [({ status }) => status === 500, 'throw', true],
  ])(
    'with the count %s, counts a response with the status %s: %s',
    async (count, status, counts) => {
      const { server, limiter } = over();
      const url = await listen(limited({ limiter, rules: rules(count), key }, respond));
      for (let call = 1; call <= 3; call += 1) {
        const response = await fetch(`${url}?status=${status}`);
        expect(response.status === 429).toBe(counts && call === 3);
        // The headers show the state before the refund.
        const left = counts ? Math.max(0, 2 - call) : 1;
        expect(response.headers.get('RateLimit')).toBe(`"api";r=${left};t=60`);
      }
      // A denial has taken nothing, so there is nothing to refund.
      expect(refunds(server)).toEqual(counts ? [] : [REFUND, REFUND, REFUND]);
    },
  );

  it('shows the head of the response to a count that prints it', async () => {
    const { server, limiter } = over();
    const printed: string[] = [];
    const count: Count = (head) => printed.push(inspect(head), JSON.stringify(head)) === 0;
    const url = await listen(limited({ limiter, rules: rules(count), key }, respond));
    await fetch(`${url}?status=404`);
    expect(printed).toEqual([
      '{ status: 404, statusCode: 404 }',
      '{"status":404,"statusCode":404}',
    ]);
    expect(refunds(server)).toHaveLength(1);
  });

  it('decides at the head of the response, however it is sent', async () => {
    const { server, limiter } = over();
    let end = () => {};
    const app = limited({ limiter, rules: rules('failures'), key }, ({ query }, response) => {
      if (query.form === 'flush') response.flushHeaders();
      else if (query.form === 'write') response.write('begun');
      else response.writeHead(201, { 'X-Own': '1' });
      response.write('.');
      end = () => response.end();
    });
    const url = await listen(app);
    for (const [at, form] of ['flush', 'write', 'head'].entries()) {
      const response = await fetch(`${url}?form=${form}`);
      expect(response.status).toBe(form === 'head' ? 201 : 200);
      expect(refunds(server)).toHaveLength(at + 1);
      end();
      await response.text();
    }
    expect(refunds(server)).toHaveLength(3);
  });

  it('counts a client gone before the head, whatever the rule counts', async () => {
    const { server, limiter } = over();
    const count = vi.fn<(head: ResponseHead) => boolean>(({ status }) => status === 200);
    let closed = false;
    let late: ExpressResponse | undefined;
    const app = limited({ limiter, rules: rules(count), key }, (_, response) => {
      late = response;
      response.once('close', () => {
        closed = true;
      });
    });
    const client = sent(await listen(app));
    await until(() => late !== undefined);
    client.destroy();
    await until(() => closed);
    late?.status(404).send('late');
    expect(count).not.toHaveBeenCalled();
    expect(refunds(server)).toEqual([]);
  });

  it('refunds each rule by its own count, with its cost and tag', async () => {
    const { server, limiter } = over();
    const day = fixed('day', 9, '1d', { count: 'failures' });
    const all = [rules('all'), { rule: day, cost: 3 }];
    const url = await listen(limited({ limiter, rules: all, key, tag: () => 't' }, respond));
    await fetch(url);
    expect(refunds(server)).toEqual([
      ['RL.REFUND', 'rl:{t}:day:x', 'FIXED', '9', '86400', 'COST', '3'],
    ]);
  });

  it('takes back the attempt of a login that succeeds under a backoff', async () => {
    const { server, limiter } = over();
    const login = backoff('login', 2, '1m', '15m', '1d', { count: 'failures' });
    const [attempt, none] = [
      [1, 2, 1, 0, 86_400_000],
      [1, 2, 2, 0, 0],
    ];
    server.script(attempt, attempt, none, attempt);
    const url = await listen(limited({ limiter, rules: login, key }, respond));
    for (const status of [401, 200, 401]) {
      await fetch(`${url}?status=${status}`);
      await server.advance(0);
    }
    const sent = server.calls.map(([command]) => command);
    expect(sent).toEqual(['RL.BACKOFF', 'RL.BACKOFF', 'RL.REFUND', 'RL.BACKOFF']);
  });

  it('forgets the cached denials of the key', async () => {
    const { server, limiter } = over({ denialCache: 10 });
    let release = () => {};
    const once = fixed('api', 1, '60s', { count: 'failures' });
    const app = limited({ limiter, rules: once, key }, (_, response) => {
      release = () => response.send('ok');
    });
    const url = await listen(app);
    const first = fetch(url);
    await until(() => server.calls.length === 1);
    for (let call = 0; call < 2; call += 1) expect((await fetch(url)).status).toBe(429);
    expect(server.calls).toHaveLength(2);
    release();
    await first;
    const next = fetch(url);
    await until(() => server.calls.length === 4);
    release();
    expect((await next).status).toBe(200);
  });

  it('does not delay the response, and drops a refund that fails', async () => {
    const { server, limiter } = over();
    const url = await listen(
      limited({ limiter, rules: rules('failures'), key }, (_, response) => {
        server.fail(new Error('NOPERM no permissions'));
        response.send('ok');
      }),
    );
    expect((await fetch(url)).status).toBe(200);
    await until(() => limiter.counters.rejected === 1);
  });

  it.each<[string, Count]>([
    ['fails', throws],
    ['is async', (async () => throws()) as never],
    ['reads a field that is not there', ((response: Response) => response.ok) as never],
  ])('counts the response if its count %s', async (_, count) => {
    const { server, limiter } = over();
    const url = await listen(limited({ limiter, rules: rules(count), key }, respond));
    expect((await fetch(url)).status).toBe(200);
    expect(refunds(server)).toEqual([]);
  });
});

describe('units of this process', () => {
  const statuses = async (limiter: Limiter, calls: number) => {
    const rule = fixed('api', 4, '60s', { count: 'failures' });
    const url = await listen(limited({ limiter, rules: rule, key }, respond));
    const all = [];
    for (let call = 0; call < calls; call += 1) all.push((await fetch(url)).status);
    return all;
  };

  it('that were prefetched are put back', async () => {
    const { server, limiter } = over({ prefetch: 4 });
    expect(await statuses(limiter, 9)).toEqual(Array(9).fill(200));
    // The first request is decided by the server, and refunded there.
    expect(server.calls.map(([command]) => command)).toEqual(['RL.FIXED', 'RL.REFUND']);
  });

  it('that the local limiter granted are put back', async () => {
    const { server, limiter } = over({ onError: 'local' });
    server.fail();
    expect(await statuses(limiter, 9)).toEqual(Array(9).fill(200));
    expect(refunds(server)).toEqual([]);
  });

  it('that were prefetched are refunded if their stock is full', async () => {
    const { server, limiter } = over({ prefetch: 2 });
    const rule = fixed('api', 6, '60s', { count: 'failures' });
    const waiting: (() => void)[] = [];
    const app = limited({ limiter, rules: rule, key }, (_, response) => {
      waiting.push(() => response.send('ok'));
    });
    const url = await listen(app);
    const all = [];
    for (let call = 1; call <= 6; call += 1) {
      all.push(fetch(url));
      await until(() => waiting.length === call);
    }
    for (const end of waiting) end();
    await Promise.all(all);
    await until(() => refunds(server).length === 4);
    expect((await limiter.peek(rule, 'x', { cost: 0 })).remaining).toBe(4);
    for (let call = 0; call < 2; call += 1) {
      expect((await limiter.check(rule, 'x')).source).toBe('local');
    }
    expect((await limiter.check(rule, 'x')).source).toBe('server');
  });
});

describe('Hono', () => {
  it('counts an exception that the framework catches as a failure', async () => {
    const { server, limiter } = over();
    const app = new Hono().use(honoRateLimit({ limiter, rules: rules('failures'), key }));
    app.get('/', throws).onError((_, context) => context.text('broken', 500));
    await app.request('/');
    expect(refunds(server)).toEqual([]);
  });

  it('counts an exception that the framework does not catch', async () => {
    const { server, limiter } = over();
    const count: Count = ({ status }) => status !== 500;
    const middleware = honoRateLimit<ContextLike>({ limiter, rules: rules(count), key });
    const context = { req: { raw: new Request('http://x/') }, res: new Response(), set: () => {} };
    await expect(middleware(context, () => Promise.reject(new Error('broken')))).rejects.toThrow();
    expect(refunds(server)).toEqual([REFUND]);
  });

  it('counts a client gone before the head', async () => {
    const { server, limiter } = over();
    const count = vi.fn<(head: ResponseHead) => boolean>(({ status }) => status === 200);
    const app = new Hono().use(honoRateLimit({ limiter, rules: rules(count), key }));
    let [arrived, gone] = [false, false];
    let end = () => {};
    app.get('/', ({ req, text }) => {
      arrived = true;
      req.raw.signal.addEventListener('abort', () => {
        gone = true;
      });
      return new Promise<Response>((resolve) => {
        end = () => resolve(text('late', 404));
      });
    });
    const listening = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' });
    await new Promise((done) => listening.once('listening', done));
    const { port } = listening.address() as AddressInfo;
    const client = sent(`http://127.0.0.1:${port}/`);
    await until(() => arrived);
    client.destroy();
    await until(() => gone);
    end();
    // The late response is counted or not before the next one is sent.
    const next = fetch(`http://127.0.0.1:${port}/`);
    await until(() => server.calls.length === 2);
    end();
    expect((await next).status).toBe(404);
    expect(count.mock.calls.map(([head]) => head.status)).toEqual([404]);
    expect(refunds(server)).toEqual([REFUND]);
    listening.close();
  });

  it('counts a pipelined request whose client is gone', async () => {
    const { server, limiter } = over();
    const ends: (() => void)[] = [];
    const app = new Hono().use(
      honoRateLimit({ limiter, rules: rules(({ status }) => status === 200), key }),
    );
    app.get('/', ({ text }) => {
      return new Promise<Response>((resolve) => void ends.push(() => resolve(text('late', 404))));
    });
    const listening = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' });
    await new Promise((done) => listening.once('listening', done));
    let closed = false;
    listening.once('connection', (socket) =>
      socket.once('close', () => {
        closed = true;
      }),
    );
    const { port } = listening.address() as AddressInfo;
    const client = sent(`http://127.0.0.1:${port}/`);
    client.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    await until(() => ends.length === 2);
    client.destroy();
    await until(() => closed);
    for (const end of ends) end();
    await limiter.check(api, 'other');
    expect(refunds(server)).toEqual([]);
    listening.close();
  });

  it('counts an exception after the client has left', async () => {
    const { server, limiter } = over();
    const gone = new AbortController();
    const count: Count = ({ status }) => status === 200;
    const middleware = honoRateLimit<ContextLike>({ limiter, rules: rules(count), key });
    const raw = new Request('http://x/', { signal: gone.signal });
    const context = { req: { raw }, res: new Response(), set: () => {} };
    const broken = async () => {
      gone.abort();
      throw new Error('broken');
    };
    await expect(middleware(context, broken)).rejects.toThrow('broken');
    expect(refunds(server)).toEqual([]);
  });
});
