/** Tests, on a real server, that the limit holds under pressure and while the server stalls. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Decision, fixed, Limiter, type LimiterOptions } from '../../src/index.js';
import { proxy, type SilentProxy } from './proxy.js';
import { HEALED_MS, type Server, serve, until } from './server.js';
import { type Opened, versions } from './versions.js';

let server: Server;
let between: SilentProxy;
let opened: Opened;
let limiter: Limiter;

const newest = Object.entries(versions).filter(([name]) => name.endsWith('6'));

async function start(single: (typeof versions)[string]['single'], options: LimiterOptions = {}) {
  opened = await single([between.port]);
  limiter = new Limiter(opened.client, { logErrors: false, ...options });
  await until('it decides', async () => (await limiter.check(hour, '0')).source === 'server');
}

const hour = fixed('hour', 1000, '1h');

/** Returns how many decisions were degraded, and how many were allowed. */
function counted(decisions: readonly Decision[]) {
  const allowed = decisions.filter((one) => one.allowed).length;
  return { allowed, degraded: decisions.filter(({ degraded }) => degraded).length };
}

beforeEach(async () => {
  server = await serve();
  between = await proxy(server.port);
});
afterEach(async () => {
  await server.admin.call('CLIENT', 'UNPAUSE');
  await limiter.close();
  opened.close();
  server.admin.disconnect();
  await Promise.all([between.stop(), server.stop()]);
});

describe.each(newest)('%s', (_, { single }) => {
  it('keeps the limit of 10,000 calls at once', async () => {
    await start(single);
    const herd = Array.from({ length: 10_000 }, () => limiter.check(hour, '1'));
    const { allowed, degraded } = counted(await Promise.all(herd));
    expect(allowed).toBeGreaterThanOrEqual(1000);
    expect(allowed).toBeLessThanOrEqual(1010);
    expect(degraded).toBeLessThanOrEqual(100);
  });

  it('decides every call by a server that stalls for less than the silence', async () => {
    await start(single, { silenceMs: 500 });
    for (let left = 3; left > 0; left -= 1) {
      const stalled = server.admin.call('DEBUG', 'SLEEP', '0.08');
      const calls = Array.from({ length: 256 }, (_, at) => limiter.check(hour, `s${at}`));
      expect(counted(await Promise.all(calls)).degraded).toBe(0);
      await stalled;
    }
  });

  it('keeps denying a key that was denied before while the server stalls', async () => {
    await start(single);
    const one = fixed('one', 1, '1h');
    await limiter.check(one, '1');
    expect(await limiter.check(one, '1')).toMatchObject({ allowed: false, source: 'server' });
    const stalled = server.admin.call('DEBUG', 'SLEEP', '0.3');
    const end = performance.now() + 400;
    const decisions: Decision[] = [];
    while (performance.now() < end) decisions.push(await limiter.check(one, '1'));
    await stalled;
    expect(counted(decisions).allowed).toBe(0);
    expect(counted(decisions).degraded).toBeGreaterThan(0);
  });

  it.each(['local', 'allow'] as const)('resets by forget what it counted, %s', async (onError) => {
    await start(single, { timeoutMs: 60_000, maxInFlight: 1, maxWaiting: 1, onError });
    const two = fixed('two', 2, '1h');
    // A call in flight and one in line leave no place for others.
    const pause = async () => {
      await server.admin.call('CLIENT', 'PAUSE', '60000', 'WRITE');
      return [limiter.check(hour, '1'), limiter.check(hour, '1')];
    };
    const unpause = async (calls: Promise<Decision>[]) => {
      await server.admin.call('CLIENT', 'UNPAUSE');
      await Promise.all(calls);
    };
    const paused = await pause();
    for (const allowed of [true, true, false]) {
      const decision = await limiter.check(two, '1');
      expect(decision).toMatchObject({ allowed, source: 'local', reason: 'overloaded' });
    }
    await unpause(paused);
    await limiter.forget(two, '1');
    const again = await pause();
    expect(await limiter.check(two, '1')).toMatchObject({ allowed: true, source: 'local' });
    await unpause(again);
  });

  it('waits no longer than the silence for paused writes, and sends each once', async () => {
    // Far longer than the silence, so that a busy machine is not taken for a call that waits on.
    await start(single, { timeoutMs: 20_000, silenceMs: 100 });
    const four = fixed('four', 4, '1h');
    await server.admin.call('CLIENT', 'PAUSE', '60000', 'WRITE');
    const begin = performance.now();
    const [first, second] = [await limiter.check(four, '1'), await limiter.check(four, '1')];
    expect(performance.now() - begin).toBeLessThan(10_000);
    for (const one of [first, second]) {
      expect(one).toMatchObject({ allowed: true, source: 'error', reason: 'timeout' });
    }
    await server.admin.call('CLIENT', 'UNPAUSE');
    const healed = performance.now();
    await until('the server decides again', async () => {
      return (await limiter.check(hour, '1')).source === 'server';
    });
    expect(performance.now() - healed).toBeLessThan(HEALED_MS);
    expect((await limiter.peek(four, '1', { cost: 0 })).remaining).toBeGreaterThanOrEqual(2);
  });

  it('decides by the server again soon after it was stopped and continued', async () => {
    await start(single, { breakerFailures: 2 });
    server.signal('SIGSTOP');
    const stopped = await limiter.check(hour, '1');
    expect(stopped).toMatchObject({ degraded: true, reason: 'timeout' });
    await until('the circuit is open', async () => {
      return (await limiter.check(hour, '1')).reason === 'circuit';
    });
    server.signal('SIGCONT');
    const begin = performance.now();
    await until('the server decides again', async () => {
      return (await limiter.check(hour, '1')).source === 'server';
    });
    expect(performance.now() - begin).toBeLessThan(HEALED_MS);
  });
});
