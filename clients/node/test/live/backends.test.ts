/**
 * Tests the search for a back end on real servers: the first search, and searches after a change.
 */
import { readFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer } from 'node:net';
import { Cluster, Redis } from 'ioredis';
import { createClient, createCluster } from 'redis';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type Backend, type Client, gcra, Limiter, type LimiterOptions } from '../../src/index.js';
import { connectionOf } from '../../src/net/drivers.js';
import { Nodes } from '../../src/net/node.js';
import { searched } from '../../src/net/search.js';
import { UntilGivenUp } from '../../src/rules/aborting.js';
import { systemClock } from '../../src/rules/clock.js';
import { withDefaults } from '../../src/rules/options.js';
import { Backends, type Searched } from '../../src/wire/backends.js';
import { functions, version } from '../../src/wire/library.js';
import { dialling } from '../fakes.js';
import { callsOf, MODULE, type Server, serveCluster, serveFor, until } from './server.js';

const api = gcra('api', 100, 1, '1h');
const many = gcra('many', 1000, 1, '1h');
const ALL: Backend[] = ['module', 'functions', 'script'];
const closing: (() => unknown)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

async function ended({ admin, stop }: Server): Promise<void> {
  admin.disconnect();
  await stop();
}

function client({ port }: Server, options: object = {}): Client {
  const redis = new Redis({ port, maxRetriesPerRequest: 0, retryStrategy: () => 20, ...options });
  redis.on('error', () => {});
  closing.push(() => redis.disconnect());
  return redis as unknown as Client;
}

function over(server: Server, options: LimiterOptions = {}, user: object = {}): Limiter {
  const limiter = new Limiter(client(server, user), { timeoutMs: 60_000, ...options });
  closing.push(() => limiter.close());
  return limiter;
}

/**
 * Makes `count` concurrent checks that the server must decide. Returns the number of units taken.
 */
async function taken(limiter: Limiter, count: number): Promise<number> {
  const before = (await limiter.peek(api, '42', { cost: 0 })).remaining;
  const calls = Array.from({ length: count }, () => limiter.check(api, '42'));
  for (const { source, error } of await Promise.all(calls)) {
    expect({ source, error }).toEqual({ source: 'server', error: undefined });
  }
  return before - (await limiter.peek(api, '42', { cost: 0 })).remaining;
}

describe('the library', () => {
  const table = JSON.parse(
    readFileSync(new URL('../../../cases.json', import.meta.url), 'utf8'),
  ) as Record<string, { name: string; expect: readonly string[] }[]>;
  const cases = ['calls', 'calls_all']
    .flatMap((section) => table[section] ?? [])
    .filter((each) => Array.isArray(each.expect));
  expect(cases.length).toBeGreaterThan(25);
  const servers: Server[] = [];
  const redis: Redis[] = [];

  beforeAll(async () => {
    for (const backend of ALL) {
      const server = await serveFor(backend);
      await server.clock.freeze(1_700_000_000_000);
      servers.push(server);
      redis.push(new Redis({ port: server.port }));
    }
  }, 30_000);
  afterAll(async () => {
    for (const each of redis) each.disconnect();
    for (const server of servers) await ended(server);
  });

  it.each(cases)('replies to a shared case as the module does: $name', async ({ expect: args }) => {
    const [command = '', ...rest] = args;
    const keys = command.endsWith('ALL') ? rest.filter((_, at) => at % 2 === 0) : rest.slice(0, 1);
    const call = { args, keys, readOnly: command.startsWith('RL.PEEK') };
    const replies = await Promise.all(
      ALL.map(async (backend, at) => {
        const terms = dialling(systemClock, 60_000);
        const connection = connectionOf(redis[at] as unknown as Client, terms);
        const nodes = new Nodes(connection, terms.run, withDefaults({}));
        const send: Searched = (sender, call, search) =>
          searched(nodes, sender, call, undefined, search);
        const backends = new Backends(connection, terms.run, send, 60_000, backend);
        await connection.connect?.(undefined);
        const sent = new Promise((receive, fail) => {
          backends.send(call, Object.assign(new UntilGivenUp(), { receive, fail }));
        });
        return sent.catch(({ message }) => message);
      }),
    );
    const needsModule = args.some((arg) => /(^|\.)(QUOTA|RESERVE|USE)\b/.test(arg));
    const wanted = needsModule
      ? expect.stringContaining('needs the redis-throttle module')
      : replies[0];
    expect(replies.slice(1)).toEqual([wanted, wanted]);
  });
});

