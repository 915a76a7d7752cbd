/**
 * A program that ends by itself. `turns`: closes its client a number of turns of the event loop
 * after a limiter began to dial, and prints the ms until its end. `wait`: has no connections while
 * it waits, and then prints `waited`.
 */
import { gcra, Limiter } from '../../dist/index.js';

const [driver, port, action, turns] = process.argv.slice(2);
const name = driver.replace('-6', '').replace('node-', '');
const library = await import(name);
const client = driver.startsWith('node-redis')
  ? library.createClient({ socket: { port: Number(port) } })
  : new (library.Redis ?? library.default)({ port: Number(port), lazyConnect: true });
client.on('error', () => {});
await client.connect();
const limiter = new Limiter(client, { timeoutMs: 60_000 });
if (action === 'wait') {
  const rule = gcra(driver, 1, 1, '1s');
  await limiter.check(rule, '42');
  const waited = limiter.wait(rule, '42', { maxWaitMs: 5000 });
  await new Promise((done) => setTimeout(done, 100));
  if (client.destroy) client.destroy();
  else client.disconnect();
  await waited;
  await limiter.close();
  console.log('waited');
} else {
  limiter.check(gcra('api', 1, 1, '1s'), '42');
  for (let left = Number(turns); left > 0; left -= 1) await new Promise(setImmediate);
  if (client.destroy) client.destroy();
  else client.disconnect();
  const beganMs = performance.now();
  process.on('exit', () => console.log(performance.now() - beganMs));
}
