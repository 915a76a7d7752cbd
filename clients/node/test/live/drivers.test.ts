/** Tests each driver with a real server: decisions, deadlines, lost connections, no repeats. */
import type { EventEmitter } from 'node:events';
import { Cluster, Redis } from 'ioredis';
import { createClient, createCluster } from 'redis';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import {
  type Client,
  CommandRejectedError,
  type Decision,
  fixed,
  gcra,
  Limiter,
  lease,
  policy,
  quota,
} from '../../src/index.js';
import { BACKEND, beyondTimeout, type Server, serve, until } from './server.js';
import { type Opened, pools, type Version, versions } from './versions.js';

const api = gcra('api', 6, 10, '60s');

const drivers: [name: string, driver: string, options?: object][] = [
  ...Object.keys(versions).map((driver): [string, string] => [
    `${driver} with its defaults`,
    driver,
  ]),
  ['node-redis in RESP2', 'node-redis-6', { RESP: 2 }],
  ['node-redis in RESP3', 'node-redis-5', { RESP: 3, disableOfflineQueue: true }],
  [
    'ioredis with all that changes calls and replies',
    'ioredis-6',
    {
      enableAutoPipelining: true,
      stringNumbers: true,
      maxRetriesPerRequest: null,
      reconnectOnError: () => 2,
    },
  ],
];

