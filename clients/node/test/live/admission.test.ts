/**
 * Tests admissions on a real server. A program that calls a model under four rules ends, is
 * cancelled at each step, loses replies and its server: it leaves no lease and no open reservation,
 * and its work is charged once.
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import {
  type Admission,
  type Call,
  type Connection,
  type DecisionEvent,
  DeniedError,
  fixed,
  gcra,
  InvalidArgumentError,
  Limiter,
  type LimiterOptions,
  lease,
  policy,
  quota,
  type Rule,
  type Waiting,
} from '../../src/index.js';
import { connectionOf } from '../../src/net/drivers.js';
import { systemClock } from '../../src/rules/clock.js';
import { FakeClock } from '../../src/testing.js';
import { dialling } from '../fakes.js';
import { proxy, type SilentProxy } from './proxy.js';
import { callsOf, type Server, serve, until } from './server.js';
import { type Opened, versions } from './versions.js';

/** The clock of the server is frozen, and no test lasts this long: only ends free what is held. */
const TTL_MS = 600_000;
/** No call takes longer, also on a busy machine. */
const PATIENT_MS = 60_000;
/** The timeout in tests whose server does not reply in time. */
const HASTY_MS = 1000;
const rpm = gcra('rpm', 600, 600, '60s');
const tpm = fixed('tpm', 90_000, '1h');
const month = quota('month', 100_000, 'month');
const runs = lease('runs', 3, `${TTL_MS}ms`);

let server: Server;
beforeAll(async () => {
  server = await serve();
  await server.clock.freeze();
});
afterAll(async () => {
  server.admin.disconnect();
  await server.stop();
});

const items = (tenant: string) => [
  rpm.of(tenant),
  tpm.of(tenant).cost(1800),
  month.of(tenant).reserve(1800, `${TTL_MS}ms`),
  runs.of(tenant),
];

/** Notes what the work took under the rules that are settled. */
function settle(admitted: Admission): void {
  admitted.settle(tpm, 2000);
  admitted.settle(month, 1500);
}

/** Returns a field of the state of a key; 0 if there is none. */
async function stored(rule: Rule, subject: string, field: string): Promise<number> {
  const state = (await server.admin.call('RL.INSPECT', `rl:${rule.name}:${subject}`)) as unknown[];
  const at = state?.indexOf(field) ?? -1;
  return at < 0 ? 0 : Number(state[at + 1]);
}

/** Waits until the server holds nothing for a tenant, and returns what was charged. */
async function left(tenant: string): Promise<{ tpm: number; month: number }> {
  await until('nothing is held', async () => {
    const holders = await stored(runs, tenant, 'holders');
    return holders + (await stored(month, tenant, 'reservations_open')) === 0;
  });
  const [minute, period] = [await stored(tpm, tenant, 'used'), await stored(month, tenant, 'used')];
  return { tpm: minute, month: period };
}

const hasReply = (limiter: Limiter) =>
  limiter.ready().then(
    () => true,
    () => false,
  );

/** The commands that renew a reservation and a lease. */
const RENEWALS = ['rl.reserve', 'rl.renew'];

/** Advances both clocks over a ttl, and waits each time for the commands that are due. */
async function outlive(
  ttlMs: number,
  limiter: Limiter,
  clock: FakeClock,
  commands = RENEWALS,
): Promise<void> {
  const counts = () => Promise.all(commands.map((command) => callsOf(server.admin, command)));
  for (let third = 1; third <= 4; third += 1) {
    const before = await counts();
    await server.clock.advance(ttlMs / 3);
    await clock.advance(ttlMs / 3);
    await until('it is renewed', async () => {
      return (await counts()).every((count, at) => count > (before[at] as number));
    });
    // Its reply arrives after those to the renewals.
    await until('its reply arrives', () => hasReply(limiter));
  }
}

/** A connection that reports each step: before a call is sent, and when it has ended. */
class Stepping implements Connection {
  constructor(
    private readonly inner: Connection,
    private readonly onStep: () => void,
  ) {}

