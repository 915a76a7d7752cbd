/** Tests admissions as far as the timelines do not: their arguments, signals and events. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import {
  backoff,
  type DecisionEvent,
  fixed,
  InvalidArgumentError,
  type Item,
  lease,
  quota,
} from '../src/index.js';
import { api, over } from './fakes.js';

const day = fixed('day', 100, '1d');
const month = quota('month', 1000, 'month');
const jobs = lease('jobs', 2, '6s');
/** The replies that reserve 5 of `month`, alone and with a permit of `jobs`, and that settle. */
const ROW = [1, 1000, 995, 0, 60_000];
const MONTH = [...ROW, 1, ROW];
const BOTH = [1, 2, 1, 0, 6000, 2, ROW, [1, 2, 1, 0, 6000]];
const SETTLED = [1, 1000, 1000, 0, 0];
const login = backoff('login', 3, '1s', '8s', '60s');

describe('an item', () => {
  it('is a value: each method returns another one', () => {
    const item = api.of('7');
    expect(item.cost(2)).not.toBe(item);
    expect(Object.isFrozen(item)).toBe(true);
    expect(item.cost(2)).toEqual(api.of('7').cost(2));
    expect(item).toMatchObject({ rule: api, subject: '7' });
  });

  it('refuses a cost next to a reservation', () => {
    expect(() => day.of('7').cost(2).reserve(3)).toThrow(/^invalid reserve: .* day$/);
    expect(() => day.of('7').reserve(3).cost(2)).toThrow(/^invalid cost: .* day$/);
    expect(() => api.of('7').reserve(3)).toThrow(/^invalid rule: .* api is a gcra$/);
  });

  it('is needed by the calls of several rules', async () => {
    const { server, limiter } = over();
    const tuple = [api, '7'] as unknown as Item;
    for (const call of [limiter.checkAll([tuple]), limiter.admit([tuple])]) {
      await expect(call).rejects.toMatchObject({ argument: 'items' });
    }
    expect(server.calls).toEqual([]);
  });
});

describe('settle', () => {
  it('needs the item if two items have its rule', async () => {
    const { server, limiter } = over();
    const admitted = await limiter.admit([day.of('a').cost(5), day.of('b').cost(5)]);
    expect(() => admitted.settle(day, 7)).toThrow(/^invalid rule: expected an item, .* day/);
    admitted.settle(day.of('a'), 7);
    admitted.settle(day.of('b'), 4);
    await admitted.finish();
    expect(server.calls.slice(1)).toEqual([
      ['RL.CHARGE', 'rl:day:a', 'FIXED', '100', '86400', 'COST', '2'],
      ['RL.REFUND', 'rl:day:b', 'FIXED', '100', '86400'],
    ]);
  });

  it('refuses what it cannot settle, by its name', async () => {
    const { server, limiter } = over();
    const rows = [
      [1, 6, 5, 0, 6000],
      [1, 2, 1, 0, 6000],
      [1, 3, 2, 0, 60_000],
    ];
    server.script([1, 6, 5, 0, 6000, 1, ...rows], 1);
    const admitted = await limiter.admit([api.of('7'), jobs.of('7'), login.of('7')]);
    for (const rule of [day, jobs, login, api.of('8')]) {
      const { name } = 'rule' in rule ? rule.rule : rule;
      expect(() => admitted.settle(rule, 1)).toThrow(InvalidArgumentError);
      expect(() => admitted.settle(rule, 1)).toThrow(name);
    }
    expect(() => admitted.settle(api, -1)).toThrow(/^invalid actual/);
    await admitted.finish();
    expect(server.calls.map(([command]) => command)).toEqual(['RL.ALL', 'RL.RELEASE']);
  });
});

