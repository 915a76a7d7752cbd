/**
 * The denial cache: a denied call is denied again, without a call to the server, until its
 * `retryAfterMs` has passed, but for at most `maxMs`. The cache is exact unless the key is deleted,
 * refunded or gets another limit in the meantime. When it is full, the oldest denial is dropped.
 */
import type { Clock } from '../rules/clock.js';
import { Decision, NEVER_MS } from '../rules/decision.js';
import { isSame } from '../rules/forms.js';
import { allDecisionOf, decisionOf } from '../wire/replies.js';
import { type Call, isHeld, type RuleRequest } from '../wire/words.js';

/** The maximum number of keys for which a memory knows that they were forgotten. */
const FORGOTTEN_MAX = 10_000;

/** The keys that were forgotten lately: the denial of a call sent before that is not stored. */
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
export interface Moment {
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
  moment(): Moment {
    return { atMs: this.clock.nowMs(), turn: this.#forgotten.turn };
  }

  /** Stores a denial, unless one of its keys was forgotten after the call was sent. */
  put(call: Call, decision: Decision, { atMs, turn }: Moment): void {
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

/** Without a reply, a denial lasts at most this long after the server's, in ms. */
const LONGEST_MS = 3_600_000;

/** The server's last denial of a key. */
interface Entry {
  request: RuleRequest;
  /** The cost that was denied: 1 for a partial call, which would have taken one unit. */
  cost: number;
  row: Decision;
  /** The instant at which the denial was read, in ms. */
  readMs: number;
  /** True if this process keeps the limit of the key, because the denial is over. */
  isLocal: boolean;
}

export class KnownDenials {
  readonly #entries = new Map<string, Entry>();
  readonly #forgotten = new Forgotten();

  /**
   * @param size The maximum number of keys.
   * @param youngMs The age at which an entry no longer denies under pressure.
   */
  constructor(
    private readonly clock: Clock,
    private readonly size: number,
    private readonly youngMs: number,
  ) {}

  /** The moment for `note`: a number that grows with each key that is forgotten. */
  get turn(): number {
    return this.#forgotten.turn;
  }

  /**
   * Stores a denial that was read now, or removes the entry that an allowed call has proved wrong.
   *
   * @param turn The turn before the call was sent.
   */
  note(request: RuleRequest, row: Decision, turn: number): void {
    if (row.source !== 'server') return;
    const { key, cost = 1, partial } = request;
    if (row.allowed) {
      const entry = this.#entries.size > 0 ? this.#entries.get(key) : undefined;
      const units = partial ? row.granted : cost;
      if (entry && units >= entry.cost && hasSameWords(entry.request, request))
        this.#entries.delete(key);
      return;
    }
    if (this.size === 0 || isHeld(request) || this.#forgotten.hasSince(key, turn)) return;
    const units = partial ? 1 : cost;
    const readMs = this.clock.nowMs();
    const known = this.#entries.get(key);
    if (known === undefined) {
      this.#entries.set(key, { request, cost: units, row, readMs, isLocal: false });
      if (this.#entries.size > this.size) this.#evict();
      return;
    }
    // The denial of a larger cost says less.
    if (known.cost < units && readMs < endOf(known) && hasSameWords(known.request, request)) return;
    known.request = request;
    known.cost = units;
    known.row = row;
    known.readMs = readMs;
    known.isLocal = false;
  }

  noteAll(requests: readonly RuleRequest[], { rows }: Decision, turn: number): void {
    for (const [at, row] of rows.entries()) this.note(requests[at] as RuleRequest, row, turn);
  }

  /** Notes a reply whose caller has gone. */
  noteLate({ requests }: Call, reply: unknown, turn: number): void {
    if (requests === undefined) return;
    try {
      if ('rule' in requests) this.note(requests, decisionOf(reply, requests), turn);
      else this.noteAll(requests, allDecisionOf(reply, requests), turn);
    } catch {
      // It is not a decision, and no caller waits for one.
    }
  }

  /** Removes the entry of a key. A denial that is on its way is not stored either. */
  forget(key: string): void {
    this.#entries.delete(key);
    this.#forgotten.add(key);
  }

  /** Returns the denial of a call that would have to wait, if the server's is young. */
  young({ requests }: Call, nowMs: number): Decision | undefined {
    if (requests === undefined || this.#entries.size === 0) return undefined;
    return this.#denied('rule' in requests ? [requests] : requests, nowMs, this.youngMs, undefined);
  }

  /** Returns the denial of a call that got no reply. */
  withoutReply(requests: readonly RuleRequest[], error: Error): Decision | undefined {
    if (this.#entries.size === 0) return undefined;
    return this.#denied(requests, this.clock.nowMs(), LONGEST_MS, error);
  }

  /** Returns true if the server's denial of the key is over, and this process keeps its limit. */
  isOver(request: RuleRequest): boolean {
    const entry = this.#entries.size > 0 ? this.#entries.get(request.key) : undefined;
    if (entry === undefined || !hasSameWords(entry.request, request)) return false;
    return this.clock.nowMs() >= Math.min(endOf(entry), entry.readMs + LONGEST_MS);
  }

  /** Returns the instant at which a key is full again, the first time that its denial is over. */
  beginsLocally(key: string): number | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined || entry.isLocal) return undefined;
    entry.isLocal = true;
    return entry.readMs + entry.row.resetAfterMs;
  }

  #denied(
    requests: readonly RuleRequest[],
    nowMs: number,
    longestMs: number,
    error: Error | undefined,
  ): Decision | undefined {
    let deciding = -1;
    const denials = requests.map((request) => this.#row(request, nowMs, longestMs, error));
    for (const [at, row] of denials.entries()) {
      if (row === undefined) continue;
      if (deciding < 0 || row.retryAfterMs > (denials[deciding] as Decision).retryAfterMs) {
        deciding = at;
      }
    }
    const denial = denials[deciding];
    if (denial === undefined || requests.length === 1) return denial;
    const rows = denials.map((row, at) => row ?? allowingRow(requests[at] as RuleRequest, error));
    return new Decision({ ...denial.fields(), rows, deciding });
  }

  /** Returns the denial by one entry, as it is now. */
  #row(
    request: RuleRequest,
    nowMs: number,
    longestMs: number,
    error: Error | undefined,
  ): Decision | undefined {
    const entry = this.#entries.get(request.key);
    if (entry === undefined || nowMs >= Math.min(endOf(entry), entry.readMs + longestMs)) {
      return undefined;
    }
    const cost = request.partial ? 1 : (request.cost ?? 1);
    if (entry.cost > cost || !hasSameWords(entry.request, request)) return undefined;
    const row = aged(entry.row, Math.floor(nowMs - entry.readMs));
    return error === undefined ? row : new Decision({ ...row.fields(), error });
  }

  /** Removes the tenth whose retry times end first, so that a new key costs constant time. */
  #evict(): void {
    const byEnd = [...this.#entries].sort(([, one], [, other]) => endOf(one) - endOf(other));
    for (const [key] of byEnd.slice(0, Math.ceil(this.size / 10))) this.#entries.delete(key);
  }
}

/** Returns the instant at which the same call may be allowed. */
function endOf({ row, readMs }: Entry): number {
  return row.retryAfterMs === NEVER_MS ? Number.POSITIVE_INFINITY : readMs + row.retryAfterMs;
}

/** Returns true if two calls have the same words, costs apart. */
function hasSameWords(one: RuleRequest, other: RuleRequest): boolean {
  return one.leave === other.leave && isSame(one.rule, other.rule) && !isHeld(other);
}

/** Returns the row of a rule that does not deny a call which another rule denies. */
function allowingRow({ rule }: RuleRequest, error: Error | undefined): Decision {
  const nothing = { remaining: 0, retryAfterMs: 0, resetAfterMs: 0, granted: 0 };
  return new Decision({
    allowed: true,
    rule,
    limit: rule.limit,
    ...nothing,
    source: 'local',
    error,
  });
}
