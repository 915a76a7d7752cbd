/** Tests prefetched permits: decisions without a call to the server. */
import { describe, expect, it } from 'vitest';
import {
  fixed,
  gcra,
  InvalidArgumentError,
  Limiter,
  leakyBucket,
  lease,
  policy,
} from '../src/index.js';
import { after, api, far, over, times } from './fakes.js';

describe('prefetch', () => {
  const hot = gcra('hot', 100, 100, '60s', { prefetch: 10 });

  it('never allows more than the limit, even under concurrent calls', async () => {
    const { server, limiter } = over();
    const calls = Array.from({ length: 150 }, () => limiter.check(hot, '42'));
    const decisions = await Promise.all(calls);
    expect(decisions.filter(({ allowed }) => allowed)).toHaveLength(100);
    expect(server.calls).toHaveLength(15);
  });

  it('does not use permits of another rule with the same name', async () => {
    const { limiter } = over({ prefetch: 4 });
    const limits = [];
    for (const limit of [100, 5]) {
      limits.push((await limiter.check(gcra('plan', limit, limit, '60s'), 'acme')).limit);
    }
    expect(limits).toEqual([100, 5]);
  });

  it('set on the limiter applies to rules that allow it and do not set their own', async () => {
    const { server, limiter } = over({ prefetch: 4 });
    const plain = (name: string, prefetch?: number) => gcra(name, 100, 100, '60s', { prefetch });
    const rules = [hot, plain('cold', 1), plain('warm'), policy('p', { default: plain('x') })];
    for (const rule of [...rules, leakyBucket('queue', 9, 9, '9s')])
      await limiter.check(rule, '42');
    expect(server.calls.map((call) => call.slice(call.indexOf('COST')).join(' '))).toEqual([
      'COST 10 PARTIAL',
      expect.not.stringContaining('PARTIAL'),
      'COST 4 PARTIAL',
      expect.not.stringContaining('PARTIAL'),
      expect.not.stringContaining('PARTIAL'),
    ]);
    expect(() => over({ prefetch: 0 })).toThrow(InvalidArgumentError);
    expect(() => over({ prefetch: 10_001 })).toThrow(InvalidArgumentError);
  });

  it('is rejected for rules that cannot prefetch', () => {
    expect(() => lease('x', 1, '1s', { prefetch: 2 })).toThrow(InvalidArgumentError);
    expect(() => leakyBucket('x', 1, 1, '1s', { prefetch: 2 })).toThrow(InvalidArgumentError);
    expect(() => policy('x', { prefetch: 2 })).toThrow(InvalidArgumentError);
  });

  it('ends the wait of a caller whose time is over during a second fetch', async () => {
    const one = fixed('one', 1, '1h', { prefetch: 2, onError: 'deny' });
    const { server, limiter } = over({ timeoutMs: 100 });
    server.hang();
    const waiting = [1, 2].map(() => limiter.check(one, '42'));
    await server.advance(60);
    server.answer();
    server.hang();
    await server.advance(39);
    const first = Promise.race([Promise.all(waiting), 'waits']);
    expect(await first).toBe('waits');
    await server.advance(1);
    const sources = (await Promise.all(waiting)).map(({ source }) => source);
    expect(sources).toEqual(['server', 'local']);
    expect(await waiting[1]).toMatchObject({ allowed: false, retryAfterMs: 3_600_000, granted: 0 });
    expect(server.calls).toHaveLength(2);
  });

  it('ends only the wait of the aborted caller', async () => {
    const { server, limiter } = over();
    server.hang();
    const gone = new AbortController();
    const [first, second] = [gone.signal, undefined].map((signal) =>
      limiter.check(hot, '42', { signal }),
    );
    gone.abort(new Error('gone'));
    await expect(first).rejects.toThrow('gone');
    server.answer();
    expect((await second)?.source).toBe('server');
    expect(server.calls).toHaveLength(1);
  });
});

it('each fetch of permits has the full timeout, even if its callers have waited', async () => {
  const { server, limiter } = far(60, { timeoutMs: 100 });
  const hot = fixed('hot', 3, '1h', { prefetch: 10 });
  const ten = Promise.all(Array.from({ length: 10 }, () => limiter.check(hot, '42')));
  await server.advance(30);
  const other = new Limiter(server, { clock: server.clock });
  void other.refund(hot, '42', { cost: 3 });
  // Waiters without a permit fetch again after 60 ms, and have 40 ms left.
  const found = await after(server, 70, ten);
  expect(found.filter(({ allowed }) => allowed)).toHaveLength(3);
  expect(found.some(({ degraded }) => degraded)).toBe(false);
  // The reply to the second fetch comes later, and its permits are kept.
  await server.advance(20);
  const sent = server.calls.length;
  const next = await times(3, () => limiter.check(hot, '42'));
  expect(next.map(({ source }) => source)).toEqual(['local', 'local', 'local']);
  expect(server.calls).toHaveLength(sent);
});

it('each call of a burst waits for one fetch only, even over a slow link', async () => {
  const { server, limiter } = far(60);
  const hot = fixed('hot', 100, '1h', { prefetch: 10 });
  const burst = Array.from({ length: 200 }, () => limiter.check(hot, '42'));
  const found = await after(server, 60, Promise.all(burst));
  const allowed = found.filter((decision) => decision.allowed);
  expect(allowed.map(({ remaining }) => remaining)).toEqual(
    Array.from({ length: 100 }, (_, at) => 99 - at),
  );
  expect(found.some(({ degraded }) => degraded)).toBe(false);
  expect(server.calls).toHaveLength(20);
});

it('a waiter whose permit does not arrive is denied until the next unit is free', async () => {
  const { server, limiter } = far(60);
  const rate = gcra('rate', 3, 1, '10s', { prefetch: 10 });
  const ten = Array.from({ length: 10 }, () => limiter.check(rate, '42'));
  // Waiters without a permit fetch again, once.
  const found = await after(server, 120, Promise.all(ten));
  const denied = found.filter(({ allowed }) => !allowed);
  expect(denied).toHaveLength(7);
  for (const one of denied) expect(one).toMatchObject({ degraded: false, remaining: 0 });
  expect(server.calls).toHaveLength(2);
});

it('two rules with the same name have separate fetches', async () => {
  const { server, limiter } = far(10);
  const plan = (limit: number) => fixed('plan', limit, '1h', { prefetch: 2 });
  const [large, small] = [plan(1000), plan(5)];
  const load = () => void limiter.check(large, '42');
  await times(2, async () => load());
  const checked = limiter.check(small, '42');
  await times(10, async () => {
    await times(3, async () => load());
    await server.advance(5);
  });
  expect(await checked).toMatchObject({ limit: 5, allowed: true, degraded: false });
});

it('forget drops the permits of a pending fetch', async () => {
  const { server, limiter } = over({ denialCache: 9 });
  await limiter.check(api, '42', { cost: 6 });
  const hot = fixed('hot', 10, '1h', { prefetch: 10 });
  server.hang();
  const checks = [limiter.check(api, '42'), limiter.check(hot, '42')];
  const forgotten = [limiter.forget(api, '42'), limiter.forget(hot, '42')];
  server.answer();
  await Promise.all([...checks, ...forgotten]);
  expect((await limiter.check(api, '42')).allowed).toBe(true);
  const found = await times(40, () => limiter.check(hot, '42'));
  expect(found.filter(({ allowed }) => allowed)).toHaveLength(10);
});
