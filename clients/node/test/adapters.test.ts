/** Tests connections of an application's own whose methods throw, or never end. */
import { describe, expect, it } from 'vitest';
import { type Call, type Connection, Limiter, type LimiterOptions, lease } from '../src/index.js';
import { mayHaveRun } from '../src/rules/errors.js';
import { FakeServer } from '../src/testing.js';
import { after, api, GRANTED } from './fakes.js';

const broken = (): never => {
  throw new Error('broken');
};

/** A connection that dials a fake server. */
class Adapter implements Connection {
  readonly server = new FakeServer();
  dials = 0;
  isOpen = false;

  constructor() {
    this.connect = this.connect.bind(this);
  }

  async connect(): Promise<void> {
    this.dials += 1;
    this.isOpen = true;
  }

  isUp(): boolean {
    return this.isOpen;
  }

  retire(): boolean {
    const wasOpen = this.isOpen;
    this.isOpen = false;
    return wasOpen;
  }

  send(call: Call): Promise<unknown> {
    return this.server.send(call);
  }

  close(): void {}
}

function over(options: LimiterOptions = {}) {
  const adapter = new Adapter();
  const { clock } = adapter.server;
  return { adapter, limiter: new Limiter(adapter, { clock, logErrors: false, ...options }) };
}

describe('a connection whose connect', () => {
  const failures: [string, () => Promise<void>][] = [
    ['throws', broken],
    ['rejects', () => Promise.reject(new Error('broken'))],
    ['ends without a connection', async () => {}],
  ];

  it.each(failures)('%s ends the calls that wait, as one failure', async (_, connect) => {
    const { adapter, limiter } = over({ breakerFailures: 2 });
    const { connect: works } = adapter;
    adapter.connect = connect;
    const calls = [1, 2, 3].map((subject) => limiter.check(api, `${subject}`));
    for (const { reason, error } of await Promise.all(calls)) {
      expect(reason).toBe('connection');
      expect(mayHaveRun(error)).toBe(false);
    }
    expect((await limiter.check(api, '1')).reason).toBe('connection');
    expect((await limiter.check(api, '1')).reason).toBe('circuit');
    adapter.connect = works;
    await adapter.server.advance(1000);
    expect((await limiter.check(api, '1')).source).toBe('server');
    expect(limiter.openBreakers).toBe(0);
    await limiter.close();
    expect(adapter.server.clock.pending).toBe(0);
  });

  it('throws for a call in line ends it', async () => {
    const { adapter, limiter } = over({ maxInFlight: 1 });
    await limiter.check(api, '1');
    adapter.send = () => {
      adapter.isOpen = false;
      return Promise.reject(new Error('the connection was lost'));
    };
    const { connect: works } = adapter;
    adapter.connect = broken;
    const calls = [limiter.check(api, '1'), limiter.check(api, '1')];
    expect((await Promise.all(calls)).map(({ reason }) => reason)).toEqual([
      'connection',
      'connection',
    ]);
    Object.assign(adapter, { connect: works, send: (call: Call) => adapter.server.send(call) });
    expect((await limiter.check(api, '1')).source).toBe('server');
  });

  it('never ends is given up after a second', async () => {
    const { adapter, limiter } = over({ timeoutMs: 300 });
    const { connect: works } = adapter;
    adapter.connect = () => new Promise(() => {});
    const { clock } = adapter.server;
    const beganMs = clock.nowMs();
    const call = limiter.check(api, '1').then(({ reason }) => [reason, clock.nowMs() - beganMs]);
    expect(await after(adapter.server, 5000, call)).toEqual(['connection', 1300]);
    adapter.connect = works;
    expect((await limiter.check(api, '1')).source).toBe('server');
  });

  it('has no isUp is an invalid argument', () => {
    const client = { connect: async () => {}, send: async () => {} };
    expect(() => new Limiter(client)).toThrow(/^invalid client: expected a Connection with `isUp`/);
  });
});

it('a connection whose retire throws keeps no place after a silence', async () => {
  const { adapter, limiter } = over({ maxInFlight: 1, breakerFailures: 2 });
  await limiter.check(api, '1');
  adapter.retire = broken;
  adapter.server.hang();
  for (let failure = 0; failure < 2; failure += 1) {
    const call = limiter.check(api, '2');
    expect((await after(adapter.server, 100, call)).reason).toBe('timeout');
  }
  await adapter.server.advance(1000);
  const probe = await after(adapter.server, 100, limiter.check(api, '2'));
  expect(probe.reason).toBe('timeout');
  await adapter.server.advance(1000);
  // The next probe drops the connection of the silent one.
  const next = limiter.check(api, '2');
  adapter.server.answer();
  expect((await next).source).toBe('server');
  expect((await limiter.check(api, '2')).source).toBe('server');
  await limiter.close();
});

it('a connection whose close throws leaves the limiter closed', async () => {
  const { adapter, limiter } = over();
  adapter.server.script(GRANTED, 1);
  const held = await limiter.lease(lease('jobs', 1, '60s'), '1');
  adapter.close = broken;
  await limiter.close();
  expect(held.held).toBe(false);
  expect(adapter.server.clock.pending).toBe(0);
  await expect(limiter.check(api, '1')).rejects.toMatchObject({ code: 'RL_CLOSED' });
});

it.each([0, 50, 500])(
  'a ready cancelled after %s ms keeps no place after a silence',
  async (ms) => {
    const { adapter, limiter } = over({ maxInFlight: 1 });
    await limiter.check(api, '1');
    adapter.server.hang();
    const gone = new AbortController();
    const ready = limiter.ready({ signal: gone.signal });
    ready.catch(() => {});
    await adapter.server.advance(ms);
    gone.abort(new Error('gone'));
    await expect(ready).rejects.toThrow('gone');
    await adapter.server.advance(Math.max(1, 100 - ms));
    expect(adapter.isOpen).toBe(false);
    const next = limiter.check(api, '1');
    adapter.server.answer();
    expect((await next).source).toBe('server');
    await limiter.close();
  },
);
