/** Tests the denial cache: decisions without a call to the server. */
import { describe, expect, it } from 'vitest';
import { DeniedError, fixed, gcra, lease } from '../src/index.js';
import { api, DENIED, GRANTED, over, times } from './fakes.js';

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
    const grant = [1, 6, 5, 0, 6000, 2, [1, 6, 5, 0, 6000], GRANTED];
    const deny = [0, 1, 0, 60_000, 60_000, 2, [1, 6, 5, 0, 6000], DENIED];
    server.script(grant, deny, deny);
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
    server.script(GRANTED, DENIED, DENIED, 1);
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
