/** Tests unusual connections, and the fake timers of tests. */
import { expect, it, vi } from 'vitest';
import { Limiter } from '../src/index.js';
import { FakeClock, FakeServer } from '../src/testing.js';
import type { Call } from '../src/wire/words.js';
import { api, over, times } from './fakes.js';

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
