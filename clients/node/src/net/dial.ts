/** The dial to a node, which all its callers share. */
import type { RateLimitError } from '../rules/errors.js';
import { CommandRejectedError, classified, DialError, NotSentError } from '../rules/errors.js';
import type { RunClock } from './clock.js';
import type { Connection } from './connection.js';
import { patienceOf } from './generations.js';

interface DialOptions {
  readonly timeoutMs: number;
  readonly silenceMs: number;
}

/** Called at the end of a dial; without an error if it has a connection. */
type OnEnd = (error: RateLimitError | undefined) => void;

export class Dial {
  /** The dial under way. */
  #id: symbol | undefined;
  /** The run time at which it has failed, although its adapter reports no end. */
  #endsMs = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly connection: Connection,
    private readonly name: string | undefined,
    private readonly run: RunClock,
    private readonly options: DialOptions,
    private readonly onEnd: OnEnd,
  ) {}

  get isUnderWay(): boolean {
    return this.#id !== undefined;
  }

  /** The run time at which the dial under way has failed. */
  get endsMs(): number {
    return this.isUnderWay ? this.#endsMs : Number.POSITIVE_INFINITY;
  }

  /**
   * Dials, unless a dial is under way.
   *
   * @param patienceMs The time after which it fails; that under way gets as much. Default: the
   * usual one.
   */
  begin(patienceMs: number | undefined): void {
    if (!this.isUnderWay) this.#dial(patienceMs);
    else if (patienceMs !== undefined) {
      this.#endsMs = Math.max(this.#endsMs, this.#endOf(patienceMs));
      this.#connect(patienceMs).catch(() => {});
    }
    this.run.wake(this.#endsMs, this.run.clock.nowMs());
  }

  #dial(patienceMs: number | undefined): void {
    const id = Symbol();
    this.#id = id;
    this.#endsMs = this.#endOf(patienceMs);
    const end = (error?: unknown) => {
      if (this.#id === id) this.#end(error);
    };
    this.#connect(patienceMs).then(() => end(), end);
  }

  /** Returns the end of a dial that begins now. Until then the adapter may report its own. */
  #endOf(patienceMs = patienceOf(this.options)): number {
    return this.run.nowMs() + patienceMs + this.options.silenceMs;
  }

  /** Opens a connection. If the application's connection throws, rejects. */
  async #connect(patienceMs: number | undefined): Promise<void> {
    await this.connection.connect?.(this.name, patienceMs);
    if (this.connection.isUp?.(this.name) !== true) throw new Error('the connection was lost');
  }

  #end(error: unknown): void {
    this.#id = undefined;
    this.onEnd(error === undefined ? undefined : failureOf(error));
  }

  /** Ends the dial if its time is over. */
  passes(dueMs: number): void {
    if (this.endsMs <= dueMs) this.#end(new Error('no connection in time'));
  }
}

/** Returns the error of a dial. That of an adapter of this package says how far it came. */
function failureOf(error: unknown): RateLimitError {
  const known = classified(error);
  const isOwn = known instanceof NotSentError || known instanceof CommandRejectedError;
  return isOwn ? known : new DialError(known, 'not connected', Number.NEGATIVE_INFINITY);
}
