/**
 * For the tests of an application: a fake server in this process, and a clock that the test
 * advances.
 *
 * ```ts
 * const server = new FakeServer();
 * const limiter = new Limiter(server, { clock: server.clock });
 * ```
 *
 * It decides as the module does. It has no time zones and start days of quotas, no reservations,
 * and no variants of policies.
 */
import { type Algorithm, algorithmOf, calendar, delays, type Verdict } from './algorithms.js';
import type { Clock } from './clock.js';
import type { Connection } from './drivers/connection.js';
import { microseconds } from './numbers.js';
import type { Call } from './protocol.js';
import * as rules from './rules.js';

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
  readonly policies: Map<string, rules.Rule> = new Map();
  /** All calls that the server received, in order. */
  readonly calls: (readonly string[])[] = [];
  readonly #states = new Map<string, unknown>();
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
    switch (command) {
      case 'DEL':
        return this.#states.delete(key) ? 1 : 0;
      case 'RL.ALL':
      case 'RL.PEEKALL':
        return this.#all(args, command === 'RL.ALL');
      case 'RL.PEEK':
        return this.#five(this.#row(key, words), words);
      case 'RL.REFUND':
      case 'RL.CHARGE':
        return this.#settle(key, words, command === 'RL.CHARGE');
      case 'RL.RENEW':
        return this.#renew(key, words[0] as string, words[1] as string);
      case 'RL.RELEASE':
        return this.#holders(key).delete(words[0] as string) ? 1 : 0;
      default: {
        if (!command.startsWith('RL.')) throw new Error(`ERR unknown command '${command}'`);
        const all = [command.slice(3), ...words];
        const row = this.#row(key, all);
        if (row.verdict.allowed) row.commit();
        return this.#five(row, all);
      }
    }
  }

  #five({ verdict, cost }: Row, words: readonly string[]): number[] {
    const { allowed, limit, remaining, retryAfterMs, resetAfterMs } = verdict;
    const partial = words.includes('PARTIAL');
    const taken = allowed ? (partial ? cost : 1) : 0;
    const five = [taken, limit, remaining, retryAfterMs, resetAfterMs];
    return words[0] === 'USE' ? [...five, taken, retryAfterMs] : five;
  }

  #row(key: string, words: readonly string[]): Row {
    const [word = '', id = '', limit = '', ttl = ''] = words;
    if (word === 'LEASE') return this.#lease(key, id, Number(limit), ttl);
    const { rule, cost: asked, partial } = this.#parsed(words);
    const algorithm = algorithmFor(rule);
    const state = this.#states.get(key);
    const there = partial ? algorithm.decide(state, this.#nowUs, 0).remaining : asked;
    const cost = Math.min(asked, Math.max(1, there));
    const verdict = algorithm.decide(state, this.#nowUs, cost);
    const commit = () => {
      if (verdict.state !== undefined) this.#states.set(key, verdict.state);
    };
    return { verdict, cost, commit };
  }

  /** Parses the words of a call: the rule and the options. */
  #parsed(words: readonly string[]): { rule: rules.Rule; cost: number; partial: boolean } {
    const end = words.indexOf('DEFAULT');
    const head = end < 0 ? words : words.slice(0, end);
    const at = head.indexOf('COST');
    const cost = at < 0 ? 1 : Number(head[at + 1]);
    const partial = head.includes('PARTIAL');
    if (words[0] === 'USE') {
      const known = this.policies.get(words[1] as string);
      if (known !== undefined) return { rule: known, cost, partial };
      if (end < 0) throw new Error('NOPOLICY no such policy');
      return { rule: ruleOf(words.slice(end + 1)), cost, partial };
    }
    const rest = head.filter(
      (word, index) => index !== at && index !== at + 1 && word !== 'PARTIAL',
    );
    return {
      rule: ruleOf(at < 0 ? head.filter((word) => word !== 'PARTIAL') : rest),
      cost,
      partial,
    };
  }

  #all(args: readonly string[], commit: boolean): unknown {
    const pairs = Array.from({ length: args.length / 2 }, (_, at) =>
      args.slice(at * 2, at * 2 + 2),
    );
    const asked = pairs.map(([, rule = '']) => rule.split(' '));
    const rows = pairs.map(([key = ''], at) => this.#row(key, asked[at] as string[]));
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
        ...(words[0] === 'USE' ? [1, 0] : []),
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
    return algorithmFor(this.#parsed(words).rule).decide(this.#states.get(key), this.#nowUs, 0);
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

  #settle(key: string, words: readonly string[], charge: boolean): unknown {
    const { rule, cost } = this.#parsed(words);
    const algorithm = algorithmFor(rule);
    const state = this.#states.get(key);
    if (charge) {
      const charged = algorithm.charge(state, this.#nowUs, cost);
      this.#states.set(key, charged.state);
      return [charged.allowed ? 1 : 0, ...times(charged)];
    }
    const after = state === undefined ? undefined : algorithm.refund(state, this.#nowUs, cost);
    if (after === undefined) this.#states.delete(key);
    else this.#states.set(key, after);
    const left = algorithm.charge(after, this.#nowUs, 0);
    return [left.allowed ? 1 : 0, ...times(left)];
  }

  /** Returns the holders of a key, and when the lease of each expires, in ms. */
  #holders(key: string): Map<string, number> {
    const holders = (this.#states.get(key) as Map<string, number> | undefined) ?? new Map();
    for (const [id, lapsesAtMs] of holders) {
      if (lapsesAtMs <= this.clock.nowMs()) holders.delete(id);
    }
    this.#states.set(key, holders);
    return holders;
  }

  #lease(key: string, id: string, limit: number, ttl: string): Row {
    const holders = this.#holders(key);
    const nowMs = this.clock.nowMs();
    const ttlMs = Number(microseconds('ttl', ttl)) / 1000;
    const allowed = holders.has(id) || holders.size < limit;
    const lapses = [...holders.values()].map((at) => at - nowMs);
    const held = holders.size + (allowed && !holders.has(id) ? 1 : 0);
    const verdict = {
      allowed,
      limit,
      remaining: Math.max(0, limit - held),
      retryAfterMs: allowed ? 0 : Math.min(...lapses),
      resetAfterMs: Math.max(0, ...lapses, allowed ? ttlMs : 0),
      state: undefined,
    };
    return { verdict, cost: 1, commit: () => holders.set(id, nowMs + ttlMs) };
  }

  #renew(key: string, id: string, ttl: string): number {
    const holders = this.#holders(key);
    if (!holders.has(id)) return 0;
    holders.set(id, this.clock.nowMs() + Number(microseconds('ttl', ttl)) / 1000);
    return 1;
  }
}

/** Returns fields 2 to 5 of a reply. */
function times({ limit, remaining, retryAfterMs, resetAfterMs }: Verdict<unknown>): number[] {
  return [limit, remaining, retryAfterMs, resetAfterMs];
}

function algorithmFor(rule: rules.Rule): Algorithm {
  const [word, limit, unit, zone] = rule.words as [string, string, string, string?];
  if (word === 'QUOTA') {
    if (zone !== undefined) throw new Error('ERR the fake server does not know ZONE and START');
    return calendar(Number(limit), unit);
  }
  if (word === 'BACKOFF') return delays(rule);
  return algorithmOf(rule);
}

/** Makes a rule from its words. */
function ruleOf([word, ...args]: readonly string[]): rules.Rule {
  const [first, second = '', third = ''] = args;
  const limit = Number(first);
  if (word === 'GCRA') return rules.gcra('fake', limit, Number(second), third);
  if (word === 'TOKENBUCKET') return rules.tokenBucket('fake', limit, Number(second), third);
  if (word === 'LEAKYBUCKET') return rules.leakyBucket('fake', limit, Number(second), third);
  if (word === 'FIXED') return rules.fixed('fake', limit, second, { aligned: third === 'ALIGNED' });
  if (word === 'SLIDING') return rules.sliding('fake', limit, second);
  if (word === 'SLIDINGLOG') return rules.slidingLog('fake', limit, second);
  if (word === 'QUOTA') {
    const [zone, start] = ['ZONE', 'START'].map((name) => args[args.indexOf(name) + 1]);
    const has = (name: string) => args.includes(name);
    return rules.quota('fake', limit, second as rules.QuotaUnit, {
      ...(has('ZONE') ? { zone } : {}),
      ...(has('START') ? { start } : {}),
    });
  }
  if (word === 'BACKOFF') {
    return rules.backoff('fake', limit, second, third, args[3] as string);
  }
  throw new Error(`ERR the fake server does not know ${word}`);
}
