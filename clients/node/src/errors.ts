/**
 * The errors. Each has a stable `code`, and the driver's own error as its `cause`.
 *
 * Most important is the difference between a mistake of the program, which is always thrown, and a
 * server that is away, for which the rule's `onError` decides.
 */

/** Base class of all errors of this package. */
export abstract class RateLimitError extends Error {
  abstract readonly code: string;

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** An invalid argument, named by `argument`. No call was sent. */
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
 * The server refused the call, and sending it again does not help: `WRONGTYPE`, `ERR`, an unknown
 * command, `NOPERM`. Thrown under every `onError`, so a limit is never silently off.
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
 * Why there is no answer: the deadline passed (`timeout`), there is no connection or it broke, the
 * server cannot decide now, too many calls are in flight, or the circuit breaker is open.
 */
export type UnavailableReason = 'timeout' | 'connection' | 'server' | 'overloaded' | 'circuit';

/**
 * There was no answer. The call may have counted (`timeout` and `connection`), so it is not
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

/** The first words of replies of a server that cannot decide now; they pass by themselves. */
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

/** Commands that the library calls and the user may not; servers report them as `ERR`. */
const RIGHTS_IN_LIBRARY = /^ERR (ACL failure in script|The user executing the script can't)/;

/**
 * Classifies a driver's error. A server's reply begins with its kind in capitals; any other error
 * is the driver's own: the connection is missing, broke or gave up.
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
