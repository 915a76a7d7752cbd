/**
 * The errors. Each has a stable `code`, and the driver's own error as its `cause`.
 *
 * An error in the program or in the server's setup is always thrown. If the server is unavailable,
 * the rule's `onError` decides.
 */

/** Base class of all errors of this package. */
export abstract class RateLimitError extends Error {
  abstract readonly code: string;

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** An invalid argument, named in `argument`. No call was sent. */
export class InvalidArgumentError extends RateLimitError {
  readonly code = 'RL_INVALID_ARGUMENT';

  constructor(
    readonly argument: string,
    expected: string,
  ) {
    super(`invalid ${argument}: expected ${expected}`);
  }
}

/**
 * The server refused the call, and a retry does not help: `WRONGTYPE`, `ERR`, an unknown command,
 * `NOPERM`. It is thrown under every `onError`, so that a limit is never off unnoticed.
 */
export class CommandRejectedError extends RateLimitError {
  readonly code = 'RL_COMMAND_REJECTED';

  /** @param kind The first word of the reply, such as `WRONGTYPE`. */
  constructor(
    readonly kind: string,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** The limiter is closed: `Limiter.close` was called. */
export class ClosedError extends RateLimitError {
  readonly code = 'RL_CLOSED';

  constructor() {
    super('the limiter is closed');
  }
}

/**
 * The reason that there is no reply. `timeout`: the server is silent. `connection`: there is no
 * connection, or it broke. `server`: the server cannot decide now. `overloaded`: there are too many
 * calls, or the reply came too late, but the server replies to others. `circuit`: the circuit
 * breaker is open.
 */
export type UnavailableReason = 'timeout' | 'connection' | 'server' | 'overloaded' | 'circuit';

/**
 * There was no reply. With the reasons `timeout`, `connection` and `overloaded` the call may have
 * counted, so it is not repeated.
 */
export class UnavailableError extends RateLimitError {
  readonly code = 'RL_UNAVAILABLE';

  constructor(
    readonly reason: UnavailableReason,
    message: string,
    options?: ErrorOptions,
  ) {
    // While a server is down, each call creates such an error, and a stack trace would take longer
    // than the rest of the call.
    const { stackTraceLimit } = Error;
    const isSent =
      reason !== 'circuit' && reason !== 'overloaded' && new.target === UnavailableError;
    if (!isSent) Error.stackTraceLimit = 0;
    super(message, options);
    Error.stackTraceLimit = stackTraceLimit;
  }
}

/** The call was not sent. */
export class NotSentError extends UnavailableError {
  override name = 'UnavailableError';
}

/** A dial ended without a connection. */
export class DialError extends NotSentError {
  /** @param came How far the dial came. */
  constructor(
    error: UnavailableError,
    came: string,
    /** The instant from which the next dial is due, in ms of the limiter's clock. */
    readonly dialDueMs: number,
  ) {
    super(error.reason, `${error.message}: ${came}`, { cause: error.cause ?? error });
  }
}

/** Returns true if the call that ended with this error may have run on the server. */
export function mayHaveRun(error: unknown): boolean {
  if (!(error instanceof UnavailableError) || error instanceof NotSentError) return false;
  return error.reason !== 'server';
}

/** The first words of the errors of a server that temporarily cannot decide. */
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
]);

/**
 * Matches the error if the user lacks a permission that the library needs. Servers report it with
 * the word `ERR`, not `NOPERM`.
 */
const RIGHTS_IN_LIBRARY = /^ERR (ACL failure in script|The user executing the script can't)/;

/**
 * Classifies a driver's error. A server's reply begins with a word in capitals. Any other error is
 * the driver's own: the connection is missing, broke or gave up.
 */
export function classified(error: unknown): CommandRejectedError | UnavailableError {
  if (error instanceof CommandRejectedError || error instanceof UnavailableError) return error;
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof TypeError || error instanceof ReferenceError) {
    return new CommandRejectedError(error.name, message, { cause: error });
  }
  const word = /^-?([A-Z][A-Z0-9_]+)(?: |$)/.exec(message)?.[1];
  const kind = RIGHTS_IN_LIBRARY.test(message) ? 'NOPERM' : word;
  const isFull = message.startsWith('ERR max number of clients');
  if (kind === undefined) return new UnavailableError('connection', message, { cause: error });
  // A client with a router has followed it.
  if (kind === 'MOVED' || kind === 'ASK') {
    const text = `the server is a node of a cluster: use the cluster client (${message})`;
    return new CommandRejectedError(kind, text, { cause: error });
  }
  return PASSING.has(kind) || isFull
    ? new UnavailableError('server', message, { cause: error })
    : new CommandRejectedError(kind, message, { cause: error });
}
