// One process of `make bench-clients`: answers each JSON line of its input with a JSON line.
//
//   node main.js /path/to/server.sock
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { Redis } from 'ioredis';
import { RedisStore } from 'rate-limit-redis';
import { RateLimiterRedis } from 'rate-limiter-flexible';
import { fixed, Limiter } from 'redis-throttle-client';

const [path] = process.argv.slice(2);
const { dependencies } = createRequire(import.meta.url)('./package.json'); // pinned

/**
 * For each contestant, a function that returns `ask` and `close`. `ask` makes one call: it returns
 * true if the call is allowed and false if it is denied, and throws in an error.
 */
const contestants = {
  ours: async ({ key, limit, period_s, denial_cache, prefetch = 1 }) => {
    const client = new Redis({ path });
    const denialCache = denial_cache ? 10_000 : 0;
    const limiter = new Limiter(client, { denialCache, timeoutMs: 1000, onError: 'deny' });
    await limiter.ready();
    const rule = fixed('bench', limit, period_s, { prefetch });
    const ask = async () => {
      const { allowed, error } = await limiter.check(rule, key);
      if (error !== undefined) throw error;
      return allowed;
    };
    return { ask, close: () => limiter.close().then(() => client.disconnect()) };
  },
  'rate-limiter-flexible': async ({ key, limit, period_s }) => {
    const client = new Redis({ path });
    const storeClient = client;
    const limiter = new RateLimiterRedis({ storeClient, points: limit, duration: period_s });
    const ask = async () => {
      try {
        await limiter.consume(key);
        return true;
      } catch (denial) {
        if (denial instanceof Error) throw denial;
        return false;
      }
    };
    return { ask, close: async () => client.disconnect() };
  },
  'express-rate-limit with rate-limit-redis': async ({ key, limit, period_s }) => {
    const client = new Redis({ path });
    const store = new RedisStore({ sendCommand: (command, ...args) => client.call(command, args) });
    await store.init({ windowMs: period_s * 1000, limit });
    const ask = async () => (await store.increment(key)).totalHits <= limit;
    return { ask, close: async () => client.disconnect() };
  },
};

/** A list of latencies, in an array that grows when it is full. */
class Latencies {
  #values = new Float64Array(1 << 16);
  #length = 0;

  add(ms) {
    if (this.#length === this.#values.length) {
      const larger = new Float64Array(2 * this.#length);
      larger.set(this.#values);
      this.#values = larger;
    }
    this.#values[this.#length] = ms;
    this.#length += 1;
  }

  microsecondsAt(...shares) {
    const sorted = this.#values.subarray(0, this.#length).sort();
    const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
    return shares.map((share) => Math.round((at(share) ?? 0) * 1e4) / 10);
  }
}

async function run(job) {
  const { ask, close } = await contestants[job.contestant](job);
  await ask(); // connects, and loads its script
  const counts = { allowed: 0, denied: 0, errors: 0 };
  const latencies = new Latencies();
  const cpu = process.cpuUsage();
  const begin = performance.now();
  const end = begin + job.seconds * 1000;
  const worker = async () => {
    for (let now = performance.now(); now < end; ) {
      try {
        counts[(await ask()) ? 'allowed' : 'denied'] += 1;
      } catch {
        counts.errors += 1;
      }
      const after = performance.now();
      latencies.add(after - now);
      now = after;
    }
  };
  await Promise.all(Array.from({ length: job.in_flight }, worker));
  const seconds = (performance.now() - begin) / 1000;
  const { user, system } = process.cpuUsage(cpu);
  await close();
  const [p50_us, p99_us] = latencies.microsecondsAt(0.5, 0.99);
  const calls = counts.allowed + counts.denied + counts.errors;
  return { calls, seconds, cpu_seconds: (user + system) / 1e6, p50_us, p99_us, ...counts };
}

const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

const own = createRequire(import.meta.url)('redis-throttle-client/package.json');
const ioredis = `ioredis ${dependencies.ioredis}`;
say({
  language: 'node',
  contestants: {
    ours: `redis-throttle-client ${own.version}, ${ioredis}`,
    'rate-limiter-flexible': `${dependencies['rate-limiter-flexible']}, ${ioredis}`,
    'express-rate-limit with rate-limit-redis': `${dependencies['rate-limit-redis']}, ${ioredis}`,
  },
});
const jobs = createInterface({ input: process.stdin });
for await (const line of jobs) say(await run(JSON.parse(line)));
