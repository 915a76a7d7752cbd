/** Tests limiters of a URL with each driver: what they reach, and that they close it. */
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { gcra, Limiter } from '../../src/index.js';
import { type Load, opened } from '../../src/net/url.js';
import { BACKEND, type Server, serve, serveCluster, until } from './server.js';

const api = gcra('api', 10, '10/minute');
const require = createRequire(import.meta.url);

/** Loads one package in place of that of a driver. The other driver is not installed. */
const only = (driver: string, version: string): Load => {
  return (name) => require(name === driver ? version : 'not-installed');
};

const drivers: [string, Load][] = [
  ['node-redis 6', only('redis', 'redis')],
  ['node-redis 5', only('redis', 'redis-5')],
  ['ioredis 6', only('ioredis', 'ioredis')],
  ['ioredis 5', only('ioredis', 'ioredis-5')],
];

describe('a server', () => {
  const folder = mkdtempSync(join(tmpdir(), 'redis-throttle-url-'));
  const path = join(folder, 'a socket');
  let server: Server;

  beforeAll(async () => {
    server = await serve('--unixsocket', path);
    await server.clock.freeze();
    await server.admin.call('ACL', 'SETUSER', 'an@app', 'on', '>p:w/d', '~*', '+@all');
    await server.admin.call('CONFIG', 'SET', 'requirepass', 'secret');
  });
  afterAll(async () => {
    server.admin.disconnect();
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  const clients = async () =>
    String(await server.admin.call('CLIENT', 'LIST'))
      .trim()
      .split('\n');

  describe.each(drivers)('with %s', (_, load) => {
    it.each([
      [
        'a user, a password and a database',
        () => `redis://an%40app:p%3Aw%2Fd@127.0.0.1:${server.port}/3`,
      ],
      ['a password', () => `redis://:secret@localhost:${server.port}`],
      ['a Unix socket', () => `redis+unix://${encodeURI(path)}?user=an%40app&pass=p%3Aw%2Fd&db=3`],
      ['no host, and a database', () => `valkey://:secret@:${server.port}?db=3`],
      ['another form of a Unix socket', () => `unix://${encodeURI(path)}?pass=secret`],
    ])('is reached by a URL with %s', async (name, url) => {
      const { client, close } = opened(url(), false, load);
      const limiter = new Limiter(client, { timeoutMs: 60_000, prefix: name.replaceAll(' ', '-') });
      expect(await limiter.ready()).toBe(BACKEND);
      const listed = await clients();
      await limiter.close();
      close();
      // A port may end with 3 too.
      const database = /[/=]3$/.test(url()) ? 'db=3' : 'db=0';
      expect(listed.filter((line) => line.includes(`${database} `)).length).toBeGreaterThan(0);
      await until('it is closed', async () => (await clients()).length === 1);
    });
  });

  it('is reached by Limiter.fromUrl, and left by close', async () => {
    const url = `redis://:secret@127.0.0.1:${server.port}`;
    const limiter = Limiter.fromUrl(url, { timeoutMs: 60_000 });
    expect(await limiter.check(api, '7')).toMatchObject({ source: 'server', remaining: 9 });
    await limiter.close();
    await until('it is closed', async () => (await clients()).length === 1);
  });

  it('that refuses the password is a rejection', async () => {
    const limiter = Limiter.fromUrl(`redis://:wrong@127.0.0.1:${server.port}`);
    await expect(limiter.check(api, '7')).rejects.toThrow('WRONGPASS');
    await limiter.close();
  });
});

describe('a cluster', () => {
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

  it.each(drivers)('is reached by the URL of one node with %s', async (name, load) => {
    const { client, close } = opened(`redis://127.0.0.1:${nodes[0]?.port}`, true, load);
    const limiter = new Limiter(client, { timeoutMs: 60_000, prefix: name.replaceAll(' ', '-') });
    for (let key = 0; key < 10; key += 1) {
      const decision = await limiter.check(api, key);
      expect(decision).toMatchObject({ source: 'server', remaining: 9 });
    }
    await limiter.close();
    close();
    for (const { admin } of nodes) {
      const listed = async () => String(await admin.call('CLIENT', 'LIST', 'TYPE', 'normal'));
      await until('it is closed', async () => (await listed()).trim().split('\n').length === 1);
    }
  });

  it('is reached by Limiter.fromUrl with the option', async () => {
    const limiter = Limiter.fromUrl(`redis://127.0.0.1:${nodes[0]?.port}`, { cluster: true });
    for (let key = 10; key < 20; key += 1) {
      expect((await limiter.check(api, key)).source).toBe('server');
    }
    await limiter.close();
  });
});
