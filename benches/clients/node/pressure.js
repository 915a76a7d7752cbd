// Makes calls as a job describes, for `make bench-clients ONLY=pressure`; python/pressure.py
// describes jobs and replies.
//
//   node pressure.js HOST:PORT ioredis|node-redis
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { fixed, gcra, Limiter } from 'redis-throttle-client';

const [address, driver] = process.argv.slice(2);
const [host, port] = address.split(':');
const client =
  driver === 'ioredis'
    ? new Redis({ host, port: Number(port), lazyConnect: true })
    : createClient({ socket: { host, port: Number(port) } });
client.on('error', () => {}); // the limiter reports it

async function run(job, limiter) {
  const { name, keys, calls, callers, seconds, rate, burst, peek_every: peekEvery } = job;
  const { kind, limit, rate: refill, period_s: period } = job.rule;
  const rule =
    kind === 'fixed' ? fixed('bench', limit, period) : gcra('bench', limit, refill, period);
  const took = {};
  const begin = performance.now();
  const began_ms = performance.timeOrigin + begin;
  const now = () => Math.round((performance.now() - begin) * 1000);
  const call = async (number) => {
    const isPeek = peekEvery > 0 && number % peekEvery === 0;
    const began = now();
    let outcome = isPeek ? 'peek ' : '';
    try {
      const subject = `${name}-${number % keys}`;
      const decision = await (isPeek ? limiter.peek(rule, subject) : limiter.check(rule, subject));
      outcome += `${decision.allowed ? 'allowed' : 'denied'} ${decision.source}`;
      if (decision.reason) outcome += ` ${decision.reason}`;
    } catch (error) {
      outcome += `raised ${error.name}`;
    }
    took[outcome] ??= [];
    took[outcome].push(began, now() - began);
  };
  let next = 0;
  const caller = async () => {
    while (next < calls && (seconds === 0 || now() < seconds * 1e6)) {
      const number = next;
      next += 1;
      await call(number);
    }
  };
  const started = [];
  if (rate > 0) {
    for (let number = 0; number < calls; number += 1) {
      const wait = ((number - burst) / rate) * 1000 - (performance.now() - begin);
      if (wait > 0) await sleep(wait);
      started.push(call(number));
    }
  } else {
    for (let at = 0; at < callers; at += 1) started.push(caller());
  }
  await Promise.all(started);
  return { began_ms, calls: took };
}

let limiter;
for await (const line of createInterface({ input: process.stdin })) {
  limiter ??= new Limiter(client);
  process.stdout.write(`${JSON.stringify(await run(JSON.parse(line), limiter))}\n`);
}
await limiter?.close();
client.disconnect?.();
process.exit();