describe.each(drivers)('%s', (_, driver, options) => {
  const open = (port: number) => (versions[driver] as Version).single([port], options);
  let server: Server;
  let opened: Opened;
  let limiter: Limiter;

  beforeAll(async () => {
    server = await serve();
    await server.clock.freeze();
  });
  afterAll(async () => {
    server.admin.disconnect();
    await server.stop();
  });
  beforeEach(async () => {
    await server.admin.flushall();
    await server.admin.config('RESETSTAT');
    opened = await open(server.port);
    // Use a long timeout where no deadline is tested, because a machine may be slow.
    limiter = new Limiter(opened.client, { timeoutMs: 60_000 });
    expect(await limiter.ready()).toBe(BACKEND);
  });
  afterEach(async () => {
    await limiter.close();
    opened.close();
  });

  it('decides as the server does', async () => {
    for (let call = 0; call < 6; call += 1) {
      expect((await limiter.check(api, 'user:42')).remaining).toBe(5 - call);
    }
    expect(await limiter.check(api, 'user:42')).toMatchObject({
      allowed: false,
      retryAfterMs: 6000,
      resetAfterMs: 36_000,
      source: 'server',
    });
    await server.clock.advance(6000);
    expect((await limiter.check(api, 'user:42')).allowed).toBe(true);
    expect(await server.admin.exists('rl:api:user%3A42')).toBe(1);
    expect((await limiter.refund(api, 'user:42', { cost: 6 })).remaining).toBe(6);
    expect((await limiter.charge(api, 'user:42', { cost: 7 })).allowed).toBe(false);
    expect(await limiter.forget(api, 'user:42')).toBe(true);
    expect(await limiter.forget(api, 'user:42')).toBe(false);
  });

  it('has one listener for all limiters of a client, and none when they are closed', async () => {
    const client = opened.client as unknown as EventEmitter;
    const listeners = () => ['end', 'disconnect'].map((event) => client.listenerCount(event));
    await limiter.close();
    const before = listeners();
    const all = Array.from({ length: 20 }, () => new Limiter(opened.client));
    const added = listeners().map((count, at) => count - (before[at] as number));
    expect(added.reduce((sum, count) => sum + count, 0)).toBe(1);
    for (const one of all) await one.close();
    expect(listeners()).toEqual(before);
  });

  it('checks several rules in one call', async () => {
    const two = [api, fixed('search', 3, '1m')];
    const both = await limiter.checkAll(two.map((rule) => rule.of('42')));
    expect(both).toMatchObject({ allowed: true, rule: 'search', remaining: 2 });
    expect(both.rows.map(({ remaining }) => remaining)).toEqual([5, 2]);
    await limiter.charge(api, '42', { cost: 5 });
    expect((await limiter.checkAll(two.map((rule) => rule.of('42')))).allowed).toBe(false);
    const peeked = await limiter.peekAll(two.map((rule) => rule.of('42').cost(0)));
    expect(peeked.rows.map(({ remaining }) => remaining)).toEqual([0, 2]);
  });

  it('supports policies and quotas with the module, and refuses them without it', async () => {
    const rules = [
      api,
      quota('exports', 10, 'month', { zone: 'Europe/Berlin', start: 31 }),
      policy('search', { default: fixed('search', 3, '1m'), variants: ['plan:gold'] }),
    ];
    if (BACKEND !== 'module') {
      for (const rule of [rules[1] as typeof api, policy('search')]) {
        await expect(limiter.check(rule, '42')).rejects.toThrow(/needs the redis-throttle module/);
      }
      return;
    }
    const decision = await limiter.checkAll(rules.map((rule) => rule.of('42')));
    expect(decision).toMatchObject({ allowed: true, rule: 'search', remaining: 2 });
    expect(decision.rows.map(({ remaining }) => remaining)).toEqual([5, 9, 2]);
    expect(await limiter.check(rules[2] as typeof api, '42')).toMatchObject({ wouldAllow: true });
    const peeked = await limiter.peekAll(rules.map((rule) => rule.of('42')));
    expect(peeked.rows.map(({ remaining }) => remaining)).toEqual([4, 8, 0]);
  });

  it('holds a lease', async () => {
    const jobs = lease('jobs', 1, '60s');
    const held = await limiter.lease(jobs, '7');
    await expect(limiter.lease(jobs, '7')).rejects.toMatchObject({ code: 'RL_DENIED' });
    await held.release();
    const next = await limiter.lease(jobs, '7');
    expect(next.held).toBe(true);
    await next.release();
  });

  it('throws a CommandRejectedError for a rejected command', async () => {
    await server.admin.set('rl:api:42', 'something else');
    await expect(limiter.check(api, '42')).rejects.toMatchObject({ kind: 'WRONGTYPE' });
    await expect(limiter.check(policy('unknown'), '42')).rejects.toBeInstanceOf(
      CommandRejectedError,
    );
  });

  it('decides in time when the server hangs, and counts each call at most once', async () => {
    const quick = new Limiter(opened.client);
    await until('it is connected', () =>
      quick.ready().then(
        () => true,
        () => false,
      ),
    );
    const hung = server.admin.call('DEBUG', 'SLEEP', '2');
    const late: number[] = [];
    const degraded: Decision[] = [];
    let sent = 0;
    for (; late.length < 3; sent += 1) {
      const [decision, lateMs] = await beyondTimeout(() => quick.check(api, `${sent}`));
      if (decision.source === 'server') continue; // This call came before the sleep.
      late.push(lateMs);
      degraded.push(decision);
      expect(decision).toMatchObject({ allowed: true, source: 'error' });
    }
    // Later calls find the connection closed, and the dial gets no reply either.
    expect(degraded.map(({ reason }) => reason)).toEqual(['timeout', 'connection', 'connection']);
    expect(Math.min(...late)).toBeLessThan(50);
    // Without the silence, each would have waited for the rest of the default timeout.
    expect(Math.max(...late)).toBeLessThan(500);
    await hung;
    await until('it gets calls again', async () => {
      return (await limiter.check(api, 'again')).source === 'server';
    });
    await quick.close();
    const left = [];
    for (let subject = 0; subject < sent; subject += 1) {
      left.push((await limiter.peek(api, `${subject}`, { cost: 0 })).remaining);
    }
    // The server may run the call that was sent. It does not get the two others.
    expect(Math.min(...left)).toBeGreaterThanOrEqual(5);
    expect(left.slice(-2)).toEqual([6, 6]);
  });

  it('decides a burst by the server although the event loop is blocked for long', async () => {
    const quick = new Limiter(opened.client);
    await quick.ready();
    const burst = Array.from({ length: 20 }, (_, at) => quick.check(api, `${at}`));
    const end = performance.now() + 1500;
    while (performance.now() < end);
    const sources = (await Promise.all(burst)).map(({ source }) => source);
    expect(new Set(sources)).toEqual(new Set(['server']));
    await quick.close();
  });

  it('does not send, when the server is back, calls made while it was down', async () => {
    await server.stop();
    for (let call = 0; call < 20; call += 1) {
      expect((await limiter.check(api, 'down')).source).toBe('error');
    }
    await server.start();
    await server.clock.freeze();
    await until('it is back', async () => (await limiter.check(api, 'back')).source === 'server');
    expect((await limiter.peek(api, 'down', { cost: 0 })).remaining).toBe(6);
  });

  it('does not repeat a call whose connection breaks before the reply', async () => {
    await limiter.check(api, 'warm');
    // A hung server still runs all calls that reached it, even if their connections are killed.
    const hung = server.admin.call('DEBUG', 'SLEEP', '0.2');
    const lost = Promise.all([1, 2, 3].map(() => limiter.check(api, '42')));
    const killed = server.admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    const decisions = await lost;
    expect(decisions.every(({ source }) => source === 'error')).toBe(true);
    await Promise.all([hung, killed]);
    await until('it gets calls again', async () => {
      return (await limiter.check(api, 'again')).source === 'server';
    });
    const rest = await limiter.peek(api, '42', { cost: 0 });
    expect(rest.remaining).toBeGreaterThanOrEqual(3);
  });

  it('never mixes up replies, even if the connection is lost often', async () => {
    for (let round = 0; round < 5; round += 1) {
      const killed = server.admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
      const end = performance.now() + 40;
      while (performance.now() < end) {
        limiter.check(api, `${round}`).catch((error) => expect(error).toBeUndefined());
        await new Promise((resolve) => setImmediate(resolve));
      }
      await killed;
    }
    await until('it gets calls again', async () => {
      return (await limiter.check(api, 'again')).source === 'server';
    });
  });

  it('fails at once while the server is down, and reconnects by itself', async () => {
    await server.stop();
    await until('it is known to be down', async () => {
      return (await limiter.check(api, '42')).source === 'error';
    });
    const begin = performance.now();
    for (let call = 0; call < 20; call += 1) await limiter.check(api, '42');
    // No call waited until its deadline.
    expect(performance.now() - begin).toBeLessThan(10_000);
    await server.start();
    await server.clock.freeze();
    await until('it is back', async () => (await limiter.check(api, '43')).source === 'server');
    // No call that was made while the server was down was queued and sent now.
    expect((await limiter.peek(api, '42', { cost: 0 })).remaining).toBe(6);
  });
});

