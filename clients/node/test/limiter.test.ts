/** The limiter, over a server and a clock of this process. */
import { describe, expect, it } from 'vitest';
import {
  ArgumentError,
  type Decision,
  fixed,
  gcra,
  Limiter,
  type LimiterOptions,
  leakyBucket,
  lease,
  MistakeError,
  policy,
  quota,
  slidingLog,
  tokenBucket,
  UnavailableError,
} from '../src/index.js';
import { FakeServer } from '../src/testing.js';

const api = gcra('api', 6, 10, '60s');

function over(options: LimiterOptions = {}): { server: FakeServer; limiter: Limiter } {
  const server = new FakeServer();
  return { server, limiter: new Limiter(server, { clock: server.clock, ...options }) };
}

async function times<T>(count: number, call: (at: number) => Promise<T>): Promise<T[]> {
  const all: T[] = [];
  for (let at = 0; at < count; at += 1) all.push(await call(at));
  return all;
}

/** What a call is answered after so many ms of the fake clock. */
async function after<T>(server: FakeServer, ms: number, call: Promise<T>): Promise<T> {
  call.catch(() => {});
  await server.advance(ms);
  return call;
}

describe('a decision', () => {
  it('is a frozen value that prints what it says', async () => {
    const { limiter } = over();
    const decisions = await times(7, () => limiter.check(api, '42'));
    expect(decisions.map(({ remaining }) => remaining)).toEqual([5, 4, 3, 2, 1, 0, 0]);
    const denied = decisions[6] as Decision;
    expect(denied).toMatchObject({ allowed: false, retryAfterMs: 6000, resetAfterMs: 36_000 });
    expect(String(denied)).toBe('api: denied, again in 6000 ms (server)');
    expect(Object.isFrozen(denied)).toBe(true);
    expect(Object.isFrozen(api) && Object.isFrozen(api.words)).toBe(true);
  });

  it('of several rules comes from the one that decided; a denial takes nothing', async () => {
    const { limiter } = over();
    const tenant = fixed('tenant', 8, '60s');
    const ask = () =>
      limiter.checkAll([
        [api, '42'],
        [tenant, '7', 4],
      ]);
    const [first, , third] = await times(3, ask);
    expect(first).toMatchObject({ allowed: true, rule: 'tenant', limit: 8, remaining: 4 });
    expect(third).toMatchObject({ allowed: false, rule: 'tenant', retryAfterMs: 60_000 });
    expect(third?.parts[0]).toMatchObject({ allowed: true, remaining: 4 });
    expect((await limiter.peek(api, '42')).remaining).toBe(3);
  });

  it('is forgotten, refunded and peeked', async () => {
    const { limiter } = over();
    await limiter.check(api, '42', { cost: 6 });
    expect((await limiter.peek(api, '42')).allowed).toBe(false);
    expect((await limiter.refund(api, '42', { cost: 2 })).remaining).toBe(2);
    expect(await limiter.forget(api, '42')).toBe(true);
    expect((await limiter.peek(api, '42', { cost: 0 })).remaining).toBe(6);
  });
});

describe('timeoutMs', () => {
  it('is 100 ms for the whole call, which is asked once', async () => {
    const { server, limiter } = over();
    server.hang();
    let answered = false;
    const call = limiter.check(api, '42').finally(() => {
      answered = true;
    });
    await server.advance(99);
    expect(answered).toBe(false);
    const decision = await after(server, 1, call);
    expect(decision).toMatchObject({ allowed: true, source: 'error', degraded: true });
    expect(decision.error).toMatchObject({ code: 'RL_UNAVAILABLE', reason: 'timeout' });
    expect(server.calls).toHaveLength(1);
  });

  it('leaves no timer behind when the answer comes', async () => {
    const { server, limiter } = over({ timeoutMs: 20 });
    await limiter.check(api, '42');
    expect(server.clock.pending).toBe(0);
  });
});

