/** Starts applications of Express, and stops them after each test. */
import { type AddressInfo, connect, type Socket } from 'node:net';
import express from 'express';
import { afterEach } from 'vitest';
import { type ExpressOptions, rateLimit } from '../src/web/express.js';

const closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.splice(0)) close();
});

/** Starts the application, and returns its URL. */
export async function listen(app: express.Express, host = '127.0.0.1'): Promise<string> {
  const server = app.listen(0, host);
  closing.push(
    () => server.closeAllConnections(),
    () => server.close(),
  );
  await new Promise((done) => server.once('listening', done));
  const name = host.includes(':') ? `[${host}]` : host;
  return `http://${name}:${(server.address() as AddressInfo).port}/`;
}

/** Returns an application of one route, whose errors become 500 responses with their code. */
export function limited(
  options: ExpressOptions<express.Request, express.Response>,
  respond: express.RequestHandler = (_, response) => void response.send('ok'),
): express.Express {
  const onError: express.ErrorRequestHandler = (error, _request, response, _next) => {
    response.status(500).send(error.code ?? error.message);
  };
  return express().use(rateLimit(options)).all('/', respond).use(onError);
}

/** Sends a request that is never read, and returns its connection. */
export function sent(url: string): Socket {
  const client = connect(Number(new URL(url).port), '127.0.0.1');
  client.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  return client;
}

export async function until(test: () => boolean): Promise<void> {
  for (let turn = 0; !test(); turn += 1) {
    if (turn > 2000) throw new Error('waited in vain');
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}
