/** Tests that many calls may share one signal. Node warns of a signal with eleven listeners. */
import { getEventListeners } from 'node:events';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { fixed, gcra, lease } from '../src/index.js';
import { api, over } from './fakes.js';

const MANY = 30;
const many = <T>(call: () => Promise<T>) => Promise.allSettled(Array.from({ length: MANY }, call));

describe('many calls', () => {
  const warnings: Error[] = [];
  const warn = (warning: Error) => void warnings.push(warning);
  beforeEach(() => {
    warnings.length = 0;
    process.on('warning', warn);
  });
  afterEach(async () => {
    // A warning is emitted later in the same turn.
    await new Promise((done) => setImmediate(done));
    process.off('warning', warn);
    expect(warnings).toEqual([]);
  });

  it.each([
    ['checks', fixed('one', 1, '1h')],
    ['checks of prefetched permits', gcra('hot', 60, 60, '60s', { prefetch: 5 })],
  ])('with one signal: %s', async (_, rule) => {
    const { server, limiter } = over();
    server.hang();
    const { signal } = new AbortController();
    const calls = many(() => limiter.check(rule, '42', { signal }));
    expect(getEventListeners(signal, 'abort')).toHaveLength(1);
    server.answer();
    await calls;
    // The signal may live longer than the calls.
    expect(getEventListeners(signal, 'abort')).toHaveLength(0);
  });

  it('with one signal all end when it is aborted', async () => {
    const { server, limiter } = over({ breakerFailures: 1 });
    const gone = new AbortController();
    await limiter.check(api, '42', { cost: 6 });
    const { signal } = gone;
    const waits = many(() => limiter.wait(api, '42', { maxWaitMs: 60_000, signal }));
    await server.advance(0);
    server.hang();
    const checks = many(() => limiter.check(api, '42', { signal }));
    gone.abort(new Error('gone'));
    for (const ended of [...(await waits), ...(await checks)]) {
      expect(ended).toMatchObject({ status: 'rejected', reason: { message: 'gone' } });
    }
    expect(getEventListeners(signal, 'abort')).toHaveLength(0);
  });

  it('of releases that repeat end with the limiter', async () => {
    const { server, limiter } = over({ breakerFailures: 1000 });
    const jobs = lease('jobs', MANY, '60s');
    server.script(...Array(MANY).fill([1, MANY, 0, 0, 60_000]));
    const held = await Promise.all(Array.from({ length: MANY }, () => limiter.lease(jobs, '7')));
    server.fail();
    await Promise.all(held.map((one) => one.release()));
    expect(server.clock.pending).toBe(MANY);
    await limiter.close();
    expect(server.clock.pending).toBe(0);
  });
});
