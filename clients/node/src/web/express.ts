/** The middleware for Express, and for other frameworks with `node:http` requests and a `next`. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Request, Response } from 'express';
import type { Lease } from '../holds/lease.js';
import { checkOptions, typesOf } from '../rules/arguments.js';
import { type Decision, DeniedError } from '../rules/decision.js';
import { checkStyles, type HeaderStyle, type Problem } from '../rules/headers.js';
import { isClosed, whenClosed } from './closing.js';
import type { OnHead } from './counting.js';
import {
  cleanOnce,
  LISTS,
  type MiddlewareOptions,
  OF_MIDDLEWARE,
  PROBLEM_HEADERS,
  release,
  requestLimiter,
} from './request.js';

export { keyOf, type WithHeaders } from './key-of.js';
export type {
  KeyFunction,
  MiddlewareOptions,
  PerRequest,
  RequestRule,
  RuleFor,
} from './request.js';

declare global {
  namespace Express {
    interface Request {
      /** Set by `redis-throttle-client/express`; undefined if the request is not limited. */
      rateLimit?: Decision | undefined;
    }
  }
}

/** The property that the middleware sets on a request. Express's own `Request` has it. */
export interface RateLimited {
  rateLimit?: Decision | undefined;
}

export interface ExpressOptions<
  Incoming extends IncomingMessage = Request,
  Outgoing extends ServerResponse = Response,
> extends MiddlewareOptions<Incoming> {
  /**
   * Responds to a denial instead of the problem body. The status and the headers are already set.
   * If a lease is among the rules, `next` is called with a DeniedError, so that no work is done
   * without a permit.
   */
  onDenied?:
    | ((
        request: Incoming & RateLimited,
        response: Outgoing,
        next: (error?: unknown) => void,
        decision: Decision,
      ) => void | Promise<void>)
    | undefined;
}

const TYPES = typesOf<ExpressOptions>({ ...OF_MIDDLEWARE, onDenied: 'function' });

export type ExpressMiddleware = (
  request: IncomingMessage & RateLimited,
  response: ServerResponse,
  next: (error?: unknown) => void,
) => Promise<void>;

export type ExpressErrorHandler = (
  error: unknown,
  request: IncomingMessage,
  response: ServerResponse,
  next: (error?: unknown) => void,
) => void;

/**
 * Limits the requests that pass through it. The middleware responds to a denied request itself. An
 * error in the program or its setup goes to `next`. The decision is in `request.rateLimit`. Leases
 * are released when the response ends. If the client leaves before, they are no longer renewed, and
 * are released when the application calls `response.end`, or expire. A client that leaves before
 * the decision cancels its call, and `next` is not called.
 *
 * The functions get Express's `Request` and `Response`; with another framework, name its types.
 */
export function rateLimit<
  Incoming extends IncomingMessage = Request,
  Outgoing extends ServerResponse = Response,
>(options: ExpressOptions<Incoming, Outgoing>): ExpressMiddleware {
  const decide = requestLimiter<Incoming>(options, {
    types: TYPES,
    peer: ({ socket }) => (socket.destroyed ? null : socket.remoteAddress),
    forwarded: ({ headersDistinct }) => headersDistinct['x-forwarded-for'] ?? [],
  });
  const { onDenied, degradedHeader } = options;
  const marker = degradedHeader?.toLowerCase();

  async function rateLimitMiddleware(
    request: Incoming & RateLimited,
    response: Outgoing,
    next: (error?: unknown) => void,
  ): Promise<void> {
    const gone = new AbortController();
    const leave = () => gone.abort(new Error('the client has left'));
    try {
      if (marker !== undefined) cleanOnce(request, marker, () => delete request.headers[marker]);
      const unfollow = whenClosed(request, response, leave);
      const outcome = await decide(request, gone.signal).finally(unfollow);
      const { decision, headers, problem, leases, needsLease, onHead } = outcome;
      if (leases.length > 0 && isClosed(request, response)) {
        release(leases);
        return;
      }
      if (leases.length > 0) holdUntilEnd(request, response, leases);
      if (onHead !== undefined) callAtHead(request, response, onHead);
      // If this middleware skips the request, the decision of an earlier middleware stays.
      if (decision !== undefined) request.rateLimit = decision;
      setHeaders(response, headers);
      if (marker !== undefined && decision?.degraded) request.headers[marker] = '1';
      if (problem !== undefined) {
        response.statusCode = problem.status;
        response.setHeader('Cache-Control', 'no-store');
        if (onDenied !== undefined && decision !== undefined) {
          const refused = (error?: unknown) =>
            next(error instanceof Error ? error : new DeniedError(decision));
          await onDenied(request, response, needsLease ? refused : next, decision);
          return;
        }
        send(response, problem);
        return;
      }
    } catch (error) {
      // A client that has left gets no response, not even that of an error handler.
      if (!gone.signal.aborted) next(error);
      return;
    }
    next();
  }
  // The functions of the options know the framework's types; a router must not infer from them.
  return rateLimitMiddleware as unknown as ExpressMiddleware;
}

