/**
 * For the tests of an application: a fake server in this process, and a clock that the test
 * advances.
 *
 * ```ts
 * const server = new FakeServer();
 * const limiter = new Limiter(server, { clock: server.clock });
 * ```
 *
 * It decides as the module does. It has no time zones and start days of quotas, and no variants of
 * policies.
 */
import type { Verdict } from './calls/algorithms.js';
import { granted } from './calls/call-options.js';
import { ended, reserved, usageOf } from './calls/fake-reservations.js';
import { algorithmFor, optionsOf, parsed } from './calls/fake-words.js';
import type { Connection } from './net/connection.js';
import type { Clock } from './rules/clock.js';
import { microseconds } from './rules/durations.js';
import { InvalidArgumentError } from './rules/errors.js';
import type { Leave, Rule } from './rules/forms.js';
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

interface Row {
  verdict: Verdict<unknown>;
  cost: number;
  commit: () => void;
}

/** A fake server. It answers at once, hangs or fails, as the test chooses. */
export class FakeServer implements Connection {
  readonly clock: FakeClock;
  /** The policies of the server by name. Each is represented by its rule. */
  readonly policies: Map<string, Rule> = new Map();
  /** All calls that the server received, in order. */
  readonly calls: (readonly string[])[] = [];
  readonly #states = new Map<string, unknown>();
  /** The end of the ban of each key, in microseconds. */
  readonly #bans = new Map<string, bigint>();
  #failure: Error | undefined;
  #hangs = false;
  #waiting: (() => void)[] = [];

  constructor(clock: FakeClock = new FakeClock()) {
    this.clock = clock;
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

  /** Advances the server's clock. */
  advance(ms: number): Promise<void> {
    return this.clock.advance(ms);
  }

  async send(call: Call): Promise<unknown> {
    this.calls.push(call.args);
    if (this.#failure !== undefined) throw this.#failure;
    const reply = this.#reply(call.args);
    if (this.#hangs) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    return reply;
  }

  get #nowUs(): bigint {
    return BigInt(Math.floor(this.clock.nowMs() * 1000));
  }

  #reply([command = '', ...args]: readonly string[]): unknown {
    const [key = '', ...words] = args;
    const [first = '', second = ''] = words;
    switch (command) {
      case 'DEL':
        return this.#forget(key) ? 1 : 0;
      case 'RL.ALL':
      case 'RL.PEEKALL':
        return this.#all(args, command === 'RL.ALL');
      case 'RL.PEEK':
        return this.#five(this.#row(key, words), words);
      case 'RL.REFUND':
      case 'RL.CHARGE':
        return this.#settle(key, words, command === 'RL.CHARGE');
      case 'RL.COMMIT':
      case 'RL.CANCEL':
        return this.#end(key, words, command === 'RL.COMMIT');
      case 'RL.BLOCK':
        this.#forget(key);
        this.#bans.set(key, this.#nowUs + microseconds('duration', first));
        return 'OK';
      case 'RL.RENEW':
        return this.#renew(key, first, second);
      case 'RL.RELEASE':
        return this.#release(key, first);
      default: {
        if (!command.startsWith('RL.')) throw new Error(`ERR unknown command '${command}'`);
        const all = [command.slice(3), ...words];
        const row = this.#row(key, all);
        if (row.verdict.allowed) row.commit();
        return this.#five(row, all);
      }
    }
  }

  #forget(key: string): boolean {
    const isBanned = this.#banned(key) !== undefined;
    if (this.#states.get(key) instanceof Map) this.#holders(key);
    this.#bans.delete(key);
    return this.#states.delete(key) || isBanned;
  }

  /** Returns the time until the ban of a key ends, in ms; undefined if it has none. */
  #banned(key: string): number | undefined {
    const untilUs = this.#bans.get(key) ?? 0n;
    if (untilUs > this.#nowUs) return Number((untilUs - this.#nowUs + 999n) / 1000n);
    this.#bans.delete(key);
    return undefined;
  }

  #five({ verdict, cost }: Row, words: readonly string[]): number[] {
    const { allowed, retryAfterMs } = verdict;
    const partial = words.includes('PARTIAL');
    const taken = allowed ? (partial ? cost : 1) : 0;
    const five = [taken, ...times(verdict)];
    return isByPolicy(words) ? [...five, taken, retryAfterMs] : five;
  }

