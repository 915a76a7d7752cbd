/** Tests what a limiter does while the server is slow, busy or closed, beyond the timelines. */
import express from 'express';
import { Hono } from 'hono';
import { Registry } from 'prom-client';
import { afterEach, describe, expect, it, vi } from 'vitest';
import {
  type Call,
  type Connection,
  fixed,
  gcra,
  Limiter,
  type LimiterOptions,
  lease,
  policy,
} from '../src/index.js';
import { metrics } from '../src/prometheus.js';
import { FakeClock, FakeServer } from '../src/testing.js';
import { rateLimit } from '../src/web/express.js';
import { rateLimit as honoRateLimit } from '../src/web/hono.js';
import { after, api, GRANTED, over, times } from './fakes.js';
import { limited, listen, sent, until } from './listening.js';

/** A server that decides at once, and answers `ms` later. */
class Far extends FakeServer {
  ms = 0;

  override async send(call: Call): Promise<unknown> {
    const reply = await super.send(call);
    await new Promise<void>((resolve) => void this.clock.after(this.ms, resolve));
    return reply;
  }
}

function far(ms: number, options: LimiterOptions = {}) {
  const server = new Far();
  server.ms = ms;
  const made = { clock: server.clock, logErrors: false, ...options };
  return { server, limiter: new Limiter(server, made) };
}

describe('several calls with one time', () => {
  const day = fixed('day', 2, '1d');

  it('of checkEach leave the second one what the first one has left', async () => {
    const { server, limiter } = far(90, { timeoutMs: 100 });
    const began = server.clock.nowMs();
    const ended = limiter.checkEach([api.of('1'), day.of('1')]).then((decision) => {
      return { decision, tookMs: server.clock.nowMs() - began };
    });
    const { decision, tookMs } = await after(server, 1000, ended);
    expect(tookMs).toBe(100);
    expect(decision.rows.map(({ source }) => source)).toEqual(['server', 'local']);
    expect(decision.rows[1]).toMatchObject({ reason: 'overloaded', degraded: true });
  });

  it('of wait end with the denial that the server has given', async () => {
    const { server, limiter } = far(60, { timeoutMs: 100 });
    const turns = gcra('turns', 1, 10, '1s');
    const other = new Limiter(server, { clock: server.clock, timeoutMs: 100 });
    await after(server, 60, other.check(turns, '1'));
    const waiting = limiter.wait(turns, '1', { maxWaitMs: 1000 });
    await server.advance(61);
    // Another caller takes the next unit first.
    void other.check(turns, '1');
    const decision = await after(server, 5000, waiting);
    expect(decision).toMatchObject({ allowed: false, source: 'server', degraded: false });
    expect(limiter.counters.degraded).toBeLessThanOrEqual(1);
  });
});

describe('known denials', () => {
  const one = fixed('one', 1, '1h');

  it('are evicted by tenths, those first that end first', async () => {
    const { server, limiter } = over({ knownDenials: 20 });
    const ask = (at: number) => limiter.check(fixed('f', 1, `${at + 1}m`), `${at}`);
    for (let at = 0; at < 21; at += 1) await times(2, () => ask(at));
    server.fail();
    const sources = await times(21, ask);
    expect(sources.map(({ allowed }) => allowed)).toEqual([true, true, ...Array(19).fill(false)]);
  });

  it('are not kept if there may be none', async () => {
    const { server, limiter } = over({ knownDenials: 0 });
    await times(2, () => limiter.check(one, '1'));
    server.fail();
    expect(await limiter.check(one, '1')).toMatchObject({ allowed: true, source: 'error' });
  });

  it('of a key that was charged stay, and those of a refunded one go', async () => {
    const { server, limiter } = over();
    for (const subject of ['1', '2']) await times(2, () => limiter.check(one, subject));
    await limiter.charge(one, '1');
    await limiter.refund(one, '2');
    server.fail();
    expect((await limiter.check(one, '1')).allowed).toBe(false);
    expect((await limiter.check(one, '2')).allowed).toBe(true);
  });

  it('count from the reading of their replies', async () => {
    const { server, limiter } = far(0, { maxInFlight: 1, timeoutMs: 1000 });
    await after(server, 0, limiter.check(one, '1'));
    server.ms = 80;
    const calls = [limiter.check(api, '1'), limiter.check(one, '1')];
    await after(server, 200, Promise.all(calls));
    server.fail();
    // It was read after 160 ms, 40 ms ago.
    const denied = await limiter.check(one, '1');
    expect(denied).toMatchObject({ allowed: false, degraded: true, retryAfterMs: 3_599_880 });
  });

  it('give back to the limit of this process what a request does not count', async () => {
    const { server, limiter } = over();
    const short = fixed('short', 1, '1s', { count: 'failures' });
    await times(2, () => limiter.check(short, '1'));
    server.fail();
    await server.advance(1000);
    const decision = await limiter.check(short, '1');
    expect(decision).toMatchObject({ allowed: true, source: 'local', degraded: true });
    expect((await limiter.peek(short, '1')).allowed).toBe(false);
    expect(limiter.putBack(short, '1', decision, undefined)).toBe(true);
    expect((await limiter.peek(short, '1')).allowed).toBe(true);
  });
});

