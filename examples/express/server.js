// A service with limits: for each client, closed, local, and by how many at once.
//
//   REDIS_URL=redis://127.0.0.1:7777 BACKEND=auto PORT=8080 node server.js
import { setTimeout as sleep } from 'node:timers/promises';
import express from 'express';
import { createClient } from 'redis';
import { gcra, Limiter, lease, slidingLog, tokenBucket } from 'redis-throttle-client';
import { rateLimit } from 'redis-throttle-client/express';

const { REDIS_URL = 'redis://127.0.0.1:7777', BACKEND: backend = 'auto' } = process.env;
const { PORT = '8080', HOST = '127.0.0.1' } = process.env;
const trustedProxies = process.env.TRUSTED_PROXIES?.split(',') ?? [];

const redis = createClient({ url: REDIS_URL, disableOfflineQueue: true });
redis.on('error', () => {}); // it connects again by itself
redis.connect().catch(() => {});
const limiter = new Limiter(redis, { prefix: 'example', backend });
limiter.ready().catch((error) => console.error(`no limits yet: ${error.message}`));

const limit = (options) => rateLimit({ limiter, trustedProxies, ...options });

// Ten at once, then one every six seconds. Open: without the limiter the page is served.
const api = gcra('api', 10, 10, '60s');
// Closed: a password is not looked at without a limit.
const login = slidingLog('login', 5, '15m', { onError: 'deny' });
// One of two processes: each lets half of the limit through while the server is away.
const search = tokenBucket('search', 4, 4, '60s', { onError: 'local', localShare: 0.5 });
// Two reports at once for each client, twenty in a minute; one call for both.
const reports = lease('reports', 2, '30s');
const started = gcra('started', 20, 20, '60s');

const app = express();
app.get('/', limit({ rule: api }), (request, response) => {
  response.json({ hello: 'world', limited: request.rateLimit.source });
});
app.post('/login', limit({ rule: login }), (_request, response) => {
  response.json({ welcome: true });
});
const degradedHeader = 'X-Limiter-Degraded';
app.get('/search', limit({ rule: search, degradedHeader }), (request, response) => {
  response.json({ results: request.headers['x-limiter-degraded'] ? 1 : 10 });
});
app.get('/report', limit({ rule: [reports, started] }), async (request, response) => {
  await sleep(Number(request.query.ms ?? 1000));
  response.json({ report: 'done' });
});
// Behind a header that says who it is: without it, 400.
const key = ({ headers }) => headers['x-api-key'];
app.get('/me', limit({ rule: api, key }), (_request, response) => {
  response.json({ known: true });
});

const server = app.listen(Number(PORT), HOST, () => {
  console.log(`listening on http://${HOST}:${server.address().port}`);
});
process.once('SIGTERM', async () => {
  server.close();
  server.closeAllConnections();
  await limiter.close();
  redis.destroy();
});
