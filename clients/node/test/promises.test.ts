/** Tests edge cases of the limiter. The server and its clock are fakes. */
import { describe, expect, it } from 'vitest';
import {
  CommandRejectedError,
  fixed,
  gcra,
  Limiter,
  type LimiterOptions,
  leakyBucket,
  lease,
  tokenBucket,
} from '../src/index.js';
import { FakeServer } from '../src/testing.js';
import type { Call } from '../src/wire/words.js';
import { after, api, GRANTED, over, times } from './fakes.js';

const one = fixed('one', 1, '1h');
const verbs = ({ calls }: FakeServer) => calls.map(([command]) => command);

/** A server that decides, and replies 50 ms later. */
class SlowServer extends FakeServer {
  override async send(call: Call): Promise<unknown> {
    const reply = await super.send(call);
    await this.advance(50);
    return reply;
  }
}

function slow(options: LimiterOptions) {
  const server = new SlowServer();
  return { server, limiter: new Limiter(server, { clock: server.clock, ...options }) };
}

describe('a call that has ended', () => {
  it('is no longer in flight, regardless of its outcome', async () => {
    const { server, limiter } = over({ maxInFlight: 1 });
    const sources = (await times(3, () => limiter.check(api, '42'))).map(({ source }) => source);
    expect(sources).toEqual(['server', 'server', 'server']);
    server.fail(new Error('WRONGTYPE no'));
    for (let call = 0; call < 3; call += 1) {
      await expect(limiter.check(api, '42')).rejects.toBeInstanceOf(CommandRejectedError);
    }
    server.answer();
    expect((await limiter.check(api, '42')).source).toBe('server');
  });
});

describe('wait', () => {
  it('does not sleep longer than maxWaitMs in all', async () => {
    const { server, limiter } = over();
    const other = new Limiter(server, { clock: server.clock });
    const turns = gcra('turns', 1, 10, '60s');
    await limiter.check(turns, '42');
    const began = server.clock.nowMs();
    // Another caller takes the next unit first, each time.
    server.clock.after(6000, () => void other.check(turns, '42'));
    server.clock.after(12_000, () => void other.check(turns, '42'));
    const waiting = limiter.wait(turns, '42', { maxWaitMs: 17_999 }).then((decision) => {
      return { decision, tookMs: server.clock.nowMs() - began };
    });
    const { decision, tookMs } = await after(server, 60_000, waiting);
    expect([decision.allowed, tookMs]).toEqual([false, 12_000]);
  });
});

describe('a cached denial', () => {
  it('is timed from the instant before its call', async () => {
    const { server, limiter } = slow({ denialCache: 9, denialCacheMaxMs: 3_600_000 });
    await limiter.check(one, '42');
    const denied = await limiter.check(one, '42');
    // The server decided 50 ms before.
    await server.advance(denied.retryAfterMs - 51);
    expect((await limiter.check(one, '42')).source).toBe('local');
    await server.advance(1);
    expect((await limiter.check(one, '42')).source).toBe('server');
  });
});

describe('prefetched permits', () => {
  const hot = gcra('hot', 6, 10, '60s', { prefetch: 4 });

  it('are not refunded after they have expired', async () => {
    const { server, limiter } = over();
    await limiter.check(hot, '42');
    await server.advance(24_000);
    await limiter.close();
    expect(verbs(server)).toEqual(['RL.GCRA']);
  });

  it('are all refunded on close, even if their keys are more than maxInFlight', async () => {
    const { server, limiter } = over({ maxInFlight: 2 });
    for (const subject of 'abcde') await limiter.check(hot, subject);
    await limiter.close();
    const refunds = server.calls.filter(([command]) => command === 'RL.REFUND');
    expect(refunds.map((args) => args.at(-1))).toEqual(['3', '3', '3', '3', '3']);
    for (const subject of 'abcde') {
      const status = await new Limiter(server, { clock: server.clock }).peek(hot, subject);
      expect(status.remaining).toBe(4);
    }
  });
});

