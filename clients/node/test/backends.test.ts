/** Looking for a back end, on a clock and over connections of the test's own. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { type Call, type Connection, gcra, Limiter, type LimiterOptions } from '../src/index.js';
import { functions, script, version } from '../src/library.js';
import { FakeClock } from '../src/testing.js';

const api = gcra('api', 6, 10, '60s');
const REPLY = [1, 6, 5, 0, 6000];
const UNKNOWN = new Error("ERR unknown command 'RL.GCRA', with args beginning with: ");
const NO_FUNCTION = new Error('ERR Function not found');

type Answer = (args: readonly string[]) => unknown;

/** What a server without the module and with functions answers. */
const withFunctions: Answer = ([command = '', name]) => {
  if (command.startsWith('RL.')) throw UNKNOWN;
  return name === 'rl_version' ? version : REPLY;
};

/** A limiter over nodes that answer so, and what they were asked. */
function over(answer: Answer, options: LimiterOptions = {}, others: Answer[] = []) {
  const clock = new FakeClock();
  const asked: string[] = [];
  const node = (name: string, reply: Answer): Connection => ({
    send: async ({ args }: Call) => {
      asked.push(`${name}${args[0]} ${args[1]}`);
      return reply(args);
    },
  });
  const own = node('', answer);
  const all = [own, ...others.map((other, at) => node(`${at + 1}: `, other))];
  if (others.length > 0) own.primaries = () => all;
  return { clock, asked, limiter: new Limiter(own, { clock, timeoutMs: 100, ...options }) };
}

const until = async (test: () => boolean) => {
  while (!test()) await new Promise((resolve) => setImmediate(resolve));
};

it('the texts are those of the repository', () => {
  const file = (name: string) =>
    readFileSync(new URL(`../../../functions/${name}.lua`, import.meta.url), 'utf8');
  expect(functions).toBe(file('redis_throttle'));
  expect(script).toBe(file('redis_throttle_script'));
  expect(version).toMatch(/^\d+\.\d+\.\d+$/);
});

it('a back end that there is none of is refused', () => {
  expect(() => over(withFunctions, { backend: 'lua' as never })).toThrow(
    expect.objectContaining({ argument: 'backend' }),
  );
});

describe('a call', () => {
  it('that meets no module is repeated once, as one call; many look together', async () => {
    const told: string[] = [];
    const onDecision: LimiterOptions['onDecision'] = ({ source }) => told.push(source);
    const { asked, limiter } = over(withFunctions, { onDecision, maxInFlight: 3 });
    await Promise.all(['1', '2', '3'].map((subject) => limiter.check(api, subject)));
    const looked = asked.filter((call) => call.includes('rl_version'));
    expect(looked).toHaveLength(1);
    expect(asked).toHaveLength(3 + 1 + 3);
    expect(limiter.counters).toMatchObject({ allowed: 3, degraded: 0, mistakes: 0 });
    expect(told).toEqual(['server', 'server', 'server']);
    await limiter.check(api, '4');
    expect(asked.slice(7)).toEqual(['FCALL rl_gcra']);
  });

  const others = ['LOADING it', 'READONLY it', 'NOPERM it', 'ERR it', 'WRONGTYPE it', 'it broke'];
  it.each(others)('that ends with %s is not repeated', async (message) => {
    for (const backend of ['auto', 'module'] as const) {
      const { asked, limiter } = over(
        () => {
          throw new Error(message);
        },
        { backend },
      );
      await limiter.check(api, '42').catch(() => {});
      expect(asked).toEqual(['RL.GCRA rl:api:42']);
    }
  });

  it('that loses its function twice is answered by onError, and not asked again', async () => {
    const { asked, limiter } = over((args) => {
      if (args[1] === 'rl_gcra') throw NO_FUNCTION;
      return withFunctions(args);
    });
    const decision = await limiter.check(api, '42');
    expect(decision).toMatchObject({ source: 'error', error: { reason: 'server' } });
    expect(asked.filter((call) => call === 'FCALL rl_gcra')).toHaveLength(1);
  });

  it('is given up at its deadline, and is not sent after it', async () => {
    let answer = (_: unknown) => {};
    const { asked, clock, limiter } = over((args) => {
      if (args[1] === 'rl_version') return new Promise((resolve) => (answer = resolve));
      return withFunctions(args);
    });
    const call = limiter.check(api, '42');
    await until(() => asked.includes('FCALL rl_version'));
    await clock.advance(100);
    expect((await call).error).toMatchObject({ reason: 'timeout' });
    const next = limiter.check(api, '43');
    await until(() => asked.filter((each) => each === 'FCALL rl_version').length === 2);
    answer(version);
    expect((await next).source).toBe('server');
    expect(asked.filter((each) => each === 'FCALL rl_gcra')).toHaveLength(1);
  });
});

describe('the search', () => {
  it('ends when the server says that it cannot now, and begins anew', async () => {
    let loading = true;
    const { limiter } = over((args) => {
      if (args[1] === 'rl_version' && loading) throw new Error('LOADING it');
      return withFunctions(args);
    });
    expect((await limiter.check(api, '42')).error).toMatchObject({ reason: 'server' });
    loading = false;
    expect((await limiter.check(api, '42')).source).toBe('server');
  });

  it('looks for the module first when what it had is gone', async () => {
    let gone = false;
    const { asked, limiter } = over((args) => {
      if (!gone) return withFunctions(args);
      if (args[0]?.startsWith('RL.')) return REPLY;
      throw NO_FUNCTION;
    });
    expect(await limiter.ready()).toBe('functions');
    gone = true;
    asked.length = 0;
    await limiter.check(api, '42');
    expect(asked).toEqual(['FCALL rl_gcra', 'RL.PEEK rl:api:42', 'RL.GCRA rl:api:42']);
    expect(await limiter.ready()).toBe('module');
  });

  it('loads the library on each primary that lacks it, and waits for none that hangs', async () => {
    const lacks: Answer = (args) => {
      if (args[1] === 'rl_version') throw NO_FUNCTION;
      return withFunctions(args);
    };
    const hangs: Answer = () => new Promise(() => {});
    const { asked, clock, limiter } = over(withFunctions, {}, [lacks, hangs]);
    const call = limiter.check(api, '42');
    await until(() => asked.includes('1: FUNCTION LOAD'));
    await clock.advance(50);
    expect((await call).source).toBe('server');
    expect(asked).not.toContain('FUNCTION LOAD');
    expect(asked).toContain('2: FCALL rl_version');
    expect(clock.pending).toBe(0);
  });
});
