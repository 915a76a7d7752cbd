/** Tests the example over real HTTP, with a real server that stops, hangs and comes back. */
import { type ChildProcess, spawn } from 'node:child_process';
import { connect } from 'node:net';
import { resolve } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { BACKEND, beyondTimeout, callsOf, DECIDING, type Server, serve, until } from './server.js';

const FOLDER = resolve(import.meta.dirname, '../../../../examples/express');

/** The timeout of the example in tests of something else: no call exceeds it. */
const PATIENT = { TIMEOUT_MS: '60000', SILENCE_MS: '60000' };

describe('examples/express', () => {
  let server: Server;
  const running: ChildProcess[] = [];

  /** Starts the example, by default with a long timeout, and returns its URL. */
  async function listen(environment: Record<string, string> = PATIENT): Promise<string> {
    const REDIS_URL = `redis://127.0.0.1:${server.port}`;
    const env = { ...process.env, REDIS_URL, BACKEND, PORT: '0', ...environment };
    const child = spawn(process.execPath, ['server.js'], { cwd: FOLDER, env });
    running.push(child);
    let output = '';
    child.stdout.on('data', (data) => {
      output += data;
    });
    child.stderr.pipe(process.stderr);
    await until('the example listens', () => /listening on (\S+)/.test(output));
    return /listening on (\S+)/.exec(output)?.[1] as string;
  }

  beforeAll(async () => {
    server = await serve();
  });
  afterAll(async () => {
    for (const child of running) child.kill();
    server.admin.disconnect();
    await server.stop();
  });
  beforeEach(async () => {
    await server.admin.flushall();
    await server.clock.freeze();
    await server.admin.config('RESETSTAT');
  });

  it('serves ten calls, and responds to the eleventh with a complete 429', async () => {
    const url = await listen();
    for (let call = 0; call < 10; call += 1) {
      const response = await fetch(url);
      expect(response.status).toBe(200);
      expect(response.headers.get('RateLimit')).toBe(`"api";r=${9 - call};t=${6 * (call + 1)}`);
    }
    const denied = await fetch(url);
    expect(denied.status).toBe(429);
    expect(Object.fromEntries(denied.headers)).toMatchObject({
      'ratelimit-policy': '"api";q=10;w=60',
      ratelimit: '"api";r=0;t=6',
      'retry-after': '6',
      'content-type': 'application/problem+json',
      'cache-control': 'no-store',
    });
    expect(await denied.json()).toEqual({
      type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
      title: 'Too Many Requests',
      status: 429,
      detail: 'Come back in 6 seconds.',
      'violated-policies': ['api'],
    });
  });

  it('ignores a spoofed address, and limits an IPv6 client by its network', async () => {
    const url = await listen();
    const spoofed = { 'X-Forwarded-For': '198.51.100.1' };
    await fetch(url, { headers: spoofed });
    expect(await server.admin.keys('*')).toEqual(['example:api:{127.0.0.1}']);
    await fetch(await listen({ ...PATIENT, TRUSTED_PROXIES: '127.0.0.1' }), { headers: spoofed });
    expect(await server.admin.exists('example:api:{198.51.100.1}')).toBe(1);
    await fetch(await listen({ ...PATIENT, HOST: '::1' }));
    expect(await server.admin.exists('example:api:{%3A%3A/64}')).toBe(1);
    expect((await fetch(`${url}/me`)).status).toBe(400);
  });

  it('releases the lease of a client that disconnects', async () => {
    const url = await listen({ ...PATIENT, EXPORT_ROWS: '6000' });
    const client = connect(Number(new URL(url).port), '127.0.0.1');
    client.write('GET /export HTTP/1.1\r\nHost: x\r\n\r\n');
    const key = 'example:exports:{127.0.0.1}';
    const holders = async () => Math.max(0, (await server.admin.zcard(key)) - 1);
    await until('a place is held', async () => (await holders()) === 1);
    expect((await fetch(`${url}/export`)).status).toBe(429);
    client.destroy();
    await until('the place is free', async () => (await holders()) === 0);
    const next = await fetch(`${url}/export`);
    expect(next.status).toBe(200);
    await next.body?.cancel();
  });

  it('checks both rules of a route in one call', async () => {
    const url = await listen();
    await fetch(url);
    await server.admin.config('RESETSTAT');
    const both = await fetch(`${url}/report`);
    expect(both.headers.get('RateLimit')).toBe('"api";r=8;t=12, "day";r=2;t=86400');
    const command = BACKEND === 'module' ? 'rl.all' : DECIDING;
    expect(await callsOf(server.admin, command)).toBe(1);
  });

  it('responds in time when the server hangs, and counts the request at most once', async () => {
    const url = await listen({});
    let requests = 0;
    let left = 0;
    const decides = async () => {
      requests += 1;
      const response = await fetch(url);
      left = Number(/r=(\d+)/.exec(response.headers.get('RateLimit') ?? '')?.[1]);
      return ((await response.json()) as { source: string }).source === 'server';
    };
    const late: number[] = [];
    while (late.length < 3) {
      await server.admin.flushall();
      requests = 0;
      await until('the server decides', decides);
      const hung = server.admin.call('DEBUG', 'SLEEP', '0.5');
      const [response, lateMs] = await beyondTimeout(() => fetch(url));
      requests += 1;
      // On a busy machine a call may come before the sleep, or after it.
      if (((await response.json()) as { source: string }).source === 'error') late.push(lateMs);
      await hung;
      await until('the server decides again', decides);
      expect(left).toBeGreaterThanOrEqual(10 - requests);
    }
    expect(Math.min(...late)).toBeLessThan(50);
  });

  it('serves, denies or decides locally while the server is down', async () => {
    const url = await listen({});
    await fetch(url);
    const before = performance.now();
    // After a denial, the address would stay denied while the server is down.
    for (let call = 0; call < 9; call += 1) await fetch(url);
    const tenMs = performance.now() - before;
    await server.stop();
    const [first, lateMs] = await beyondTimeout(() => fetch(url));
    expect(first.status).toBe(200);
    expect(lateMs).toBeLessThan(50 + tenMs);
    const next = performance.now();
    for (let call = 0; call < 10; call += 1) expect((await fetch(url)).status).toBe(200);
    expect(performance.now() - next).toBeLessThan(150 + 3 * tenMs);
    const closed = await fetch(`${url}/login`, { method: 'POST' });
    expect(closed.status).toBe(503);
    expect(closed.headers.get('Retry-After')).toBe('1');
    const local = [];
    for (let call = 0; call < 3; call += 1) local.push(await fetch(`${url}/search`));
    expect(local.map(({ status }) => status)).toEqual([200, 200, 429]);
    expect(await local[0]?.json()).toEqual({ remaining: 1, source: 'local' });
    await server.start();
    await until('it decides again', async () => {
      const response = (await (await fetch(url)).json()) as { source: string };
      return response.source === 'server';
    });
  });
});