const OF_DENIED = typesOf<{ headers?: readonly HeaderStyle[] }>({ headers: 'any' });

/**
 * Returns an error handler that responds to a DeniedError of a handler as the middleware responds
 * to its own denials: with the problem body and the headers. It passes other errors on, and all
 * errors after the head of the response. Use it after all routes: `app.use(answerDenied())`.
 *
 * @param options.headers The forms of the headers. Default `['draft-11']`.
 */
export function answerDenied(
  options: { headers?: readonly HeaderStyle[] | undefined } = {},
): ExpressErrorHandler {
  checkOptions(options, OF_DENIED);
  const { headers: styles } = options;
  if (styles !== undefined) checkStyles('headers', styles);
  // Express calls a function with four parameters as an error handler.
  return function answerDeniedMiddleware(error, _request, response, next) {
    if (!(error instanceof DeniedError) || response.headersSent) return next(error);
    const { decision } = error;
    response.statusCode = error.status;
    setHeaders(response, decision.headers({ styles }));
    send(response, decision.problem());
  };
}

function setHeaders(response: ServerResponse, headers: Record<string, string>): void {
  for (const [name, value] of Object.entries(headers)) {
    if (LISTS.has(name)) response.appendHeader(name, value);
    else response.setHeader(name, value);
  }
}

/** Sends the body of a denial. */
function send(response: ServerResponse, problem: Problem): void {
  for (const [name, value] of Object.entries(PROBLEM_HEADERS)) response.setHeader(name, value);
  const body = JSON.stringify(problem);
  // Set the length explicitly, because the response to `HEAD` has no body.
  response.setHeader('Content-Length', Buffer.byteLength(body));
  response.end(body);
}

/**
 * Releases the leases when the response has ended. If the client leaves before, the application may
 * still work for it. The leases then expire, unless the application ends the response before.
 */
function holdUntilEnd(
  request: IncomingMessage,
  response: ServerResponse,
  leases: readonly Lease[],
): void {
  const { end } = response;
  let [hasEnded, hasClosed] = [false, false];
  response.end = (...last: unknown[]) => {
    hasEnded = true;
    if (hasClosed) release(leases);
    return Reflect.apply(end, response, last);
  };
  whenClosed(request, response, () => {
    hasClosed = true;
    if (hasEnded || response.writableEnded) release(leases);
    else for (const lease of leases) lease.letExpire();
  });
}

/**
 * Calls `onHead` when the head is sent, or when the client disconnects before. An application whose
 * read of the body fails for that reason responds before the response is closed.
 */
function callAtHead(request: IncomingMessage, response: ServerResponse, onHead: OnHead): void {
  const { writeHead } = response;
  // Node calls this method also if the application does not.
  response.writeHead = (...head: unknown[]) => {
    Reflect.apply(writeHead, response, head);
    onHead(isClosed(request, response) ? undefined : response.statusCode);
    return response;
  };
  whenClosed(request, response, () => onHead(undefined));
}
