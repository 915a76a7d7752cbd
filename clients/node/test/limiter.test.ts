/** Tests the limiter over a fake server and a fake clock. */
import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import {
  CommandRejectedError,
  type Decision,
  type DecisionEvent,
  fixed,
  gcra,
  InvalidArgumentError,
  Limiter,
  type LimiterOptions,
  lease,
  policy,
  quota,
  slidingLog,
  UnavailableError,
} from '../src/index.js';
import { after, api, over, times } from './fakes.js';

describe('a decision', () => {
  it('is a frozen value that prints its verdict', async () => {
    const { limiter } = over();
    const decisions = await times(7, () => limiter.check(api, '42'));
    expect(decisions.map(({ remaining }) => remaining)).toEqual([5, 4, 3, 2, 1, 0, 0]);
    const denied = decisions[6] as Decision;
    expect(denied).toMatchObject({ allowed: false, retryAfterMs: 6000, resetAfterMs: 36_000 });
    expect(String(denied)).toBe('api: denied, again in 6000 ms (server)');
    expect(Object.isFrozen(denied)).toBe(true);
    expect(Object.isFrozen(api) && Object.isFrozen(api.words)).toBe(true);
  });

  it('that no retry allows has the largest retry time, whatever call returned it', async () => {
    const { server, limiter } = over({ denialCache: 9, onError: 'local' });
    const check = () => limiter.check(api, '42', { cost: 7 });
    const decisions = [
      await check(),
      await check(),
      await limiter.checkAll([api.of('42').cost(7)]),
    ];
    decisions.push(await limiter.check(policy('set', { default: api }), '42', { cost: 7 }));
    server.fail();
    decisions.push(await limiter.peek(api, '42', { cost: 7 }));
    const retry = { retryAfterMs: 2 ** 53 - 1, wouldRetryAfterMs: 2 ** 53 - 1 };
    for (const one of [...decisions, ...decisions.flatMap(({ rows }) => rows)]) {
      expect(one).toMatchObject({ allowed: false, never: true, ...retry });
      expect(one.fields()).toMatchObject(retry);
    }
    expect(decisions.map(({ source }) => source)).toEqual([
      'server',
      'local',
      'server',
      'server',
      'local',
    ]);
  });

  it('changes after a refund and forget, but not after a peek', async () => {
    const { limiter } = over();
    await limiter.check(api, '42', { cost: 6 });
    expect((await limiter.peek(api, '42')).allowed).toBe(false);
    expect((await limiter.refund(api, '42', { cost: 2 })).remaining).toBe(2);
    expect(await limiter.forget(api, '42')).toBe(true);
    expect((await limiter.peek(api, '42', { cost: 0 })).remaining).toBe(6);
  });
});

describe('timeoutMs', () => {
  it('leaves no timer behind when the reply arrives', async () => {
    const { server, limiter } = over({ timeoutMs: 20 });
    await limiter.check(api, '42');
    expect(server.clock.pending).toBe(0);
  });
});