  send(call: Call, waiting: Waiting): Promise<unknown> {
    this.onStep();
    return this.inner.send(call, waiting).finally(() => this.onStep());
  }
  connect(node: string | undefined): Promise<unknown> {
    return this.inner.connect?.(node) ?? Promise.resolve();
  }
  retire(node: string | undefined): boolean {
    return this.inner.retire?.(node) ?? false;
  }
  isUp(node: string | undefined): boolean {
    return this.inner.isUp?.(node) ?? true;
  }
  close(): void {
    this.inner.close?.();
  }
}

const drivers = Object.entries(versions).map(([name, { single }]) => [name, single] as const);

describe.each(drivers)('an admission over %s', (driver, open) => {
  let between: SilentProxy;
  let opened: Opened;
  let limiter: Limiter;
  let seen: DecisionEvent[];
  let tenant = driver;

  const limit = (options: LimiterOptions = {}) => {
    const onDecision = (event: DecisionEvent) => seen.push(event);
    const usual = { timeoutMs: PATIENT_MS, breakerFailures: 100, onDecision };
    return new Limiter(opened.client, { ...usual, ...options });
  };
  /** Returns a connected limiter that waits for a shorter time. */
  const hastened = async () => {
    const hasty = limit({ timeoutMs: HASTY_MS });
    await until('its reply arrives', () => hasReply(hasty));
    return hasty;
  };
  beforeEach(async () => {
    between = await proxy(server.port);
    opened = await open([between.port]);
    seen = [];
    tenant += 'x';
    limiter = limit();
    await until('it decides', async () => (await limiter.check(rpm, '0')).source === 'server');
    seen = [];
  });
  afterEach(async () => {
    await limiter.close();
    opened.close();
    await between.stop();
  });

  it('renews what it holds, and settles every rule at its end', async () => {
    const clock = new FakeClock();
    const one = limit({ clock });
    const admitted = await one.admit(items(tenant), { id: 'h1' });
    expect(admitted).toMatchObject({ held: true, id: 'h1' });
    expect(admitted.decision.rows.map(({ remaining }) => remaining)).toEqual([
      599, 88_200, 98_200, 2,
    ]);
    await outlive(TTL_MS, one, clock);
    expect(admitted.held).toBe(true);
    expect(await stored(month, tenant, 'reservations_open')).toBe(1);
    settle(admitted);
    await Promise.all([admitted.finish(), admitted.finish()]);
    expect(await stored(month, tenant, 'reservations_open')).toBe(0);
    expect(await left(tenant)).toEqual({ tpm: 2000, month: 1500 });
    expect(admitted.held).toBe(false);
    expect(() => settle(admitted)).toThrow(InvalidArgumentError);
    expect(one.counters).toMatchObject({ allowed: 1, unsettled: 0, rejected: 0 });
    expect(seen.map(({ kind }) => kind).sort()).toEqual(['charge', 'check', 'commit']);
    await one.close();
  });

  it('has its ends sent when the limiter closes meanwhile', async () => {
    const one = limit();
    const works = Array.from({ length: 40 }, () => one.admit([tpm.of(tenant), month.of(tenant)]));
    const ends = (await Promise.all(works)).map(async (admitted) => {
      admitted.settle(tpm, 3);
      await admitted.finish();
    });
    await one.close();
    expect(await stored(tpm, tenant, 'used')).toBe(120);
    await Promise.all(ends);
    expect(one.counters.unsettled).toBe(0);
  });

  it('leaves nothing behind wherever its program is cancelled', async () => {
    for (let last = 1, isAborted = true; isAborted; last += 1) {
      const stop = new AbortController();
      let steps = 0;
      const step = () => {
        steps += 1;
        if (steps === last) stop.abort(new Error('cancelled'));
      };
      const terms = dialling(systemClock, PATIENT_MS);
      const stepping = new Stepping(connectionOf(opened.client, terms), step);
      const one = new Limiter(stepping, { timeoutMs: PATIENT_MS, backend: 'module' });
      const name = `${tenant}-${last}`;
      let isSettled = false;
      const program = async () => {
        const admitted = await one.admit(items(name), { signal: stop.signal });
        try {
          step();
          await limiter.ready();
          stop.signal.throwIfAborted();
          settle(admitted);
          isSettled = true;
        } finally {
          await admitted.finish();
        }
      };
      await program().catch((error) => expect(error.message).toBe('cancelled'));
      const charged = await left(name);
      if (isSettled) expect(charged).toEqual({ tpm: 2000, month: 1500 });
      else {
        expect(charged.month).toBe(0);
        expect([0, 1800]).toContain(charged.tpm);
      }
      expect(one.counters.unsettled).toBe(0);
      isAborted = stop.signal.aborted;
      expect(isAborted || isSettled).toBe(true);
      await one.close();
    }
  });

  it('ends what it may hold although the reply to its call was lost', async () => {
    between.loseReplies();
    const admitted = await limiter.admit(items(tenant));
    expect(admitted.decision).toMatchObject({ source: 'error', reason: 'connection' });
    settle(admitted);
    await admitted.finish();
    expect(await left(tenant)).toEqual({ tpm: 1800, month: 1500 });
    expect(limiter.counters).toMatchObject({ degraded: 1, unsettled: 0 });
  });

  it('is given back if its reply was lost and onError denies it', async () => {
    const strict = limit({ onError: 'deny' });
    await strict.ready();
    between.loseReplies();
    await expect(strict.admit(items(tenant))).rejects.toBeInstanceOf(DeniedError);
    expect(await left(tenant)).toEqual({ tpm: 1800, month: 0 });
    await strict.close();
  });

  it('is held although the replies to its renewals were lost', async () => {
    const clock = new FakeClock();
    const one = limit({ clock });
    const admitted = await one.admit(items(tenant));
    between.loseReplies();
    await outlive(TTL_MS, one, clock);
    expect(admitted.held).toBe(true);
    settle(admitted);
    await admitted.finish();
    expect(await left(tenant)).toEqual({ tpm: 2000, month: 1500 });
    await one.close();
  });

  it('is charged once although the replies to its end were lost', async () => {
    const admitted = await limiter.admit(items(tenant));
    settle(admitted);
    between.loseReplies();
    await admitted.finish();
    expect(await left(tenant)).toEqual({ tpm: 2000, month: 1500 });
    await until('the end is over', () => seen.some(({ kind }) => kind === 'commit'));
    // A charge may count although it got no reply, so it is not repeated.
    expect(limiter.counters.unsettled).toBe(1);
    expect(seen.find(({ kind }) => kind === 'charge')?.error).toMatchObject({
      reason: 'connection',
    });
    expect(await left(tenant)).toEqual({ tpm: 2000, month: 1500 });
  });

  it('ends when its server is back from silence', async () => {
    const hasty = await hastened();
    const admitted = await hasty.admit(items(tenant));
    settle(admitted);
    between.silence('new connections');
    const begin = performance.now();
    // It waits for the first try only.
    await admitted.finish();
    expect(performance.now() - begin).toBeLessThan(10 * HASTY_MS);
    between.heal();
    expect(await left(tenant)).toEqual({ tpm: 1800, month: 1500 });
    await until('the end is over', () => seen.some(({ kind }) => kind === 'commit'));
    expect(hasty.counters.unsettled).toBe(1);
    await hasty.close();
  });

  it('ends when its server replies late', async () => {
    const hasty = await hastened();
    const admitted = await hasty.admit(items(tenant));
    settle(admitted);
    const slept = server.admin.call('DEBUG', 'SLEEP', '1.5');
    await admitted.finish();
    await slept;
    // The charge arrived, or it is unsettled.
    const { tpm: minute, month: period } = await left(tenant);
    expect([1800, 2000]).toContain(minute);
    expect(period).toBe(1500);
    await hasty.close();
  });

  it('is one of 200 that end at once, 20 ms away', async () => {
    between.moveAway(20);
    const far = limit();
    await far.ready();
    const both = [tpm.of(tenant).cost(2), month.of(tenant).reserve(2)];
    const all = await Promise.all(Array.from({ length: 200 }, () => far.admit(both)));
    for (const one of all) {
      one.settle(tpm, 3);
      one.settle(month, 1);
    }
    await Promise.all(all.map((one) => one.finish()));
    expect(await left(tenant)).toEqual({ tpm: 600, month: 200 });
    expect(far.counters).toMatchObject({ allowed: 200, unsettled: 0 });
    await far.close();
  });

  it('holds nothing if its server was silent when it began', async () => {
    const hasty = await hastened();
    between.silence();
    const admitted = await hasty.admit(items(tenant));
    expect(admitted.decision).toMatchObject({ source: 'error', reason: 'timeout' });
    expect(admitted.held).toBe(true);
    settle(admitted);
    await admitted.finish();
    expect(await left(tenant)).toEqual({ tpm: 0, month: 0 });
    await hasty.close();
  });
});

