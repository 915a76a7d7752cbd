/**
 * Applications of each framework. The middleware limits a route without a body, and one that reads
 * its body and responds with 400 if that fails.
 */
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { createAdaptorServer } from '@hono/node-server';
import express from 'express';
import Fastify from 'fastify';
import { Hono } from 'hono';
import type { Limiter, Rule } from '../../src/index.js';
import { rateLimit } from '../../src/web/express.js';
import { rateLimit as honoRateLimit } from '../../src/web/hono.js';

interface Route {
  limiter: Limiter;
  rule: Rule;
  /** Returns the status of the response to a request that is not denied. */
  respond(): number | Promise<number>;
  /** Called before the response to a request whose body could not be read. */
  onCut?(): void;
}

/** Makes the server of an application. Its requests share one key. */
type Application = (route: Route) => Promise<Server>;

const key = () => 'all';

export const applications: Record<string, Application> = {
  Express: async ({ limiter, rule, respond, onCut }) => {
    const app = express().use(rateLimit({ limiter, rules: rule, key }));
    app.get('/', async (_, response) => {
      response.status(await respond()).send('ok');
    });
    app.post('/', express.text({ type: () => true }), (_, response) => void response.send('ok'));
    app.use(((_error, _request, response, _next) => {
      onCut?.();
      response.status(400).send('cut');
    }) as express.ErrorRequestHandler);
    return createServer(app);
  },
  'Fastify with the middleware of Express': async ({ limiter, rule, respond, onCut }) => {
    const limited = rateLimit({ limiter, rules: rule, key });
    const app = Fastify();
    app.addHook('onRequest', (request, reply, next) => {
      void limited(request.raw, reply.raw, (error) => next(error as Error | undefined));
    });
    app.get('/', async (_, reply) => reply.code(await respond()).send('ok'));
    app.post('/', async (_, reply) => reply.send('ok'));
    app.setErrorHandler((_error, _request, reply) => {
      onCut?.();
      return reply.code(400).send('cut');
    });
    await app.ready();
    return app.server;
  },
  Hono: async ({ limiter, rule, respond, onCut }) => {
    const app = new Hono().use(honoRateLimit({ limiter, rules: rule, key }));
    app.get('/', async (context) => context.text('ok', (await respond()) as 200));
    app.post('/', async (context) => {
      try {
        return context.text(await context.req.text());
      } catch {
        onCut?.();
        return context.text('cut', 400);
      }
    });
    return createAdaptorServer({ fetch: app.fetch }) as Server;
  },
};

/** A server that listens. */
export interface Listening {
  readonly port: number;
  /** The number of connections that the server has closed, or seen closed. */
  readonly closed: number;
  stop(): void;
}

export async function listen(server: Server): Promise<Listening> {
  let closed = 0;
  server.on('connection', (socket) => {
    socket.once('close', () => {
      closed += 1;
    });
  });
  server.listen(0, '127.0.0.1');
  await new Promise((done) => server.once('listening', done));
  return {
    port: (server.address() as AddressInfo).port,
    get closed() {
      return closed;
    },
    stop() {
      server.closeAllConnections();
      server.close();
    },
  };
}

/**
 * Sends a request, and resets its connection.
 *
 * @param sent Called when the request is sent, with a function that resets the connection. An
 * response ends the request too.
 */
export function reset(port: number, sent: (act: () => void) => void): Promise<void> {
  return new Promise((resolve) => {
    const client = connect(port, '127.0.0.1', () => {
      const act = () => void client.resetAndDestroy();
      client.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n', () => sent(act));
    });
    client.on('error', () => {});
    client.once('data', () => client.destroy());
    client.on('close', () => resolve());
  });
}