describe('onError', () => {
  it('allows by default, and says that nobody decided', async () => {
    const { server, limiter } = over();
    server.fail();
    const decision = await limiter.check(api, '42');
    expect(decision).toMatchObject({ allowed: true, source: 'error', degraded: true });
    expect(decision.headers()).toEqual({});
  });

  it('denies with a time to come back', async () => {
    const { server, limiter } = over({ onError: 'deny' });
    server.fail();
    const decision = await limiter.check(api, '42');
    expect(decision).toMatchObject({ allowed: false, source: 'error', retryAfterMs: 1000 });
  });

  it('of the rule goes before that of the limiter', async () => {
    const { server, limiter } = over({ onError: 'deny' });
    server.fail();
    const open = gcra('open', 6, 10, '60s', { onError: 'allow' });
    expect((await limiter.check(open, '42')).allowed).toBe(true);
  });

  it('local enforces the share of this process', async () => {
    const { server, limiter } = over({ onError: 'local' });
    const rule = tokenBucket('local', 100, 100, '60s', { localShare: 0.1 });
    server.fail();
    const decisions = await times(12, () => limiter.check(rule, '42'));
    expect(decisions.filter(({ allowed }) => allowed)).toHaveLength(10);
    expect(decisions[11]).toMatchObject({ source: 'local', retryAfterMs: 6000, degraded: true });
    await server.advance(5999);
    expect((await limiter.check(rule, '42')).allowed).toBe(false);
    await server.advance(1);
    expect((await limiter.check(rule, '42')).allowed).toBe(true);
  });

  it('local below one unit takes longer, and does not pass more', async () => {
    const { server, limiter } = over({ onError: 'local' });
    const rule = slidingLog('sms', 2, '1m', { localShare: 0.1 });
    server.fail();
    expect((await limiter.check(rule, '42')).allowed).toBe(true);
    await server.advance(299_000);
    expect((await limiter.check(rule, '42')).allowed).toBe(false);
    await server.advance(6_000);
    expect((await limiter.check(rule, '42')).allowed).toBe(true);
  });

  it('local takes nothing for a peek', async () => {
    const { server, limiter } = over({ onError: 'local' });
    server.fail();
    await times(10, () => limiter.peek(api, '42'));
    expect((await limiter.check(api, '42')).remaining).toBe(5);
  });

  it('local is refused where this process cannot decide', async () => {
    const { limiter } = over({ onError: 'local' });
    for (const rule of [lease('jobs', 3, '60s'), quota('exports', 10, 'day'), policy('search')]) {
      const asked = rule.kind === 'lease' ? limiter.lease(rule, '42') : limiter.check(rule, '42');
      await expect(asked).rejects.toBeInstanceOf(ArgumentError);
    }
    await expect(limiter.check(policy('search', { default: api }), '42')).resolves.toBeDefined();
  });

  it('of several rules is that of the strictest', async () => {
    const { server, limiter } = over();
    server.fail();
    const closed = gcra('closed', 6, 10, '60s', { onError: 'deny' });
    const local = gcra('local', 1, 1, '60s', { onError: 'local' });
    const ask = (...rules: (typeof api)[]) => limiter.checkAll(rules.map((rule) => [rule, '42']));
    expect((await ask(api, local, closed)).allowed).toBe(false);
    expect(await ask(api, local)).toMatchObject({ allowed: true, source: 'local' });
    expect(await ask(api, local)).toMatchObject({ allowed: false, retryAfterMs: 60_000 });
  });

  it('never answers a mistake of the program, which is thrown and counted apart', async () => {
    const { server, limiter } = over();
    for (const text of [
      'WRONGTYPE of another kind',
      "ERR unknown command 'RL.GCRA'",
      'NOPERM no',
    ]) {
      server.fail(new Error(text));
      await expect(limiter.check(api, '42')).rejects.toBeInstanceOf(MistakeError);
    }
    expect(limiter.counters).toEqual({ allowed: 0, denied: 0, errors: 0, mistakes: 3, local: 0 });
    server.fail(new TypeError('a driver was given what it cannot send'));
    await expect(limiter.check(api, '42')).rejects.toBeInstanceOf(MistakeError);
  });

  it('is not for what settles: that throws, once', async () => {
    const { server, limiter } = over();
    server.fail();
    await expect(limiter.refund(api, '42')).rejects.toBeInstanceOf(UnavailableError);
    await expect(limiter.charge(api, '42')).rejects.toBeInstanceOf(UnavailableError);
    await expect(limiter.forget(api, '42')).rejects.toBeInstanceOf(UnavailableError);
    expect(server.calls).toHaveLength(3);
  });
});