describe('an admission', () => {
  it('refuses an id with spaces or of more than 64 bytes', async () => {
    const { limiter } = over();
    for (const id of ['', 'a b', 'x'.repeat(65)]) {
      await expect(limiter.admit([api.of('7')], { id })).rejects.toMatchObject({ argument: 'id' });
    }
  });

  it('sends nothing for a caller that has given up before', async () => {
    const { server, limiter } = over();
    const signal = AbortSignal.abort(new Error('gone'));
    await expect(limiter.admit([jobs.of('7')], { signal })).rejects.toThrow('gone');
    await expect(limiter.lease(jobs, '7', { signal })).rejects.toThrow('gone');
    expect(server.calls).toEqual([]);
  });

  it('aborts its signal when a part is lost', async () => {
    const { server, limiter } = over();
    server.script(BOTH, 0, 1, 1);
    const admitted = await limiter.admit([month.of('7').reserve(5, '60s'), jobs.of('7')]);
    await server.advance(2000);
    expect([admitted.held, admitted.signal.aborted]).toEqual([false, true]);
    expect(admitted.signal.reason).toMatchObject({ message: 'the lease is lost' });
    await admitted.finish();
  });

  it('ends once, and a second end waits for the first', async () => {
    const { server, limiter } = over();
    server.script(MONTH, SETTLED);
    const admitted = await limiter.admit([month.of('7').reserve(5)]);
    server.hang();
    const ended: number[] = [];
    void admitted.finish().then(() => ended.push(1));
    void admitted.finish().then(() => ended.push(2));
    await server.advance(99);
    expect(ended).toEqual([]);
    await server.advance(1);
    expect(ended).toEqual([1, 2]);
    expect(server.calls.map(([command]) => command)).toEqual(['RL.ALL', 'RL.CANCEL']);
  });

  it('reports each end to onDecision, also one without a reply', async () => {
    const seen: DecisionEvent[] = [];
    const { server, limiter } = over({ onDecision: (event) => seen.push(event) });
    const items = [day.of('7').reserve(5), month.of('7').reserve(5), jobs.of('7')];
    const days = [1, 100, 95, 0, 60_000];
    const all = [...days, 1, days, ROW, [1, 2, 1, 0, 6000]];
    server.script(all, [1, 100, 97, 0, 60_000], SETTLED, 1, all);
    const first = await limiter.admit(items);
    first.settle(day, 3);
    await first.finish();
    expect(seen.map(({ kind, rule }) => [kind, rule.name])).toEqual([
      ['check', 'day'],
      ['commit', 'day'],
      ['cancel', 'month'],
    ]);
    expect(seen[1]?.decision).toMatchObject({ allowed: true, remaining: 97 });
    const second = await limiter.admit(items);
    seen.length = 0;
    server.fail();
    await second.finish();
    await server.advance(60_000);
    const ends = seen.map(({ kind, decision, error }) => [kind, decision, error?.code]);
    expect(ends.map(([kind]) => kind).sort()).toEqual(['cancel', 'cancel', 'lease']);
    for (const one of ends) expect(one.slice(1)).toEqual([undefined, 'RL_UNAVAILABLE']);
    expect(limiter.counters.unsettled).toBe(3);
  });

  it('frees cached denials by its end', async () => {
    const { server, limiter } = over({ denialCache: 9 });
    server.script([1, 100, 0, 0, 30_000, 1, [1, 100, 0, 0, 30_000]], [1, 100, 100, 0, 0]);
    const admitted = await limiter.admit([day.of('7').reserve(100)]);
    await limiter.check(day, '7', { cost: 99 });
    expect(await limiter.check(day, '7', { cost: 2 })).toMatchObject({ source: 'server' });
    expect(await limiter.check(day, '7', { cost: 2 })).toMatchObject({ source: 'local' });
    await admitted.finish();
    expect(await limiter.check(day, '7', { cost: 2 })).toMatchObject({ source: 'server' });
  });
});

it('a reservation is cancelled at the end of its block', async () => {
  const { server, limiter } = over();
  server.script(MONTH, SETTLED);
  const held = await limiter.reserve(month, '7', { cost: 5, id: 'h1' });
  expect(held).toMatchObject({ id: 'h1', held: true, decision: { remaining: 995 } });
  await held[Symbol.asyncDispose]();
  expect(server.calls.at(-1)).toEqual(['RL.CANCEL', 'rl:month:7', 'h1', ...month.words]);
  await held[Symbol.asyncDispose]();
  expect(server.calls).toHaveLength(2);
});

describe('a guard that is dropped without its end', () => {
  it('is not renewed any more, so that it expires', async () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const { server, limiter } = over();
    const rules = [lease('runs', 2, '3s'), fixed('month', 9, '1h')] as const;
    const rows = [
      [1, 2, 0, 0, 3000],
      [1, 9, 4, 0, 3000],
    ];
    server.script([1, 2, 1, 0, 3000], [1, 2, 0, 0, 3000, 1, ...rows]);
    const drop = async () => {
      await limiter.lease(rules[0], 'a', { id: 'x' });
      await limiter.admit([rules[0].of('a'), rules[1].of('a').reserve(5, '3s')]);
    };
    await drop();
    for (let turn = 0; turn < 20; turn += 1) {
      collect();
      await new Promise(setImmediate);
    }
    server.calls.length = 0;
    for (let second = 0; second < 4; second += 1) await server.advance(1000);
    expect(server.calls).toEqual([]);
  });
});
