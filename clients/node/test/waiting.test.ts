/** Tests methods that may make more than one call: checkEach, wait and leases. */
import { describe, expect, it } from 'vitest';
import { lease } from '../src/index.js';
import { after, api, over } from './over.js';

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