describe('without a reply', () => {
  it('a local limiter with a fractional rate loses no units', async () => {
    const { server, limiter } = over({ onError: 'local' });
    server.fail();
    for (const make of [gcra, tokenBucket, leakyBucket]) {
      const odd = make('odd', 5, 7, '1s');
      const check = async () => (await limiter.check(odd, '42')).allowed;
      expect(await times(6, check)).toEqual([true, true, true, true, true, false]);
      await server.advance(143);
      expect(await times(2, check)).toEqual([true, false]);
    }
  });
});

describe('ready', () => {
  it('sends a call that takes nothing', async () => {
    const { server, limiter } = over();
    await limiter.ready();
    expect(server.calls).toEqual([
      ['RL.PEEK', 'rl:ready:ready', 'GCRA', '1', '1', '1', 'COST', '0'],
    ]);
  });
});

describe('a CommandRejectedError', () => {
  it('is also counted for calls that return no decision', async () => {
    const { server, limiter } = over();
    server.fail(new Error('NOPERM no'));
    for (const call of [limiter.refund, limiter.charge]) {
      await expect(call.call(limiter, api, '42')).rejects.toBeInstanceOf(CommandRejectedError);
    }
    await expect(limiter.ready()).rejects.toBeInstanceOf(CommandRejectedError);
    expect(limiter.counters.rejected).toBe(3);
  });
});

describe('a lease', () => {
  it('sends nothing once it is released', async () => {
    const { server, limiter } = over();
    server.script(GRANTED, 1);
    const held = await limiter.lease(lease('jobs', 1, '60s'), '42');
    await held.release();
    await held.release();
    await server.advance(120_000);
    expect(verbs(server)).toEqual(['RL.LEASE', 'RL.RELEASE']);
    expect(server.clock.pending).toBe(0);
  });
});

describe('onDecision', () => {
  it('gets the latency', async () => {
    const latencies: number[] = [];
    const { limiter } = slow({ onDecision: ({ latencyMs }) => latencies.push(latencyMs) });
    await limiter.check(api, 'alice');
    expect(latencies).toEqual([50]);
  });
});

describe('a tag', () => {
  it('is in every key of its call', async () => {
    const { server, limiter } = over();
    const hot = gcra('hot', 6, 10, '60s', { prefetch: 2 });
    const tag = 't';
    for (const rule of [hot, api]) await limiter.check(rule, '42', { tag });
    await limiter.peek(api, '42', { tag });
    await limiter.refund(api, '42', { tag });
    await limiter.charge(api, '42', { tag });
    await limiter.checkAll([api.of('42'), one.of('42')], { tag });
    await limiter.wait(api, '42', { tag, maxWaitMs: 0 });
    server.script(GRANTED, 1);
    await (await limiter.lease(lease('jobs', 1, '60s'), '42', { tag })).release();
    await limiter.forget(api, '42', { tag });
    await expect(limiter.check(api, '42', { tag: '' })).rejects.toThrow(/tag: expected/);
    await limiter.close();
    expect(server.calls).toHaveLength(11);
    expect(server.calls.every(([, key]) => key?.startsWith('rl:{t}:'))).toBe(true);
    expect(server.calls[5]?.[3]).toBe('rl:{t}:one:42');
  });
});

describe('with 10,001 subjects', () => {
  const [first, last] = ['0', '10000'];
  const subjects = Array.from({ length: 10_001 }, (_, at) => String(at));

  it('the permits of the first are dropped', async () => {
    const { limiter } = over();
    const hot = gcra('hot', 6, 10, '60s', { prefetch: 3 });
    for (const subject of subjects) await limiter.check(hot, subject);
    expect((await limiter.check(hot, last)).source).toBe('local');
    expect((await limiter.check(hot, first)).source).toBe('server');
  });

  it('the local state of the first is dropped', async () => {
    const { server, limiter } = over();
    server.fail();
    const local = fixed('local', 1, '1h', { onError: 'local' });
    for (const subject of subjects) await limiter.check(local, subject);
    expect((await limiter.check(local, last)).allowed).toBe(false);
    expect((await limiter.check(local, first)).allowed).toBe(true);
  });
});
