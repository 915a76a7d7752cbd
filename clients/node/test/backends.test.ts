/** Tests the search for a back end, with a fake clock and fake connections. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { type Call, type Connection, gcra, Limiter, type LimiterOptions } from '../src/index.js';
import { FakeClock } from '../src/testing.js';
import { functions, script, version } from '../src/wire/library.js';

const api = gcra('api', 6, 10, '60s');
const REPLY = [1, 6, 5, 0, 6000];
const unknown = (name: string) => new Error(`ERR unknown command '${name}', with args beginning`);
const NO_FUNCTION = new Error('ERR Function not found');

type Respond = (args: readonly string[]) => unknown;

/** Replies as a server without the module and with functions. */
const withFunctions: Respond = ([command = '', name]) => {
  if (command.startsWith('RL.')) throw unknown(command);
  return name === 'rl_version' ? version : REPLY;
};

/** Creates a limiter over nodes with these replies, and records the calls. */
function over(respond: Respond, options: LimiterOptions = {}, others: Respond[] = []) {
  const clock = new FakeClock();
  const calls: string[] = [];
  const node = (name: string, respond: Respond): Connection => ({
    send: async ({ args }: Call) => {
      calls.push(`${name}${args[0]} ${args[1]}`);
      return respond(args);
    },
  });
  const own = node('', respond);
  const all = [own, ...others.map((other, at) => node(`${at + 1}: `, other))];
  if (others.length > 0) own.primaries = () => all;
  return { clock, calls, limiter: new Limiter(own, { clock, timeoutMs: 100, ...options }) };
}

const until = async (test: () => boolean) => {
  while (!test()) await new Promise((resolve) => setImmediate(resolve));
};

it('the bundled library and script match the repository', () => {
  const file = (name: string) =>
    readFileSync(new URL(`../../../functions/${name}.lua`, import.meta.url), 'utf8');
  expect(functions).toBe(file('redis_throttle'));
  expect(script).toBe(file('redis_throttle_script'));
  expect(version).toMatch(/^\d+\.\d+\.\d+$/);
});

it('an unknown back end is rejected', () => {
  expect(() => over(withFunctions, { backend: 'lua' as never })).toThrow(
    expect.objectContaining({ argument: 'backend' }),
  );
});

describe('a call', () => {
  it('that finds no module is sent once more, and many calls share one search', async () => {
    const sources: unknown[] = [];
    const onDecision: LimiterOptions['onDecision'] = ({ decision }) =>
      sources.push(decision?.source);
    const { calls, limiter } = over(withFunctions, { onDecision, maxInFlight: 3 });
    await Promise.all(['1', '2', '3'].map((subject) => limiter.check(api, subject)));
    const looked = calls.filter((call) => call.includes('rl_version'));
    expect(looked).toHaveLength(1);
    expect(calls).toHaveLength(3 + 1 + 3);
    expect(limiter.counters).toMatchObject({ allowed: 3, degraded: 0, rejected: 0 });
    expect(sources).toEqual(['server', 'server', 'server']);
    await limiter.check(api, '4');
    expect(calls.slice(7)).toEqual(['FCALL rl_gcra']);
  });

  it('is not repeated after a library error that reads like an unknown command', async () => {
    for (const message of ['ERR unknown command of redis-throttle: see', unknown('SET').message]) {
      const { calls, limiter } = over((args) => {
        if (args[1] === 'rl_gcra') throw new Error(message);
        return withFunctions(args);
      });
      await limiter.ready();
      await expect(limiter.check(api, '42')).rejects.toMatchObject({ kind: 'ERR' });
      expect(calls.filter((each) => each === 'FCALL rl_gcra')).toHaveLength(1);
    }
  });

  const others = ['LOADING it', 'READONLY it', 'NOPERM it', 'ERR it', 'WRONGTYPE it', 'it broke'];
  it.each(others)('is not repeated after the error %s', async (message) => {
    for (const backend of ['auto', 'module'] as const) {
      const { calls, limiter } = over(
        () => {
          throw new Error(message);
        },
        { backend },
      );
      await limiter.check(api, '42').catch(() => {});
      expect(calls).toEqual(['RL.GCRA rl:api:42']);
    }
  });

  it('throws CommandRejectedError when its function is missing again after a search', async () => {
    const { calls, limiter } = over((args) => {
      if (args[1] === 'rl_gcra') throw NO_FUNCTION;
      return withFunctions(args);
    });
    await expect(limiter.check(api, '42')).rejects.toMatchObject({ code: 'RL_COMMAND_REJECTED' });
    expect(calls.length).toBeLessThan(10);
  });

  it('of a command that every server knows starts no search', async () => {
    const { calls, limiter } = over(() => 1, { backend: 'functions' });
    expect(await limiter.forget(api, '42')).toBe(true);
    expect(calls).toEqual(['DEL rl:api:42']);
  });

  it('ends at its deadline, and is not sent afterwards', async () => {
    let reply = (_: unknown) => {};
    const { calls, clock, limiter } = over((args) => {
      if (args[1] === 'rl_version') return new Promise((resolve) => (reply = resolve));
      return withFunctions(args);
    });
    const call = limiter.check(api, '42');
    await until(() => calls.includes('FCALL rl_version'));
    await clock.advance(100);
    expect((await call).error).toMatchObject({ reason: 'timeout' });
    const next = limiter.check(api, '43');
    await until(() => calls.filter((each) => each === 'RL.GCRA rl:api:43').length === 1);
    reply(version);
    // The search has continued in the meantime.
    expect((await next).source).toBe('server');
    expect(calls.filter((each) => each === 'FCALL rl_version')).toHaveLength(1);
    expect(calls.filter((each) => each === 'FCALL rl_gcra')).toHaveLength(1);
  });
});