describe('maxInFlight', () => {
  it('answers one call more as by an error, without asking', async () => {
    const { server, limiter } = over({ maxInFlight: 2, onError: 'deny' });
    server.hang();
    const waiting = [limiter.check(api, '1'), limiter.check(api, '2')];
    const decision = await limiter.check(api, '3');
    expect(decision.error).toMatchObject({ reason: 'overloaded' });
    expect(server.calls).toHaveLength(2);
    server.answer();
    await Promise.all(waiting);
    expect((await limiter.check(api, '3')).source).toBe('server');
  });

  it('is 256', async () => {
    const { server, limiter } = over();
    server.hang();
    const calls = Array.from({ length: 257 }, (_, at) => limiter.check(api, String(at)));
    expect((await (calls[256] as Promise<Decision>)).error).toMatchObject({ reason: 'overloaded' });
    expect(server.calls).toHaveLength(256);
    server.answer();
    await Promise.all(calls);
  });
});

describe('the circuit breaker', () => {
  it('asks nobody for a second after five failures, then one call tries', async () => {
    const { server, limiter } = over({ onError: 'deny' });
    server.fail();
    await times(8, () => limiter.check(api, '42'));
    expect(server.calls).toHaveLength(5);
    const refused = await limiter.check(api, '42');
    expect(refused).toMatchObject({ retryAfterMs: 1000, error: { reason: 'circuit' } });
    await server.advance(999);
    await limiter.check(api, '42');
    expect(server.calls).toHaveLength(5);
    await server.advance(1);
    await times(3, () => limiter.check(api, '42'));
    expect(server.calls).toHaveLength(6);
    await server.advance(1000);
    server.answer();
    const answers = await Promise.all([limiter.check(api, '42'), limiter.check(api, '42')]);
    expect(answers.map(({ source }) => source)).toEqual(['server', 'error']);
    expect((await limiter.check(api, '42')).source).toBe('server');
  });

  it('does not count mistakes, and lets a probe that was given up be tried again', async () => {
    const { server, limiter } = over({ breakerFailures: 1 });
    server.fail(new Error('WRONGTYPE no'));
    await times(3, () => limiter.check(api, '42').catch(() => {}));
    expect(server.calls).toHaveLength(3);
    server.fail();
    await limiter.check(api, '42');
    await server.advance(1000);
    server.answer();
    server.hang();
    const gone = new AbortController();
    const probe = limiter.check(api, '42', { signal: gone.signal });
    gone.abort();
    await expect(probe).rejects.toThrow();
    server.answer();
    expect((await limiter.check(api, '42')).source).toBe('server');
  });
});

