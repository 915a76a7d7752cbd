// One process of `make bench-clients`: replies to each JSON line of its input with a JSON line.
//
//   node main.js /path/to/server.sock
//
// The reply to a job of the scenario `local` or `forget` is the median of one call.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { Redis } from 'ioredis';
import { RedisStore } from 'rate-limit-redis';
import { RateLimiterRedis } from 'rate-limiter-flexible';
import { fixed, Limiter, sliding } from 'redis-throttle-client';

const [path] = process.argv.slice(2);
const { dependencies } = createRequire(import.meta.url)('./package.json'); // pinned

/**
 * For each contestant, a function that returns `call` and `close`. `call` makes one call: it
 * returns true if the call is allowed and false if it is denied, and throws in an error.
 */
const contestants = {
  ours: async ({ key, limit, period_s, denial_cache, prefetch = 1 }) => {
    const client = new Redis({ path });
    const denialCache = denial_cache ? 10_000 : 0;
    const limiter = new Limiter(client, { denialCache, timeoutMs: 1000, onError: 'deny' });
    await limiter.ready();
    const rule = fixed('bench', limit, period_s, { prefetch });
    const call = async () => {
      const { allowed, degraded } = await limiter.check(rule, key);
      if (degraded) throw new Error('no reply');
      return allowed;
    };
    return { call, close: () => limiter.close().then(() => client.disconnect()) };
  },
  'rate-limiter-flexible': async ({ key, limit, period_s }) => {
    const client = new Redis({ path });
    const storeClient = client;
    const limiter = new RateLimiterRedis({ storeClient, points: limit, duration: period_s });
    const call = async () => {
      try {
        await limiter.consume(key);
        return true;
      } catch (denial) {
        if (denial instanceof Error) throw denial;
        return false;
      }
    };
    return { call, close: async () => client.disconnect() };
  },
  'express-rate-limit with rate-limit-redis': async ({ key, limit, period_s }) => {
    const client = new Redis({ path });
    const store = new RedisStore({ sendCommand: (command, ...args) => client.call(command, args) });
    await store.init({ windowMs: period_s * 1000, limit });
    const call = async () => (await store.increment(key)).totalHits <= limit;
    return { call, close: async () => client.disconnect() };
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

/** Returns the median time of a call in us. `call` gets the number of the call. */
async function median(calls, call) {
  const latencies = new Latencies();
  for (let number = 0; number < calls; number += 1) {
    const begin = performance.now();
    await call(number);
    latencies.add(performance.now() - begin);
  }
  return latencies.microsecondsAt(0.5)[0];
}

const medians = {
  /** A sliding window in this process, after `calls` calls of its key. */
  local: async ({ calls, key }) => {
    // No server listens there.
    const client = new Redis({ path: `${path}.down`, lazyConnect: true });
    client.on('error', () => {});
    const limiter = new Limiter(client, { onError: 'local' });
    const window = sliding('local', 2 * calls, '1h');
    const call = () => limiter.check(window, key);
    await median(calls, call);
    const p50_us = await median(1000, call);
    await limiter.close();
    client.disconnect();
    return { p50_us, errors: limiter.counters.denied };
  },
  /** `forget` and `refund` together, with `denials` denials in the cache. */
  forget: async ({ denials }) => {
    const client = new Redis({ path });
    const options = { denialCache: denials, denialCacheMaxMs: 3_600_000, timeoutMs: 1000 };
    const limiter = new Limiter(client, options);
    const rule = fixed('forget', 1, '1h');
    for (let begin = 0; begin < denials; begin += 100) {
      const subjects = Array.from({ length: 100 }, (_, at) => String(begin + at));
      await Promise.all(subjects.map((subject) => limiter.check(rule, subject, { cost: 2 })));
    }
    const both = await median(1000, async (number) => {
      await limiter.forget(rule, String(number));
      await limiter.refund(rule, String(number));
    });
    await limiter.close();
    client.disconnect();
    return { p50_us: both / 2, errors: limiter.counters.degraded };
  },
};

async function run(job) {
  const measure = medians[job.scenario];
  if (measure !== undefined) return measure(job);
  const { call, close } = await contestants[job.contestant](job);
  await call(); // connects, and loads its script
  const counts = { allowed: 0, denied: 0, errors: 0 };
  const latencies = new Latencies();
  const cpu = process.cpuUsage();
  const begin = performance.now();
  const end = begin + job.seconds * 1000;
  const worker = async () => {
    for (let now = performance.now(); now < end; ) {
      try {
        counts[(await call()) ? 'allowed' : 'denied'] += 1;
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