describe('onError', () => {
  it('local with a share below one unit allows one unit in a longer time', async () => {
    const { server, limiter } = over({ onError: 'local' });
    const rule = slidingLog('sms', 2, '1m', { localShare: 0.1 });
    server.fail();
    expect((await limiter.check(rule, '42')).allowed).toBe(true);
    await server.advance(299_000);
    expect((await limiter.check(rule, '42')).allowed).toBe(false);
    await server.advance(6_000);
    expect((await limiter.check(rule, '42')).allowed).toBe(true);
  });

  it('local starts without usage for another rule of the same name', async () => {
    const { server, limiter } = over({ onError: 'local' });
    server.fail();
    for (const rule of [api, fixed('api', 2, '1m'), gcra('api', 2, 1, '1h'), api]) {
      expect(await limiter.check(rule, '42')).toMatchObject({ allowed: true, source: 'local' });
    }
    expect((await limiter.peek(api, '42', { cost: 0 })).remaining).toBe(4);
  });

  it('local drops a key that has units left before one that has none', async () => {
    const { server, limiter } = over({ onError: 'local' });
    const rule = fixed('local', 2, '1h');
    server.fail();
    await times(2, () => limiter.check(rule, 'exhausted'));
    await limiter.check(rule, 'idle');
    for (let user = 0; user < 10_000; user += 1) await limiter.check(rule, `user:${user}`);
    expect((await limiter.check(rule, 'exhausted')).allowed).toBe(false);
    expect((await limiter.check(rule, 'idle')).remaining).toBe(1);
  });

  it('local counts a log above 1,000 units in parts of its window', async () => {
    const { server, limiter } = over({ onError: 'local' });
    const rule = slidingLog('local', 2000, '1000s');
    server.fail();
    for (let call = 0; call < 2000; call += 1) {
      expect((await limiter.check(rule, '42')).allowed).toBe(true);
      await server.advance(100);
    }
    const denied = await limiter.check(rule, '42');
    expect(denied).toMatchObject({ allowed: false, retryAfterMs: 800_000 });
    await server.advance(800_000);
    // The units of one second were taken in one part, and return together.
    expect((await limiter.check(rule, '42')).remaining).toBe(0);
    await server.advance(1000);
    expect((await limiter.check(rule, '42')).remaining).toBe(9);
  });

  it('local is rejected for rules that this process cannot enforce', async () => {
    const { limiter } = over({ onError: 'local' });
    for (const rule of [lease('jobs', 3, '60s'), quota('exports', 10, 'day'), policy('search')]) {
      const call = rule.kind === 'lease' ? limiter.lease(rule, '42') : limiter.check(rule, '42');
      await expect(call).rejects.toBeInstanceOf(InvalidArgumentError);
    }
    await expect(limiter.check(policy('search', { default: api }), '42')).resolves.toBeDefined();
  });

  it('leaves this share of the units, if it decides locally', async () => {
    const { server, limiter } = over();
    server.fail();
    const tenth = fixed('tenth', 100, '1m', { onError: 'local', localShare: 0.1 });
    await limiter.check(tenth, '42', { cost: 7 });
    for (const leave of [20, '20%']) {
      const decisions = [0, 1, 2].map((cost) => limiter.peek(tenth, '42', { cost, leave }));
      const allowed = (await Promise.all(decisions)).map((decision) => decision.allowed);
      expect(allowed).toEqual([true, true, false]);
    }
    const most = await limiter.check(tenth, '42', { cost: 9, partial: true, leave: 20 });
    expect(most).toMatchObject({ allowed: true, granted: 1, remaining: 2 });
  });

  it('does not apply to an error in the use of the driver', async () => {
    const { server, limiter } = over();
    server.fail(new TypeError('a driver was given what it cannot send'));
    await expect(limiter.check(api, '42')).rejects.toBeInstanceOf(CommandRejectedError);
  });
});

describe('onDecision', () => {
  it('gets one event with the decision, the rule and a hash, never the subject', async () => {
    const seen: DecisionEvent[] = [];
    const { limiter } = over({ onDecision: (event) => seen.push(event) });
    const decision = await limiter.check(api, 'someone@example.com');
    expect(seen).toEqual([
      {
        kind: 'check',
        decision,
        rule: api,
        keyHash: expect.stringMatching(/^[0-9a-f]{16}$/),
        latencyMs: 0,
        degraded: false,
        error: undefined,
      },
    ]);
    expect(Object.isFrozen(seen[0])).toBe(true);
  });

  it.each([
    ['check', (limiter: Limiter): Promise<unknown> => limiter.check(api, 'a')],
    ['peek', (limiter: Limiter): Promise<unknown> => limiter.peek(api, 'a')],
    ['refund', (limiter: Limiter): Promise<unknown> => limiter.refund(api, 'a')],
    ['charge', (limiter: Limiter): Promise<unknown> => limiter.charge(api, 'a')],
    ['forget', (limiter: Limiter): Promise<unknown> => limiter.forget(api, 'a')],
    ['lease', (limiter: Limiter): Promise<unknown> => limiter.lease(lease('api', 1, '60s'), 'a')],
    ['checkAll', (limiter: Limiter): Promise<unknown> => limiter.checkAll([api.of('a')])],
  ])('gets the error and the latency of a rejected %s', async (_, call) => {
    const seen: DecisionEvent[] = [];
    const { server, limiter } = over({ onDecision: (event) => seen.push(event) });
    server.send = async () => {
      await new Promise<void>((resolve) => void server.clock.after(40, resolve));
      throw new Error('NOPERM no permissions');
    };
    const error = await after(server, 40, call(limiter)).catch((thrown) => thrown);
    expect(error).toBeInstanceOf(CommandRejectedError);
    const event = { kind: 'rejected', decision: undefined, latencyMs: 40, error };
    expect(seen).toEqual([expect.objectContaining(event)]);
    expect(seen[0]).toMatchObject({ rule: { name: 'api' }, degraded: false });
    expect(limiter.counters.rejected).toBe(1);
  });

  it('is called once for several rules, with the deciding one and a hashed subject', async () => {
    const seen: DecisionEvent[] = [];
    const { limiter } = over({ onDecision: (event) => seen.push(event) });
    await limiter.check(api, 'b', { cost: 6 });
    await limiter.check(api, 'b');
    const items = [fixed('day', 9, '1d').of('a'), api.of('a'), api.of('b')];
    const decision = await limiter.checkAll(items);
    expect(decision.deciding).toBe(2);
    expect(seen).toHaveLength(3);
    expect(seen[2]).toMatchObject({ decision, rule: api });
    // The hash of the subject is the same under every rule, prefix and tag.
    expect(new Set(seen.map(({ keyHash }) => keyHash)).size).toBe(1);
  });

  it('gets a hash that cannot be guessed from the subject', async () => {
    const hashes: string[] = [];
    const hmacSecret = 'sixteen characters';
    for (const options of [{}, { hmacSecret }]) {
      const { limiter } = over({ ...options, onDecision: ({ keyHash }) => hashes.push(keyHash) });
      await limiter.check(api, 'b');
    }
    const plain = createHash('sha256').update('b').digest('hex').slice(0, 16);
    expect(new Set([...hashes, plain]).size).toBe(3);
  });

  it.each([
    [
      'throws',
      () => {
        throw new Error('of the hook');
      },
    ],
    [
      'rejects',
      async () => {
        throw new Error('of the hook');
      },
    ],
  ])('that %s does not change the decision, and emits a warning', async (_, onDecision) => {
    const warned = new Promise((resolve) => process.once('warning', resolve));
    const { limiter } = over({ onDecision });
    const kinds: string[] = [];
    limiter.onDecision(({ kind }) => kinds.push(kind));
    expect((await limiter.check(api, '42')).allowed).toBe(true);
    expect(kinds).toEqual(['check']);
    expect(await warned).toMatchObject({ code: 'RL_ON_DECISION' });
  });
});