describe('denialCache', () => {
  it('keeps a flood from the server until the retry, and not a ms longer', async () => {
    const { server, limiter } = over({ denialCache: 100 });
    await limiter.check(api, '42', { cost: 6 });
    await limiter.check(api, '42');
    await server.advance(2000);
    const cached = await limiter.check(api, '42');
    expect(cached).toMatchObject({ allowed: false, source: 'local', retryAfterMs: 4000 });
    expect(cached.resetAfterMs).toBe(34_000);
    expect(cached.degraded).toBe(false);
    expect(server.calls).toHaveLength(2);
    await server.advance(4000);
    expect(await limiter.check(api, '42')).toMatchObject({ allowed: true, source: 'server' });
    expect(limiter.counters.local).toBe(1);
  });

  it('is off by default', async () => {
    const { server, limiter } = over();
    await times(9, () => limiter.check(api, '42'));
    expect(server.calls).toHaveLength(9);
  });

  it('is of a rule, a subject and a cost; a refund and forget end it', async () => {
    const { server, limiter } = over({ denialCache: 100 });
    await limiter.check(api, '42', { cost: 5 });
    await limiter.check(api, '42', { cost: 2 });
    expect(await limiter.check(api, '42')).toMatchObject({ allowed: true, source: 'server' });
    await limiter.refund(api, '42', { cost: 2 });
    expect((await limiter.check(api, '42', { cost: 2 })).allowed).toBe(true);
    await limiter.check(api, '42');
    await limiter.forget(api, '42');
    expect((await limiter.check(api, '42')).allowed).toBe(true);
    expect(server.calls).toHaveLength(8);
  });

  it('never keeps what never passes, nor leases, and is bounded', async () => {
    const { server, limiter } = over({ denialCache: 2 });
    await times(2, () => limiter.check(api, '42', { cost: 7 }));
    const one = lease('one', 1, '60s');
    const held = await limiter.lease(one, 'x');
    await times(2, () => limiter.lease(one, 'x'));
    expect(server.calls).toHaveLength(5);
    await held.release();
    const before = server.calls.length;
    for (const subject of ['a', 'b', 'c']) {
      await limiter.check(api, subject, { cost: 6 });
      await limiter.check(api, subject);
    }
    await limiter.check(api, 'a');
    expect(server.calls).toHaveLength(before + 7);
  });
});

describe('prefetch', () => {
  const hot = gcra('hot', 100, 100, '60s', { prefetch: 10 });

  it('takes ten in one call, and spends them here', async () => {
    const { server, limiter } = over();
    const decisions = await times(10, () => limiter.check(hot, '42'));
    expect(server.calls).toEqual([
      ['RL.GCRA', 'rl:hot:42', '100', '100', '60', 'COST', '10', 'PARTIAL'],
    ]);
    expect(decisions.map(({ remaining }) => remaining)).toEqual([
      99, 98, 97, 96, 95, 94, 93, 92, 91, 90,
    ]);
    expect(decisions.slice(0, 2).map(({ source }) => source)).toEqual(['server', 'local']);
  });

  it('never lets more through than the limit, also to those who ask at once', async () => {
    const { server, limiter } = over();
    const calls = Array.from({ length: 150 }, () => limiter.check(hot, '42'));
    const decisions = await Promise.all(calls);
    expect(decisions.filter(({ allowed }) => allowed)).toHaveLength(100);
    expect(server.calls.length).toBeLessThanOrEqual(12);
  });

  it('drops what is not spent when the reset of the grant has passed', async () => {
    const { server, limiter } = over();
    await limiter.check(hot, '42');
    await server.advance(6000);
    await limiter.check(hot, '42');
    expect(server.calls).toHaveLength(2);
  });

  it('gives back on close what was not spent', async () => {
    const { server, limiter } = over();
    await times(3, () => limiter.check(hot, '42'));
    await limiter.close();
    expect(server.calls[1]).toEqual([
      'RL.REFUND',
      'rl:hot:42',
      'GCRA',
      '100',
      '100',
      '60',
      'COST',
      '7',
    ]);
    const { limiter: other } = { limiter: new Limiter(server, { clock: server.clock }) };
    expect((await other.peek(hot, '42', { cost: 0 })).remaining).toBe(97);
  });

  it('is refused for what cannot be kept here', () => {
    expect(() => lease('x', 1, '1s', { prefetch: 2 })).toThrow(ArgumentError);
    expect(() => leakyBucket('x', 1, 1, '1s', { prefetch: 2 })).toThrow(ArgumentError);
  });

  it('answers all who wait when the server does not', async () => {
    const { server, limiter } = over();
    server.hang();
    const calls = Promise.all(Array.from({ length: 20 }, () => limiter.check(hot, '42')));
    const decisions = await after(server, 100, calls);
    expect(decisions.every(({ source }) => source === 'error')).toBe(true);
    expect(server.calls).toHaveLength(1);
  });
});

