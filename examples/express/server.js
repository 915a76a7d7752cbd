// A service with limits: per client address and per API key, with each `onError`, with several
// rules in one call, and with a lease.
//
//   REDIS_URL=redis://127.0.0.1:7777 PORT=8080 node server.js
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import express from 'express';
import { createClient } from 'redis';
import { fixed, gcra, Limiter, lease, slidingLog } from 'redis-throttle-client';
import { rateLimit } from 'redis-throttle-client/express';

const { REDIS_URL: url = 'redis://127.0.0.1:7777', BACKEND: backend = 'auto' } = process.env;
const { HOST = '127.0.0.1', PORT = '8080' } = process.env;
const { TIMEOUT_MS = '100', EXPORT_ROWS = '50', TRUSTED_PROXIES = '' } = process.env;

const redis = createClient({ url, disableOfflineQueue: true });
redis.on('error', () => {}); // the client reconnects by itself
redis.connect().catch(() => {});
const limiter = new Limiter(redis, {
  prefix: 'example',
  hashTag: 'subject', // in a cluster, the keys of all rules of one client are in one slot
  timeoutMs: Number(TIMEOUT_MS),
  backend,
});
limiter.ready().catch((error) => console.error(`no limits yet: ${error.message}`));

// Ten at once, then one every six seconds. If Redis is down, the page is served.
const api = gcra('api', 10, 10, '60s');
// Five attempts in 15 minutes. If Redis is down, no password is checked.
const login = slidingLog('login', 5, '15m', { onError: 'deny' });
// For a service of two processes: if Redis is down, each enforces half of the limit.
const search = gcra('search', 4, 4, '60s', { onError: 'local', localShare: 0.5 });
const day = fixed('day', 3, '1d');
// One export at a time. The permit is released when the response ends or the client disconnects.
const exports = lease('exports', 1, '30s');

const trustedProxies = TRUSTED_PROXIES.split(',').filter((name) => name !== '');
const degradedHeader = 'X-Limiter-Degraded';
const limit = (rules, options) =>
  rateLimit({ limiter, rules, trustedProxies, degradedHeader, ...options });

/** Reports the units left and the source of the decision. */
function told({ rateLimit: { remaining, source } }, response) {
  response.json({ remaining, source });
}

/** Yields rows slowly. */
async function* rows() {
  for (let row = 0; row < Number(EXPORT_ROWS); row += 1) {
    yield 'row\n'.repeat(100);
    await sleep(100);
  }
}

const app = express();
app.get('/', limit(api), told);
app.post('/login', limit(login), told);
app.get('/search', limit(search), told);
app.get('/report', limit([api, day]), told);
app.get('/export', limit(exports), (_request, response) => {
  response.type('text/plain');
  pipeline(Readable.from(rows()), response).catch(() => {}); // the client has disconnected
});
// Limits by the API key in a header. A request without the header is answered 400.
app.get('/me', limit(api, { key: ({ headers }) => headers['x-api-key'] }), told);

const server = app.listen(Number(PORT), HOST, () => {
  const { address, family, port } = server.address();
  console.log(`listening on http://${family === 'IPv6' ? `[${address}]` : address}:${port}`);
});
process.once('SIGTERM', async () => {
  server.close();
  server.closeAllConnections();
  await limiter.close();
  redis.destroy();
});
