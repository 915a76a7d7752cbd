/**
 * The connections of an adapter to one server, made from the configuration of the application's
 * client. There is one at a time: a generation. A generation that falls silent is retired, and the
 * next call dials another.
 */
import type { Clock } from '../clock.js';
import { CommandRejectedError, classified, NotDialledError, NotSentError } from '../errors.js';
import type { Waiting } from './connection.js';
import { away, type Emitter, Refusal, unlessAborted } from './opening.js';

/** The terms on which an adapter dials. */
export interface Dialling {
  readonly clock: Clock;
  readonly timeoutMs: number;
  /** The time between the beginnings of two dials if the first one failed, in ms. */
  readonly pauseMs: number;
}

/** The calls to a driver. */
export interface Driver<Client extends Emitter> {
  /** Creates a client that neither queues calls nor connects again by itself. */
  make(): Client | Promise<Client>;
  connect(client: Client): Promise<unknown>;
  isReady(client: Client): boolean;
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

/** A call that is overdue by more has its additional time, because the process was busy, in ms. */
const BUSY_MS = 20;

export class Generations<Client extends Emitter> {
  #current: Client | undefined;
  #dial: Promise<Client> | undefined;
  /** Ends the dial under way. */
  #abandon: ((error: NotSentError) => void) | undefined;
  /** The instant from which a dial is allowed again. */
  #dialAgainAtMs = Number.NEGATIVE_INFINITY;
  #refusal: CommandRejectedError | undefined;
  /** The instant at which the last dial succeeded, and the time that it took, in ms. */
  #dialled = { atMs: Number.NEGATIVE_INFINITY, tookMs: 0 };
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
   * Returns a connected client for a call. Rejects if the dial has left the call too little time
   * for an answer: the call would time out and retire a connection that works.
   *
   * @param node The name of the node, for `waiting`.
   * @param sinceMs The instant since which the call has waited. Default: now.
   */
  async openFor(
    waiting: Waiting,
    node?: string,
    sinceMs = this.terms.clock.nowMs(),
  ): Promise<Client> {
    waiting.waits?.(node);
    // Asked first, because the signal of a call takes longer than the rest of a refusal.
    const refused = this.#refused();
    if (refused !== undefined) throw refused;
    const client = this.ready ?? (await unlessAborted(this.open(), waiting.signal));
    const { atMs, tookMs } = this.#dialled;
    const { endsAtMs = Number.POSITIVE_INFINITY } = waiting;
    const leftMs = endsAtMs - this.terms.clock.nowMs();
    if (atMs >= sinceMs && leftMs < tookMs && leftMs > -BUSY_MS) {
      throw new NotSentError('timeout', `not sent: the dial took ${Math.ceil(tookMs)} ms`);
    }
    waiting.sends?.(node);
    return client;
  }

  /** Returns the error of a call that needs a dial while none may begin. */
  #refused(): Error | undefined {
    if (this.#dial !== undefined || this.ready !== undefined) return undefined;
    if (this.#closed) return away('the limiter is closed');
    if (this.driver.isEnded?.()) return away('the client was closed');
    const leftMs = this.#dialAgainAtMs - this.terms.clock.nowMs();
    if (leftMs <= 0) return undefined;
    const text = `not sent: the server is dialled again in ${Math.ceil(leftMs)} ms`;
    return this.#refusal ?? new NotDialledError('connection', text);
  }

  /** Returns a connected client. All callers that wait share one dial. */
  open(): Promise<Client> {
    if (this.#dial !== undefined) return this.#dial;
    const { ready } = this;
    if (ready !== undefined) return Promise.resolve(ready);
    this.#drop();
    const refused = this.#refused();
    if (refused !== undefined) return Promise.reject(refused);
    const dial = this.#newClient();
    this.#dial = dial;
    const end = () => {
      if (this.#dial === dial) this.#dial = undefined;
    };
    dial.then(end, end);
    return dial;
  }

  async #newClient(): Promise<Client> {
    const { clock, pauseMs } = this.terms;
    const beganMs = clock.nowMs();
    const patienceMs = patienceOf(this.terms);
    let stop = () => {};
    let abandoned: NotSentError | undefined;
    const late = new Promise<never>((_, reject) => {
      const fail = () => reject(away(`no connection in ${patienceMs} ms`));
      stop = clock.after(patienceMs, fail);
      this.#abandon = (error) => {
        abandoned = error;
        reject(error);
      };
    });
    let client: Client | undefined;
    try {
      client = await Promise.race([this.driver.make(), late]);
      const refusal = new Refusal(client);
      await refusal.duringOrError(Promise.race([this.driver.connect(client), late]));
      if (abandoned !== undefined) throw abandoned;
      this.#refusal = undefined;
      this.#current = client;
      this.#dialled = { atMs: clock.nowMs(), tookMs: clock.nowMs() - beganMs };
      return client;
    } catch (error) {
      if (client !== undefined) this.driver.drop(client);
      if (abandoned !== undefined) throw abandoned;
      const known = classified(error);
      this.#refusal = known instanceof CommandRejectedError ? known : undefined;
      // Many processes lose the same server at once and should not all dial it at once.
      this.#dialAgainAtMs = beganMs + pauseMs * (0.8 + 0.4 * Math.random());
      if (known instanceof CommandRejectedError) throw known;
      throw new NotSentError(known.reason, known.message, { cause: error });
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
    this.#abandon?.(away(text));
  }
}
