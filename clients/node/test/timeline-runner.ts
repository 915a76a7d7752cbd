/**
 * Runs a timeline: a frozen clock, a scripted server, and what the limiter does when. The limiter's
 * connections are those of a driver, over scripted sockets.
 */
import net from 'node:net';
import { expect, vi } from 'vitest';
import {
  type Admission,
  type Client,
  type Decision,
  DeniedError,
  type Item,
  type Lease,
  Limiter,
  type LimiterOptions,
  type Rule,
} from '../src/index.js';
// The limiter imports it when it needs it. In the tests that takes no time.
import '../src/wire/library.js';
import { FrozenClock, Script, type ScriptItem } from './scripted.js';
import { type Any, itemOf, ruleOf } from './shared-cases.js';

export interface Timeline {
  name: string;
  languages?: string[];
  options?: Record<string, unknown>;
  rules: { name: string }[];
  /** Of a cluster: the name of the node of each subject, under all rules. */
  nodes?: Record<string, string>;
  steps: Step[];
}

/** An action with its replies, or a step. */
export interface Step {
  at: number;
  server?: ScriptItem;
  servers?: ScriptItem[];
  calls?: (Step & { times?: number })[];
  start?: string;
  expect?: Any;
  [action: string]: Any;
}

/** The end of an action. */
interface Outcome {
  result: unknown;
  error: unknown;
  beganMs: number;
  endedMs: number;
}

/** The longest timeline, in ms of the frozen clock. */
const LONGEST_MS = 120_000;
const BEFORE_MS = 1e-6;

const ACTIONS = [
  ...['check', 'peek', 'refund', 'charge', 'forget', 'block', 'wait'],
  ...['check_all', 'peek_all', 'check_each', 'admit', 'settle', 'finish'],
  ...['lease', 'release', 'ready', 'close', 'join', 'cancel', 'disconnect', 'pause'],
];

const actionOf = (one: Step) => ACTIONS.find((name) => name in one);
const itemsOf = ({ server, servers = [] }: Step): ScriptItem[] =>
  server === undefined ? servers : [server];
const camel = (name: string) =>
  name.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());

/** Returns the key or the id of a call: its own replies are for the commands with it. */
function keyOf(one: Step): string | undefined {
  if ('admit' in one) return one.id;
  const given = one[actionOf(one) ?? ''];
  if (typeof given === 'string') return given;
  if (!Array.isArray(given) || Array.isArray(given[0])) return undefined;
  const [rule, subject, id] = given;
  return 'lease' in one ? id : storedAt(rule, subject);
}

/** Returns the key of a subject under a rule. */
function storedAt(rule: string, subject: string): string {
  return `rl:${rule}:${subject.replaceAll(':', '%3A')}`;
}

/** Returns the options of an action: its third element, which may be the cost alone. */
function optionsOf(third: Any): Any {
  return typeof third === 'number' ? { cost: third } : third;
}

/** Returns what `expect` compares with the field of this name. */
function field({ result, error, beganMs, endedMs }: Outcome, name: string): unknown {
  if (name === 'after_ms') return endedMs - beganMs;
  if (name === 'raises') {
    return error === undefined ? undefined : (error as Error).name.replace(/Error$/, '');
  }
  if (name === 'returns') return result;
  const from = error instanceof DeniedError ? error.decision : (error ?? result);
  return (from as Record<string, unknown>)[camel(name)];
}

/** Returns the reason of an outcome, or else its source. */
function kindOf(outcome: Outcome): string {
  return String(field(outcome, 'reason') ?? field(outcome, 'source'));
}

function compare(outcome: Outcome, expected: Any): void {
  for (const [name, wanted] of Object.entries<Any>(expected)) {
    const found = field(outcome, name);
    if (name === 'rows') {
      const plain = wanted.map((row: Any, at: number) => {
        const decision = (found as readonly Decision[])[at] as Any;
        return Object.fromEntries(Object.keys(row).map((one) => [one, decision?.[camel(one)]]));
      });
      expect([plain, (found as readonly Decision[]).length]).toEqual([wanted, wanted.length]);
    } else expect(found ?? null, `${name} of ${outcome.error ?? outcome.result}`).toBe(wanted);
  }
}