describe('a reservation', () => {
  let opened: Opened;
  let limiter: Limiter;
  beforeAll(async () => {
    opened = await (drivers[0] as (typeof drivers)[0])[1]([server.port]);
    limiter = new Limiter(opened.client, { timeoutMs: PATIENT_MS });
  });
  afterAll(async () => {
    await limiter.close();
    opened.close();
  });

  it.each([
    ['a fixed window', fixed('fix', 100, '1h', { aligned: true })],
    ['a quota', quota('quo', 100, 'month', { zone: 'Europe/Berlin' })],
    ['a policy', policy('pol')],
  ])('under %s is committed or cancelled', async (_, rule) => {
    await server.admin.call('RL.POLICY', 'SET', 'pol', 'FIXED', '100', '3600');
    const first = await limiter.reserve(rule, '7', { cost: 60, ttl: '5s' });
    expect(first).toMatchObject({ held: true, decision: { remaining: 40 } });
    const more = limiter.reserve(rule, '7', { cost: 60 });
    await expect(more).rejects.toMatchObject({ decision: { allowed: false, remaining: 40 } });
    await first.commit(1);
    expect(first.held).toBe(false);
    expect((await limiter.peek(rule, '7')).remaining).toBe(98);
    const second = await limiter.reserve(rule, '7', { cost: 99 });
    await second.cancel();
    await expect(second.commit(1)).rejects.toThrow(/^invalid rule/);
    expect((await limiter.peek(rule, '7', { cost: 0 })).remaining).toBe(99);
    await (await limiter.reserve(rule, '7', { cost: 9 })).commit(101);
    expect((await limiter.peek(rule, '7', { cost: 0 })).remaining).toBe(0);
    expect(limiter.counters).toMatchObject({ unsettled: 0, rejected: 0 });
  });

  it('is renewed under the policy that granted it', async () => {
    await server.admin.call('RL.POLICY', 'SET', 'pol', 'FIXED', '100', '3600');
    const clock = new FakeClock();
    const one = new Limiter(opened.client, { clock });
    const held = await one.reserve(policy('pol'), 'renewed', { cost: 60, ttl: '300ms' });
    await outlive(300, one, clock, ['rl.reserve']);
    expect(held.held).toBe(true);
    expect((await limiter.peek(policy('pol'), 'renewed', { cost: 0 })).remaining).toBe(40);
    await held.cancel();
    await one.close();
  });

  it('that only shadow mode allows is charged for its work, and a plain rule is not', async () => {
    await server.admin.call('RL.POLICY', 'SET', 'new', 'SHADOW', 'FIXED', '10', '3600');
    const rule = policy('new');
    for (const item of [rule.of('held').reserve(50), rule.of('plain').cost(50)]) {
      const admitted = await limiter.admit([item]);
      expect(admitted.decision).toMatchObject({ allowed: true, wouldAllow: false });
      admitted.settle(item, 30);
      await admitted.finish();
    }
    expect(await stored(rule, 'held', 'used')).toBe(30);
    expect(await stored(rule, 'plain', 'used')).toBe(0);
  });

  it('is denied by a key that remembers 1,024 of them', async () => {
    const pipeline = server.admin.pipeline();
    for (let id = 0; id < 1024; id += 1) {
      pipeline.call('RL.RESERVE', 'rl:month:full', `${id}`, '60s', ...month.words, 'COST', '1');
    }
    await pipeline.exec();
    const denied = await limiter
      .admit([rpm.of('full'), month.of('full').reserve(5, '20s')])
      .catch((error) => error);
    expect(denied).toBeInstanceOf(DeniedError);
    const { decision } = denied as DeniedError;
    expect(decision).toMatchObject({ rule: 'month', deciding: 1, limit: 100_000, remaining: 0 });
    expect(decision.retryAfterMs).toBe(20_000);
    expect((await limiter.peek(rpm, 'full', { cost: 0 })).remaining).toBe(600);
    expect(limiter.counters.rejected).toBe(0);
  });
});
