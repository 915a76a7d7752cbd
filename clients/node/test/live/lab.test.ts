/** Tests each driver with `redis-throttle-lab serve`, which makes decisions without a Redis. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { gcra, Limiter } from '../../src/index.js';
import { type Version, versions } from './versions.js';

const ROOT = resolve(import.meta.dirname, '../../../..');
const LAB = process.env.RL_LAB ?? join(ROOT, 'target/release/redis-throttle-lab');

/** In what the drivers send when they connect: with RESP2, with RESP3, and with a login. */
const handshakes: [name: string, driver: string, options: object][] = [
  ['node-redis 6 in RESP2', 'node-redis-6', { RESP: 2, name: 'test' }],
  ['node-redis 6 in RESP3', 'node-redis-6', { RESP: 3, username: 'a', password: 'b' }],
  ['node-redis 5', 'node-redis-5', { password: 'b', database: 0 }],
  ['ioredis 6', 'ioredis-6', { username: 'a', password: 'b', connectionName: 'test' }],
  ['ioredis 5', 'ioredis-5', { enableReadyCheck: true, db: 0 }],
];

// Without CI, the suite also runs where the lab is not built.
describe.skipIf(!existsSync(LAB) && process.env.CI === undefined)('the lab', () => {
  let lab: ChildProcess;
  let port: number;
  beforeAll(async () => {
    lab = spawn(LAB, ['serve', '--listen', '127.0.0.1:0'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const [line] = await once(lab.stdout as NonNullable<ChildProcess['stdout']>, 'data');
    port = Number(/redis:\/\/127\.0\.0\.1:(\d+),/.exec(String(line))?.[1]);
  });
  afterAll(() => lab.kill());

  it.each(handshakes)('allows and denies calls over %s', async (name, driver, options) => {
    const opened = await (versions[driver] as Version).single([port], options);
    const limiter = new Limiter(opened.client, { timeoutMs: 60_000 });
    expect(await limiter.ready()).toBe('module');
    const rule = gcra('once', 1, 1, '1h');
    for (const allowed of [true, false]) {
      expect(await limiter.check(rule, name)).toMatchObject({ allowed, source: 'server' });
    }
    expect(await opened.ping()).toBe('PONG');
    await limiter.close();
    await opened.close();
  });
});
