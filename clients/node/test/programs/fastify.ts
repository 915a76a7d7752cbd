import rateLimit from '@fastify/rate-limit';
import Fastify from 'fastify';
import { Redis } from 'ioredis';
import { Limiter } from 'redis-throttle-client';
import { redisThrottleStore } from 'redis-throttle-client/fastify-rate-limit';

const limiter = new Limiter(new Redis('redis://127.0.0.1:7777'));

const app = Fastify();
await app.register(rateLimit, {
  max: 10,
  timeWindow: '1 minute',
  store: redisThrottleStore({ limiter }),
});
app.get('/', () => 'hello');
await app.listen({ port: 8080 });