describe('a server without the module', () => {
  let server: Server;
  beforeAll(async () => {
    server = await serveFor('functions', '--enable-module-command', 'yes');
  });
  afterAll(() => ended(server));
  beforeEach(async () => {
    await server.admin.flushall();
    await server.admin.call('FUNCTION', 'FLUSH');
    await server.admin.script('FLUSH');
    await server.admin.config('RESETSTAT');
  });

  const loaded = async () => server.admin.call('FCALL', 'rl_version', '0');

  it('is called through functions, which are loaded once; each call is one command', async () => {
    const limiter = over(server);
    expect(await taken(limiter, 20)).toBe(20);
    expect(await limiter.ready()).toBe('functions');
    expect(await callsOf(server.admin, 'function\\|load')).toBe(1);
    await server.admin.config('RESETSTAT');
    for (let call = 0; call < 3; call += 1) await limiter.check(api, '42');
    await limiter.peek(api, '42');
    expect(await callsOf(server.admin, 'fcall')).toBe(3);
    expect(await callsOf(server.admin, 'fcall_ro')).toBe(1);
    const rest = await server.admin.info('commandstats');
    expect(rest).not.toMatch(/cmdstat_(function|eval)/);
    expect(await server.admin.info('errorstats')).not.toContain('errorstat');
  });

  it('is searched once for many calls, which share one set of listeners', async () => {
    const redis = client(server) as unknown as Redis;
    const limiter = new Limiter(redis as unknown as Client, { timeoutMs: 60_000 });
    closing.push(() => limiter.close());
    const calls = Array.from({ length: 50 }, () => limiter.check(api, '42'));
    await new Promise((resolve) => setImmediate(resolve));
    expect(redis.status).not.toBe('ready');
    expect(redis.listenerCount('ready')).toBeLessThan(10);
    for (const { source } of await Promise.all(calls)) expect(source).toBe('server');
    expect(await callsOf(server.admin, 'function\\|load')).toBe(1);
  });

  it.each(['functions', 'script'] as const)('is called only through %s', async (backend) => {
    const limiter = over(server, { backend });
    expect(await taken(limiter, 20)).toBe(20);
    expect(await limiter.ready()).toBe(backend);
    expect(await callsOf(server.admin, backend === 'script' ? 'fcall' : 'evalsha')).toBe(0);
  });

  it('makes calls throw a CommandRejectedError if the backend option is module', async () => {
    const limiter = over(server, { backend: 'module' });
    await expect(limiter.check(api, '42')).rejects.toThrow(/^ERR unknown command/);
    await expect(limiter.ready()).rejects.toMatchObject({ kind: 'ERR' });
    expect(await callsOf(server.admin, 'fcall')).toBe(0);
  });

  it('gets its functions again after it lost them, and each call is counted once', async () => {
    const limiter = over(server);
    await limiter.ready();
    for (let round = 0; round < 3; round += 1) {
      await server.admin.call('FUNCTION', 'FLUSH');
      expect(await taken(limiter, 20)).toBe(20);
    }
    expect(await limiter.ready()).toBe('functions');
  });

  it('gets its script again after it lost it, and each call is counted once', async () => {
    const limiter = over(server, { backend: 'script' });
    await limiter.ready();
    for (let round = 0; round < 3; round += 1) {
      await server.admin.script('FLUSH');
      expect(await taken(limiter, 20)).toBe(20);
    }
  });

  it.each(['functions', 'script'] as const)('works after losing all data: %s', async (backend) => {
    const limiter = over(server, { backend });
    expect(await taken(limiter, 3)).toBe(3);
    await server.stop();
    await server.start();
    await until('it decides', async () => (await limiter.check(api, '7')).source === 'server');
    expect(await taken(limiter, 3)).toBe(3);
  });

  const of = (other: string) => functions.replace(`VERSION = '${version}'`, `VERSION = '${other}'`);

  it.each([
    ['0.1.9', 'replaced', version],
    ['0.1.10', 'replaced', version],
    ['0.10.0', 'kept', '0.10.0'],
    ['1.0.0', 'kept', '1.0.0'],
  ])('may have another version of the library: %s is %s', async (other, _, then) => {
    await server.admin.call('FUNCTION', 'LOAD', of(other));
    expect(await loaded()).toBe(other);
    for (const backend of ['auto', 'functions'] as const) {
      const limiter = over(server, { backend });
      expect(await limiter.ready()).toBe('functions');
      expect(await taken(limiter, 1)).toBe(1);
      expect(await loaded()).toBe(then);
    }
  });

  it.each([
    ['a function', 'other', 'rl_gcra'],
    ['the library', 'redis_throttle', 'other'],
  ])('keeps %s of another program that has the same name', async (_, name, named) => {
    const other = `#!lua name=${name}\nredis.register_function('${named}', function() end)`;
    await server.admin.call('FUNCTION', 'LOAD', other);
    const before = await server.admin.call('FUNCTION', 'LIST', 'WITHCODE');
    expect(await over(server).ready()).toBe('script');
    await expect(over(server, { backend: 'functions' }).ready()).rejects.toMatchObject({
      kind: 'ERR',
    });
    expect(await server.admin.call('FUNCTION', 'LIST', 'WITHCODE')).toEqual(before);
  });

  const restricted = async (...rights: string[]) => {
    await server.admin.call('ACL', 'SETUSER', 'some', 'reset', 'on', '>x', '~rl:*', ...rights);
    return { username: 'some', password: 'x' };
  };

  it('is called through the script if the user may not load functions', async () => {
    const user = await restricted('+@all', '-function');
    const limiter = over(server, {}, user);
    expect(await limiter.ready()).toBe('script');
    expect(await taken(limiter, 20)).toBe(20);
    await expect(over(server, { backend: 'functions' }, user).ready()).rejects.toMatchObject({
      kind: 'NOPERM',
    });
    await over(server).ready();
    expect(await over(server, {}, user).ready()).toBe('functions');
  });

  it('makes calls throw if the user may use neither functions nor scripts', async () => {
    const user = await restricted('+@all', '-function', '-fcall', '-eval');
    const limiter = over(server, { onError: 'allow' }, user);
    await expect(limiter.check(api, '42')).rejects.toMatchObject({ kind: 'NOPERM' });
    expect(limiter.counters).toMatchObject({ rejected: 1, allowed: 0 });
  });

  it.each(['functions', 'script'] as const)(
    'reports a missing permission as NOPERM: %s',
    async (backend) => {
      await over(server, { backend }).ready();
      const user = await restricted('+@all', '-set');
      const limiter = over(server, { backend, onError: 'allow' }, user);
      await expect(limiter.check(api, '42')).rejects.toMatchObject({ kind: 'NOPERM' });
    },
  );

  it('is peeked through the script if it is a replica without the library', async () => {
    closing.push(() => server.admin.call('REPLICAOF', 'NO', 'ONE'));
    await server.admin.call('REPLICAOF', '127.0.0.1', '1');
    const limiter = over(server, { onError: 'deny' });
    expect(await limiter.peek(api, '42')).toMatchObject({ source: 'server', remaining: 99 });
    const refused = await limiter.check(api, '42');
    expect(refused.error?.message).toMatch(/READONLY/);
    expect(refused).toMatchObject({ allowed: false, source: 'error' });
  });

  /**
   * A proxy that closes each connection instead of forwarding the reply to one of its first calls.
   */
  const cutting = async (): Promise<number> => {
    let connections = 0;
    const way = createServer((theirs) => {
      const ours = connect(server.port, '127.0.0.1');
      connections += 1;
      let untilLost = 1 + (connections % 9);
      theirs.on('data', (request) => {
        if (/FCALL|EVALSHA|LOAD/.test(request.toString('latin1'))) untilLost -= 1;
        ours.write(request);
      });
      ours.on('data', (reply) => {
        if (untilLost > 0) theirs.write(reply);
        else theirs.destroy();
      });
      for (const [one, other] of [
        [ours, theirs],
        [theirs, ours],
      ] as const) {
        one.on('error', () => {});
        one.on('close', () => other.destroy());
      }
    });
    way.listen(0, '127.0.0.1');
    await new Promise((listening) => way.once('listening', listening));
    closing.push(() => way.close());
    return (way.address() as AddressInfo).port;
  };

  const openers = {
    ioredis: async (port: number) => {
      const redis = new Redis({ port, retryStrategy: () => 1 });
      redis.on('error', () => {});
      closing.push(() => redis.disconnect());
      return redis;
    },
    'ioredis with a prefix': async (port: number) => {
      const redis = new Redis({ port, retryStrategy: () => 1, keyPrefix: 'app:' });
      redis.on('error', () => {});
      closing.push(() => redis.disconnect());
      return redis;
    },
    'node-redis': async (port: number) => {
      const redis = createClient({ RESP: 3, socket: { port, reconnectStrategy: 1 } });
      redis.on('error', () => {});
      await redis.connect();
      closing.push(() => redis.destroy());
      return redis;
    },
  };

  it.each(
    Object.entries(openers).flatMap(([name, open]) =>
      (['auto', 'script'] as const).map((backend) => [name, backend, open] as const),
    ),
  )('counts a call at most once if its reply is lost: %s, %s', async (name, backend, open) => {
    const client = (await open(await cutting())) as unknown as Client;
    const options = { timeoutMs: 60_000, breakerFailures: 1_000_000, backend };
    const limiter = new Limiter(client, options);
    closing.push(() => limiter.close());
    const sources: string[] = [];
    for (let round = 0; round < 20; round += 1) {
      const calls = Array.from({ length: 8 }, () => limiter.check(many, '42'));
      const decisions = await Promise.all(calls);
      sources.push(...decisions.map(({ source }) => source));
      await server.admin.call('FUNCTION', 'FLUSH');
      await server.admin.script('FLUSH');
    }
    expect(limiter.counters.rejected).toBe(0);
    const decided = sources.filter((source) => source === 'server').length;
    const prefix = name.endsWith('prefix') ? 'app:rl' : 'rl';
    const { remaining } = await over(server, { prefix }).peek(many, '42', { cost: 0 });
    expect(1000 - remaining).toBeGreaterThanOrEqual(decided);
    expect(1000 - remaining).toBeLessThanOrEqual(sources.length);
    expect(decided).toBeGreaterThan(0);
    expect(decided).toBeLessThan(sources.length);
  });

  // This test is the last one, because from here on the server has the module.
  it('keeps its keys when the module is loaded', async () => {
    const limiter = over(server);
    const cut = over(server, { breakerPauseMs: 1 });
    expect(await taken(limiter, 7)).toBe(7);
    expect(await cut.ready()).toBe('functions');
    await server.admin.call('MODULE', 'LOAD', MODULE);
    expect(await limiter.ready()).toBe('functions');
    expect(await taken(limiter, 7)).toBe(7);
    await server.admin.call('FUNCTION', 'FLUSH');
    expect(await taken(limiter, 7)).toBe(7);
    expect(await limiter.ready()).toBe('module');
    await over(server, { backend: 'functions' }).ready();
    expect((await limiter.peek(api, '42', { cost: 0 })).remaining).toBe(79);
    await until('a call loses its connection', async () => {
      await server.admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
      return (await cut.check(api, '7')).source === 'error';
    });
    await until('it decides', async () => (await cut.check(api, '7')).source === 'server');
    expect(await cut.ready()).toBe('module');
  });
});

