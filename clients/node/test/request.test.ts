/** Tests what the middleware reads of a request: its rules, its subject and its proxies. */
import type { IncomingMessage } from 'node:http';
import { Hono } from 'hono';
import { describe, expect, it, vi } from 'vitest';
import { backoff, fixed, type Rule } from '../src/index.js';
import { rateLimit } from '../src/web/express.js';
import { rateLimit as honoRateLimit } from '../src/web/hono.js';
import { api, over } from './fakes.js';
import { limited, listen } from './listening.js';

const day = fixed('day', 9, '1d');
const plan = ({ headers }: IncomingMessage) => (headers['x-plan'] === 'paid' ? day : undefined);

describe('a rule function', () => {
  it('adds its rule to the others, or leaves it out', async () => {
    const { server, limiter } = over();
    const key = vi.fn(() => 'acme');
    const rules = [api, { rule: plan, key }];
    const url = await listen(limited({ limiter, rules, tag: () => 't' }));
    await fetch(url);
    expect(key).not.toHaveBeenCalled();
    await fetch(url, { headers: { 'X-Plan': 'paid' } });
    expect(server.calls).toEqual([
      ['RL.GCRA', 'rl:{t}:api:127.0.0.1', '6', '10', '60'],
      ['RL.ALL', 'rl:{t}:api:127.0.0.1', 'GCRA 6 10 60', 'rl:{t}:day:acme', 'FIXED 9 86400'],
    ]);
  });

  it('may be async, as may cost, key and tag', async () => {
    const { server, limiter } = over();
    const [rules, cost, key] = [[async () => api], async () => 2, async () => 'x'];
    const tag = async () => 't';
    await fetch(await listen(limited({ limiter, rules, cost, key, tag })));
    expect(server.calls).toEqual([['RL.GCRA', 'rl:{t}:api:x', '6', '10', '60', 'COST', '2']]);
  });

  it.each([
    ['one rule', plan],
    ['several rules', [async () => null, plan]],
  ])('passes a request without a call if it leaves out all of %s', async (_, rules) => {
    const { server, limiter } = over();
    const key = () => undefined;
    const response = await fetch(await listen(limited({ limiter, rules, key })));
    expect([response.status, response.headers.get('RateLimit')]).toEqual([200, null]);
    expect(server.calls).toEqual([]);
  });

  it.each([
    ['a rule function', { rules: () => Promise.reject(new Error('broken')) }],
    ['a cost function', { rules: api, cost: () => Promise.reject(new Error('broken')) }],
    ['a skip function', { rules: api, skip: () => Promise.reject(new Error('broken')) }],
  ])('that fails is an error of the application, also %s', async (_, options) => {
    const { limiter } = over();
    const response = await fetch(await listen(limited({ limiter, ...options })));
    expect([response.status, await response.text()]).toEqual([500, 'broken']);
  });

  it('that returns no rule is an error of the application', async () => {
    const { limiter } = over();
    const rules = () => 'gold' as unknown as Rule;
    const response = await fetch(await listen(limited({ limiter, rules })));
    expect(await response.text()).toBe('RL_INVALID_ARGUMENT');
  });
});

describe('a request without a subject', () => {
  const missing = ({ headers }: IncomingMessage) => (headers['x-user'] as string).trim();

  it.each([
    ['fails', missing],
    ['rejects', async (request: IncomingMessage) => missing(request)],
    ['returns null', () => null],
    ['returns an empty text', () => ''],
  ])('gets a 400 response if the key function %s', async (_, key) => {
    const { server, limiter } = over();
    const url = await listen(limited({ limiter, rules: [api, { rule: day, key }] }));
    const response = await fetch(url);
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ title: 'Bad Request', status: 400 });
    expect(server.calls).toEqual([]);
  });

  it('is limited by the anonymous rule if the key function fails', async () => {
    const { server, limiter } = over();
    const options = { limiter, rules: api, key: missing, anonymous: day };
    expect((await fetch(await listen(limited(options)))).status).toBe(200);
    expect(server.calls.map(([, key]) => key)).toEqual(['rl:day:127.0.0.1']);
  });
});

