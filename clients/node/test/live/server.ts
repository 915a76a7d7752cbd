/**
 * Starts and stops real servers by their process ids: with the module, or configured for the
 * library as functions or as a script.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { Backend } from '../../src/index.js';

const ROOT = resolve(import.meta.dirname, '../../../..');
export const MODULE: string =
  process.env.RL_MODULE ?? join(ROOT, 'target/release/libredis_throttle.so');

/** The back end of the servers in this run. The limiters find it by themselves. */
export const BACKEND = (process.env.RL_BACKEND ?? 'module') as Backend;

/** The name under which the server counts the commands that decide. */
export const DECIDING: string = { module: 'rl.gcra', functions: 'fcall', script: 'evalsha' }[
  BACKEND
];

/** Options that disable functions, as on an older server. */
const WITHOUT_FUNCTIONS = ['FCALL', 'FCALL_RO', 'FUNCTION'].flatMap((command) => [
  '--rename-command',
  command,
  '',
]);

const OPTIONS: Record<Backend, string[]> = {
  module: ['--loadmodule', MODULE, '--rl.debug-commands', 'yes'],
  functions: [],
  script: WITHOUT_FUNCTIONS,
};

function program(): string {
  if (process.env.RL_SERVER !== undefined) return process.env.RL_SERVER;
  const fetched = join(ROOT, '.cache/servers/redis-8.0/server');
  return existsSync(fetched) ? fetched : 'redis-server';
}

export interface Server {
  readonly port: number;
  /** The port of the cluster bus. */
  readonly busPort: number;
  /** The test's own connection, for statistics and the frozen clock. */
  readonly admin: Redis;
  /** Controls the server's clock: freezes it, then advances it. */
  readonly clock: { freeze(nowMs?: number): Promise<unknown>; advance(ms: number): unknown };
  /** Stops the process, and waits for its exit. */
  stop(): Promise<void>;
  /** Starts the server without data on the same port. */
  start(): Promise<void>;
  /** Sends a signal to the process. */
  signal(name: 'SIGSTOP' | 'SIGCONT'): void;
}

export async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await new Promise((done) => probe.once('listening', done));
  const { port } = probe.address() as { port: number };
  await new Promise((done) => probe.close(done));
  return port;
}

/**
 * The ms within which a limiter decides by its server again. The breaker's pause is 1200 ms at
 * most; on a busy machine a reply may be late, which costs one more pause. The timelines have the
 * exact times.
 */
export const HEALED_MS = 6000;

/** Repeats `test` until it is true; fails after a minute, which a busy machine may need. */
export async function until(what: string, test: () => Promise<boolean> | boolean): Promise<void> {
  const end = performance.now() + 60_000;
  while (!(await test())) {
    if (performance.now() > end) throw new Error(`waited in vain until ${what}`);
    await sleep(5);
  }
}

/**
 * Compiles the library to preload into a server. It reports the time from a file, in microseconds.
 */
function preloaded(): string {
  const library = resolve(import.meta.dirname, '../../node_modules/.cache/redis-throttle-clock.so');
  if (existsSync(library)) return library;
  mkdirSync(resolve(library, '..'), { recursive: true });
  const draft = `${library}.${process.pid}`;
  const source = join(ROOT, 'tests/functions/clock.c');
  execFileSync('cc', ['-shared', '-fPIC', '-O1', '-o', draft, source]);
  renameSync(draft, library);
  return library;
}

export function serve(...options: string[]): Promise<Server> {
  return serveFor(BACKEND, ...options);
}

