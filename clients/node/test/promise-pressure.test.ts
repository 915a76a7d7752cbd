/** Tests what a limiter does while the server is slow, busy or closed, beyond the timelines. */
import express from 'express';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { fixed, gcra, Limiter, lease } from '../src/index.js';
import { after, api, far, GRANTED, over, times } from './fakes.js';
import { limited, listen, sent, until } from './listening.js';

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
    `redis-throttle: ${calls} calls decided without the server: ${reason}`;

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

  it('waits for a call that gets no reply for timeoutMs', async () => {
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
    const respond: express.RequestHandler = (_, response) => {
      served += 1;
      response.send('ok');
    };
    const url = await listen(app.use(limited({ limiter, rules: api }, respond)));
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