describe('a signal', () => {
  it('ends a call with its own reason when it is aborted', async () => {
    const { server, limiter } = over();
    server.hang();
    const gone = new AbortController();
    const call = limiter.check(api, '42', { signal: gone.signal });
    gone.abort(new Error('the client went away'));
    await expect(call).rejects.toThrow('the client went away');
    const before = AbortSignal.abort(new Error('before'));
    await expect(limiter.check(api, '42', { signal: before })).rejects.toThrow('before');
    expect(server.calls).toHaveLength(1);
  });
});

describe('options', () => {
  it.each([
    ['denialCache', -1],
    ['breakerFailures', 0],
    ['breakerPauseMs', 0],
    ['onError', 'open'],
    ['prefix', '{x}'],
    ['prefix', 'a\u0000b'],
    ['hmacSecret', 'short'],
    ['hashTag', 'x'],
  ])('%s of %s is rejected', (name, value) => {
    expect(() => over({ [name]: value } as LimiterOptions)).toThrow(
      expect.objectContaining({ argument: name }),
    );
  });

  it('that are undefined have their default values', async () => {
    const { limiter } = over({ timeoutMs: undefined, prefix: undefined, onError: undefined });
    expect((await limiter.check(api, '42')).allowed).toBe(true);
  });

  it('with an unknown client are rejected', () => {
    const version4 = { isOpen: true, sendCommand: () => {}, disconnect: () => {} };
    const callbacks = { sendCommand: () => {}, destroy: () => {} };
    for (const client of [{}, undefined, version4, callbacks]) {
      expect(() => new Limiter(client as never)).toThrow(InvalidArgumentError);
    }
  });
});

describe('a subject', () => {
  it('with a lone surrogate is rejected, because its key would not be unique', async () => {
    for (const options of [{}, { hmacSecret: 'sixteen characters' }]) {
      const { server, limiter } = over(options);
      for (const subject of ['\ud800', 'a\udc00', '']) {
        await expect(limiter.check(api, subject)).rejects.toMatchObject({ argument: 'subject' });
      }
      expect((await limiter.check(api, '\u{1f600}')).allowed).toBe(true);
      expect(server.calls).toHaveLength(1);
    }
  });
});

describe('ready', () => {
  it('distinguishes a server that is down from one without the module', async () => {
    const { server, limiter } = over();
    await limiter.ready();
    server.fail(new Error("ERR unknown command 'RL.PEEK'"));
    await expect(limiter.ready()).rejects.toBeInstanceOf(CommandRejectedError);
    server.fail();
    await expect(limiter.ready()).rejects.toBeInstanceOf(UnavailableError);
  });
});
