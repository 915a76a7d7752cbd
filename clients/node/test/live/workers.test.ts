/** Tests a service of several processes, started by `node:cluster`, with a real server. */
import { execFile } from 'node:child_process';
import { resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Client, gcra, Limiter } from '../../src/index.js';
import { type Server, serve } from './server.js';

const LIMIT = 30;

describe('workers of node:cluster', () => {
  let server: Server;
  beforeAll(async () => {
    server = await serve();
    await server.clock.freeze();
  });
  afterAll(async () => {
    server.admin.disconnect();
    await server.stop();
  });

  async function run(prefetch: number, calls: number): Promise<number[]> {
    await server.admin.flushall();
    const program = resolve(import.meta.dirname, 'workers.mjs');
    const words = [program, server.port, prefetch, calls].map(String);
    const { stdout } = await promisify(execFile)(process.execPath, words);
    const { allowed, codes } = JSON.parse(stdout);
    expect(codes).toEqual([0, 0, 0]);
    return allowed;
  }

  const sum = (numbers: number[]) => numbers.reduce((total, number) => total + number, 0);

  it('share one limit', async () => {
    expect(sum(await run(1, 20))).toBe(LIMIT);
  });

  it('share the limit when they prefetch, and refund unused permits when they end', async () => {
    expect(await run(7, 4)).toEqual([4, 4, 4]);
    const limiter = new Limiter(server.admin as unknown as Client, { timeoutMs: 60_000 });
    const left = await limiter.peek(gcra('api', LIMIT, 1, '60s'), '42', { cost: 0 });
    expect(left.remaining).toBe(LIMIT - 12);
  });
});
