/** Tests decisions made without a call to the server: by cached denials and prefetched permits. */
import { describe, expect, it } from 'vitest';
import {
  DeniedError,
  fixed,
  gcra,
  InvalidArgumentError,
  Limiter,
  leakyBucket,
  lease,
  policy,
} from '../src/index.js';
import { api, over, times } from './over.js';

describe('denialCache', () => {
  it('counts its denials correctly when costs and subjects change', async () => {
    const { server, limiter } = over({ denialCache: 3 });
    await limiter.check(api, '42', { cost: 6 });
    for (const cost of [1, 2, 3]) await limiter.check(api, '42', { cost });
    await limiter.forget(api, '42');
    for (const subject of ['a', 'b', 'c']) {
      await limiter.check(api, subject, { cost: 6 });
      await limiter.check(api, subject);
    }
    const before = server.calls.length;
    for (const subject of ['a', 'b', 'c']) await limiter.check(api, subject);
    expect(server.calls).toHaveLength(before);
  });

  it('is off by default', async () => {
    const { server, limiter } = over();
    await times(9, () => limiter.check(api, '42'));
    expect(server.calls).toHaveLength(9);
  });

  it('applies to one rule, subject and cost, until a refund or forget', async () => {
    const { server, limiter } = over({ denialCache: 100 });
    await limiter.check(api, '42', { cost: 5 });
    await limiter.check(api, '42', { cost: 2 });
    expect(await limiter.check(api, '42')).toMatchObject({ allowed: true, source: 'server' });
    await limiter.refund(api, '42', { cost: 2 });
    expect((await limiter.check(api, '42', { cost: 2 })).allowed).toBe(true);
    await limiter.check(api, '42');
    await limiter.forget(api, '42');
    expect((await limiter.check(api, '42')).allowed).toBe(true);
    expect(server.calls).toHaveLength(8);
  });

  it('does not use a denial of another rule with the same name', async () => {
    const { limiter } = over({ denialCache: 9 });
    const plan = (limit: number) => gcra('plan', limit, limit, '60s');
    await times(2, () => limiter.check(plan(1), 'acme'));
    await times(2, () => limiter.checkAll([plan(1).of('acme')]));
    expect((await limiter.check(plan(1), 'acme')).source).toBe('local');
    expect((await limiter.check(plan(100), 'acme')).source).toBe('server');
    expect((await limiter.checkAll([plan(100).of('acme')])).source).toBe('server');
  });

  it('caches the denial of several rules until a key is refunded or forgotten', async () => {
    const { server, limiter } = over({ denialCache: 100, denialCacheMaxMs: 5000 });
    const day = fixed('day', 2, '1d');
    const both = () => limiter.checkAll([api.of('42'), day.of('42')]);
    await times(3, both);
    await server.advance(2000);
    const cached = await both();
    expect(cached).toMatchObject({ allowed: false, source: 'local', retryAfterMs: 86_398_000 });
    expect(cached.rows.map(({ retryAfterMs }) => retryAfterMs)).toEqual([0, 86_398_000]);
    expect(cached.rows.map(({ source }) => source)).toEqual(['local', 'local']);
    expect(server.calls).toHaveLength(3);
    expect(limiter.counters).toMatchObject({ allowed: 2, denied: 2, local: 1 });
    // The same rules with another cost are a different call.
    const dearer = await limiter.checkAll([api.of('42').cost(2), day.of('42')]);
    expect(dearer.source).toBe('server');
    await limiter.refund(day, '42');
    expect(await both()).toMatchObject({ allowed: true, source: 'server' });
    await both();
    await limiter.forget(day, '42');
    expect(await both()).toMatchObject({ allowed: true, source: 'server' });
  });

  it('is used neither for peeks nor for several rules with a lease', async () => {
    const { server, limiter } = over({ denialCache: 100 });
    const one = lease('one', 1, '60s');
    const both = (id: string) => limiter.checkAll([api.of('42'), one.of('42')], { id });
    await both('a');
    await times(2, () => both('b'));
    expect(server.calls).toHaveLength(3);
    const all = [fixed('day', 1, '1d').of('42')];
    await times(2, () => limiter.checkAll(all));
    expect((await limiter.peekAll(all)).source).toBe('server');
  });

  it('caches no leases, and is bounded', async () => {
    const { server, limiter } = over({ denialCache: 2 });
    const one = lease('one', 1, '60s');
    const held = await limiter.lease(one, 'x');
    await times(2, () => expect(limiter.lease(one, 'x')).rejects.toThrow(DeniedError));
    expect(server.calls).toHaveLength(3);
    await held.release();
    const before = server.calls.length;
    for (const subject of ['a', 'b', 'c']) {
      await limiter.check(api, subject, { cost: 6 });
      await limiter.check(api, subject);
    }
    await limiter.check(api, 'a');
    expect(server.calls).toHaveLength(before + 7);
  });
});

describe('prefetch', () => {
  const hot = gcra('hot', 100, 100, '60s', { prefetch: 10 });

  it('never allows more than the limit, even under concurrent calls', async () => {
    const { server, limiter } = over();
    const calls = Array.from({ length: 150 }, () => limiter.check(hot, '42'));
    const decisions = await Promise.all(calls);
    expect(decisions.filter(({ allowed }) => allowed)).toHaveLength(100);
    expect(server.calls).toHaveLength(15);
  });

  it('refunds unused permits on close', async () => {
    const { server, limiter } = over();
    await times(3, () => limiter.check(hot, '42'));
    await limiter.close();
    expect(server.calls[1]).toEqual([
      'RL.REFUND',
      'rl:hot:42',
      'GCRA',
      '100',
      '100',
      '60',
      'COST',
      '7',
    ]);
    const { limiter: other } = { limiter: new Limiter(server, { clock: server.clock }) };
    expect((await other.peek(hot, '42', { cost: 0 })).remaining).toBe(97);
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
