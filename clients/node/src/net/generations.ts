/** Waits until a driver's client is open. */
import type { Waiting } from '../rules/aborting.js';
import { Followers, whenAborted } from '../rules/aborting.js';
import type { Clock } from '../rules/clock.js';
import { CommandRejectedError, classified, DialError, NotSentError } from '../rules/errors.js';
import type { RunClock } from './clock.js';

/** Makes the error of a call that was not sent. */
export function unreachable(message: string): NotSentError {
  return new NotSentError('connection', message);
}

/** The type of a listener, as Node declares it. */
// biome-ignore lint/suspicious/noExplicitAny: an event may have any arguments
export type Listener = (...args: any[]) => void;

/** The methods that the clients of both drivers have. */
export interface Emitter {
  on(event: string, listener: Listener): unknown;
  off(event: string, listener: Listener): unknown;
}

const endings = new Followers<Emitter>();

/**
 * Calls `act` when a client of the application ends.
 *
 * @returns A function that takes the call back.
 */
export function whenEnded(client: Emitter, event: string, act: () => void): () => void {
  return endings.add(
    client,
    act,
    (listener) => client.on(event, listener),
    (listener) => client.off(event, listener),
  );
}

/** Returns the result of `opening`, or rejects with this text after `ms`. */
export async function within<T>(
  clock: Clock,
  ms: number,
  opening: Promise<T>,
  text: string,
): Promise<T> {
  let stop = () => {};
  const late = new Promise<never>((_, reject) => {
    stop = clock.after(ms, () => reject(unreachable(text)));
  });
  try {
    return await Promise.race([late, opening]);
  } finally {
    stop();
  }
}

/** Returns the result of `opening`, or rejects when `signal` is aborted. */
export function unlessAborted<T>(opening: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const unfollow = whenAborted(signal, () => {
      reject(unreachable('the connection could not be opened'));
    });
    opening.then(resolve, reject).finally(unfollow);
  });
}

/**
 * Keeps the error with which the server refused a client's login, so that calls can throw it: after
 * a refused login no call is sent. The error is one in the program or its setup.
 */
export class Refusal {
  #error: CommandRejectedError | undefined;
  #fail: (error: unknown) => void = () => {};

  /** @param client A client of the adapter. Without a listener, its errors end the process. */
  constructor(client: Emitter) {
    client.on('error', (cause: Error) => {
      // ioredis puts a text of its own in front of the server's text.
      const said = /(?:^|: )((WRONGPASS|NOAUTH|NOPERM) .*)/s.exec(cause.message);
      this.#error = said
        ? new CommandRejectedError(said[2] as string, said[1] as string, { cause })
        : undefined;
      this.#fail(this.#error ?? cause);
    });
  }

  /** Waits for `opening`. If it fails after a refusal, throws the refusal. */
  async during(opening: Promise<unknown>): Promise<void> {
    await opening.catch((error) => {
      throw this.#error ?? error;
    });
  }

  /**
   * Waits for `opening`, or until the client reports an error. node-redis 5 waits for ever if the
   * connection closes before the login has ended.
   */
  duringOrError(opening: Promise<unknown>): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#fail = reject;
      this.during(opening).then(resolve, reject);
    });
  }
}

/** The terms on which an adapter dials. */
export interface Dialling {
  readonly run: RunClock;
  readonly timeoutMs: number;
  readonly silenceMs: number;
  /** The time from the end of a dial that failed to the next one, in ms. */
  readonly pauseMs: number;
}

/** The calls to a driver. */
export interface Driver<Client extends Emitter> {
  /** Creates a client that neither queues calls nor connects again by itself. */
  make(): Client | Promise<Client>;
  connect(client: Client): Promise<unknown>;
  isReady(client: Client): boolean;
  /** Returns true if the socket of a client is connected, before its login. */
  isConnected(client: Client): boolean;
  /**
   * Returns true after the end of the application's client, until it is opened again. A connection
   * that is opened then has no end, and keeps the process alive.
   */
  isEnded?(): boolean;
  /** Closes the client and its socket at once, in whatever state it is. */
  drop(client: Client): void;
}

/** The shortest time that a dial may take before it counts as failed, in ms. */
const DIAL_MIN_MS = 1000;

/** Returns the time after which a dial counts as failed, in ms. */
export function patienceOf({ timeoutMs }: Pick<Dialling, 'timeoutMs'>): number {
  return Math.max(DIAL_MIN_MS, timeoutMs);
}

/** The longest pause between two dials, in ms, before it differs by chance. */
const PAUSE_MAX_MS = 1000;

/**
 * Returns the time after which a driver gives a dial up by itself. It counts the time in which the
 * process stood still, so it is longer than that of the limiter.
 */
export function driverPatienceOf(terms: Pick<Dialling, 'timeoutMs'>): number {
  return 10 * patienceOf(terms);
}

export class Generations<Client extends Emitter> {
  #current: Client | undefined;
  #dial: Promise<Client> | undefined;
  /** Ends the dial under way. */
  #abandon: ((error: NotSentError) => void) | undefined;
  /** The instant from which a dial is allowed again. */
  #dialAgainAtMs = Number.NEGATIVE_INFINITY;
  #refusal: CommandRejectedError | undefined;
  /** Gives the dial under way more time. */
  #extend: ((patienceMs: number) => void) | undefined;
  #closed = false;

