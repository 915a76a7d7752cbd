/** Tests slow servers and unusual connections. */
import { stat } from 'node:fs';
import { expect, it, vi } from 'vitest';
import { fixed, gcra, Limiter, type LimiterOptions } from '../src/index.js';
import { FakeClock, FakeServer } from '../src/testing.js';
import type { Call } from '../src/wire/words.js';
import { after, api, over, times } from './over.js';

/** A server that decides at once, and answers `ms` later. */
class Far extends FakeServer {
  constructor(private readonly ms: number) {
    super();
  }

  override async send(call: Call): Promise<unknown> {
    const reply = await super.send(call);
    await new Promise<void>((resolve) => void this.clock.after(this.ms, resolve));
    return reply;
  }
}

function far(ms: number, options: LimiterOptions = {}): { server: Far; limiter: Limiter } {
  const server = new Far(ms);
  const made = { clock: server.clock, logErrors: false, ...options };
  return { server, limiter: new Limiter(server, made) };
}

it('the limiter treats a connection that throws as one that rejects', async () => {
  const { server } = over();
  let down = true;
  const send = (call: Call) => {
    if (down) throw new Error('closed');
    return server.send(call);
  };
  const limiter = new Limiter({ send }, { clock: server.clock, maxInFlight: 1 });
  expect((await limiter.check(api, '42')).source).toBe('error');
  down = false;
  expect((await limiter.check(api, '42')).source).toBe('server');
});

it('the limiter accepts a connection that returns plain thenables', async () => {
  const { server } = over();
  const send = (call: Call) => {
    const reply = server.send(call);
    // biome-ignore lint/suspicious/noThenProperty: the test needs a thenable
    return { then: reply.then.bind(reply) } as Promise<unknown>;
  };
  const limiter = new Limiter({ send }, { clock: server.clock, maxInFlight: 1 });
  const found = await times(2, () => limiter.check(api, '42'));
  expect(found.map(({ source }) => source)).toEqual(['server', 'server']);
});

it('the breaker sends one probe while the circuit is open, even if older calls end', async () => {
  const clock = new FakeClock();
  const sent: { resolve(reply: unknown): void; reject(error: Error): void }[] = [];
  const send = () => new Promise((resolve, reject) => void sent.push({ resolve, reject }));
  const options = { timeoutMs: 5000, breakerFailures: 1, breakerPauseMs: 10 };
  const limiter = new Limiter({ send }, { clock, logErrors: false, ...options });
  const gone = new AbortController();
  const old = limiter.check(api, 'old', { signal: gone.signal });
  const failing = limiter.check(api, '42');
  sent[1]?.reject(new Error('LOADING the dataset'));
  expect((await failing).reason).toBe('server');
  await clock.advance(10);
  const probe = limiter.check(api, 'probe');
  gone.abort(new Error('gone'));
  await expect(old).rejects.toThrow('gone');
  expect((await limiter.check(api, 'second')).reason).toBe('circuit');
  sent[2]?.resolve([1, 6, 5, 0, 6000]);
  expect((await probe).source).toBe('server');
  expect(sent).toHaveLength(3);
});

it('the limiter does not count a busy program as an outage of the server', async () => {
  const send = () =>
    new Promise((resolve) => {
      stat('.', () => resolve([1, 6, 5, 0, 6000]));
    });
  const limiter = new Limiter({ send }, { timeoutMs: 200 });
  // From here on, the event loop runs its timers before it reads what has arrived.
  await new Promise((resolve) => void setImmediate(resolve));
  const asked = limiter.check(api, '42');
  const endsAtMs = performance.now() + 600;
  while (performance.now() < endsAtMs);
  expect((await asked).source).toBe('server');
});

it('the limiter follows the fake timers of a test', async () => {
  vi.useFakeTimers();
  try {
    const server = new FakeServer();
    server.fail();
    const limiter = new Limiter(server, { breakerFailures: 1 });
    await limiter.check(api, '42');
    server.answer();
    await vi.advanceTimersByTimeAsync(1500);
    expect((await limiter.check(api, '42')).source).toBe('server');
  } finally {
    vi.useRealTimers();
  }
});

it('each fetch of permits has the full timeout, even if its callers have waited', async () => {
  const { server, limiter } = far(60, { timeoutMs: 100 });
  const hot = fixed('hot', 3, '1h', { prefetch: 10 });
  const ten = Promise.all(Array.from({ length: 10 }, () => limiter.check(hot, '42')));
  await server.advance(30);
  const other = new Limiter(server, { clock: server.clock });
  void other.refund(hot, '42', { cost: 3 });
  // Those without a permit ask again after 60 ms, and have 40 ms left.
  const found = await after(server, 70, ten);
  expect(found.filter(({ allowed }) => allowed)).toHaveLength(3);
  expect(found.some(({ degraded }) => degraded)).toBe(false);
  // The answer to the second fetch comes after them, and its permits are kept.
  await server.advance(20);
  const sent = server.calls.length;
  const next = await times(3, () => limiter.check(hot, '42'));
  expect(next.map(({ source }) => source)).toEqual(['local', 'local', 'local']);
  expect(server.calls).toHaveLength(sent);
});

it('each call of a burst waits for one fetch only, even over a slow link', async () => {
  const { server, limiter } = far(60);
  const hot = fixed('hot', 100, '1h', { prefetch: 10 });
  const burst = Array.from({ length: 200 }, () => limiter.check(hot, '42'));
  const found = await after(server, 60, Promise.all(burst));
  const allowed = found.filter((decision) => decision.allowed);
  expect(allowed.map(({ remaining }) => remaining)).toEqual(
    Array.from({ length: 100 }, (_, at) => 99 - at),
  );
  expect(found.some(({ degraded }) => degraded)).toBe(false);
  expect(server.calls).toHaveLength(20);
});

it('a waiter whose permit does not arrive is denied until the next unit is free', async () => {
  const { server, limiter } = far(60);
  const rate = gcra('rate', 3, 1, '10s', { prefetch: 10 });
  const ten = Array.from({ length: 10 }, () => limiter.check(rate, '42'));
  // Those without a permit ask again, once.
  const found = await after(server, 120, Promise.all(ten));
  const denied = found.filter(({ allowed }) => !allowed);
  expect(denied).toHaveLength(7);
  for (const one of denied) expect(one).toMatchObject({ degraded: false, remaining: 0 });
  expect(server.calls).toHaveLength(2);
});

it('two rules with the same name have separate fetches', async () => {
  const { server, limiter } = far(10);
  const plan = (limit: number) => fixed('plan', limit, '1h', { prefetch: 2 });
  const [large, small] = [plan(1000), plan(5)];
  const load = () => void limiter.check(large, '42');
  await times(2, async () => load());
  const asked = limiter.check(small, '42');
  await times(10, async () => {
    await times(3, async () => load());
    await server.advance(5);
  });
  expect(await asked).toMatchObject({ limit: 5, allowed: true, degraded: false });
});

it('forget drops the permits of a pending fetch', async () => {
  const { server, limiter } = over({ denialCache: 9 });
  await limiter.check(api, '42', { cost: 6 });
  const hot = fixed('hot', 10, '1h', { prefetch: 10 });
  server.hang();
  const asked = [limiter.check(api, '42'), limiter.check(hot, '42')];
  const forgotten = [limiter.forget(api, '42'), limiter.forget(hot, '42')];
  server.answer();
  await Promise.all([...asked, ...forgotten]);
  expect((await limiter.check(api, '42')).allowed).toBe(true);
  const found = await times(40, () => limiter.check(hot, '42'));
  expect(found.filter(({ allowed }) => allowed)).toHaveLength(10);
});
