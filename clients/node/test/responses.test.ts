/** Runs the shared cases of responses: requests to a limited application of each framework. */
import type express from 'express';
import { type Context, Hono } from 'hono';
import { describe, expect, it } from 'vitest';
import type { Call } from '../src/index.js';
import { Limiter } from '../src/index.js';
import { FakeClock } from '../src/testing.js';
import { keyOf } from '../src/web/express.js';
import { keyOf as honoKeyOf, rateLimit as honoRateLimit } from '../src/web/hono.js';
import { limited, listen, until } from './listening.js';
import { type Any, ruleOf, table } from './shared-cases.js';

const PEER = '192.0.2.7';

/** Replies to the commands with the replies of a case, in order. */
function scripted({ server, servers = server === undefined ? [] : [server] }: Any) {
  const sent: string[] = [];
  const replies = [...servers];
  const send = async ({ args }: Call) => {
    sent.push(args.join(' '));
    const reply = replies.shift();
    if (reply?.error !== undefined) throw new Error(reply.error);
    return reply;
  };
  const limiter = new Limiter({ send }, { clock: new FakeClock(), logErrors: false });
  return { sent, limiter };
}

/** Returns the options of a middleware, but for `onDenied`. */
function optionsOf(input: Any, limiter: Limiter, key: (...headers: string[]) => Any): Any {
  const keyOr = (headers?: string[]) => headers && key(...headers);
  return {
    limiter,
    rules: input.limits.map((one: Any) => {
      return { rule: ruleOf(one.rule), key: keyOr(one.key), cost: one.cost };
    }),
    key: keyOr(input.key),
    cost: input.cost,
    anonymous: input.anonymous && ruleOf(input.anonymous),
    trustedProxies: input.trusted_proxies,
    headers: input.headers,
    degradedHeader: input.degraded_header,
    skip: input.skip && (() => true),
    tag: input.tag && (() => input.tag),
  };
}

/** Sends the request of a case. `onSeen` is called with what the application saw. */
type Send = (input: Any, limiter: Limiter, onSeen: (seen: Any) => void) => Promise<Response>;

const overExpress: Send = async (input, limiter, onSeen) => {
  const onDenied = (_: unknown, response: express.Response) =>
    void response.status(input.on_denied).end();
  const options = { ...optionsOf(input, limiter, keyOf), ...(input.on_denied && { onDenied }) };
  const app = limited(options, (request, response) => {
    const degraded = request.headers[input.degraded_header?.toLowerCase()];
    onSeen({ ...request.rateLimit, degraded });
    response.status(input.responds ?? 200).send('ok');
  });
  return fetch(await listen(app), { headers: input.request ?? {} });
};

const overHono: Send = async (input, limiter, onSeen) => {
  const onDenied = () => new Response(null, { status: input.on_denied });
  const options = {
    ...optionsOf(input, limiter, honoKeyOf),
    ...(input.on_denied && { onDenied }),
    peer: () => PEER,
  };
  const app = new Hono()
    .use(honoRateLimit<Context>(options))
    .onError((_, { text }) => text('', 500));
  app.get('/', ({ req, get, body }) => {
    const degraded = input.degraded_header && req.raw.headers.get(input.degraded_header);
    onSeen({ ...get('rateLimit'), degraded });
    return body('ok', input.responds ?? 200);
  });
  const response = await app.request('/', { headers: input.request ?? {} });
  // The lease of a request lasts until the body has been read.
  return new Response(await response.arrayBuffer(), response);
};

describe.each([
  ['Express', overExpress, '127.0.0.1'],
  ['Hono', overHono, PEER],
])('%s', (_, send, peer) => {
  it.each(table.responses as Any[])('$name', async (one) => {
    const { input, expect: wanted } = JSON.parse(JSON.stringify(one).replaceAll(PEER, peer));
    const { sent, limiter } = scripted(input);
    let seen: Any = null;
    const response = await send(input, limiter, ({ source, remaining, degraded }) => {
      seen = { source: source ?? null, remaining: remaining ?? null };
      if ('degraded' in (wanted.application ?? {})) seen.degraded = degraded ?? null;
    });
    expect(response.status).toBe(wanted.status);
    expect(seen).toEqual(wanted.application);
    if (wanted.fields !== undefined) {
      const isOfLimit = /^(x-)?ratelimit|^retry-after$|^cache-control$/;
      const fields = [...response.headers].filter(([name]) => isOfLimit.test(name));
      const lower = Object.entries(wanted.fields).map(([name, value]) => [
        name.toLowerCase(),
        value,
      ]);
      expect(Object.fromEntries(fields)).toEqual(Object.fromEntries(lower));
    }
    if (wanted.body !== undefined) {
      expect(response.headers.get('Content-Type')).toBe('application/problem+json');
      expect(await response.json()).toEqual(wanted.body);
    } else await response.arrayBuffer();
    await until(() => sent.length >= wanted.sent.length);
    await limiter.close();
    expect(sent.map((text, at) => text.slice(0, wanted.sent[at]?.length))).toEqual(wanted.sent);
  });
});