export async function serveFor(backend: Backend, ...options: string[]): Promise<Server> {
  const folder = mkdtempSync(join(tmpdir(), 'redis-throttle-node-'));
  const [port, busPort] = [await freePort(), await freePort()];
  const args = ['--port', String(port), '--bind', '127.0.0.1', '--dir', folder, '--save', ''];
  args.push(...OPTIONS[backend], '--enable-debug-command', 'yes');
  if (options.includes('--cluster-enabled')) args.push('--cluster-port', String(busPort));
  args.push(...options);
  let child: ChildProcess | undefined;
  const retryStrategy = () => 20;
  const admin = new Redis({ port, lazyConnect: true, retryStrategy, maxRetriesPerRequest: null });
  admin.on('error', () => {});
  const file = `${folder}.clock`;
  let shownMs = 0;
  const show = (nowMs: number) => {
    shownMs = nowMs;
    const instant = Buffer.alloc(8);
    instant.writeBigInt64LE(BigInt(nowMs) * 1000n);
    writeFileSync(file, instant, { flag: existsSync(file) ? 'r+' : 'w' });
  };
  const clockOf = () =>
    backend === 'module' ? {} : { LD_PRELOAD: preloaded(), RL_TEST_CLOCK: file };
  const set = (...words: string[]) => admin.call('RL.DEBUG', 'CLOCK', ...words);
  const clock = {
    freeze: async (nowMs?: number) => {
      if (backend === 'module') await set('FREEZE', ...(nowMs ? [`${nowMs}000`] : []));
      else show(nowMs ?? Date.now());
    },
    advance: async (ms: number) => {
      if (backend === 'module') await set('ADVANCE', `${ms}ms`);
      else show(shownMs + ms);
    },
  };
  const start = async () => {
    mkdirSync(folder, { recursive: true });
    if (backend !== 'module') show(0);
    child = spawn(program(), args, { stdio: 'ignore', env: { ...process.env, ...clockOf() } });
    await admin.ping();
  };
  const end = async () => {
    const runs = child?.exitCode === null && child.signalCode === null;
    const gone = runs && new Promise((done) => child?.once('exit', done));
    child?.kill('SIGKILL');
    await gone;
  };
  await start();
  return {
    port,
    busPort,
    admin,
    clock,
    start,
    signal: (name) => void child?.kill(name),
    stop: async () => {
      await end();
      rmSync(folder, { recursive: true, force: true });
      rmSync(file, { force: true });
    },
  };
}

/** Returns the number of calls of a command. */
export async function callsOf(admin: Redis, command: string): Promise<number> {
  const stats = await admin.info('commandstats');
  const line = new RegExp(`cmdstat_${command}:calls=(\\d+)`, 'i').exec(stats);
  return Number(line?.[1] ?? 0);
}

/** Starts three primaries that share the slots. */
export async function serveCluster(backend = BACKEND): Promise<Server[]> {
  const options = ['--cluster-enabled', 'yes', '--cluster-node-timeout', '1000'];
  const nodes = await Promise.all([0, 1, 2].map(() => serveFor(backend, ...options)));
  const slots = [0, 5461, 10_923, 16_384];
  for (const [at, { admin }] of nodes.entries()) {
    await admin.call(
      'CLUSTER',
      'ADDSLOTSRANGE',
      String(slots[at]),
      String((slots[at + 1] as number) - 1),
    );
  }
  await Promise.all(nodes.slice(1).map((node) => meet(nodes[0] as Server, node, 3)));
  for (const { admin } of nodes) {
    await until('the cluster is whole', async () => {
      return /cluster_state:ok/.test(String(await admin.call('CLUSTER', 'INFO')));
    });
  }
  return nodes;
}

/**
 * Introduces two nodes to each other until both know `count` nodes. Repeats the introduction,
 * because the command may have no effect.
 */
export async function meet(one: Server, other: Server, count: number): Promise<void> {
  const known = new RegExp(`cluster_known_nodes:${count}\\b`);
  let polls = 0;
  await until('they know each other', async () => {
    if (polls % 100 === 0) {
      await one.admin.call('CLUSTER', 'MEET', '127.0.0.1', other.port, other.busPort);
    }
    polls += 1;
    const replies = [one, other].map(({ admin }) => admin.call('CLUSTER', 'INFO'));
    return (await Promise.all(replies)).every((info) => known.test(String(info)));
  });
}

/**
 * Returns the result of `what`, and the ms by which `what` took longer than a timer of the default
 * timeout. Both run at once, because a busy machine delays both. An unavailable server may cost 150
 * ms, 50 ms more than the timeout.
 */
export async function beyondTimeout<T>(what: () => Promise<T>): Promise<[T, number]> {
  const begin = performance.now();
  const timer = new Promise<number>((resolve) => {
    setTimeout(() => resolve(performance.now() - begin), 100);
  });
  const result = await what();
  const tookMs = performance.now() - begin;
  return [result, tookMs - (await timer)];
}