describe('logErrors', () => {
  afterEach(() => {
    vi.restoreAllMocks();
  });
  const texts = (calls: number, reason: string) =>
    `redis-throttle: ${calls} calls decided without an answer: ${reason}`;

  it('warns at once, then at most once per second and reason, and at close', async () => {
    const warn = vi.spyOn(console, 'warn').mockImplementation(() => {});
    const { server, limiter } = over({ logErrors: true, breakerFailures: 3 });
    server.fail();
    const lines = () => warn.mock.calls.map(([text]) => text);
    await times(5, () => limiter.check(api, '1'));
    expect(lines()).toEqual([texts(1, 'connection'), texts(1, 'circuit')]);
    await server.advance(999);
    expect(lines()).toHaveLength(2);
    await server.advance(1);
    expect(lines().slice(2)).toEqual([texts(2, 'connection'), texts(1, 'circuit')]);
    await limiter.check(api, '1');
    await limiter.close();
    expect(lines()).toHaveLength(5);
    expect(server.clock.pending).toBe(0);
  });

  it('is silent if it is false', async () => {
    const warn = vi.spyOn(console, 'warn').mockImplementation(() => {});
    const { server, limiter } = over({ logErrors: false });
    server.fail();
    await limiter.check(api, '1');
    expect(warn).not.toHaveBeenCalled();
  });
});

describe('close', () => {
  it('ends once, and every later call throws a ClosedError', async () => {
    const { server, limiter } = over();
    server.script(GRANTED, 1);
    const held = await limiter.lease(lease('jobs', 1, '60s'), '1');
    await Promise.all([limiter.close(), limiter.close()]);
    expect(server.calls.filter(([command]) => command === 'RL.RELEASE')).toHaveLength(1);
    expect(held.held).toBe(false);
    await held.release();
    const closed = { code: 'RL_CLOSED' };
    await expect(limiter.check(api, '1')).rejects.toMatchObject(closed);
    await expect(limiter.admit([api.of('1')])).rejects.toMatchObject(closed);
    await expect(limiter.ready()).rejects.toMatchObject(closed);
    expect(server.calls.filter(([command]) => command === 'RL.RELEASE')).toHaveLength(1);
  });

  it('waits for a call that gets no answer for timeoutMs', async () => {
    const { server, limiter } = over({ timeoutMs: 300, silenceMs: 300 });
    server.hang();
    const call = limiter.check(api, '1');
    await server.advance(100);
    const began = server.clock.nowMs();
    const closed = limiter.close().then(() => server.clock.nowMs() - began);
    expect(await after(server, 1000, closed)).toBe(200);
    expect((await call).reason).toBe('timeout');
  });
});

describe('a banned caller', () => {
  const search = policy('search');
  /** A connection to a server whose policy blocks all callers. */
  const blocking: Connection = { send: async () => [0, 0, 0, -1, 0, 0, -1] };
  const made = () => new Limiter(blocking, { clock: new FakeClock(), logErrors: false });

  it('is answered 403 by Express and Hono, without Retry-After', async () => {
    const limiter = made();
    const url = await listen(express().use(rateLimit({ limiter, rules: search })));
    const app = new Hono().use(honoRateLimit({ limiter, rules: search, key: () => 'x' }));
    for (const response of [await fetch(url), await app.request('/')]) {
      expect(response.status).toBe(403);
      expect(response.headers.get('Retry-After')).toBeNull();
      expect(await response.json()).toMatchObject({ title: 'Forbidden', status: 403 });
    }
  });

  it('has an outcome of its own in the metrics', async () => {
    const limiter = made();
    const registry = new Registry();
    metrics(limiter, registry);
    expect(await limiter.check(search, '1')).toMatchObject({ never: true, banned: true });
    expect(await registry.metrics()).toContain('outcome="banned"');
  });
});

describe('a client that leaves before the decision', () => {
  it('cancels its call, and neither the application nor the error handler runs', async () => {
    const { server, limiter } = over({ maxInFlight: 1 });
    let [arrived, gone, served] = [0, 0, 0];
    const app = express().use((_, response, next) => {
      arrived += 1;
      response.once('close', () => {
        gone += 1;
      });
      next();
    });
    const answer: express.RequestHandler = (_, response) => {
      served += 1;
      response.send('ok');
    };
    const url = await listen(app.use(limited({ limiter, rules: api }, answer)));
    server.hang();
    const clients = [sent(url), sent(url)];
    await until(() => arrived === 2 && server.calls.length === 1);
    for (const client of clients) client.destroy();
    await until(() => gone === 2);
    server.answer();
    const response = await fetch(url);
    expect(response.status).toBe(200);
    // The second one left the line; that of the first was read.
    expect(server.calls).toHaveLength(2);
    expect(served).toBe(1);
  });
});
