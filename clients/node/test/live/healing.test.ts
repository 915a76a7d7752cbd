/** Tests, behind a proxy on a real server, that a limiter finds a working connection again. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { gcra, Limiter, lease } from '../../src/index.js';
import { proxy, type SilentProxy } from './proxy.js';
import { HEALED_MS, type Server, serve, until } from './server.js';
import { type Opened, pools, versions } from './versions.js';

const api = gcra('api', 600, 600, '60s');

const clients = Object.entries(versions).map(([name, { single }]) => [name, single] as const);

describe.each([...clients, ...Object.entries(pools)])('%s behind a proxy', (_, open) => {
  let server: Server;
  let between: SilentProxy;
  let opened: Opened;
  let limiter: Limiter;

  beforeEach(async () => {
    server = await serve();
    between = await proxy(server.port);
    opened = await open([between.port]);
    limiter = new Limiter(opened.client, { breakerFailures: 2, logErrors: false });
    await until('it decides', async () => (await limiter.check(api, '0')).source === 'server');
  });
  afterEach(async () => {
    await limiter.close();
    opened.close();
    server.admin.disconnect();
    await Promise.all([between.stop(), server.stop()]);
  });

  /** Returns the ms until the server decides again. */
  const healing = async () => {
    const begin = performance.now();
    await until('the server decides again', async () => {
      return (await limiter.check(api, '1')).source === 'server';
    });
    return performance.now() - begin;
  };

  it('dials again when its connection falls silent', async () => {
    const before = between.accepted;
    between.silence();
    const first = await limiter.check(api, '1');
    expect(first).toMatchObject({ source: 'error', reason: 'timeout' });
    expect(await healing()).toBeLessThan(HEALED_MS);
    expect(between.accepted - before).toBeLessThanOrEqual(2);
  });

  it.each([500, 1500])(
    'dials again soon after a path that was silent for %i ms works again',
    async (silentMs) => {
      between.silence('new connections');
      const end = performance.now() + silentMs;
      await until('the path works', async () => {
        expect((await limiter.check(api, '1')).source).toBe('error');
        return performance.now() > end;
      });
      between.heal();
      expect(await healing()).toBeLessThan(HEALED_MS);
    },
  );

  it('dials again soon after a dial that got no reply, counted from its start', async () => {
    const before = between.accepted;
    between.silence('new connections');
    await until('a dial has begun', async () => {
      expect((await limiter.check(api, '1')).source).toBe('error');
      return between.accepted > before;
    });
    between.heal();
    // The dial fails after 1000 ms, and the pause is over by then, or at most 200 ms later.
    expect(await healing()).toBeLessThan(HEALED_MS);
    expect(between.accepted - before).toBeLessThanOrEqual(2);
  });

  it('retires a silent connection although all callers give up early', async () => {
    const strict = new Limiter(opened.client, { maxInFlight: 1 });
    await strict.check(api, '1');
    const before = between.accepted;
    between.silence();
    const begin = performance.now();
    await until('the server decides again', async () => {
      const signal = AbortSignal.timeout(50);
      const decision = await strict.check(api, '1', { signal }).catch(() => undefined);
      // A cancelled call is no failure, and its slot is free.
      expect(['circuit', 'overloaded']).not.toContain(decision?.reason);
      return decision?.source === 'server';
    });
    expect(performance.now() - begin).toBeLessThan(HEALED_MS);
    expect(between.accepted - before).toBe(1);
    await strict.close();
  });

  it.each([100, 160, 190])(
    'keeps a connection to a server that is %i of 400 ms away',
    async (roundTripMs) => {
      between.moveAway(roundTripMs);
      // On a busy machine a reply may take longer than the timeout, which ends its connection.
      await until('a connection is kept', async () => {
        const before = between.accepted;
        const far = new Limiter(opened.client, { timeoutMs: 400 });
        const sources: string[] = [];
        for (let left = 5; left > 0; left -= 1) sources.push((await far.check(api, '1')).source);
        await far.close();
        // The dial takes twice as long, or more. A call that it leaves too little time is not sent.
        const isDecided = sources.slice(-3).every((source) => source === 'server');
        return isDecided && between.accepted - before === 1;
      });
    },
  );

  it('ends all calls of a silent connection together, as one failure', async () => {
    between.silence();
    const many = await Promise.all(Array.from({ length: 50 }, () => limiter.check(api, '1')));
    expect(new Set(many.map(({ source }) => source))).toEqual(new Set(['error']));
    // Two failures would have opened the circuit.
    expect(await limiter.check(api, '1')).not.toMatchObject({ reason: 'circuit' });
  });

  it('decides again after silence, then after its primary was demoted', async () => {
    between.silence();
    expect(await limiter.check(api, '1')).toMatchObject({ source: 'error', reason: 'timeout' });
    expect(await healing()).toBeLessThan(HEALED_MS);
    const next = await serve();
    await server.admin.call('REPLICAOF', '127.0.0.1', String(next.port));
    expect(await limiter.check(api, '1')).toMatchObject({ source: 'error', reason: 'server' });
    const before = between.accepted;
    between.leadTo(next.port);
    expect(await healing()).toBeLessThan(HEALED_MS);
    expect(between.accepted - before).toBeLessThanOrEqual(2);
    next.admin.disconnect();
    await next.stop();
  });

  it('decides again when silence ends at a demoted primary, and then at the new one', async () => {
    const next = await serve();
    await server.admin.call('REPLICAOF', '127.0.0.1', String(next.port));
    between.silence();
    expect(await limiter.check(api, '1')).toMatchObject({ source: 'error', reason: 'timeout' });
    const begin = performance.now();
    await until('the demoted primary replies', async () => {
      return (await limiter.check(api, '1')).reason === 'server';
    });
    expect(performance.now() - begin).toBeLessThan(HEALED_MS);
    between.leadTo(next.port);
    expect(await healing()).toBeLessThan(HEALED_MS);
    next.admin.disconnect();
    await next.stop();
  });

  it('never cuts the connection of the application', async () => {
    await opened.ping();
    // The limiter times out because the server is busy, and the application waits longer.
    const hung = server.admin.call('DEBUG', 'SLEEP', '0.3');
    const reply = opened.ping();
    await limiter.check(api, '1');
    await hung;
    await expect(reply).resolves.toBe('PONG');
  });

  it.each([0, 5])(
    'decides all calls of a cold start if the loop is blocked after %i turns',
    async (turns) => {
      // On a busy machine the dial may take longer than the time that the calls have afterwards.
      await until('all calls are decided', async () => {
        const cold = new Limiter(opened.client);
        const calls = Array.from({ length: 20 }, (_, at) => cold.check(api, `cold${at}`));
        for (let turn = 0; turn < turns; turn += 1) await new Promise((done) => setImmediate(done));
        const end = performance.now() + 500;
        while (performance.now() < end);
        const decisions = await Promise.all(calls);
        await cold.close();
        return decisions.every(({ source }) => source === 'server');
      });
    },
  );

  it('frees the permits of four leases that end among 300 calls', async () => {
    const jobs = lease('jobs', 4, '60s');
    const leases = await Promise.all([1, 2, 3, 4].map(() => limiter.lease(jobs, '7')));
    const calls = Array.from({ length: 300 }, (_, at) => limiter.check(api, `${at}`));
    await Promise.all(leases.map((one) => one.release()));
    await Promise.all(calls);
    await until('the permits are free', async () => (await server.admin.exists('rl:jobs:7')) === 0);
  });

  it('releases a lease whose connection is silent, and keeps another one', async () => {
    const jobs = lease('jobs', 4, '60s');
    const short = lease('short', 1, '3s');
    const [ends, stays] = [await limiter.lease(jobs, '7'), await limiter.lease(short, '7')];
    between.silence();
    await ends.release();
    await until('the permit is free', async () => (await server.admin.exists('rl:jobs:7')) === 0);
    const end = performance.now() + 4000;
    await until('a ttl is over', () => performance.now() > end);
    expect(stays.held).toBe(true);
    await stays.release();
  });
});
