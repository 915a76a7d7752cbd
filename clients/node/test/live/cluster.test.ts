/**
 * Tests each driver's cluster client with three real nodes: routing, a slot that moves, a failover.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fixed, gcra, Limiter, lease, type UnavailableError } from '../../src/index.js';
import {
  BACKEND,
  callsOf,
  DECIDING,
  HEALED_MS,
  type Server,
  serve,
  serveCluster,
  until,
} from './server.js';
import { versions } from './versions.js';

const api = gcra('api', 6, 10, '60s');
/** One of the drivers adds a text to each key. */
const isPrefixed = (name: string) => name === 'ioredis-6';
const optionsOf = (name: string) => (isPrefixed(name) ? { keyPrefix: 'app:' } : {});

describe('a cluster of three nodes', () => {
  let nodes: Server[];
  beforeAll(async () => {
    nodes = await serveCluster();
  }, 30_000);
  afterAll(async () => {
    for (const { admin, stop } of nodes) {
      admin.disconnect();
      await stop();
    }
  });

  const clusters = Object.entries(versions).map(([name, { cluster }]) => ({
    name,
    open: () =>
      cluster(
        nodes.map(({ port }) => port),
        optionsOf(name),
      ),
  }));

  it.each(clusters)('is called by $name without a redirection', async ({ open }) => {
    const { client, close } = await open();
    const limiter = new Limiter(client, { timeoutMs: 60_000 });
    await limiter.ready();
    for (const { admin } of nodes) await admin.config('RESETSTAT');
    for (let subject = 0; subject < 60; subject += 1) {
      expect((await limiter.check(api, String(subject))).source).toBe('server');
      const items = [api, fixed('day', 9, '1d')].map((rule) => rule.of(`${subject}`));
      expect((await limiter.checkAll(items, { tag: `${subject}` })).source).toBe('server');
    }
    let total = 0;
    for (const { admin } of nodes) {
      const calls = await callsOf(admin, DECIDING);
      expect(calls).toBeGreaterThan(0);
      total += calls;
    }
    // The server counts RL.GCRA and RL.ALL separately, but all calls of the library as one command.
    expect(total).toBe(BACKEND === 'module' ? 60 : 120);
    const each = await limiter.checkEach([api.of('e1'), fixed('once', 1, '9s').of('e2').cost(2)]);
    expect(each.allowed).toBe(false);
    expect((await limiter.peek(api, 'e1', { cost: 0 })).remaining).toBe(6);
    const hot = gcra('hot', 6, 10, '60s', { prefetch: 3 });
    for (let subject = 0; subject < 9; subject += 1) {
      const held = await limiter.lease(lease('jobs', 1, '60s'), `${subject}`);
      await held.release();
      await limiter.check(hot, `${subject}`);
    }
    const [units, tag] = [fixed('units', 9, '1d'), 'a'];
    const items = [units.of('a'), lease('runs', 1, '60s').of('a')];
    const admitted = await limiter.admit(items, { tag });
    admitted.settle(units, 3);
    await admitted.finish();
    expect((await limiter.peek(units, 'a', { cost: 0, tag })).remaining).toBe(6);
    expect(await limiter.forget(units, 'a', { tag })).toBe(true);
    expect(limiter.counters.unsettled).toBe(0);
    const two = [api, fixed('day', 9, '1d')].map((rule) => rule.of('42'));
    await expect(limiter.checkAll(two)).rejects.toMatchObject({ kind: 'CROSSSLOT' });
    expect(await limiter.forget(api, '42')).toBe(true);
    await limiter.close();
    for (const { admin } of nodes) {
      expect(await admin.info('errorstats')).not.toContain('MOVED');
    }
    close();
  });

  it.each(clusters)(
    'gets no call twice if its connection breaks, by $name',
    async ({ name, open }) => {
      const { client, close } = await open();
      const limiter = new Limiter(client, { timeoutMs: 60_000 });
      const rule = fixed('lost', 9, '1h');
      await limiter.ready();
      expect((await limiter.check(rule, name)).source).toBe('server');
      for (const { admin } of nodes) await admin.call('CLIENT', 'PAUSE', '60000', 'WRITE');
      const call = limiter.check(rule, name);
      await until('the call waits at its node', async () => {
        const lists = await Promise.all(nodes.map(({ admin }) => admin.call('CLIENT', 'LIST')));
        return lists.some((list) => String(list).includes('flags=b'));
      });
      for (const { admin } of nodes) {
        await admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
        await admin.call('CLIENT', 'UNPAUSE');
      }
      expect((await call).source).toBe('error');
      // The call was killed before it ran, so it cannot have counted.
      let left = -1;
      await until('it decides again', async () => {
        const status = await limiter.peek(rule, name, { cost: 0 });
        left = status.remaining;
        return status.source === 'server';
      });
      expect(left).toBe(8);
      await limiter.close();
      close();
    },
  );

  it.each(clusters)('is still called when one node hangs, by $name', async ({ name, open }) => {
    const { client, close } = await open();
    // The pause is longer than the test, so every call through an open circuit breaker would be
    // refused.
    const pause = { timeoutMs: 100, breakerPauseMs: 3_600_000, breakerFailures: 1 };
    let limiter = new Limiter(client, { ...pause, prefix: `hangs-${name}` });
    const patient = new Limiter(client, { timeoutMs: 60_000, prefix: `hangs-${name}` });
    await patient.ready();
    // Find one subject for each node.
    const subjects: string[] = [];
    for (const [at, { admin }] of nodes.entries()) {
      for (let subject = 0; subjects.length <= at; subject += 1) {
        await admin.flushall();
        await patient.check(api, `${subject}`);
        if (Number(await admin.dbsize()) > 0) subjects.push(`${subject}`);
      }
    }
    const [hanging, ...others] = subjects as [string, ...string[]];
    // On a busy machine dials may take so long that a circuit breaker opens, for the whole test.
    await until('all nodes are connected and called', async () => {
      const found = await Promise.all(subjects.map((subject) => limiter.peek(api, subject)));
      if (found.every(({ source }) => source === 'server')) return true;
      if (found.every(({ reason }) => reason !== 'circuit')) return false;
      await limiter.close();
      limiter = new Limiter(client, { ...pause, prefix: `hangs-${name}` });
      return false;
    });
    const isRefused = async () => {
      const { error } = await limiter.check(api, hanging);
      return (error as UnavailableError | undefined)?.reason === 'circuit';
    };
    await until('it gets no more calls', async () => {
      // The sleep is shorter than the time after which the cluster declares a node failed.
      const hung = nodes[0]?.admin.call('DEBUG', 'SLEEP', '0.5');
      const refused = [await isRefused(), await isRefused()];
      await hung;
      return refused.includes(true);
    });
    for (const subject of others) {
      await until('another node replies', async () => {
        return (await limiter.peek(api, subject)).source === 'server';
      });
    }
    expect(await isRefused()).toBe(true);
    await limiter.close();
    await patient.close();
    close();
  });

  it.each(clusters)('is still called after a slot has moved, by $name', async ({ name, open }) => {
    const { client, close } = await open();
    // The slot map is read again at most once in this time.
    const limiter = new Limiter(client, { timeoutMs: 2000, onError: 'deny', prefix: name });
    await limiter.ready();
    await limiter.check(api, 'moves');
    const key = `${isPrefixed(name) ? 'app:' : ''}${name}:api:moves`;
    const slot = Number(await nodes[0]?.admin.call('CLUSTER', 'KEYSLOT', key));
    const ids = await Promise.all(nodes.map(({ admin }) => admin.call('CLUSTER', 'MYID')));
    const held = await Promise.all(
      nodes.map(({ admin }) => admin.call('CLUSTER', 'COUNTKEYSINSLOT', slot)),
    );
    const from = held.findIndex((count) => Number(count) > 0);
    const to = (from + 1) % 3;
    const [source, target] = [nodes[from] as Server, nodes[to] as Server];
    await target.admin.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', String(ids[from]));
    await source.admin.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', String(ids[to]));
    await source.admin.call('MIGRATE', '127.0.0.1', target.port, key, 0, 1000);
    // The target node of the slot does not have the library yet.
    await target.admin.call(BACKEND === 'functions' ? 'FUNCTION' : 'SCRIPT', 'FLUSH');
    expect((await limiter.check(api, 'moves')).remaining).toBe(4); // redirected by ASK
    for (const { admin } of [target, source]) {
      await admin.call('CLUSTER', 'SETSLOT', slot, 'NODE', String(ids[to]));
    }
    expect((await limiter.check(api, 'moves')).remaining).toBe(3); // redirected by MOVED
    await until('the new place is known', async () => {
      await source.admin.config('RESETSTAT');
      await limiter.peek(api, 'moves');
      return !(await source.admin.info('errorstats')).includes('MOVED');
    });
    await limiter.close();
    close();
  });

  it.each([
    ['node-redis-6', "import { createCluster } from 'redis';", 'destroy'],
    ['node-redis-5', "import { createCluster } from 'redis-5';", 'destroy'],
    ['ioredis-6', "import { Cluster } from 'ioredis';", 'disconnect'],
    ['ioredis-5', "import Redis from 'ioredis-5'; const { Cluster } = Redis;", 'disconnect'],
  ])('lets the process end when the cluster client of %s ends', async (_, load, end) => {
    const port = nodes[0]?.port;
    const create = load.includes('createCluster')
      ? `createCluster({ rootNodes: [{ socket: { port: ${port} } }] })`
      : `new Cluster([{ port: ${port} }])`;
    const text = `${load}
      import { gcra, Limiter } from '${resolve(import.meta.dirname, '../../dist/index.js')}';
      const client = ${create}.on('error', () => {});
      if (!client.isCluster) await client.connect();
      const limiter = new Limiter(client, { timeoutMs: 60_000 });
      for (const subject of '123456') await limiter.check(gcra('api', 6, 10, '60s'), subject);
      client.${end}();`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', text], {
      cwd: resolve(import.meta.dirname, '../..'),
      stdio: 'inherit',
    });
    const [code] = await once(child, 'close');
    expect(code).toBe(0);
  });

  // Each failover ends one of the first three primaries.
  it.each(clusters.filter(({ name }) => name !== 'node-redis-5'))(
    'decides again after a failover, by $name',
    async ({ name, open }) => {
      const fast = ['--cluster-node-timeout', '1000', '--repl-diskless-sync-delay', '0'];
      const replica = await serve('--cluster-enabled', 'yes', ...fast);
      const primary = nodes.shift() as Server;
      const { client, close } = await open();
      nodes.push(replica);
      const limiter = new Limiter(client, { onError: 'deny', prefix: `over-${name}` });
      try {
        await replica.admin.call('CLUSTER', 'MEET', '127.0.0.1', primary.port, primary.busPort);
        const id = String(await primary.admin.call('CLUSTER', 'MYID'));
        await until('the replica knows the primary', () => {
          const follows = replica.admin.call('CLUSTER', 'REPLICATE', id);
          return follows.then(
            () => true,
            () => false,
          );
        });
        await until('the replica follows', async () => {
          return (await replica.admin.info('replication')).includes('master_link_status:up');
        });
        await until('it is ready', () =>
          limiter.ready().then(
            () => true,
            () => false,
          ),
        );
        const subjects = Array.from({ length: 12 }, (_, at) => String(at));
        for (const subject of subjects) await limiter.check(api, subject);
        await primary.admin.call('WAIT', 1, 1000);
        await primary.stop();
        const decide = async () => {
          const all = subjects.map((subject) => limiter.check(api, subject, { cost: 0 }));
          return (await Promise.all(all)).every(({ source }) => source === 'server');
        };
        await until('the cluster has a new primary', async () => {
          await decide();
          const states = nodes.map(({ admin }) => admin.call('CLUSTER', 'INFO'));
          const isWhole = (info: unknown) => /cluster_state:ok/.test(String(info));
          const isPrimary = /role:master/.test(await replica.admin.info('replication'));
          return isPrimary && (await Promise.all(states)).every(isWhole);
        });
        const begin = performance.now();
        await until('all of them are decided again', decide);
        expect(performance.now() - begin).toBeLessThan(HEALED_MS);
        expect((await limiter.peek(api, '0', { cost: 0 })).remaining).toBeGreaterThanOrEqual(5);
      } finally {
        await limiter.close();
        close();
        primary.admin.disconnect();
        await primary.stop();
      }
    },
    30_000,
  );
});
