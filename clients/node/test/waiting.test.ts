/** Tests methods that may make more than one call: checkEach, wait and leases. */
import { describe, expect, it } from 'vitest';
import { CommandRejectedError, fixed, leakyBucket, lease, policy } from '../src/index.js';
import { after, api, over } from './over.js';

describe('checkEach', () => {
  const ceiling = fixed('ceiling', 100, '1m');
  const tenant = fixed('tenant', 1, '1m');

  it('refunds the costs of the earlier rules when a later rule denies', async () => {
    const { limiter } = over();
    const ask = () =>
      limiter.checkEach([
        [ceiling, 'all', 2],
        [tenant, '7'],
      ]);
    expect((await ask()).allowed).toBe(true);
    expect(await ask()).toMatchObject({ allowed: false, rule: 'tenant' });
    expect((await limiter.peek(ceiling, 'all', { cost: 0 })).remaining).toBe(98);
  });

  it('refunds the costs of the earlier rules before a CommandRejectedError is thrown', async () => {
    const { server, limiter } = over();
    const unknown = policy('unknown');
    const asked = limiter.checkEach([
      [ceiling, 'all'],
      [unknown, '7'],
    ]);
    await expect(asked).rejects.toBeInstanceOf(CommandRejectedError);
    expect(server.calls.at(-1)?.[0]).toBe('RL.REFUND');
  });
});

describe('wait', () => {
  it('sleeps until the retry time, then takes the cost', async () => {
    const { server, limiter } = over();
    await limiter.check(api, '42', { cost: 6 });
    const waiting = limiter.wait(api, '42', { maxWaitMs: 10_000 });
    expect((await after(server, 6000, waiting)).allowed).toBe(true);
    expect(server.calls).toHaveLength(3);
  });

  it('returns the denial at once when it would take too long', async () => {
    const { limiter } = over();
    await limiter.check(api, '42', { cost: 6 });
    expect((await limiter.wait(api, '42', { maxWaitMs: 5999 })).retryAfterMs).toBe(6000);
  });

  it('leaves the queue of a leaky bucket when its turn would come too late', async () => {
    const { server, limiter } = over();
    const queue = leakyBucket('queue', 4, 2, '1s');
    await limiter.check(queue, '42', { cost: 2 });
    const denied = await limiter.wait(queue, '42', { maxWaitMs: 999 });
    expect(denied).toMatchObject({ allowed: false, retryAfterMs: 1000 });
    expect((await limiter.peek(queue, '42', { cost: 0 })).remaining).toBe(2);
    const turn = limiter.wait(queue, '42', { maxWaitMs: 1000 });
    expect((await after(server, 1000, turn)).allowed).toBe(true);
  });

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

describe('wait, aborted', () => {
  it('gives up its turn in the queue of a leaky bucket', async () => {
    const { server, limiter } = over();
    const queue = leakyBucket('queue', 4, 2, '1s');
    await limiter.check(queue, '42', { cost: 2 });
    const gone = new AbortController();
    const waiting = limiter.wait(queue, '42', { maxWaitMs: 5000, signal: gone.signal });
    waiting.catch(() => {});
    await server.advance(0);
    gone.abort(new Error('gone'));
    await expect(waiting).rejects.toThrow('gone');
    expect((await limiter.peek(queue, '42', { cost: 0 })).remaining).toBe(2);
  });
});

describe('a lease', () => {
  const jobs = lease('jobs', 1, '60s');

  it('renews itself until it is released', async () => {
    const { server, limiter } = over();
    const held = await limiter.lease(jobs, '7', { id: 'job-1' });
    await server.advance(200_000);
    expect(held.held).toBe(true);
    await expect(limiter.lease(jobs, '7')).rejects.toMatchObject({
      code: 'RL_DENIED',
      decision: { allowed: false, source: 'server' },
    });
    await held.release();
    await held.release();
    expect(held.held).toBe(false);
    expect((await limiter.lease(jobs, '7')).held).toBe(true);
    expect(server.calls.filter(([command]) => command === 'RL.RELEASE')).toHaveLength(1);
  });

  it('is lost when another process may hold it', async () => {
    const { server, limiter } = over();
    const held = await limiter.lease(jobs, '7', { id: 'job-1' });
    await limiter.forget(jobs, '7');
    await server.advance(20_000);
    expect(held.signal.aborted).toBe(true);
    expect(held.held).toBe(false);
  });

  it('is lost one ttl after the last answered renewal', async () => {
    const { server, limiter } = over();
    const held = await limiter.lease(jobs, '7', { id: 'job-1' });
    server.fail();
    await server.advance(59_999);
    expect(held.held).toBe(true);
    await server.advance(1);
    expect(held.held).toBe(false);
    expect(held.signal.aborted).toBe(true);
  });

  it('among several rules is released when it is denied without an answer', async () => {
    const { server, limiter } = over({ onError: 'deny' });
    server.hang();
    const rules = [[api, '7'] as const, [jobs, '7'] as const];
    const decided = await after(server, 100, limiter.checkAll(rules, { id: 'job-1' }));
    expect(decided).toMatchObject({ source: 'error', allowed: false });
    expect(server.calls.at(-1)).toEqual(['RL.RELEASE', 'rl:jobs:7', 'job-1']);
  });

  it('among several rules is kept by the caller that onError allows', async () => {
    const { server, limiter } = over();
    server.hang();
    const rules = [[api, '7'] as const, [jobs, '7'] as const];
    const decided = await after(server, 100, limiter.checkAll(rules, { id: 'job-1' }));
    expect(decided).toMatchObject({ source: 'error', allowed: true });
    expect(server.calls.map(([command]) => command)).toEqual(['RL.ALL']);
  });

  it('among several rules is released when the caller gives up', async () => {
    const { server, limiter } = over();
    server.hang();
    const gone = new AbortController();
    const rules = [[api, '8'] as const, [jobs, '8'] as const];
    const aborted = limiter.checkAll(rules, { id: 'job-2', signal: gone.signal });
    gone.abort(new Error('gone'));
    await expect(aborted).rejects.toThrow('gone');
    expect(server.calls.at(-1)).toEqual(['RL.RELEASE', 'rl:jobs:8', 'job-2']);
  });

  it('is rejected by check, and lease rejects other rules', async () => {
    const { limiter } = over();
    await expect(limiter.check(jobs, '7')).rejects.toMatchObject({ argument: 'id' });
    await expect(limiter.lease(api, '7')).rejects.toMatchObject({ argument: 'rule' });
  });
});
