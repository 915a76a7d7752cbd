/** Tests the errors of a real server, and the end of a process. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type Client, CommandRejectedError, fixed, gcra, Limiter } from '../../src/index.js';
import { BACKEND, type Server, serve, until } from './server.js';

const api = gcra('api', 6, 10, '60s');
let server: Server;
let limiter: Limiter;
let redis: Redis;
const undo: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  server = await serve('--enable-protected-configs', 'yes');
  redis = new Redis({ port: server.port, maxRetriesPerRequest: 0 });
  limiter = new Limiter(redis as unknown as Client, { timeoutMs: 60_000, onError: 'deny' });
  await limiter.ready();
});
afterEach(async () => {
  for (const call of undo.splice(0)) await call();
});
afterAll(async () => {
  redis.disconnect();
  server.admin.disconnect();
  await server.stop();
});

describe('a server that cannot decide now', () => {
  const refused = async () => {
    const decision = await limiter.check(api, '42');
    expect(decision).toMatchObject({ allowed: false, source: 'error' });
    expect(decision.error).toMatchObject({ reason: 'server' });
    return decision.error?.message;
  };

  it('is unavailable when it has become a replica', async () => {
    undo.push(() => server.admin.call('REPLICAOF', 'NO', 'ONE'));
    await server.admin.call('REPLICAOF', '127.0.0.1', '1');
    expect(await refused()).toMatch(/^READONLY/);
    undo.push(() => server.admin.config('SET', 'replica-serve-stale-data', 'yes'));
    await server.admin.config('SET', 'replica-serve-stale-data', 'no');
    const peeked = await limiter.peek(api, '42');
    expect(peeked.error).toMatchObject({ reason: 'server' });
    expect(peeked.error?.message).toMatch(/^MASTERDOWN/);
  });

  it('is unavailable when its memory is full', async () => {
    undo.push(() => server.admin.config('SET', 'maxmemory', '0'));
    await server.admin.config('SET', 'maxmemory', '1');
    expect(await refused()).toMatch(/^OOM/);
  });

  it('is unavailable when it cannot write its snapshot', async () => {
    undo.push(() => server.admin.config('SET', 'save', ''));
    await server.admin.set('something', 'to save');
    await server.admin.config('SET', 'save', '3600 1');
    await server.admin.config('SET', 'dbfilename', 'a-folder');
    undo.push(() => server.admin.config('SET', 'dbfilename', 'dump.rdb'));
    const folder = (await server.admin.config('GET', 'dir')) as string[];
    mkdirSync(join(folder[1] as string, 'a-folder'));
    await server.admin.bgsave();
    await until('it has failed', async () => {
      return (await server.admin.info('persistence')).includes('rdb_last_bgsave_status:err');
    });
    expect(await refused()).toMatch(/^MISCONF/);
  });

  it('is unavailable when it runs a slow script', async () => {
    const before = (await server.admin.config('GET', 'busy-reply-threshold')) as string[];
    await server.admin.config('SET', 'busy-reply-threshold', '1');
    const other = new Redis({ port: server.port });
    undo.push(async () => {
      await server.admin.config('SET', 'busy-reply-threshold', before[1] as string);
      other.disconnect();
    });
    const script = other.eval('while true do end', 0).catch(() => {});
    await until('it is busy', () =>
      server.admin.ping().then(
        () => false,
        () => true,
      ),
    );
    expect(await refused()).toMatch(/^BUSY/);
    await server.admin.script('KILL');
    await script;
  });

  it('is called again afterwards', async () => {
    await until('it decides', async () => (await limiter.check(api, '42')).source === 'server');
  });
});

describe('a call', () => {
  it('throws a CommandRejectedError if the user may not use the command or the key', async () => {
    const rights = {
      module: ['+rl.peek'],
      functions: ['+fcall', '+fcall_ro', '+get', '+time'],
      script: ['+eval', '+evalsha', '+get', '+time'],
    }[BACKEND];
    await server.admin.call('ACL', 'SETUSER', 'none', 'on', '>x', '~rl:api:*', '+info', ...rights);
    const options = { port: server.port, username: 'none', password: 'x' };
    const client = new Redis({ ...options, maxRetriesPerRequest: 0, enableReadyCheck: false });
    const restricted = new Limiter(client as unknown as Client, { timeoutMs: 60_000 });
    const refused = restricted.check(api, '42');
    await expect(refused).rejects.toMatchObject({ kind: 'NOPERM' });
    await expect(restricted.peek(fixed('other', 1, '1m'), '42')).rejects.toBeInstanceOf(
      CommandRejectedError,
    );
    expect((await restricted.peek(api, '42')).source).toBe('server');
    expect(restricted.counters.rejected).toBe(2);
    client.disconnect();
  });
});

describe('the process', () => {
  const ours = resolve(import.meta.dirname, '../../dist/index.js');
  const programs = {
    ioredis: `
      import { Redis } from 'ioredis';
      const client = new Redis({ port: PORT });
      const end = () => client.disconnect();`,
    'node-redis': `
      import { createClient } from 'redis';
      const client = createClient({ url: 'redis://127.0.0.1:PORT' }).on('error', () => {});
      await client.connect();
      const end = () => client.destroy();`,
    'a pool of node-redis': `
      import { createClientPool } from 'redis';
      const client = createClientPool({ url: 'redis://127.0.0.1:PORT' }).on('error', () => {});
      await client.connect();
      const end = () => client.destroy();`,
  };

  it.each(Object.entries(programs))(
    'ends when the client of %s ends, with calls and leases left open',
    async (_, program) => {
      const text = `${program.replaceAll('PORT', String(server.port))}
        import { lease, gcra, Limiter } from '${ours}';
        const limiter = new Limiter(client);
        await limiter.lease(lease('jobs', 9, '60s'), '7');
        const gone = new AbortController();
        const { signal } = gone;
        for (const turn of [1, 2]) {
          const waited = limiter.wait(gcra('one', 1, 1, '60s'), '7', { maxWaitMs: 60_000, signal });
          waited.catch(() => {});
        }
        await limiter.check(gcra('api', 6, 10, '60s'), '7');
        // A wait keeps the process alive until it is aborted.
        gone.abort();
        limiter.check(gcra('api', 6, 10, '60s'), '7');
        end();
        // A call after the end opens no connection, which would keep the process alive.
        setTimeout(() => limiter.check(gcra('late', 6, 10, '60s'), '7'), 100);`;
      const child = spawn(process.execPath, ['--input-type=module', '-e', text], {
        cwd: resolve(import.meta.dirname, '../..'),
        stdio: 'inherit',
      });
      const [code] = await once(child, 'close');
      expect(code).toBe(0);
    },
  );
});
