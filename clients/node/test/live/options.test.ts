/** Tests what each back end decides: leave, partial, slots, block, peekAll and default policies. */
import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type Client, fixed, gcra, Limiter, lease, policy, slidingLog } from '../../src/index.js';
import { BACKEND, type Server, serve } from './server.js';

const api = gcra('api', 10, 10, '60s');
const day = fixed('day', 100, '1d', { aligned: true });
let server: Server;
let redis: Redis;
let limiter: Limiter;

beforeAll(async () => {
  server = await serve();
  await server.clock.freeze(1_700_000_000_000);
  redis = new Redis({ port: server.port, maxRetriesPerRequest: 0 });
  limiter = new Limiter(redis as unknown as Client, { timeoutMs: 60_000 });
});
beforeEach(async () => {
  await server.admin.flushall();
});
afterAll(async () => {
  await limiter.close();
  redis.disconnect();
  server.admin.disconnect();
  await server.stop();
});

describe('a call with leave', () => {
  it('is denied if fewer units would remain, and other calls get them', async () => {
    await limiter.check(api, '7', { cost: 7 });
    expect(await limiter.check(api, '7', { leave: 2 })).toMatchObject({ allowed: true });
    const denied = await limiter.check(api, '7', { leave: '20%' });
    expect(denied).toMatchObject({ allowed: false, remaining: 2, retryAfterMs: 6000 });
    expect(await limiter.peek(api, '7', { cost: 0, leave: 3 })).toMatchObject({ allowed: false });
    expect(await limiter.check(api, '7', { cost: 9, leave: 2 })).toMatchObject({ never: true });
    expect(await limiter.check(api, '7')).toMatchObject({ allowed: true, remaining: 1 });
  });

  it('is one of several items, and of those checked one after the other', async () => {
    await limiter.check(day, '7', { cost: 90 });
    const items = [api.of('7'), day.of('7').leave('10%')];
    expect(await limiter.checkAll(items)).toMatchObject({ allowed: false, rule: 'day' });
    expect(await limiter.checkEach(items)).toMatchObject({ allowed: false, rule: 'day' });
    expect((await limiter.peek(api, '7', { cost: 0 })).remaining).toBe(10);
  });

  it('leaves permits of a lease', async () => {
    const jobs = lease('jobs', 3, '60s');
    await limiter.checkAll([jobs.of('7').leave(1)], { id: 'a' });
    await limiter.checkAll([jobs.of('7').leave(1)], { id: 'b' });
    const third = await limiter.checkAll([jobs.of('7').leave(1)], { id: 'c' });
    expect(third).toMatchObject({ allowed: false, remaining: 1 });
  });
});

it('a partial call gets what is left above its leave', async () => {
  const first = await limiter.check(api, '7', { cost: 12, partial: true, leave: 3 });
  expect(first).toMatchObject({ allowed: true, granted: 7, remaining: 3 });
  const rest = await limiter.check(api, '7', { cost: 12, partial: true });
  expect(rest).toMatchObject({ allowed: true, granted: 3, remaining: 0 });
});

it('a sliding log counts in its slots', async () => {
  const log = slidingLog('log', 100, '16s', { slots: 16 });
  expect(await limiter.check(log, '7')).toMatchObject({ allowed: true, remaining: 99 });
  await server.clock.advance(300);
  // An entry counts from the end of its slot of one second.
  expect(await limiter.check(log, '7')).toMatchObject({ remaining: 98, resetAfterMs: 16_700 });
});

it('a blocked subject is denied for the time, and until it is forgotten', async () => {
  await limiter.block(api, '7', '1h');
  const denied = await limiter.check(api, '7');
  expect(denied).toMatchObject({ allowed: false, retryAfterMs: 3_600_000 });
  await server.clock.advance(3_600_000);
  expect((await limiter.check(api, '7')).allowed).toBe(true);
  await limiter.block(api, '7', 0.5);
  expect((await limiter.peek(api, '7')).retryAfterMs).toBe(500);
  expect(await limiter.forget(api, '7')).toBe(true);
  expect((await limiter.check(api, '7')).allowed).toBe(true);
});

it('peekAll takes nothing, and has a row for each item', async () => {
  const items = [api.of('7').cost(4), day.of('7').cost(30)];
  const first = await limiter.peekAll(items);
  expect(first.rows.map(({ remaining }) => remaining)).toEqual([6, 70]);
  expect(await limiter.peekAll(items)).toEqual(first);
});

it('a policy that the server does not know is its default', async () => {
  const search = policy('search', { variants: ['plan:gold'], default: api });
  expect(await limiter.check(search, '7', { cost: 2 })).toMatchObject({ remaining: 8 });
  expect(await limiter.check(search, '7', { leave: 8 })).toMatchObject({ allowed: false });
  const items = [search.of('7').cost(3), day.of('7')];
  const all = await limiter.checkAll(items);
  expect(all).toMatchObject({ allowed: true, rule: 'search', wouldAllow: true });
  expect(all.rows.map(({ remaining }) => remaining)).toEqual([5, 99]);
  expect((await limiter.peekAll(items)).rows.map(({ remaining }) => remaining)).toEqual([2, 98]);
  expect((await limiter.refund(search, '7', { cost: 3 })).remaining).toBe(8);
  expect((await limiter.charge(search, '7', { cost: 8 })).remaining).toBe(0);
  expect(await server.admin.exists('rl:search:7')).toBe(1);
});

it('an admission ends on every back end', async () => {
  const jobs = lease('jobs', 3, '60s');
  const admitted = await limiter.admit([api.of('7').cost(5), jobs.of('7')]);
  admitted.settle(api, 2);
  await admitted.finish();
  expect((await limiter.peek(api, '7', { cost: 0 })).remaining).toBe(8);
  expect(await server.admin.exists('rl:jobs:7')).toBe(0);
  expect(limiter.counters).toMatchObject({ unsettled: 0 });
});

it.runIf(BACKEND !== 'module')('a reservation needs the module', async () => {
  const refused = limiter.reserve(day, '7', { cost: 5 });
  await expect(refused).rejects.toThrow(/needs the redis-throttle module/);
});