/** Compares the beginnings of commands. */
function compareSent(sent: readonly string[], wanted: readonly string[], inOrder: boolean): void {
  const [found, beginnings] = inOrder ? [sent, wanted] : [sent.toSorted(), wanted.toSorted()];
  const cut = found.map((text, at) => text.slice(0, beginnings[at]?.length ?? 80));
  expect(cut, 'sent').toEqual(beginnings);
}

/** Runs one timeline. */
export class Runner {
  readonly clock = new FrozenClock();
  readonly script = new Script(this.clock);
  readonly #rules: Map<string, Rule>;
  /** The leases and the admissions by id. */
  readonly #guards = new Map<string, Lease | Admission>();
  readonly #started = new Map<string, { outcome: Promise<Outcome>; stop: AbortController }>();
  #limiter: Limiter | undefined;
  #seen = 0;

  constructor(
    private readonly timeline: Timeline,
    private readonly open: () => Client,
  ) {
    this.#rules = new Map(timeline.rules.map((spec) => [spec.name, ruleOf(spec)]));
    this.#move(timeline.nodes);
  }

  /** Moves the slots of a cluster to these nodes. */
  #move(nodes: Record<string, string> | undefined): void {
    if (nodes === undefined) return;
    const all = [...this.#rules.keys()].flatMap((rule) =>
      Object.entries(nodes).map(([subject, node]) => [storedAt(rule, subject), node] as const),
    );
    this.script.nodes = new Map(all);
  }

  /**
   * @param begun Called before the first step.
   * @param ended Called after the last one, before the limiter is closed.
   */
  async run(
    begun: (limiter: Limiter) => void = () => {},
    ended: (limiter: Limiter) => unknown = () => {},
  ): Promise<void> {
    // The pause between two dials differs by chance, except in timelines.
    vi.spyOn(Math, 'random').mockReturnValue(0);
    vi.spyOn(net, 'createConnection').mockImplementation(((to: object) =>
      this.script.dial(to)) as never);
    const options = Object.entries(this.timeline.options ?? {});
    const named = Object.fromEntries(options.map(([name, value]) => [camel(name), value]));
    const all: LimiterOptions = { ...named, clock: this.clock };
    this.#limiter = new Limiter(this.open(), all);
    begun(this.#limiter);
    try {
      for (const step of this.timeline.steps) await this.#step(step);
      expect(this.script.left().filter((item) => item !== 'refuse')).toEqual([]);
      await ended(this.#limiter);
    } finally {
      this.script.isOver = true;
      for (const { stop } of this.#started.values()) stop.abort();
      await this.clock.runDuring(this.#limiter.close(), this.clock.nowMs() + LONGEST_MS);
    }
  }

  async #step(step: Step): Promise<void> {
    const { clock, script } = this;
    const { dials } = script;
    expect(clock.nowMs(), `the step at ${step.at} begins late`).toBeLessThanOrEqual(step.at);
    await clock.runUntil(step.at - BEFORE_MS);
    this.#move(step.nodes);
    script.add(itemsOf(step));
    for (const one of step.calls ?? []) {
      for (let left = one.times ?? 1; left > 0; left -= 1) script.add(itemsOf(one), keyOf(one));
    }
    await clock.runUntil(step.at);
    if ('pause' in step) await clock.pause(step.pause);
    const outcomes = await this.#outcomes(step);
    expect(script.unexpected, 'commands without a reply in the script').toEqual([]);
    this.#compareStep(step, outcomes, script.dials - dials);
  }

  #compareStep(step: Step, outcomes: readonly Outcome[], dials: number): void {
    const { sent, generation, held, counters, outcomes: kinds, ...rest } = step.expect ?? {};
    const { script } = this;
    if (sent !== undefined) {
      compareSent(script.sent.slice(this.#seen), sent, step.calls === undefined);
    }
    this.#seen = script.sent.length;
    if (generation !== undefined) expect(script.generation, 'generation').toBe(generation);
    for (const [id, wanted] of Object.entries(held ?? {})) {
      expect(this.#guards.get(id)?.held, `held ${id}`).toBe(wanted);
    }
    if (counters !== undefined) expect(this.#limiter?.counters).toMatchObject(counters);
    if (kinds !== undefined) {
      const counted: Record<string, number> = {};
      for (const kind of outcomes.map(kindOf)) counted[kind] = (counted[kind] ?? 0) + 1;
      expect(counted).toEqual(kinds);
    }
    if ('dials' in rest) {
      expect(dials, 'dials').toBe(rest.dials);
      delete rest.dials;
    }
    if (Object.keys(rest).length > 0) compare(outcomes[0] as Outcome, rest);
  }

  /** Acts, and returns the outcomes of the actions that end in this step. */
  async #outcomes(step: Step): Promise<Outcome[]> {
    const each = (one: Step & { times?: number }) => Array<Step>(one.times ?? 1).fill(one);
    const calls = step.calls === undefined ? [step] : step.calls.flatMap(each);
    const begun = calls.map((one) => [one, this.#begun(one)] as const);
    const ends = begun.flatMap(([one, end]) => (end === undefined ? [] : [[one, end] as const]));
    const all = Promise.all(ends.map(([, end]) => end));
    await this.clock.runDuring(all, this.clock.nowMs() + LONGEST_MS);
    const outcomes = await all;
    for (const [at, [one]] of ends.entries()) {
      if (one !== step) compare(outcomes[at] as Outcome, one.expect ?? {});
    }
    return outcomes;
  }

  #begun(one: Step): Promise<Outcome> | undefined {
    const action = actionOf(one);
    if (action === undefined || action === 'pause') return undefined;
    if (action === 'disconnect') this.script.disconnect();
    else if (action === 'cancel') this.#started.get(one.cancel)?.stop.abort();
    else if (action === 'join') return this.#started.get(one.join)?.outcome;
    else {
      const stop = new AbortController();
      const outcome = this.#outcome(this.#act(action, one, stop.signal));
      if (one.start === undefined) return outcome;
      this.#started.set(one.start, { outcome, stop });
    }
    return undefined;
  }

  async #outcome(work: Promise<unknown>): Promise<Outcome> {
    const beganMs = this.clock.nowMs();
    const ended = (result: unknown, error?: unknown) => {
      return { result, error, beganMs, endedMs: this.clock.nowMs() };
    };
    return work.then(
      (result) => ended(result),
      (error) => ended(undefined, error),
    );
  }

  #rule(name: string): Rule {
    return this.#rules.get(name) as Rule;
  }

  #items(given: Any): Item[] {
    return given.map(([name, subject, third]: Any) => {
      return itemOf(this.#rule(name), { subject, ...optionsOf(third) });
    });
  }

  async #act(action: string, one: Step, signal: AbortSignal): Promise<unknown> {
    const limiter = this.#limiter as Limiter;
    const given = one[action];
    if (action === 'ready') return limiter.ready({ signal });
    if (action === 'close') return limiter.close();
    if (action === 'release') return (this.#guards.get(given) as Lease).release();
    if (action === 'finish') return (this.#guards.get(given) as Admission).finish();
    if (action === 'admit') {
      const id = one.id as string;
      return this.#entered(id, await limiter.admit(this.#items(given), { id, signal }));
    }
    if (action === 'check_all') return limiter.checkAll(this.#items(given), { signal });
    if (action === 'peek_all') return limiter.peekAll(this.#items(given), { signal });
    if (action === 'check_each') return limiter.checkEach(this.#items(given), { signal });
    const [first, subject, third] = given;
    if (action === 'settle') {
      return (this.#guards.get(first) as Admission).settle(this.#rule(subject), third);
    }
    const rule = this.#rule(first);
    if (action === 'wait') return limiter.wait(rule, subject, { maxWaitMs: third, signal });
    if (action === 'block') return limiter.block(rule, subject, third, { signal });
    if (action === 'lease') {
      return this.#entered(third, await limiter.lease(rule, subject, { id: third, signal }));
    }
    const method = action as 'check' | 'peek' | 'refund' | 'charge' | 'forget';
    return limiter[method](rule, subject, { ...optionsOf(third), signal });
  }

  #entered(id: string, guard: Lease | Admission): Decision {
    this.#guards.set(id, guard);
    return guard.decision;
  }
}
