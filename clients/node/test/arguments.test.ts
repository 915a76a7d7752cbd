/** Tests the arguments of plain JavaScript, which no compiler checks. */
import { describe, expect, it } from 'vitest';
import * as client from '../src/index.js';
import { FakeServer } from '../src/testing.js';
import * as withExpress from '../src/web/express.js';
import * as withExpressRateLimit from '../src/web/express-rate-limit.js';
import * as withFastify from '../src/web/fastify-rate-limit.js';
import * as withHono from '../src/web/hono.js';
import * as withNest from '../src/web/nestjs.js';
import { api, over } from './fakes.js';

// biome-ignore lint/suspicious/noExplicitAny: plain JavaScript has no types
type Any = any;
const { backoff, fixed, gcra, jsonLog, lease, policy, quota, slidingLog }: Any = client;
const Limiter: Any = client.Limiter;
const { answerDenied, rateLimit }: Any = withExpress;
const honoRateLimit: Any = withHono.rateLimit;
const { RedisThrottleStore: ExpressStore }: Any = withExpressRateLimit;
const { redisThrottleStore }: Any = withFastify;
const { RedisThrottleStorage }: Any = withNest;

const named = (argument: string) =>
  expect.objectContaining({ code: 'RL_INVALID_ARGUMENT', argument });

/** A call of a limiter, and the argument that its error names. */
const calls: [string, (limiter: Any) => unknown][] = [
  ['options', (limiter) => limiter.check(api, 'x', 5)],
  ['options', (limiter) => limiter.check(api, 'x', null)],
  ['options', (limiter) => limiter.checkAll([api.of('x')], 'tag')],
  ['timeout', (limiter) => limiter.check(api, 'x', { timeout: 5 })],
  ['Cost', (limiter) => limiter.check(api, 'x', { Cost: 5 })],
  ['cost', (limiter) => limiter.check(api, 'x', { cost: true })],
  ['cost', (limiter) => limiter.check(api, 'x', { cost: '5' })],
  ['partial', (limiter) => limiter.check(api, 'x', { cost: 5, partial: 1 })],
  ['leave', (limiter) => limiter.check(api, 'x', { leave: ['20%'] })],
  ['tag', (limiter) => limiter.check(api, 'x', { tag: 5 })],
  ['signal', (limiter) => limiter.check(api, 'x', { signal: new AbortController() })],
  ['rule', (limiter) => limiter.check('api', 'x')],
  ['rule', (limiter) => limiter.check(undefined, 'x')],
  ['partial', (limiter) => limiter.peek(api, 'x', { partial: true })],
  ['leave', (limiter) => limiter.refund(api, 'x', { leave: 1 })],
  ['leave', (limiter) => limiter.charge(api, 'x', { leave: 1 })],
  ['cost', (limiter) => limiter.forget(api, 'x', { cost: 1 })],
  ['cost', (limiter) => limiter.block(api, 'x', '1s', { cost: 1 })],
  ['duration', (limiter) => limiter.block(api, 'x', [5])],
  ['items', (limiter) => limiter.checkAll(api.of('x'))],
  ['items', (limiter) => limiter.checkAll([api])],
  ['cost', (limiter) => limiter.peekAll([api.of('x')], { cost: 2 })],
  ['id', (limiter) => limiter.admit([api.of('x')], { id: 5 })],
  ['ttl', (limiter) => limiter.admit([api.of('x')], { ttl: '5s' })],
  ['tag', (limiter) => limiter.checkEach([api.of('x')], { tag: 'x' })],
  ['rule', (limiter) => limiter.reserve('api', 'x')],
  ['id', (limiter) => limiter.reserve(quota('q', 5, 'day'), 'x', { id: true })],
  ['options', (limiter) => limiter.wait(api, 'x')],
  ['maxWaitMs', (limiter) => limiter.wait(api, 'x', { maxWaitMs: '5' })],
  ['maxWait', (limiter) => limiter.wait(api, 'x', { maxWaitMs: 5, maxWait: 5 })],
  ['rule', (limiter) => limiter.lease(undefined, 'x')],
  ['ttl', (limiter) => limiter.lease(lease('l', 1, '5s'), 'x', { ttl: '5s' })],
  ['timeoutMs', (limiter) => limiter.ready({ timeoutMs: 5 })],
  ['hook', (limiter) => limiter.onDecision('log')],
  ['rule', (limiter) => limiter.peek(lease('l', 1, '5s'), 'x')],
  ['foo', (limiter) => limiter.close({ foo: 1 })],
];

