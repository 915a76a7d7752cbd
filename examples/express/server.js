// A service with limits: for each client, closed, local, several at once, and by how many at once.
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
redis.on('error', () => {}); // it connects again by itself
redis.connect().catch(() => {});
const limiter = new Limiter(redis, {
  prefix: 'example',
  hashTag: 'subject', // in a cluster the rules of a client are in one slot
  timeoutMs: Number(TIMEOUT_MS),
  backend,
});
limiter.ready().catch((error) => console.error(`no limits yet: ${error.message}`));

// Ten at once, then one every six seconds. Open: without the limiter the page is served.
const api = gcra('api', 10, 10, '60s');
// Closed: a password is not looked at without a limit.
const login = slidingLog('login', 5, '15m', { onError: 'deny' });
// One of two processes: each lets half of the limit through while the server is away.
const search = gcra('search', 4, 4, '60s', { onError: 'local', localShare: 0.5 });
const day = fixed('day', 3, '1d');
// One export at once: the permit comes back when the response ends, or the client goes.
const exports = lease('exports', 1, '30s');

const trustedProxies = TRUSTED_PROXIES.split(',').filter((name) => name !== '');
const degradedHeader = 'X-Limiter-Degraded';
const limit = (rule, options) =>
  rateLimit({ limiter, rule, trustedProxies, degradedHeader, ...options });

/** What is left of the caller's allowance, and who counted. */
function told({ rateLimit: { remaining, source } }, response) {
  response.json({ remaining, source });
}

/** Rows that take their time. */
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
  pipeline(Readable.from(rows()), response).catch(() => {}); // the client has gone
});
// By a header that says who it is: without it, 400.
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
