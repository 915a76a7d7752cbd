import { serve } from '@hono/node-server';
import { Hono } from 'hono';
import { Redis } from 'ioredis';
import { gcra, Limiter } from 'redis-throttle-client';
import { rateLimit } from 'redis-throttle-client/hono';

const limiter = new Limiter(new Redis('redis://127.0.0.1:7777'));
const free = gcra('free', 10, 10, '1m');
const paid = gcra('paid', 1000, 1000, '1m', { count: ({ status }) => status < 500 });

const app = new Hono();
app.use(
  rateLimit({
    limiter,
    rules: [async (context) => (context.req.header('X-Plan') === 'paid' ? paid : free)],
    key: (context) => context.req.header('X-User'),
    onDenied: (context, decision) => context.json({ again: decision.retryAfterMs }, 429),
  }),
);
app.get('/', (context) => context.json({ remaining: context.get('rateLimit')?.remaining }));
serve({ fetch: app.fetch, port: 8080 });
