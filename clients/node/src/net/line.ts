/** The commands for a node, and the lists in which they wait. */
import type { Clock } from '../rules/clock.js';
import type { RateLimitError, UnavailableError } from '../rules/errors.js';

/** Commands in order of arrival. A command is in one list at a time. */
export class List {
  first: Command | undefined;
  #last: Command | undefined;
  size = 0;

  push(command: Command): void {
    command.list = this;
    command.before = this.#last;
    command.after = undefined;
    if (this.#last === undefined) this.first = command;
    else this.#last.after = command;
    this.#last = command;
    this.size += 1;
  }

  delete(command: Command): void {
    const { before, after } = command;
    if (before === undefined) this.first = after;
    else before.after = after;
    if (after === undefined) this.#last = before;
    else after.before = before;
    command.list = undefined;
    this.size -= 1;
  }

  /** Returns the commands, which may leave the list while the caller handles them. */
  all(): Command[] {
    const found: Command[] = [];
    for (let one = this.first; one !== undefined; one = one.after) found.push(one);
    return found;
  }
}

/** A connection to a node. */
export interface Link {
  /** True once the server has replied to a command on it. */
  hasReplied: boolean;
  /** True once READONLY or MASTERDOWN has counted as its failure. */
  hasFailed: boolean;
}

export const newLink = (): Link => ({ hasReplied: false, hasFailed: false });

/**
 * A command for a node. It waits for a place or a connection, and then for its reply. An interface,
 * because each further class would cost each call time.
 */
export interface Command {
  /** The list that it is in, and its neighbours there. */
  list: List | undefined;
  before: Command | undefined;
  after: Command | undefined;
  /**
   * The run time at which it was sent; undefined while it is not on its way, or while its silence
   * says nothing.
   */
  readonly sentMs: number | undefined;
  /** The run time at which it ends by itself. */
  readonly endsAtMs: number;
  /** The instant at which it ends in any case. */
  readonly latestMs: number;

  /** Called when its time is over. */
  expire(): void;
  /** Ends its caller. The command itself stays, and its reply may still arrive. */
  giveUp(error: UnavailableError): void;
  /** Called when its connection is closed: no reply will arrive. */
  lose(error: UnavailableError): void;
}

/** A command that may stand in line. */
export interface Queued extends Command {
  /** True if it takes one of the `maxInFlight` places. */
  readonly isCounted: boolean;
  /** The time after which a dial for it fails, in ms; undefined for the usual time. */
  readonly dialMs: number | undefined;
  /** The time of the call, in ms. */
  readonly timeMs: number;
  /** True if it found no place when it came. */
  isPressed: boolean;
  /** The run time at which it began to wait; undefined if it was sent at once. */
  joinedMs: number | undefined;
  /** The run time at which its patience ends, if that is earlier than its time. */
  patienceMs: number | undefined;
  /** The run time at which its time began; undefined until its node was dialled first. */
  beganMs: number | undefined;

  /** Begins its time after the first dial to its node. Otherwise it began at its arrival. */
  begin(ranMs: number, nowMs: number): void;
  /** Called when it has a place and a connection. */
  send(ranMs: number, nowMs: number): void;
  /** Called when it ends before it was sent. */
  refuse(error: RateLimitError): void;
  /** Ends it by a known denial, if there is one. Returns true if it did. */
  deny(nowMs: number): boolean;
}

/** The slots of one node, either of its renewals or of its ends. */
export class LeaseSlots {
  #free: number;
  readonly #waiting = new Set<(isGiven: boolean) => void>();

  constructor(
    private readonly clock: Clock,
    size: number,
  ) {
    this.#free = size;
  }

  /** Takes a slot, or waits for one until `untilMs`. Returns false if none was free in time. */
  take(untilMs: number): Promise<boolean> {
    if (this.#free > 0) {
      this.#free -= 1;
      return Promise.resolve(true);
    }
    return new Promise((resolve) => {
      const end = (isGiven: boolean) => {
        stop();
        this.#waiting.delete(end);
        resolve(isGiven);
      };
      const stop = this.clock.after(Math.max(0, untilMs - this.clock.nowMs()), () => end(false));
      this.#waiting.add(end);
    });
  }

  /** Returns a slot. The one that has waited longest gets it. */
  put(): void {
    const [next] = this.#waiting;
    if (next === undefined) this.#free += 1;
    else next(true);
  }

  /** Ends all that wait for a slot. */
  close(): void {
    for (const end of [...this.#waiting]) end(false);
  }
}
