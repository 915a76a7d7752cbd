/**
 * A service of several processes, started by `node:cluster`. Each worker has its own client and
 * limiter, and makes the number of calls that it is given. Prints the sum of the allowed calls.
 */
import cluster from 'node:cluster';
import { Redis } from 'ioredis';
import { gcra, Limiter } from '../../dist/index.js';

const [port, prefetch, calls] = process.argv.slice(2).map(Number);
if (cluster.isPrimary) {
  const workers = [0, 1, 2].map(() => cluster.fork());
  const counts = workers.map((worker) => new Promise((done) => worker.once('message', done)));
  const allowed = await Promise.all(counts);
  const ended = workers.map((worker) => new Promise((done) => worker.once('exit', done)));
  for (const worker of workers) worker.send('end');
  const codes = await Promise.all(ended);
  console.log(JSON.stringify({ allowed, codes }));
} else {
  const client = new Redis({ port });
  const limiter = new Limiter(client, { timeoutMs: 60_000 });
  const rule = gcra('api', 30, 1, '60s', { prefetch });
  let allowed = 0;
  for (let call = 0; call < calls; call += 1) {
    const decision = await limiter.check(rule, '42');
    if (decision.degraded) throw new Error('no reply');
    if (decision.allowed) allowed += 1;
  }
  process.send(allowed);
  await new Promise((done) => process.once('message', done));
  await limiter.close();
  client.disconnect();
  process.disconnect();
}
