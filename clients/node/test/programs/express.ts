import express from 'express';
import { Redis } from 'ioredis';
import { backoff, gcra, Limiter } from 'redis-throttle-client';
import { rateLimit } from 'redis-throttle-client/express';

const limiter = new Limiter(new Redis('redis://127.0.0.1:7777'));
const free = gcra('free', 10, 10, '1m');
const paid = gcra('paid', 1000, 1000, '1m');
const login = backoff('login', 3, '1s', '15m', '1d', { count: 'failures' });

const app = express();
app.use(
  rateLimit({
    limiter,
    rules: [(request) => (request.header('X-Plan') === 'paid' ? paid : free)],
    key: (request) => request.header('X-User'),
    onDenied: (_request, response, _next, decision) => {
      response.json({ retryAfterMs: decision.retryAfterMs });
    },
  }),
);
app.post('/login', rateLimit({ limiter, rules: login }), (_request, response) => {
  response.sendStatus(401);
});
// The path keeps its parameters, and the key gets a request of Express.
app.get(
  '/of/:id',
  rateLimit({ limiter, rules: free, key: ({ ip }) => ip }),
  (request, response) => {
    const id: string = request.params.id;
    response.send(id);
  },
);
app.get('/', (request, response) => {
  response.json({ remaining: request.rateLimit?.remaining });
});
app.listen(8080);
