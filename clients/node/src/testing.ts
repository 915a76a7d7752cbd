/**
 * For the tests of an application: a fake server in this process, and a clock that the test
 * advances.
 *
 * ```ts
 * const server = new FakeServer();
 * const limiter = new Limiter(server, { clock: server.clock });
 * ```
 *
 * It decides GCRA, buckets and windows as the module does. Replies to other commands, such as those
 * of leases, reservations, quotas and backoffs, are queued with `script`.
 */
import { LocalLimiter } from './calls/local.js';
import type { Connection } from './net/connection.js';
import type { Clock } from './rules/clock.js';
import { combined, Decision, NEVER_MS } from './rules/decision.js';
import { microseconds } from './rules/durations.js';
import { InvalidArgumentError } from './rules/errors.js';
import type { Leave, Rule, RuleKind } from './rules/forms.js';
import { unitsOf } from './rules/rule.js';
import type { Call } from './wire/words.js';

/** A clock that stands still until a test advances it. */
export class FakeClock implements Clock {
  #nowMs: number;
  #timers: { atMs: number; call: () => void }[] = [];

  constructor(nowMs = 1_700_000_000_000) {
    this.#nowMs = nowMs;
  }

  nowMs(): number {
    return this.#nowMs;
  }

  after(ms: number, call: () => void): () => void {
    const timer = { atMs: this.#nowMs + ms, call };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  }

  /** Advances the clock, and runs the timers that are due, each at its own instant. */
  async advance(ms: number): Promise<void> {
    if (!Number.isFinite(ms) || ms < 0) {
      throw new InvalidArgumentError('ms', 'a number of ms from 0, such as 60_000');
    }
    const endMs = this.#nowMs + ms;
    for (;;) {
      await settled();
      const due = this.#timers.filter((timer) => timer.atMs <= endMs);
      due.sort((a, b) => a.atMs - b.atMs);
      const next = due[0];
      if (next === undefined) break;
      this.#timers = this.#timers.filter((timer) => timer !== next);
      this.#nowMs = Math.max(this.#nowMs, next.atMs);
      next.call();
    }
    this.#nowMs = endMs;
    await settled();
  }

  /** The number of pending timers. */
  get pending(): number {
    return this.#timers.length;
  }
}

/** Runs all pending work that does not wait for a timer of this clock. */
function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** A call under one rule. */
interface FakeRequest {
  readonly rule: Rule;
  readonly key: string;
  readonly isWhole: true;
  readonly cost: number;
  readonly partial: boolean;
  readonly leave: Leave | undefined;
  /** True if a policy decides, whose replies have seven integers. */
  readonly isByPolicy: boolean;
}

const KINDS: Partial<Record<string, RuleKind>> = {
  GCRA: 'gcra',
  TOKENBUCKET: 'token_bucket',
  LEAKYBUCKET: 'leaky_bucket',
  FIXED: 'fixed',
  SLIDING: 'sliding',
  SLIDINGLOG: 'sliding_log',
};

/**
 * A fake server. It replies at once, hangs or fails, as the test chooses. Of a sliding log above
 * 1,000 units it counts in 1,000 parts of the window.
 */
export class FakeServer implements Connection {
  readonly clock: FakeClock;
  /** The policies of the server by name. Each is represented by its rule. */
  readonly policies: Map<string, Rule> = new Map();
  /** All calls that the server received, in order. */
  readonly calls: (readonly string[])[] = [];
  readonly #limiter: LocalLimiter;
  /** The end of the ban of each key, in ms. */
  readonly #bans = new Map<string, number>();
  readonly #script: unknown[] = [];
  #failure: Error | undefined;
  #hangs = false;
  #waiting: (() => void)[] = [];

  constructor(clock: FakeClock = new FakeClock()) {
    this.clock = clock;
    this.#limiter = new LocalLimiter(clock, ({ key }) => key);
  }

  /** Makes each call fail with this error of the server or the connection, until `answer`. */
  fail(error: Error = new Error('connect ECONNREFUSED')): void {
    this.#failure = error;
  }

  /** Decides calls, but does not send the replies until `answer`. */
  hang(): void {
    this.#hangs = true;
  }

  /** Ends `fail` and `hang`, and sends the replies that were waiting. */
  answer(): void {
    this.#failure = undefined;
    this.#hangs = false;
    for (const resume of this.#waiting.splice(0)) resume();
  }

  /**
   * Queues replies to the next commands that the fake does not compute, one each, in order: an
   * integer, a list or a text. An `Error` is thrown. `[1, 4, 3, 0, 60_000]` allows a lease of 4.
   */
  script(...replies: readonly unknown[]): void {
    this.#script.push(...replies);
  }

  /** Advances the server's clock. */
  advance(ms: number): Promise<void> {
    return this.clock.advance(ms);
  }

  async send(call: Call): Promise<unknown> {
    this.calls.push(call.args);
    if (this.#failure !== undefined) throw this.#failure;
    const reply = this.#reply(call.args) ?? this.#scripted(call.args);
    if (this.#hangs) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    if (reply instanceof Error) throw reply;
    return reply;
  }

  #scripted([command, , ...words]: readonly string[]): unknown {
    if (this.#script.length > 0) return this.#script.shift();
    const text = [command, ...words].join(' ');
    return new Error(
      `ERR the fake server does not compute ${text}: queue a reply with script(), or run ` +
        '`redis-throttle-lab serve`, which decides all rules',
    );
  }

  /** Returns the reply to a command; undefined if the fake does not compute it. */
  #reply([command = '', ...args]: readonly string[]): unknown {
    const [key = '', ...words] = args;
    switch (command) {
      case 'DEL':
        return this.#forget(key) ? 1 : 0;
      case 'RL.BLOCK':
        this.#forget(key);
        this.#bans.set(key, this.clock.nowMs() + msOf(words[0] as string));
        return 'OK';
      case 'RL.ALL':
      case 'RL.PEEKALL':
        return this.#all(args, command === 'RL.PEEKALL');
      case 'RL.PEEK':
        return this.#one(this.#read(key, words), true);
      case 'RL.REFUND':
      case 'RL.CHARGE':
        return this.#settle(this.#read(key, words), command === 'RL.CHARGE');
      default:
        return this.#one(this.#read(key, [command.slice(3), ...words]), false);
    }
  }

  #forget(key: string): boolean {
    const isBanned = (this.#bans.get(key) ?? 0) > this.clock.nowMs();
    this.#bans.delete(key);
    return this.#limiter.forget({ key } as FakeRequest) || isBanned;
  }

  /** Reads the words of a call; undefined if the fake does not compute its rule. */
  #read(key: string, words: readonly string[]): FakeRequest | undefined {
    const rest: string[] = [];
    let [cost, partial, leave] = [1, false, undefined as Leave | undefined];
    const end = words.indexOf('DEFAULT');
    const own = end < 0 ? words : words.slice(0, end);
    for (let at = 0; at < own.length; at += 1) {
      const word = own[at] as string;
      if (word === 'PARTIAL') partial = true;
      else if (word === 'COST') cost = Number(own[++at]);
      else if (word === 'LEAVE') {
        const units = own[++at] as string;
        leave = units.endsWith('%') ? units : Number(units);
      } else rest.push(word);
    }
    const isByPolicy = rest[0] === 'USE';
    const stored = isByPolicy ? this.policies.get(rest[1] as string)?.words : rest;
    const rule = ruleOf(stored ?? (end < 0 ? [] : words.slice(end + 1)));
    return rule && { rule, key, isWhole: true, cost, partial, leave, isByPolicy };
  }

  /** Returns the denial of a banned key, or undefined. */
  #banned({ rule, key, cost, partial, leave }: FakeRequest): Decision | undefined {
    const { limit } = rule;
    const leftMs = Math.ceil((this.#bans.get(key) ?? 0) - this.clock.nowMs());
    if (leftMs <= 0) return undefined;
    const isNever = (partial ? 1 : cost) + unitsOf(leave, limit) > limit;
    const retryAfterMs = isNever ? NEVER_MS : leftMs;
    return new Decision({
      allowed: false,
      rule,
      limit,
      remaining: 0,
      retryAfterMs,
      resetAfterMs: leftMs,
    });
  }

  #one(request: FakeRequest | undefined, isPeek: boolean): number[] | undefined {
    if (request === undefined) return undefined;
    const decide = () => this.#limiter.decide([request], undefined, isPeek ? 'peek' : 'take')[0];
    return rowOf(this.#banned(request) ?? (decide() as Decision), request);
  }

  #settle(request: FakeRequest | undefined, isCharge: boolean): number[] | undefined {
    if (request === undefined) return undefined;
    const banned = this.#banned({ ...request, cost: 0 });
    if (banned === undefined && !isCharge) this.#limiter.refund(request);
    const charged = isCharge ? request : { ...request, cost: 0 };
    return fiveOf(banned ?? this.#limiter.charge(charged));
  }

  #all(args: readonly string[], isPeek: boolean): unknown {
    const requests: FakeRequest[] = [];
    for (let at = 0; at < args.length; at += 2) {
      const request = this.#read(args[at] as string, (args[at + 1] as string).split(' '));
      if (request === undefined) return undefined;
      requests.push(request);
    }
    const bans = requests.map((request) => this.#banned(request));
    const isBanned = bans.some((ban) => ban !== undefined);
    const decided = this.#limiter.decide(
      requests,
      undefined,
      isBanned ? 'deny' : isPeek ? 'peek' : 'take',
    );
    const rows = decided.map((row, at) => bans[at] ?? row);
    const whole = combined(
      rows,
      requests.map(({ cost }) => cost),
    );
    const replies = rows.map((row, at) => {
      const there = whole.allowed || !row.allowed ? row : { ...row.fields(), retryAfterMs: 0 };
      return rowOf(there, requests[at] as FakeRequest);
    });
    return [...fiveOf(whole), whole.deciding + 1, ...replies];
  }
}

/** Returns the rule with these words, if the fake computes it. */
function ruleOf(words: readonly string[]): Rule | undefined {
  const kind = KINDS[words[0] as string];
  return kind && ({ kind, words, name: 'fake', limit: Number(words[1]) } as Rule);
}

function msOf(duration: string): number {
  return Number(microseconds('duration', duration)) / 1000;
}

type Fields = Pick<Decision, 'allowed' | 'limit' | 'remaining' | 'retryAfterMs' | 'resetAfterMs'>;

/** Returns the five integers of a reply. */
function fiveOf({ allowed, limit, remaining, retryAfterMs, resetAfterMs }: Fields): number[] {
  const waitMs = retryAfterMs === NEVER_MS ? -1 : retryAfterMs;
  return [allowed ? 1 : 0, limit, remaining, waitMs, resetAfterMs];
}

/** Returns the integers of a decision under one rule. */
function rowOf(row: Fields & { granted?: number }, { partial, isByPolicy }: FakeRequest): number[] {
  const [allowed, ...rest] = fiveOf(row) as [number, number, number, number, number];
  const taken = allowed === 1 && partial ? (row.granted ?? 1) : allowed;
  return [taken, ...rest, ...(isByPolicy ? [taken, rest[2]] : [])];
}