describe('a warning', () => {
  /** Returns the codes of the warnings that the requests of a fresh process cause. */
  async function warned(options: object, headers: Record<string, string> = {}, calls = 2) {
    vi.resetModules();
    const fresh = (await import('../src/web/express.js')) as typeof import('../src/web/express.js');
    const codes: unknown[] = [];
    const emit = vi.spyOn(process, 'emitWarning').mockImplementation((_, options) => {
      codes.push((options as { code: string }).code);
    });
    const { default: express } = await import('express');
    const { limiter } = over();
    const app = express().use(fresh.rateLimit({ limiter, rules: api, ...options }));
    const url = await listen(app.get('/', (_, response) => void response.send('ok')));
    for (let call = 0; call < calls; call += 1) await fetch(url, { headers });
    emit.mockRestore();
    return codes;
  }
  const forwarded = { 'X-Forwarded-For': '198.51.100.1' };

  it('is emitted once when X-Forwarded-For arrives and no proxy is trusted', async () => {
    expect(await warned({}, forwarded)).toEqual(['RL_FORWARDED']);
    expect(await warned({})).toEqual([]);
    expect(await warned({ trustedProxies: [] }, forwarded)).toEqual([]);
    expect(await warned({ trustedProxies: ['127.0.0.1'] }, forwarded)).toEqual([]);
    expect(await warned({ key: () => 'x' }, forwarded)).toEqual([]);
  });

  it('is emitted once when a key function fails', async () => {
    const key = () => {
      throw new TypeError('no user');
    };
    expect(await warned({ key })).toEqual(['RL_KEY']);
    const refuse = () => {
      throw Object.assign(new Error('log in first'), { status: 401 });
    };
    expect(await warned({ key: refuse })).toEqual([]);
  });

  it('is emitted once when a count function reads a field that is not there', async () => {
    const count = (response: object) => (response as Response).ok;
    expect(await warned({ rules: fixed('api', 6, '60s', { count }) })).toEqual(['RL_COUNT']);
  });

  it('is emitted once for each function that fails', async () => {
    const broken = (): never => {
      throw new TypeError('broken');
    };
    const counts = [broken, () => broken()].map((count, at) =>
      fixed(`count-${at}`, 6, '60s', { count }),
    );
    const key = () => 'x';
    expect(await warned({ rules: counts, key })).toEqual(['RL_COUNT', 'RL_COUNT']);
    const keys = [() => broken(), () => [] as never];
    const calls: unknown[] = [];
    const rules = keys.map((key, at) => ({
      rule: () => (calls.length === at + 1 ? day : null),
      key,
    }));
    const skip = () => calls.push(0) > keys.length;
    expect(await warned({ rules, skip })).toEqual(['RL_KEY', 'RL_KEY']);
    // A program may create a rule with its function for each request.
    const perRequest = () => fixed('api', 300, '60s', { count: () => broken() });
    expect(await warned({ rules: perRequest, key }, {}, 102)).toHaveLength(100);
  });

  it('is emitted once when a cost function returns no cost', async () => {
    expect(await warned({ cost: () => -1 })).toEqual(['RL_COST']);
    expect(await warned({ cost: () => 7 })).toEqual([]);
  });
});

describe('a cost that a function takes from a request', () => {
  it.each([
    ['-1', -1],
    ['one above 10^12', 1e12 + 1],
    ['1.5', 1.5],
    ['NaN', Number.NaN],
    ['text', '5'],
    ['true', true],
    ['undefined', undefined],
  ])('gets a 400 response if it is %s', async (_, units) => {
    const { server, limiter } = over();
    const cost = () => units as number;
    const own = limited({ limiter, rules: [{ rule: api, cost }] });
    const anonymous = limited({ limiter, rules: day, key: () => null, anonymous: api, cost });
    for (const app of [own, anonymous]) {
      const response = await fetch(await listen(app));
      expect(response.status).toBe(400);
      expect(await response.json()).toMatchObject({ detail: 'The request has no valid cost.' });
    }
    const app = new Hono().get('/', honoRateLimit({ limiter, rules: api, cost }));
    expect((await app.request('/')).status).toBe(400);
    expect(server.calls).toEqual([]);
  });
});

describe('the setup', () => {
  it('rejects an onError that a rule cannot have', () => {
    const { limiter } = over({ onError: 'local' });
    const steps = backoff('steps', 3, '1s', '1m', '1h');
    const refused = /^invalid onError: expected allow or deny: a backoff has no local limit/;
    expect(() => rateLimit({ limiter, rules: steps })).toThrow(refused);
    expect(() => rateLimit({ limiter, rules: [api, { rule: steps }] })).toThrow(refused);
    expect(() => rateLimit({ limiter, rules: api, anonymous: steps })).toThrow(refused);
    expect(() => honoRateLimit({ limiter, rules: steps })).toThrow(refused);
  });

  it('rejects what is no rule', () => {
    const { limiter } = over();
    for (const rules of [undefined, [undefined], ['api'], [{ key: () => 'x' }]]) {
      expect(() => rateLimit({ limiter, rules: rules as never })).toThrow(
        /^invalid rules: expected/,
      );
    }
  });
});