/** A call that could mean another one, which the text names. */
const mistaken: [string, (limiter: Any) => unknown][] = [
  ['options: expected an object, such as { cost: 5 }', (limiter) => limiter.check(api, 'x', 5)],
  [
    'rule: expected no lease; use limiter.lease for l',
    (limiter) => limiter.check(lease('l', 1, '5s'), 'x'),
  ],
  [
    'client: expected a client of ioredis 5 or 6, of node-redis 5.9 or 6, or a Connection; ' +
      'Limiter.fromUrl makes a limiter of a URL',
    () => new Limiter('redis://127.0.0.1:7777'),
  ],
  [
    "trustedProxies: expected an array, such as ['10.0.0.0/8']",
    (limiter) => rateLimit({ limiter, rules: api, trustedProxies: '10.0.0.0/8' }),
  ],
  [
    "headers: expected an array, such as ['draft-6']",
    (limiter) => rateLimit({ limiter, rules: api, headers: 'draft-6' }),
  ],
];

/** Objects of the program that are created with invalid options. */
const objects: [string, () => unknown][] = [
  ['timeout', () => new Limiter(new FakeServer(), { timeout: 5 })],
  ['options', () => new Limiter(new FakeServer(), 'deny')],
  ['timeoutMs', () => new Limiter(new FakeServer(), { timeoutMs: true })],
  ['logErrors', () => new Limiter(new FakeServer(), { logErrors: 'no' })],
  ['onDecision', () => new Limiter(new FakeServer(), { onDecision: {} })],
  ['prefix', () => new Limiter(new FakeServer(), { prefix: 5 })],
  ['hmacSecret', () => new Limiter(new FakeServer(), { hmacSecret: 5 })],
  ['clock', () => new Limiter(new FakeServer(), { clock: Date })],
  ['onerror', () => gcra('a', 6, 10, '60s', { onerror: 'deny' })],
  ['options', () => gcra('a', 6, 10, '60s', 'deny')],
  ['burst', () => gcra('a', true, 10, '60s')],
  ['period', () => gcra('a', 6, 10, [60])],
  ['localShare', () => gcra('a', 6, 10, '60s', { localShare: true })],
  ['slots', () => fixed('a', 6, '60s', { slots: 16 })],
  ['aligned', () => fixed('a', 6, '60s', { aligned: 'yes' })],
  ['aligned', () => slidingLog('a', 6, '60s', { aligned: true })],
  ['forget', () => backoff('a', 1, 1, 2, 3, { forget: 5 })],
  ['unit', () => quota('a', 1, 'day', { unit: 'day' })],
  ['zone', () => quota('a', 1, 'day', { zone: ['UTC'] })],
  ['start', () => quota('a', 1, 'month', { start: [1] })],
  ['aligned', () => lease('a', 1, '1s', { aligned: true })],
  ['variant', () => policy('a', { variant: 'plan:gold' })],
  ['variants', () => policy('a', { variants: 'pg' })],
  ['variants', () => policy('a', { variants: [5] })],
  ['default', () => policy('a', { default: 'api' })],
  ['lines', () => jsonLog(process.stdout, { lines: 5 })],
  ['audit', () => jsonLog(process.stdout, { audit: 'api' })],
  ['stream', () => jsonLog(5)],
  ['cost', () => api.of('x').cost(true as never)],
  ['leave', () => api.of('x').leave('1')],
  ['cost', () => fixed('a', 6, '60s').of('x').reserve(-1)],
];