describe('the search', () => {
  it('ends when the server cannot decide now, and starts again with the next call', async () => {
    let loading = true;
    const { limiter } = over((args) => {
      if (args[1] === 'rl_version' && loading) throw new Error('LOADING it');
      return withFunctions(args);
    });
    expect((await limiter.check(api, '42')).error).toMatchObject({ reason: 'server' });
    loading = false;
    expect((await limiter.check(api, '42')).source).toBe('server');
  });

  it('tries the module first when the back end has disappeared', async () => {
    let gone = false;
    const { calls, limiter } = over((args) => {
      if (!gone) return withFunctions(args);
      if (args[0]?.startsWith('RL.')) return REPLY;
      throw NO_FUNCTION;
    });
    expect(await limiter.ready()).toBe('functions');
    gone = true;
    calls.length = 0;
    await limiter.check(api, '42');
    expect(calls).toEqual(['FCALL rl_gcra', 'RL.PEEK rl:api:42', 'RL.GCRA rl:api:42']);
    expect(await limiter.ready()).toBe('module');
  });

  it('runs once for many calls, even if a round trip takes half of the timeout', async () => {
    let loaded = 0;
    const { calls, clock, limiter } = over(async (args) => {
      await new Promise<void>((resolve) => clock.after(60, resolve));
      if (args[0] === 'FUNCTION') loaded += 1;
      if (args[0] === 'FCALL' && loaded === 0) throw NO_FUNCTION;
      return withFunctions(args);
    });
    const sources = new Set<string>();
    for (let at = 0; at < 30; at += 1) {
      const round = Array.from({ length: 20 }, (_, subject) => limiter.check(api, `${subject}`));
      for (let tick = 0; tick < 10; tick += 1) await clock.advance(10);
      for (const { source } of await Promise.all(round)) sources.add(source);
      if (sources.has('server')) break;
    }
    expect(sources).toContain('server');
    expect(calls.filter((each) => each === 'FUNCTION LOAD')).toHaveLength(1);
    expect(calls.filter((each) => each === 'FCALL rl_version')).toHaveLength(1);
  });

  it('does not overwrite a foreign library, or one that another client just loaded', async () => {
    const loads: string[] = [];
    let newer = false;
    const { limiter } = over((args) => {
      if (args[0] === 'FUNCTION') {
        loads.push(args[2] === 'REPLACE' ? 'REPLACE' : '');
        newer = true;
        throw new Error("ERR Library 'redis_throttle' already exists");
      }
      if (args[1] === 'rl_version' && !newer) throw NO_FUNCTION;
      return args[1] === 'rl_version' ? '99.0.0' : withFunctions(args);
    });
    expect(await limiter.ready()).toBe('functions');
    expect(loads).toEqual(['']);
    const others = over((args) => {
      if (args[0]?.startsWith('EVAL')) return REPLY;
      if (args[0] === 'FUNCTION') throw new Error("ERR Library 'redis_throttle' already exists");
      if (args[0] === 'FCALL') throw NO_FUNCTION;
      return withFunctions(args);
    });
    expect(await others.limiter.ready()).toBe('script');
  });

  it('starts with the module after a lost connection, but not after other errors', async () => {
    let error: Error | undefined;
    const { calls, limiter } = over((args) => {
      if (error !== undefined) throw error;
      return withFunctions(args);
    });
    await limiter.ready();
    for (const [message, next] of [
      ['OOM it', 'FCALL rl_gcra'],
      ['Connection is closed.', 'RL.GCRA rl:api:42'],
      ['LOADING it', 'RL.GCRA rl:api:42'],
    ] as const) {
      error = new Error(message);
      expect((await limiter.check(api, '42')).source).toBe('error');
      error = undefined;
      calls.length = 0;
      expect((await limiter.check(api, '42')).source).toBe('server');
      expect(calls[0]).toBe(next);
      expect(await limiter.ready()).toBe('functions');
    }
  });

  it('loads the library on each primary that lacks it, and skips a hung one', async () => {
    const lacks: Respond = (args) => {
      if (args[1] === 'rl_version') throw NO_FUNCTION;
      return withFunctions(args);
    };
    const hangs: Respond = () => new Promise(() => {});
    const { calls, clock, limiter } = over(withFunctions, {}, [lacks, hangs]);
    const call = limiter.check(api, '42');
    await until(() => calls.includes('1: FUNCTION LOAD'));
    await clock.advance(50);
    expect((await call).source).toBe('server');
    expect(calls).not.toContain('FUNCTION LOAD');
    expect(calls).toContain('2: FCALL rl_version');
    // The hung primary is watched until it counts as silent.
    await clock.advance(100);
    expect(clock.pending).toBe(0);
  });
});
