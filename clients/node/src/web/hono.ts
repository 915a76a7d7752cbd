/** The middleware for Hono and for similar frameworks with `Request` and `Response`. */
import type { Context as HonoContext } from 'hono';
import type { Lease } from '../holds/lease.js';
import { typesOf } from '../rules/arguments.js';
import type { Decision } from '../rules/decision.js';
import { whenClosed } from './closing.js';
import { headerKey, isRepeated } from './key-of.js';
import {
  cleanOnce,
  LISTS,
  type MiddlewareOptions,
  OF_MIDDLEWARE,
  PROBLEM_HEADERS,
  release,
  requestLimiter,
} from './request.js';

export type {
  KeyFunction,
  MiddlewareOptions,
  PerRequest,
  RequestRule,
  RuleFor,
} from './request.js';

declare module 'hono' {
  interface ContextVariableMap {
    /** Set by `redis-throttle-client/hono`; undefined if the request is not limited. */
    rateLimit: Decision | undefined;
  }
}

/** The status of the response to a client that has left. It is never sent. */
const GONE = 499;

/** The part of a context that the middleware uses. Hono's context has it. */
export interface ContextLike {
  readonly req: { raw: Request };
  res: Response;
  set(name: 'rateLimit', decision: Decision): void;
  // biome-ignore lint/suspicious/noExplicitAny: the runtime may pass any value
  readonly env?: any;
}

export interface HonoOptions<Context extends ContextLike = HonoContext>
  extends MiddlewareOptions<Context> {
  /**
   * Returns the address of the peer, which a `Request` does not contain. Default: the one that
   * `@hono/node-server` provides. Other runtimes need this option or `key`.
   */
  peer?: ((context: Context) => string | undefined) | undefined;
  /** Responds to a denial instead of the problem body. The middleware adds the headers. */
  onDenied?: ((context: Context, decision: Decision) => Response | Promise<Response>) | undefined;
}

const TYPES = typesOf<HonoOptions>({ ...OF_MIDDLEWARE, onDenied: 'function', peer: 'function' });

export type HonoMiddleware<Context extends ContextLike = HonoContext> = (
  context: Context,
  next: () => Promise<void>,
  // biome-ignore lint/suspicious/noConfusingVoidType: Hono declares middleware this way
) => Promise<Response | void>;

/**
 * Returns a key function that joins the values of one or more header fields, such as
 * `keyOf('X-Tenant', 'X-Api-Key')`. The values are encoded: two requests have the same key only if
 * all their fields are equal. A request without one of the fields has no subject. Nor has one with
 * a field more than once, if `@hono/node-server` runs it: other servers join the values by `, `.
 *
 * @throws InvalidArgumentError without a name, or for one that no header field can have.
 */
export function keyOf(...headers: string[]): (context: ContextLike) => string | undefined {
  return headerKey(headers, ({ req, env }: ContextLike, name) =>
    isRepeated(incomingOf(env)?.rawHeaders, name) ? undefined : req.raw.headers.get(name),
  );
}

/**
 * Limits the requests that pass through it. The decision is in `context.get('rateLimit')`. Leases
 * are released when the handlers have returned and the body of the response has ended or is
 * cancelled. When the client leaves before, they are no longer renewed. A client that leaves before
 * the decision cancels its call.
 */