describe('checkEach', () => {
  const ceiling = fixed('ceiling', 100, '1m');
  const tenant = fixed('tenant', 1, '1m');

  it('gives back what was taken when a later rule denies', async () => {
    const { limiter } = over();
    const ask = () =>
      limiter.checkEach([
        [ceiling, 'all', 2],
        [tenant, '7'],
      ]);
    expect((await ask()).allowed).toBe(true);
    expect(await ask()).toMatchObject({ allowed: false, rule: 'tenant' });
    expect((await limiter.peek(ceiling, 'all', { cost: 0 })).remaining).toBe(98);
  });

  it('gives it back before a mistake is thrown', async () => {
    const { server, limiter } = over();
    const unknown = policy('unknown');
    const asked = limiter.checkEach([
      [ceiling, 'all'],
      [unknown, '7'],
    ]);
    await expect(asked).rejects.toBeInstanceOf(MistakeError);
    expect(server.calls.at(-1)?.[0]).toBe('RL.REFUND');
  });
});

describe('wait', () => {
  it('sleeps as long as it is told, then takes', async () => {
    const { server, limiter } = over();
    await limiter.check(api, '42', { cost: 6 });
    const waiting = limiter.wait(api, '42', { maxWaitMs: 10_000 });
    expect((await after(server, 6000, waiting)).allowed).toBe(true);
    expect(server.calls).toHaveLength(3);
  });

  it('answers the denial at once when it would take too long', async () => {
    const { limiter } = over();
    await limiter.check(api, '42', { cost: 6 });
    expect((await limiter.wait(api, '42', { maxWaitMs: 5999 })).retryAfterMs).toBe(6000);
  });

  it('leaves the queue of a leaky bucket whose turn would be too late', async () => {
    const { server, limiter } = over();
    const queue = leakyBucket('queue', 4, 2, '1s');
    await limiter.check(queue, '42', { cost: 2 });
    const denied = await limiter.wait(queue, '42', { maxWaitMs: 999 });
    expect(denied).toMatchObject({ allowed: false, retryAfterMs: 1000 });
    expect((await limiter.peek(queue, '42', { cost: 0 })).remaining).toBe(2);
    const turn = limiter.wait(queue, '42', { maxWaitMs: 1000 });
    expect((await after(server, 1000, turn)).allowed).toBe(true);
  });

  it('ends when it is aborted', async () => {
    const { server, limiter } = over();
    await limiter.check(api, '42', { cost: 6 });
    const gone = new AbortController();
    const waiting = limiter.wait(api, '42', { maxWaitMs: 10_000, signal: gone.signal });
    waiting.catch(() => {});
    await server.advance(10);
    gone.abort(new Error('gone'));
    await expect(waiting).rejects.toThrow('gone');
    expect(server.clock.pending).toBe(0);
  });
});

