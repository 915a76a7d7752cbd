/** Tests methods that may make more than one call: checkEach, wait and leases. */
import { describe, expect, it } from 'vitest';
import { lease } from '../src/index.js';
import type { FakeServer } from '../src/testing.js';
import { after, api, GRANTED, over } from './fakes.js';

describe('wait', () => {
  it('ends when it is aborted', async () => {
    const { server, limiter } = over();
    await limiter.check(api, '42', { cost: 6 });
    const gone = new AbortController();
    const waiting = limiter.wait(api, '42', { maxWaitMs: 10_000, signal: gone.signal });
    waiting.catch(() => {});
    await server.advance(10);
    gone.abort(new Error('gone'));
    await expect(waiting).rejects.toThrow('gone');
    expect(server.clock.pending).toBe(0);
  });
});

describe('a lease', () => {
  const jobs = lease('jobs', 1, '60s');
  /** The reply of `api` and `jobs` in one call. */
  const BOTH = [1, 6, 5, 0, 6000, 1, [1, 6, 5, 0, 6000], GRANTED];

  const renewals = (server: FakeServer) =>
    server.calls.filter(([command]) => command === 'RL.RENEW').length;

  it('is renewed for another ttl by renew', async () => {
    const { server, limiter } = over();
    server.script(GRANTED, 1);
    const held = await limiter.lease(jobs, '7', { id: 'job-1' });
    await server.advance(19_999);
    expect(await held.renew()).toBe(true);
    server.fail();
    await server.advance(60_000 - 1);
    expect(held.held).toBe(true);
    await server.advance(1);
    expect(held.held).toBe(false);
    expect(held.signal.aborted).toBe(true);
  });

  it('that another process may hold is lost at the reply to renew', async () => {
    const { server, limiter } = over();
    server.script(GRANTED, 0);
    const held = await limiter.lease(jobs, '7', { id: 'job-1' });
    expect(await held.renew()).toBe(false);
    expect([held.held, held.signal.aborted]).toEqual([false, true]);
    await server.advance(120_000);
    expect(await held.renew()).toBe(false);
    expect(renewals(server)).toBe(1);
  });

  it('is not renewed once it is released', async () => {
    const { server, limiter } = over();
    server.script(GRANTED, 1);
    const held = await limiter.lease(jobs, '7');
    await held.release();
    expect(await held.renew()).toBe(false);
    expect(renewals(server)).toBe(0);
  });

  it('is kept when renew gets no reply, which is an error', async () => {
    const { server, limiter } = over();
    server.script(GRANTED);
    const held = await limiter.lease(jobs, '7');
    server.fail();
    await expect(held.renew()).rejects.toMatchObject({ code: 'RL_UNAVAILABLE' });
    expect(held.held).toBe(true);
    await held.release();
  });

  it('that onError allowed is held without renewals', async () => {
    const { server, limiter } = over();
    server.fail();
    const held = await limiter.lease(jobs, '7');
    server.answer();
    expect(await held.renew()).toBe(true);
    expect(renewals(server)).toBe(0);
  });

  it('is renewed although the last renewal still waits for its reply', async () => {
    const { server, limiter } = over({ timeoutMs: 1000 });
    server.script([1, 1, 0, 0, 900], 1, 1);
    const held = await limiter.lease(lease('short', 1, '900ms'), '7');
    server.hang();
    await server.advance(300);
    expect(renewals(server)).toBe(1);
    await server.advance(300);
    expect(renewals(server)).toBe(2);
    await server.advance(300);
    expect([held.held, held.signal.aborted]).toEqual([false, true]);
    server.answer();
  });

  it('among several rules is released when it is denied without a reply', async () => {
    const { server, limiter } = over({ onError: 'deny' });
    server.script(BOTH, 1);
    server.hang();
    const items = [api.of('7'), jobs.of('7')];
    const decided = await after(server, 100, limiter.checkAll(items, { id: 'job-1' }));
    expect(decided).toMatchObject({ source: 'error', allowed: false });
    expect(server.calls.at(-1)).toEqual(['RL.RELEASE', 'rl:jobs:7', 'job-1']);
  });

  it('among several rules is kept by the caller that onError allows', async () => {
    const { server, limiter } = over();
    server.script(BOTH);
    server.hang();
    const items = [api.of('7'), jobs.of('7')];
    const decided = await after(server, 100, limiter.checkAll(items, { id: 'job-1' }));
    expect(decided).toMatchObject({ source: 'error', allowed: true });
    expect(server.calls.map(([command]) => command)).toEqual(['RL.ALL']);
  });

  it('among several rules is released when the reply comes to a caller that gave up', async () => {
    const { server, limiter } = over();
    server.script(BOTH, 1);
    server.hang();
    const gone = new AbortController();
    const items = [api.of('8'), jobs.of('8')];
    const aborted = limiter.checkAll(items, { id: 'job-2', signal: gone.signal });
    gone.abort(new Error('gone'));
    await expect(aborted).rejects.toThrow('gone');
    expect(server.calls.map(([command]) => command)).toEqual(['RL.ALL']);
    server.answer();
    await server.advance(0);
    expect(server.calls.at(-1)).toEqual(['RL.RELEASE', 'rl:jobs:8', 'job-2']);
  });

  it('is rejected by check, and lease rejects other rules', async () => {
    const { limiter } = over();
    await expect(limiter.check(jobs, '7')).rejects.toMatchObject({ argument: 'rule' });
    await expect(limiter.lease(api, '7')).rejects.toMatchObject({ argument: 'rule' });
  });
});