describe('a server with the module', () => {
  let server: Server;
  beforeAll(async () => {
    server = await serveFor('module');
  });
  afterAll(() => ended(server));

  it.each(['auto', ...ALL] as const)('is called as `backend` selects: %s', async (backend) => {
    const limiter = over(server, { backend });
    expect(await limiter.ready()).toBe(backend === 'auto' ? 'module' : backend);
    expect(await taken(limiter, 3)).toBe(3);
  });

  it('is not searched when the user may not call the module', async () => {
    await server.admin.call('FUNCTION', 'FLUSH');
    await server.admin.config('RESETSTAT');
    const rights = ['reset', 'on', '>x', '~*', '+@all', '-rl.gcra', '-rl.peek'];
    await server.admin.call('ACL', 'SETUSER', 'some', ...rights);
    const user = { username: 'some', password: 'x' };
    const limiter = over(server, {}, user);
    await expect(limiter.check(api, '42')).rejects.toMatchObject({ kind: 'NOPERM' });
    await expect(limiter.ready()).rejects.toMatchObject({ kind: 'NOPERM' });
    expect(await callsOf(server.admin, 'fcall')).toBe(0);
    expect(await server.admin.call('FUNCTION', 'LIST')).toEqual([]);
  });
});

describe.each(['functions', 'script'] as const)('a cluster without the module: %s', (backend) => {
  let nodes: Server[];
  beforeAll(async () => {
    nodes = await serveCluster(backend);
  }, 30_000);
  afterAll(async () => {
    for (const node of nodes) await ended(node);
  });

  const drivers = {
    ioredis: async () => {
      const cluster = new Cluster([{ port: nodes[0]?.port as number }], { keyPrefix: 'app:' });
      closing.push(() => cluster.disconnect());
      return cluster as unknown as Client;
    },
    'node-redis': async () => {
      const rootNodes = nodes.map(({ port }) => ({ socket: { port } }));
      const cluster = createCluster({ rootNodes, defaults: { disableOfflineQueue: true } });
      cluster.on('error', () => {});
      await cluster.connect();
      closing.push(() => cluster.destroy());
      return cluster as unknown as Client;
    },
  };

  it.each(Object.entries(drivers))('gets the library on all nodes, by %s', async (name, open) => {
    const limiter = new Limiter(await open(), { timeoutMs: 60_000, prefix: name });
    closing.push(() => limiter.close());
    for (let round = 1; round <= 3; round += 1) {
      for (const { admin } of nodes) {
        if (backend === 'functions') await admin.call('FUNCTION', 'FLUSH');
        await admin.script('FLUSH');
      }
      const subjects = Array.from({ length: 30 }, (_, at) => `${at}`);
      const all = await Promise.all(subjects.map((subject) => limiter.check(api, subject)));
      expect(all.map(({ error }) => error).filter(Boolean)).toEqual([]);
      expect(all.map(({ remaining }) => remaining)).toEqual(subjects.map(() => 100 - round));
    }
    expect(await limiter.ready()).toBe(backend);
  });
});