describe('a server with a password', () => {
  let server: Server;
  beforeAll(async () => {
    server = await serve();
    await server.admin.config('SET', 'requirepass', 'the right one');
  });
  afterAll(async () => {
    server.admin.disconnect();
    await server.stop();
  });

  const nodeRedis = (password: string | undefined, disableOfflineQueue: boolean) => {
    const socket = { port: server.port, reconnectStrategy: 20 };
    const client = createClient({ socket, disableOfflineQueue, ...(password && { password }) });
    client
      .on('error', () => {})
      .connect()
      .catch(() => {});
    return { client, close: () => client.isOpen && client.destroy() };
  };
  const ioredis = (password: string | undefined) => {
    const retryStrategy = () => 20;
    const client = new Redis({ port: server.port, retryStrategy, ...(password && { password }) });
    client.on('error', () => {});
    return { client, close: () => client.disconnect() };
  };
  const nodeRedisCluster = (password: string | undefined) => {
    const defaults = password === undefined ? {} : { password };
    const client = createCluster({ rootNodes: [{ socket: { port: server.port } }], defaults });
    client
      .on('error', () => {})
      .connect()
      .catch(() => {});
    return { client, close: () => client.isOpen && client.destroy() };
  };
  const ioredisCluster = (password: string | undefined) => {
    const redisOptions = password === undefined ? {} : { password };
    const client = new Cluster([{ port: server.port }], { redisOptions });
    client.on('error', () => {});
    return { client, close: () => client.disconnect() };
  };
  const openings = [
    ['node-redis', (password: string | undefined) => nodeRedis(password, false)],
    [
      'node-redis without an offline queue',
      (password: string | undefined) => nodeRedis(password, true),
    ],
    ['ioredis', ioredis],
    ['a cluster of node-redis', nodeRedisCluster],
    ['a cluster of ioredis', ioredisCluster],
  ] as const;

  it.each(openings)('refuses calls without it, by %s', async (_, open) => {
    for (const [password, message] of [
      // The second text is the server's reply to a script that is too long for an unauthenticated
      // client.
      [undefined, /^NOAUTH|unauthenticated/],
      ['the wrong one', /^WRONGPASS/],
    ] as const) {
      const { client, close } = open(password);
      const limiter = new Limiter(client as unknown as Client, { timeoutMs: 60_000 });
      for (let call = 0; call < 3; call += 1) {
        await expect(limiter.check(api, '42')).rejects.toThrow(message);
      }
      await expect(limiter.ready()).rejects.toBeInstanceOf(CommandRejectedError);
      expect(limiter.counters).toMatchObject({ rejected: 4, degraded: 0 });
      await limiter.close();
      close();
    }
  });
});