  constructor(
    private readonly driver: Driver<Client>,
    private readonly terms: Dialling,
  ) {}

  /** The client that is connected now. */
  get ready(): Client | undefined {
    const current = this.#current;
    return current !== undefined && this.driver.isReady(current) ? current : undefined;
  }

  /**
   * Returns a connected client for a call that was redirected.
   *
   * @param node The name of the node, for `waiting`.
   */
  async openFor(waiting: Waiting, node: string): Promise<Client> {
    waiting.waits?.(node);
    const client = this.ready ?? (await unlessAborted(this.open(), waiting.signal));
    waiting.sends?.(node);
    return client;
  }

  /** Returns the error of a call that needs a dial while none may begin. */
  #refused(): Error | undefined {
    if (this.#dial !== undefined || this.ready !== undefined) return undefined;
    if (this.#closed) return unreachable('the limiter is closed');
    if (this.driver.isEnded?.()) return unreachable('the client was closed');
    const leftMs = this.#dialAgainAtMs - this.terms.run.clock.nowMs();
    if (leftMs <= 0) return undefined;
    const text = `not sent: not connected, the server is dialled again in ${Math.ceil(leftMs)} ms`;
    return this.#refusal ?? new NotSentError('connection', text);
  }

  /**
   * Returns a connected client. All callers that wait share one dial, which has the time of the
   * most patient one.
   */
  open(patienceMs = patienceOf(this.terms)): Promise<Client> {
    if (this.#dial !== undefined) {
      this.#extend?.(patienceMs);
      return this.#dial;
    }
    const { ready } = this;
    if (ready !== undefined) return Promise.resolve(ready);
    this.#drop();
    const refused = this.#refused();
    if (refused !== undefined) return Promise.reject(refused);
    const dial = this.#newClient(patienceMs);
    this.#dial = dial;
    const end = () => {
      if (this.#dial === dial) this.#dial = undefined;
    };
    dial.then(end, end);
    return dial;
  }

  /** Returns a promise that rejects when the dial takes too long or is abandoned. */
  #late(patienceMs: number): { late: Promise<never>; stop: () => void } {
    const { run } = this.terms;
    const beganMs = run.nowMs();
    let stop = () => {};
    const late = new Promise<never>((_, reject) => {
      const fail = (ms: number) => reject(unreachable(`no connection in ${Math.ceil(ms)} ms`));
      stop = run.after(patienceMs, () => fail(patienceMs));
      let longestMs = patienceMs;
      this.#extend = (ms) => {
        const untilMs = run.nowMs() - beganMs + ms;
        if (untilMs <= longestMs) return;
        longestMs = untilMs;
        stop();
        stop = run.after(ms, () => fail(untilMs));
      };
      this.#abandon = reject;
    });
    return { late, stop: () => stop() };
  }

  async #newClient(patienceMs: number): Promise<Client> {
    const { late, stop } = this.#late(patienceMs);
    let abandoned: NotSentError | undefined;
    const abandon = this.#abandon;
    this.#abandon = (error) => {
      abandoned = error;
      abandon?.(error);
    };
    let client: Client | undefined;
    try {
      client = await Promise.race([this.driver.make(), late]);
      const refusal = new Refusal(client);
      await refusal.duringOrError(Promise.race([this.driver.connect(client), late]));
      if (abandoned !== undefined) throw abandoned;
      this.#refusal = undefined;
      this.#current = client;
      return client;
    } catch (error) {
      const isConnected = client !== undefined && this.driver.isConnected(client);
      if (client !== undefined) this.driver.drop(client);
      if (abandoned !== undefined) throw abandoned;
      const known = classified(error);
      this.#refusal = known instanceof CommandRejectedError ? known : undefined;
      // Many processes lose the same server at once and should not all dial it at once.
      const pauseMs = Math.min(this.terms.pauseMs, PAUSE_MAX_MS) * (1 - 0.2 * Math.random());
      this.#dialAgainAtMs = this.terms.run.clock.nowMs() + pauseMs;
      if (known instanceof CommandRejectedError) throw known;
      const came = isConnected ? 'connected, not logged in' : 'not connected';
      throw new DialError(known, came, this.#dialAgainAtMs);
    } finally {
      stop();
    }
  }

  /** Drops the current connection. Returns false if none is open. */
  retire(): boolean {
    if (this.ready === undefined) return false;
    this.#drop();
    return true;
  }

  #drop(): void {
    const current = this.#current;
    this.#current = undefined;
    if (current !== undefined) this.driver.drop(current);
  }

  /** Closes the connection until the next `open`, also one that is being dialled. */
  end(): void {
    this.#abandonDial('the client was closed');
    this.#drop();
    this.#dialAgainAtMs = Number.NEGATIVE_INFINITY;
  }

  close(): void {
    this.#closed = true;
    this.#abandonDial('the limiter is closed');
    this.#drop();
  }

  #abandonDial(text: string): void {
    if (this.#dial === undefined) return;
    this.#dial = undefined;
    this.#abandon?.(unreachable(text));
  }
}