  #row(key: string, words: readonly string[]): Row {
    const [word = '', id = '', third = '', fourth = ''] = words;
    if (word === 'LEASE') {
      return this.#lease(key, id, Number(third), fourth, optionsOf(words).leave);
    }
    const isReservation = word === 'RESERVE';
    const options = parsed(isReservation ? words.slice(3) : words, this.policies);
    const { rule, cost } = options;
    const algorithm = algorithmFor(rule);
    const leftMs = this.#banned(key);
    if (leftMs !== undefined) {
      const { limit } = algorithm.decide(undefined, this.#nowUs, 0);
      const needed = (options.partial ? 1 : cost) + unitsOf(options.leave, limit);
      return bannedRow(leftMs, limit, needed, cost);
    }
    const state = this.#states.get(key);
    if (isReservation) {
      const usage = usageOf(algorithm, state, this.#nowUs);
      const wanted = { id, ttl: third, cost, leave: options.leave };
      const verdict = reserved(usage, this.#nowUs, wanted);
      return { verdict, cost, commit: () => this.#store(key, verdict.state) };
    }
    const { granted: units, ...verdict } = granted(algorithm, state, this.#nowUs, options);
    const commit = () => {
      if (verdict.state !== undefined) this.#states.set(key, verdict.state);
    };
    return { verdict, cost: units, commit };
  }

  #store(key: string, state: unknown): void {
    if (state === undefined) this.#states.delete(key);
    else this.#states.set(key, state);
  }

  #end(key: string, [id = '', ...words]: readonly string[], isCommit: boolean): number[] {
    const { rule, cost } = parsed(words, this.policies);
    const algorithm = algorithmFor(rule);
    const leftMs = this.#banned(key);
    if (leftMs !== undefined) return this.#denied(leftMs, rule);
    const usage = usageOf(algorithm, this.#states.get(key), this.#nowUs);
    const held = usage.reserved.find((one) => one.id === id)?.units ?? 0;
    const units = words.includes('COST') ? cost : held;
    const verdict = ended(usage, this.#nowUs, id, isCommit ? units : undefined);
    this.#store(key, verdict.state);
    return [verdict.allowed ? 1 : 0, ...times(verdict)];
  }

  /** Returns the reply of a banned key to a call that settles an earlier one. */
  #denied(leftMs: number, rule: Rule): number[] {
    const { limit } = algorithmFor(rule).decide(undefined, this.#nowUs, 0);
    return [0, limit, 0, leftMs, leftMs];
  }

  #all(args: readonly string[], commit: boolean): unknown {
    const pairs = Array.from({ length: args.length / 2 }, (_, at) =>
      args.slice(at * 2, at * 2 + 2),
    );
    const asked = pairs.map(([, rule = '']) => rule.split(' '));
    const rows = pairs.map(([key = ''], at) => {
      try {
        return this.#row(key, asked[at] as string[]);
      } catch (error) {
        throw new Error((error as Error).message.replace(/^ERR /, `ERR rule ${at + 1}: `));
      }
    });
    const denied = rows.some(({ verdict }) => !verdict.allowed);
    if (!denied && commit) for (const row of rows) row.commit();
    const shown = rows.map((row, at) => {
      const [key = ''] = pairs[at] as string[];
      const words = asked[at] as string[];
      if (!denied || !row.verdict.allowed) return this.#five(row, words);
      const [, limit, , , reset] = this.#five(row, words);
      const there = this.#status(key, words);
      return [
        1,
        limit,
        there.remaining,
        0,
        there.resetAfterMs ?? reset,
        ...(isByPolicy(words) ? [1, 0] : []),
      ];
    }) as number[][];
    const at = this.#deciding(rows, denied);
    const five = (shown[at] as number[]).slice(0, 5);
    if (!denied) five[3] = Math.max(...rows.map(({ verdict }) => verdict.retryAfterMs));
    return [...five, at + 1, ...shown];
  }

  /** Returns the status of a key without taking anything. */
  #status(key: string, words: readonly string[]): { remaining: number; resetAfterMs: number } {
    if (words[0] === 'LEASE') {
      const lapses = [...this.#holders(key).values()];
      const resetAfterMs = Math.max(0, ...lapses.map((at) => at - this.clock.nowMs()));
      return { remaining: Number(words[2]) - lapses.length, resetAfterMs };
    }
    const plain = words[0] === 'RESERVE' ? words.slice(3) : words;
    const { rule } = parsed(plain, this.policies);
    return algorithmFor(rule).decide(this.#states.get(key), this.#nowUs, 0);
  }

  #deciding(rows: readonly Row[], denied: boolean): number {
    const score = ({ verdict, cost }: Row): number => {
      const never = verdict.retryAfterMs < 0;
      if (denied) return verdict.allowed ? 1 : never ? -Infinity : -verdict.retryAfterMs;
      return cost === 0 ? Infinity : Math.floor(verdict.remaining / cost);
    };
    const order = rows.map((row, at) => ({ at, score: score(row), left: row.verdict.remaining }));
    const byRest = (a: number, b: number) => (denied ? 0 : a - b);
    order.sort((a, b) => (a.score === b.score ? byRest(a.left, b.left) : a.score - b.score));
    return order[0]?.at ?? 0;
  }

  #settle(key: string, words: readonly string[], charge: boolean): number[] {
    const { rule, cost } = parsed(words, this.policies);
    const leftMs = this.#banned(key);
    if (leftMs !== undefined) return this.#denied(leftMs, rule);
    const algorithm = algorithmFor(rule);
    const state = this.#states.get(key);
    const after =
      charge || state === undefined ? state : algorithm.refund(state, this.#nowUs, cost);
    const verdict = algorithm.charge(after, this.#nowUs, charge ? cost : 0);
    this.#store(key, charge ? verdict.state : after);
    return [verdict.allowed ? 1 : 0, ...times(verdict)];
  }

  /** Returns the holders of a key, and when the lease of each expires, in ms. */
  #holders(key: string): Map<string, number> {
    const holders = (this.#states.get(key) as Map<string, number> | undefined) ?? new Map();
    for (const [id, lapsesAtMs] of holders) {
      if (lapsesAtMs <= this.clock.nowMs()) holders.delete(id);
    }
    if (holders.size === 0) this.#states.delete(key);
    return holders;
  }

  #release(key: string, id: string): number {
    if (this.#banned(key) !== undefined || !this.#holders(key).delete(id)) return 0;
    this.#holders(key);
    return 1;
  }

  #lease(key: string, id: string, limit: number, ttl: string, leave: Leave | undefined): Row {
    const left = unitsOf(leave, limit);
    const bannedMs = this.#banned(key);
    if (bannedMs !== undefined) return bannedRow(bannedMs, limit, 1 + left, 1);
    const holders = this.#holders(key);
    const nowMs = this.clock.nowMs();
    const ttlMs = Number(microseconds('ttl', ttl)) / 1000;
    const allowed = holders.has(id) || holders.size + left < limit;
    const lapses = [...holders.values()].map((at) => at - nowMs).sort((a, b) => a - b);
    const held = holders.size + (allowed && !holders.has(id) ? 1 : 0);
    const waitMs = left >= limit ? -1 : (lapses[holders.size + left - limit] ?? 0);
    const verdict = {
      allowed,
      limit,
      remaining: Math.max(0, limit - held),
      retryAfterMs: allowed ? 0 : waitMs,
      resetAfterMs: Math.max(0, ...lapses, allowed ? ttlMs : 0),
      state: undefined,
    };
    const commit = () => void this.#states.set(key, holders.set(id, nowMs + ttlMs));
    return { verdict, cost: 1, commit };
  }

  #renew(key: string, id: string, ttl: string): number {
    if (this.#banned(key) !== undefined) return 0;
    const holders = this.#holders(key);
    if (!holders.has(id)) return 0;
    holders.set(id, this.clock.nowMs() + Number(microseconds('ttl', ttl)) / 1000);
    return 1;
  }
}

/** Returns the row of a banned key, whose ban ends in `leftMs`. */
function bannedRow(leftMs: number, limit: number, needed: number, cost: number): Row {
  const retryAfterMs = needed > limit ? -1 : leftMs;
  const banned = { allowed: false, remaining: 0, resetAfterMs: leftMs, state: undefined };
  return { verdict: { ...banned, limit, retryAfterMs }, cost, commit: () => {} };
}

/** Returns true if a policy decides, whose replies have seven integers. */
function isByPolicy(words: readonly string[]): boolean {
  return words[words[0] === 'RESERVE' ? 3 : 0] === 'USE';
}

/** Returns fields 2 to 5 of a reply. */
function times({ limit, remaining, retryAfterMs, resetAfterMs }: Verdict<unknown>): number[] {
  return [limit, remaining, retryAfterMs, resetAfterMs];
}