describe('ioredis', () => {
  it('adds its keyPrefix to all keys, once', async () => {
    const server = await serve();
    const client = new Redis({ port: server.port, keyPrefix: 'app:' });
    const limiter = new Limiter(client as unknown as Client, { timeoutMs: 60_000 });
    await limiter.check(api, '42');
    await limiter.checkAll([api.of('43'), fixed('day', 10, '1d').of('43')]);
    const keys = await server.admin.keys('*');
    expect(keys.sort()).toEqual(['app:rl:api:42', 'app:rl:api:43', 'app:rl:day:43']);
    expect(await limiter.forget(api, '42')).toBe(true);
    await limiter.close();
    client.disconnect();
    server.admin.disconnect();
    await server.stop();
  });
});

/** The part of a pool that lends a client while `use` runs. */
interface Pool {
  execute<T>(use: (member: EventEmitter) => Promise<T>): Promise<T>;
}

it.each(Object.entries(pools))(
  '%s may end idle clients while calls are in flight',
  async (_, open) => {
    const server = await serve();
    const opened = await open([server.port], { minimum: 1, cleanupDelay: 20 });
    const pool = opened.client as unknown as Pool;
    const limiter = new Limiter(opened.client, { timeoutMs: 60_000 });
    await limiter.ready();
    const members: EventEmitter[] = [];
    const lent: (() => void)[] = [];
    const lend = (member: EventEmitter) => {
      members.push(member);
      return new Promise<void>((resolve) => void lent.push(resolve));
    };
    const uses = [pool.execute(lend), pool.execute(lend)];
    await until('the pool has a second client', () => members.length === 2);
    let ended = false;
    // The first client is the one that the limiter has seen.
    members[0]?.once('end', () => {
      ended = true;
    });
    const hung = server.admin.call('DEBUG', 'SLEEP', '1');
    const call = limiter.check(api, '42');
    for (const giveBack of lent) giveBack();
    await Promise.all(uses);
    await until('the first client has ended', () => ended);
    expect(await call).toMatchObject({ allowed: true, source: 'server' });
    await hung;
    opened.close();
    const last = await limiter.check(api, '42');
    expect(last).toMatchObject({ source: 'error', reason: 'connection' });
    await limiter.close();
    server.admin.disconnect();
    await server.stop();
  },
);