/** Middleware and stores that are created with invalid options. */
const adapters: [string, (limiter: Any) => unknown][] = [
  ['options', () => rateLimit()],
  ['limiter', () => rateLimit({ rules: api })],
  ['limiter', () => rateLimit({ limiter: {}, rules: api })],
  ['rule', (limiter) => rateLimit({ limiter, rule: api })],
  ['key', (limiter) => rateLimit({ limiter, rules: api, key: 'ip' })],
  ['cost', (limiter) => rateLimit({ limiter, rules: api, cost: true })],
  ['cost', (limiter) => rateLimit({ limiter, rules: [{ rule: api, cost: '5' }] })],
  ['keys', (limiter) => rateLimit({ limiter, rules: [{ rule: api, keys: () => 'x' }] })],
  ['trustedProxies', (limiter) => rateLimit({ limiter, rules: api, trustedProxies: '10.0.0.1' })],
  ['headers', (limiter) => rateLimit({ limiter, rules: api, headers: 'draft-6' })],
  ['degradedHeader', (limiter) => rateLimit({ limiter, rules: api, degradedHeader: 5 })],
  ['peer', (limiter) => rateLimit({ limiter, rules: api, peer: () => '192.0.2.1' })],
  ['onDeny', (limiter) => honoRateLimit({ limiter, rules: api, onDeny: () => {} })],
  ['peer', (limiter) => honoRateLimit({ limiter, rules: api, peer: '192.0.2.1' })],
  ['headers', () => answerDenied({ headers: 'draft-6' })],
  ['rules', (limiter) => new ExpressStore({ limiter, rules: api })],
  ['rule', (limiter) => new ExpressStore({ limiter, rule: 'api' })],
  ['prefix', (limiter) => redisThrottleStore({ limiter, prefix: 'a' })],
  ['limiter', () => new RedisThrottleStorage({ limiter: 'a' })],
];

describe('an argument of plain JavaScript', () => {
  it.each(adapters)('is refused under its name by an adapter: %s', (argument, make) => {
    expect(() => make(over().limiter)).toThrow(named(argument));
  });

  it.each(calls)('is refused under its name in a call: %s', async (argument, call) => {
    const { server, limiter } = over();
    await expect(async () => call(limiter)).rejects.toThrow(named(argument));
    expect(server.calls).toEqual([]);
    expect(server.clock.pending).toBe(0);
  });

  it.each(objects)('is refused under its name at setup: %s', (argument, make) => {
    expect(make).toThrow(named(argument));
  });

  it('is refused under its name by a decision and an admission', async () => {
    const { limiter } = over();
    const decision: Any = await limiter.check(api, 'x');
    expect(() => decision.headers({ style: 'draft-6' })).toThrow(named('style'));
    expect(() => decision.headers({ styles: 'draft-6' })).toThrow(named('styles'));
    expect(() => decision.headers({ nowMs: '5' })).toThrow(named('nowMs'));
    const admission: Any = await limiter.admit([api.of('x')]);
    expect(() => admission.settle('api', 5)).toThrow(named('rule'));
    expect(() => admission.settle(api, true)).toThrow(named('actual'));
    await admission.finish();
  });

  it.each(mistaken)('is refused with what to write instead: %s', async (text, call) => {
    await expect(async () => call(over().limiter)).rejects.toThrow(`invalid ${text}`);
  });

  it.each(['1m', -1, Number.NaN, Number.POSITIVE_INFINITY])(
    'is refused by the clock of a test: %s',
    async (ms) => {
      await expect(new FakeServer().advance(ms as number)).rejects.toThrow(named('ms'));
    },
  );

  it('may be the name of an event that closes the limiter', async () => {
    const { limiter } = over();
    const handler: Any = limiter.close.bind(limiter);
    await expect(handler('SIGTERM', 15)).resolves.toBeUndefined();
  });

  it('may be an option that is undefined', async () => {
    const { limiter } = over();
    const options: Any = { cost: undefined, timeout: undefined };
    expect((await limiter.check(api, 'x', options)).granted).toBe(1);
  });
});
