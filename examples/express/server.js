// A service with limits: per client address and per API key, for pages, logins and a chat.
//
//   REDIS_URL=redis://127.0.0.1:7777 PORT=8080 node server.js
import { createHash, timingSafeEqual } from 'node:crypto';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import express from 'express';
import { createClient } from 'redis';
import {
  DeniedError,
  fixed,
  gcra,
  Limiter,
  lease,
  quota,
  slidingLog,
  tokenBucket,
} from 'redis-throttle-client';
import { rateLimit } from 'redis-throttle-client/express';

const { REDIS_URL: url = 'redis://127.0.0.1:7777', BACKEND: backend = 'auto' } = process.env;
const { HOST = '127.0.0.1', PORT = '8080' } = process.env;
const { TIMEOUT_MS = '1000', SILENCE_MS = '100' } = process.env;
const { EXPORT_ROWS = '50', TRUSTED_PROXIES = '' } = process.env;

const redis = createClient({ url, disableOfflineQueue: true });
redis.on('error', () => {}); // the client reconnects by itself
redis.connect().catch(() => {});
const limiter = new Limiter(redis, {
  prefix: 'example',
  hashTag: 'subject', // in a cluster, the keys of all rules of one client are in one slot
  timeoutMs: Number(TIMEOUT_MS),
  silenceMs: Number(SILENCE_MS),
  backend,
});
limiter.ready().catch((error) => console.error(`no limits yet: ${error.message}`));

// Ten at once, then one every six seconds. If Redis is down, the page is served.
const api = gcra('api', 10, 10, '60s');
// For the API keys of a better plan.
const gold = gcra('gold', 30, 30, '60s');
// Five wrong passwords in 15 minutes. If Redis is down, no password is checked.
const login = slidingLog('login', 5, '15m', { count: 'failures', onError: 'deny' });
// For a service of two processes: if Redis is down, each enforces half of the limit.
const search = gcra('search', 4, 4, '60s', { onError: 'local', localShare: 0.5 });
const day = fixed('day', 3, '1d');
// One export at a time. The permit is released when the response ends, also without its client.
const exports = lease('exports', 1, '30s');
// Chats: two at once, 1,000 tokens per minute, 10,000 per month. Tokens cost money: if Redis is
// down, no chat is served.
const chats = lease('chats', 2, '30s');
const tokens = tokenBucket('tokens', 1000, 1000, '60s');
const budget = quota('budget', 10_000, 'month', { onError: 'deny' });

const trustedProxies = TRUSTED_PROXIES.split(',').filter((name) => name !== '');
const degradedHeader = 'X-Limiter-Degraded';
const limit = (rules, options) =>
  rateLimit({ limiter, rules, trustedProxies, degradedHeader, ...options });

/** Reports the units left and the source of the decision. */
function showDecision({ rateLimit: { remaining, source } }, response) {
  response.json({ remaining, source });
}

const digest = (text) => createHash('sha256').update(text).digest();
const ALICE = digest('Basic YWxpY2U6c2VjcmV0'); // alice:secret

/** Checks a password. The middleware refunds the attempt if the password is right. */
function logIn(request, response) {
  if (timingSafeEqual(digest(request.headers.authorization ?? ''), ALICE)) {
    showDecision(request, response);
  } else {
    response.status(401).set('WWW-Authenticate', 'Basic realm="example"').end();
  }
}

/** Returns the rule of an API key's plan, which a real service looks up. */
const plan = ({ headers }) => (headers['x-api-key']?.startsWith('gold-') ? gold : api);

/** Takes the estimated tokens of a reply, and settles those that it took. */
async function chat({ headers, query }, response) {
  const key = headers['x-api-key'];
  const [estimate, words] = [query.estimate, query.words].map(number);
  if (!key || estimate === undefined || words === undefined) {
    response.status(400).type('text').send('expected X-Api-Key, estimate and words');
    return;
  }
  const items = [chats.of(key), tokens.of(key).cost(estimate), budget.of(key).reserve(estimate)];
  const admitted = await limiter.admit(items);
  const reply = [];
  try {
    for await (const word of model(words)) reply.push(word);
    admitted.settle(tokens, reply.length);
    admitted.settle(budget, reply.length);
  } finally {
    await admitted.finish();
  }
  const { decision } = admitted;
  response.set(decision.headers());
  response.json({ remaining: decision.remaining, words: reply.length });
}

/** Responds to a denial as the middleware does. */
function refuse(error, _request, response, next) {
  if (!(error instanceof DeniedError)) return next(error);
  const problem = error.decision.problem();
  response.status(problem.status).set(error.decision.headers());
  response.set({ 'Cache-Control': 'no-store', 'Content-Type': 'application/problem+json' });
  response.end(JSON.stringify(problem));
}

/** Returns a number of at most four digits in the query. */
function number(text) {
  return /^[0-9]{1,4}$/.test(text) ? Number(text) : undefined;
}

/** Stands for a language model. */
async function* model(words) {
  for (let word = 0; word < words; word += 1) yield 'word';
}

/** Yields rows slowly. */
async function* rows() {
  for (let row = 0; row < Number(EXPORT_ROWS); row += 1) {
    yield 'row\n'.repeat(100);
    await sleep(100);
  }
}

const app = express();
app.get('/', limit(api), showDecision);
app.post('/login', limit(login), logIn);
app.get('/search', limit(search), showDecision);
app.get('/report', limit([api, day]), showDecision);
app.get('/export', limit(exports), (_request, response) => {
  response.type('text/plain');
  // If the client has disconnected, this releases the permit.
  pipeline(Readable.from(rows()), response).catch(() => response.end());
});
// Limits by the API key in a header. A request without the header gets a 400.
app.get('/me', limit(plan, { key: ({ headers }) => headers['x-api-key'] }), showDecision);
app.post('/chat', chat);
app.use(refuse);

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
