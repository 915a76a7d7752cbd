/**
 * One tree of errors. Each has a stable `code`, and the driver's own error as its `cause`.
 *
 * What matters most is whose fault it is: a mistake of the program is thrown always, a server that
 * is away is answered by the rule's `onError`.
 */

/** What all errors of this package are. */
export abstract class RateLimitError extends Error {
  abstract readonly code: string;

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** An argument that no call can be made with; `argument` names it. Nothing was asked. */
export class ArgumentError extends RateLimitError {
  readonly code = 'RL_ARGUMENT';

  constructor(
    readonly argument: string,
    expected: string,
  ) {
    super(`invalid ${argument}: expected ${expected}`);
  }
}

/**
 * The server refused the call for a reason that asking again does not mend: `WRONGTYPE`, `ERR`, an
 * unknown command, `NOPERM`. Thrown under every `onError`, never silently open.
 */
export class MistakeError extends RateLimitError {
  readonly code = 'RL_MISTAKE';

  /** @param kind The first word of the reply, such as `WRONGTYPE`. */
  constructor(
    readonly kind: string,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/**
 * Why there is no answer: the deadline passed, the connection is not there or broke, the server
 * says that it cannot decide now, too many calls are in flight, or the circuit breaker is open.
 */
export type UnavailableReason = 'timeout' | 'connection' | 'server' | 'overloaded' | 'circuit';

/**
 * No answer could be had. The call may have counted (`timeout` and `connection`), so it is not
 * repeated.
 */
export class UnavailableError extends RateLimitError {
  readonly code = 'RL_UNAVAILABLE';

  constructor(
    readonly reason: UnavailableReason,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** What the server says when it is there and cannot decide now; it passes by itself. */
const PASSING = new Set([
  'LOADING',
  'READONLY',
  'OOM',
  'MISCONF',
  'NOREPLICAS',
  'CLUSTERDOWN',
  'MASTERDOWN',
  'BUSY',
  'TRYAGAIN',
  'MOVED',
  'ASK',
]);

/** What the library calls and the user may not: servers say `ERR` of it. */
const RIGHTS_IN_LIBRARY = /^ERR (ACL failure in script|The user executing the script can't)/;

/**
 * Tells what an error of a driver means. A reply begins with its kind in capitals; whatever does
 * not is the driver's own, of a connection that is not there, broke or gave up.
 */
export function classified(error: unknown): MistakeError | UnavailableError {
  if (error instanceof MistakeError || error instanceof UnavailableError) return error;
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof TypeError || error instanceof ReferenceError) {
    return new MistakeError(error.name, message, { cause: error });
  }
  const word = /^-?([A-Z][A-Z0-9_]+)(?: |$)/.exec(message)?.[1];
  const kind = RIGHTS_IN_LIBRARY.test(message) ? 'NOPERM' : word;
  const isFull = message.startsWith('ERR max number of clients');
  if (kind === undefined) return new UnavailableError('connection', message, { cause: error });
  return PASSING.has(kind) || isFull
    ? new UnavailableError('server', message, { cause: error })
    : new MistakeError(kind, message, { cause: error });
}