describe('a lease', () => {
  const jobs = lease('jobs', 1, '60s');

  it('renews itself until it is released', async () => {
    const { server, limiter } = over();
    const held = await limiter.lease(jobs, '7', { id: 'job-1' });
    await server.advance(200_000);
    expect(held.held).toBe(true);
    expect((await limiter.lease(jobs, '7')).allowed).toBe(false);
    await held.release();
    await held.release();
    expect(held.held).toBe(false);
    expect((await limiter.lease(jobs, '7')).allowed).toBe(true);
    expect(server.calls.filter(([command]) => command === 'RL.RELEASE')).toHaveLength(1);
  });

  it('says that it is lost when another may hold it', async () => {
    const { server, limiter } = over();
    const held = await limiter.lease(jobs, '7', { id: 'job-1' });
    await limiter.forget(jobs, '7');
    await server.advance(20_000);
    expect(held.signal.aborted).toBe(true);
    expect(held.held).toBe(false);
  });

  it('is lost a ttl after the last renewal that was answered', async () => {
    const { server, limiter } = over();
    const held = await limiter.lease(jobs, '7', { id: 'job-1' });
    server.fail();
    await server.advance(59_999);
    expect(held.held).toBe(true);
    await server.advance(1);
    expect(held.held).toBe(false);
    expect(held.signal.aborted).toBe(true);
  });

  it('whose answer was lost is given back', async () => {
    const { server, limiter } = over();
    server.hang();
    const decided = await after(server, 100, limiter.lease(jobs, '7', { id: 'job-1' }));
    expect(decided.decision).toMatchObject({ source: 'error', allowed: true });
    expect(server.calls.map(([command]) => command)).toEqual(['RL.LEASE', 'RL.RELEASE']);
  });

  it('is not checked', async () => {
    const { limiter } = over();
    await expect(limiter.check(jobs, '7')).rejects.toMatchObject({ argument: 'id' });
    await expect(limiter.lease(api, '7')).rejects.toMatchObject({ argument: 'rule' });
  });
});

describe('onDecision', () => {
  it('gets the decision, the rule and a hash, never the subject', async () => {
    const seen: unknown[][] = [];
    const { limiter } = over({ onDecision: (...all) => seen.push(all) });
    await limiter.check(api, 'someone@example.com');
    const [decision, rule, hash, latencyMs] = seen[0] as unknown[];
    expect(decision).toMatchObject({ allowed: true });
    expect(rule).toBe(api);
    expect(hash).toMatch(/^[0-9a-f]{16}$/);
    expect(latencyMs).toBe(0);
  });

  it('that throws changes no decision', async () => {
    const { limiter } = over({
      onDecision: () => {
        throw new Error('of the hook');
      },
    });
    expect((await limiter.check(api, '42')).allowed).toBe(true);
  });
});

describe('a signal', () => {
  it('gives a call up with its own reason', async () => {
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
    ['timeoutMs', 0],
    ['maxInFlight', 0],
    ['denialCache', -1],
    ['breakerFailures', 0],
    ['breakerPauseMs', 0],
    ['onError', 'open'],
    ['prefix', '{x}'],
    ['hmacSecret', 'short'],
    ['hashTag', 'x'],
  ])('%s of %s is refused', (name, value) => {
    expect(() => over({ [name]: value } as LimiterOptions)).toThrow(
      expect.objectContaining({ argument: name }),
    );
  });

  it('that are undefined are not given', async () => {
    const { limiter } = over({ timeoutMs: undefined, prefix: undefined, onError: undefined });
    expect((await limiter.check(api, '42')).allowed).toBe(true);
  });

  it('a client that is none is refused', () => {
    const version4 = { isOpen: true, sendCommand: () => {}, disconnect: () => {} };
    const callbacks = { sendCommand: () => {}, destroy: () => {} };
    for (const client of [{}, undefined, version4, callbacks]) {
      expect(() => new Limiter(client as never)).toThrow(ArgumentError);
    }
  });
});

describe('ready', () => {
  it('tells a server that is away from one without the module', async () => {
    const { server, limiter } = over();
    await limiter.ready();
    server.fail(new Error("ERR unknown command 'RL.PEEK'"));
    await expect(limiter.ready()).rejects.toBeInstanceOf(MistakeError);
    server.fail();
    await expect(limiter.ready()).rejects.toBeInstanceOf(UnavailableError);
  });
});