export function rateLimit<Context extends ContextLike = HonoContext>(
  options: HonoOptions<Context>,
): HonoMiddleware<Context> {
  const decide = requestLimiter<Context>(options, {
    types: TYPES,
    peer: (context) => peer(context),
    forwarded: ({ req }) => {
      const all = req.raw.headers.get('x-forwarded-for');
      return all === null ? [] : [all];
    },
  });
  const { onDenied, degradedHeader, peer = nodePeer } = options;

  return async function rateLimitMiddleware(context, next) {
    if (degradedHeader !== undefined) {
      const name = degradedHeader.toLowerCase();
      cleanOnce(context, name, () => mark(context, name, false));
    }
    const client = context.req.raw.signal;
    const outcome = await decide(context, client).catch((error) => {
      if (!client.aborted) throw error;
    });
    if (outcome === undefined) return new Response(null, { status: GONE });
    const { decision, headers, problem, leases, onHead } = outcome;
    if (degradedHeader !== undefined && decision?.degraded) mark(context, degradedHeader, true);
    let isGone = client.aborted;
    const leave = () => {
      isGone = true;
      onHead?.(undefined);
      letExpire(leases);
    };
    const isFollowed = onHead !== undefined || leases.length > 0;
    const unfollow = isFollowed ? whenGone(context, client, leave) : undefined;
    if (isGone && leases.length > 0) {
      unfollow?.();
      release(leases);
      return new Response(null, { status: GONE });
    }
    try {
      if (decision !== undefined) context.set('rateLimit', decision);
      if (problem === undefined) {
        await next();
      } else if (onDenied !== undefined && decision !== undefined) {
        context.res = await onDenied(context, decision);
        context.res.headers.set('Cache-Control', 'no-store');
      } else {
        const { status } = problem;
        const refusal = { status, headers: { ...PROBLEM_HEADERS } };
        context.res = new Response(JSON.stringify(problem), refusal);
      }
    } catch (error) {
      release(leases);
      onHead?.(isGone ? undefined : 500);
      throw error;
    } finally {
      unfollow?.();
    }
    onHead?.(isGone ? undefined : context.res.status);
    if (isGone) release(leases);
    if (context.res.status === 101) {
      // Release now: the response to an upgrade cannot be copied, and the connection after it is no
      // longer a response.
      release(leases);
      return;
    }
    const response =
      leases.length > 0 && !isGone ? releasing(context, leases, client) : context.res;
    // Copy the response, because its headers may be immutable, as in one from `fetch`.
    const copy = new Response(response.body, response);
    for (const [name, value] of Object.entries(headers)) {
      // Headers that the application has set are kept.
      if (LISTS.has(name)) copy.headers.append(name, value);
      else if (!copy.headers.has(name)) copy.headers.set(name, value);
    }
    context.res = undefined as unknown as Response;
    context.res = copy;
  };
}

/** Returns the request of `node:http`, which `@hono/node-server` provides. */
// biome-ignore lint/suspicious/noExplicitAny: the runtime may pass any value
function incomingOf(env: any): any {
  return env?.incoming ?? env?.server?.incoming;
}

function nodePeer({ env }: Pick<ContextLike, 'env'>): string | null | undefined {
  const socket = incomingOf(env)?.socket;
  return socket?.destroyed ? null : socket?.remoteAddress;
}

/** Sets or removes a header. A request's headers are immutable, so the request is replaced. */
function mark({ req }: ContextLike, name: string, degraded: boolean): void {
  if (!degraded && !req.raw.headers.has(name)) return;
  const headers = new Headers(req.raw.headers);
  if (degraded) headers.set(name, '1');
  else headers.delete(name);
  req.raw = new Request(req.raw, { headers });
}

/**
 * Calls `act`, perhaps twice, when the client leaves.
 *
 * @param client The signal of the request.
 * @returns A function that takes the call back.
 */
function whenGone({ env }: ContextLike, client: AbortSignal, act: () => void): () => void {
  client.addEventListener('abort', act, { once: true });
  // On node-server only: no signal follows if the client has pipelined its requests, or if another
  // middleware has dropped the unread body.
  const { incoming, outgoing } = env ?? {};
  const unfollow = outgoing?.once ? whenClosed(incoming, outgoing, act) : undefined;
  return () => {
    client.removeEventListener('abort', act);
    unfollow?.();
  };
}

/** Ends the renewals of leases whose work may go on. */
function letExpire(leases: readonly Lease[]): void {
  for (const lease of leases) lease.letExpire();
}

/** Returns the response, and releases its leases when its body ends or is cancelled. */
function releasing(context: ContextLike, leases: readonly Lease[], client: AbortSignal): Response {
  const { req, res: response } = context;
  const done = () => release(leases);
  // If another middleware replaces the response, only its end remains.
  const leave = () => (context.env?.outgoing?.writableFinished ? done() : letExpire(leases));
  whenGone(context, client, leave);
  // The body of a response to HEAD is neither read nor cancelled.
  if (response.body === null || client.aborted || req.raw.method === 'HEAD') {
    done();
    return response;
  }
  const reader = response.body.getReader();
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done: ended, value } = await reader.read();
        if (!ended) return controller.enqueue(value);
        done();
        controller.close();
      } catch (error) {
        done();
        controller.error(error);
      }
    },
    async cancel(reason) {
      done();
      await reader.cancel(reason);
    },
  });
  return new Response(body, response);
}
