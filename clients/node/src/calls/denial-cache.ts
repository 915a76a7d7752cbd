/**
 * The denial cache: a denied call is denied again, without a call to the server, until its
 * `retryAfterMs` has passed, but for at most `maxMs`. The cache is exact unless the key is deleted,
 * refunded or gets another limit in the meantime. When it is full, the oldest denial is dropped.
 */
import type { Clock } from '../rules/clock.js';
import { Decision, NEVER_MS } from '../rules/decision.js';
import type { Call } from '../wire/words.js';

/** The maximum number of keys for which a memory knows that they were forgotten. */
const FORGOTTEN_MAX = 10_000;

/** The keys that were forgotten lately: a denial that was asked for before that is not stored. */
export class Forgotten {
  /** The turn at which a key was last forgotten. */
  readonly #turns = new Map<string, number>();
  /** No denial is stored of a call that was sent before this turn. */
  #oldestTurn = 0;
  /** A number that grows with each key that is forgotten. */
  turn = 0;

  add(key: string): void {
    this.turn += 1;
    this.#turns.delete(key);
    this.#turns.set(key, this.turn);
    if (this.#turns.size <= FORGOTTEN_MAX) return;
    const [oldest, turn] = this.#turns.entries().next().value as [string, number];
    this.#turns.delete(oldest);
    this.#oldestTurn = turn;
  }

  /** Returns true if the key was forgotten after this turn. */
  hasSince(key: string, turn: number): boolean {
    // Nearly always no key was forgotten since.
    return turn < this.turn && turn < (this.#turns.get(key) ?? this.#oldestTurn);
  }
}

interface Held {
  decision: Decision;
  /** The instant before the call was sent, in ms. */
  atMs: number;
  lifeMs: number;
  keys: readonly string[];
}

/** The moment before a call was sent. */
export interface Asked {
  readonly atMs: number;
  readonly turn: number;
}

/** Returns the name of a call's denial. It has every word of the call, such as its cost. */
function entryOf({ args }: Call): string {
  return args.join('\0');
}

export class DenialCache {
  /** The denials by the words of their calls, the oldest first. */
  readonly #held = new Map<string, Held>();
  /** The entries of each key. */
  readonly #entries = new Map<string, Set<string>>();
  readonly #forgotten = new Forgotten();

  constructor(
    private readonly clock: Clock,
    private readonly size: number,
    private readonly maxMs: number,
  ) {}

  /** Returns the cached denial with the time that is left, or undefined. */
  get(call: Call): Decision | undefined {
    const entry = entryOf(call);
    const held = this.#held.get(entry);
    if (held === undefined) return undefined;
    const passedMs = Math.floor(this.clock.nowMs() - held.atMs);
    if (passedMs < held.lifeMs) return aged(held.decision, passedMs);
    this.#remove(entry);
    return undefined;
  }

  /** Returns the moment for `put`. Called before the call is sent. */
  asked(): Asked {
    return { atMs: this.clock.nowMs(), turn: this.#forgotten.turn };
  }

  /** Stores a denial, unless one of its keys was forgotten after the call was sent. */
  put(call: Call, decision: Decision, { atMs, turn }: Asked): void {
    if (decision.allowed || decision.source !== 'server' || decision.retryAfterMs <= 0) return;
    const { keys } = call;
    if (keys.some((key) => this.#forgotten.hasSince(key, turn))) return;
    const entry = entryOf(call);
    this.#remove(entry);
    const lifeMs = Math.min(decision.retryAfterMs, this.maxMs);
    this.#held.set(entry, { decision, atMs, lifeMs, keys });
    for (const key of keys) {
      const entries = this.#entries.get(key) ?? new Set<string>();
      this.#entries.set(key, entries.add(entry));
    }
    if (this.#held.size > this.size) this.#remove(this.#held.keys().next().value as string);
  }

  /** Removes all denials of a key. A denial that is on its way is not stored either. */
  forget(key: string): void {
    for (const entry of this.#entries.get(key) ?? []) this.#remove(entry);
    this.#forgotten.add(key);
  }

  #remove(entry: string): void {
    const held = this.#held.get(entry);
    if (held === undefined) return;
    this.#held.delete(entry);
    for (const key of held.keys) {
      const entries = this.#entries.get(key);
      entries?.delete(entry);
      if (entries?.size === 0) this.#entries.delete(key);
    }
  }
}

/** Returns the denial as it is `passedMs` later, with this process as its source. */
export function aged(decision: Decision, passedMs: number): Decision {
  const fields = decision.fields();
  const left = (ms: number) => (ms === NEVER_MS ? ms : Math.max(0, ms - passedMs));
  return new Decision({
    ...fields,
    retryAfterMs: left(fields.retryAfterMs),
    wouldRetryAfterMs: left(fields.wouldRetryAfterMs ?? 0),
    resetAfterMs: left(fields.resetAfterMs),
    source: 'local',
    rows: decision.rows.map((row) => aged(row, passedMs)),
  });
}
