/** Compares the fake server with a real one: the same calls at the same instants. */
import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import {
  backoff,
  type Client,
  fixed,
  gcra,
  Limiter,
  leakyBucket,
  quota,
  type Rule,
  sliding,
  slidingLog,
  tokenBucket,
} from '../../src/index.js';
import { FakeClock, FakeServer } from '../../src/testing.js';
import { BACKEND, type Server, serve } from './server.js';

const START_MS = 1_700_000_000_000;
const all: Rule[] = [
  gcra('gcra', 6, 10, '60s'),
  gcra('gcra-odd', 5, 7, '1s'),
  tokenBucket('token', 10, 3, '7s'),
  leakyBucket('leaky', 4, 2, '1s'),
  fixed('fixed', 5, '10s'),
  fixed('aligned', 5, '10s', { aligned: true }),
  sliding('sliding', 20, '10s'),
  slidingLog('log', 5, '10s'),
  slidingLog('log-in-slots', 40, '10s', { slots: 16 }),
  backoff('backoff', 3, '1s', '8s', '60s'),
  quota('day', 9, 'day'),
  quota('week', 9, 'week'),
  quota('month', 9, 'month'),
  quota('quarter', 9, 'quarter'),
];

const rules = all.filter(({ kind }) => kind !== 'quota' || BACKEND === 'module');

let server: Server;
let redis: Redis;
beforeAll(async () => {
  server = await serve();
  redis = new Redis({ port: server.port, maxRetriesPerRequest: 0 });
});
afterAll(async () => {
  redis.disconnect();
  server.admin.disconnect();
  await server.stop();
});

/** Returns a generator of small pseudo-random numbers, the same in every run. */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return (state >>> 8) % below;
  };
}

it.each(rules.map((rule) => [rule.name, rule] as const))('equal under %s', async (_, rule) => {
  await server.clock.freeze(START_MS);
  const fake = new FakeServer(new FakeClock(START_MS));
  const real = new Limiter(redis as unknown as Client, { timeoutMs: 60_000 });
  const model = new Limiter(fake, { clock: fake.clock });
  const next = numbers(42);
  for (let step = 0; step < 60; step += 1) {
    const cost = rule.kind === 'backoff' ? 1 : ([1, 1, 1, 2, 0, 7][next(6)] as number);
    const partial = rule.kind !== 'backoff' && cost > 0 && next(4) === 0;
    const leave = rule.kind === 'backoff' ? undefined : [undefined, undefined, 2, '20%'][next(4)];
    const verb = next(12);
    const [wanted, got] = await Promise.all(
      [real, model].map((limiter) => {
        if (verb === 0) return limiter.peek(rule, 's', { cost, leave });
        if (verb === 3) return limiter.block(rule, 's', 2);
        if (verb === 2) return limiter.charge(rule, 's', { cost: Math.max(1, cost) });
        if (verb === 1) return limiter.refund(rule, 's', { cost: 1 });
        return limiter.check(rule, 's', { cost, partial, leave });
      }),
    );
    expect({ step, ...got }).toEqual({ step, ...wanted });
    const ms = [0, 1, 250, 1000, 3333, 9999][next(6)] as number;
    await server.clock.advance(Math.max(1, ms));
    await fake.advance(Math.max(1, ms));
  }
});

it('the fake decides several rules in one call like the server', async () => {
  await server.clock.freeze(START_MS);
  const fake = new FakeServer(new FakeClock(START_MS));
  const real = new Limiter(redis as unknown as Client, { timeoutMs: 60_000, prefix: 'all' });
  const model = new Limiter(fake, { clock: fake.clock, prefix: 'all' });
  const next = numbers(7);
  for (let step = 0; step < 40; step += 1) {
    const items = rules.slice(0, 8).map((rule) => rule.of('s').cost(next(3)).leave(next(2)));
    const [wanted, got] = await Promise.all(
      [real, model].map((limiter) => limiter.checkAll(items)),
    );
    expect({ step, ...got }).toEqual({ step, ...wanted });
    await server.clock.advance(700);
    await fake.advance(700);
  }
});

/** Returns what a server answers to a command: the reply, or the text of the error. */
const answered = (reply: Promise<unknown>) => reply.catch((error: Error) => error.message);

describe.runIf(BACKEND === 'module')('raw commands', () => {
  let fake: FakeServer;
  const both = async (...args: string[]) => {
    const [command, ...rest] = args as [string, ...string[]];
    const call = { args, keys: [], readOnly: false };
    const got = await answered(fake.send(call));
    expect([args, got]).toEqual([args, await answered(redis.call(command, ...rest))]);
  };
  const advance = async (ms: number) => {
    await server.clock.advance(ms);
    await fake.advance(ms);
  };
  beforeEach(async () => {
    await server.admin.flushall();
    await server.clock.freeze(START_MS);
    fake = new FakeServer(new FakeClock(START_MS));
  });

  const reserving = ['FIXED 9 10', 'FIXED 9 10 ALIGNED', 'QUOTA 9 month', 'USE plan'];
  it.each(reserving)('reservations by %s', async (text) => {
    await server.admin.call('RL.POLICY', 'SET', 'plan', 'FIXED', '9', '10');
    fake.policies.set('plan', fixed('plan', 9, 10));
    const next = numbers(text.length);
    const at = text.endsWith('ALIGNED') ? 3 : text.split(' ').length;
    const words = (...options: string[]) => text.split(' ').toSpliced(at, 0, ...options);
    for (let step = 0; step < 150; step += 1) {
      const id = `job-${next(5)}`;
      const cost = ['COST', `${next(5)}`];
      const leave = next(3) === 0 ? ['LEAVE', `${next(4)}`] : [];
      const ttl = ['2s', '5s', '90s'][next(3)] as string;
      const verb = next(9);
      if (verb < 3) await both('RL.RESERVE', 'k', id, ttl, ...words(...cost, ...leave));
      else if (verb === 3) await both('RL.COMMIT', 'k', id, ...words(...cost));
      else if (verb === 4) await both('RL.COMMIT', 'k', id, ...words());
      else if (verb === 5) await both('RL.CANCEL', 'k', id, ...words());
      else if (verb === 6) await both('RL.PEEK', 'k', ...words(...cost, ...leave));
      else if (verb === 7) await both('RL.CHARGE', 'k', ...words(...cost));
      else await both('RL.REFUND', 'k', ...words(...cost));
      if (step % 10 === 0) {
        const hold = ['RESERVE', id, ttl, ...words(...cost)].join(' ');
        await both('RL.ALL', 'k', hold, 'other', 'GCRA 99 99 60');
      }
      await advance([1, 400, 3000][next(3)] as number);
    }
  });

  it('leases that leave permits, and bans', async () => {
    const next = numbers(3);
    for (let step = 0; step < 100; step += 1) {
      const id = `job-${next(4)}`;
      const verb = next(9);
      const leave = ['LEAVE', ['0', '1', '3', '50%'][next(4)] as string];
      if (verb < 4) await both('RL.LEASE', 'k', id, '3', '5s', ...leave);
      else if (verb < 6) await both('RL.RELEASE', 'k', id);
      else if (verb === 6) await both('RL.RENEW', 'k', id, '5s');
      else if (verb === 7) await both('RL.PEEK', 'k', 'LEASE', id, '3', '5s', ...leave);
      else if (next(3) === 0) await both('RL.BLOCK', 'k', '1s');
      await advance([1, 400, 2000][next(3)] as number);
    }
  });
});
