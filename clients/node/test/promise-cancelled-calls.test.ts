/** Tests calls whose callers give up, and dials that leave a call little time, with each driver. */
import net from 'node:net';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type Client, Limiter, type LimiterOptions } from '../src/index.js';
// The limiter imports it when it needs it. In the tests that takes no time.
import '../src/wire/library.js';
import { api } from './fakes.js';
import { drivers, FrozenClock, Script, type ScriptItem } from './scripted.js';

const DECISION: ScriptItem = [1, 6, 5, 0, 6000];

describe.each(Object.entries(drivers))('%s', (driver, open) => {
  let clock: FrozenClock;
  let script: Script;
  let limiter: Limiter;

  beforeEach(() => {
    clock = new FrozenClock();
    script = new Script(clock);
    vi.spyOn(net, 'createConnection').mockImplementation(() => script.dial());
  });
  afterEach(async () => {
    script.isOver = true;
    await clock.runDuring(limiter.close(), 60_000);
    vi.restoreAllMocks();
  });

  function start(options: LimiterOptions = {}): void {
    limiter = new Limiter(open() as Client, { clock, ...options });
  }

  /** Checks, with this item of the script. */
  async function checked(item: ScriptItem, signal?: AbortSignal) {
    script.add([item]);
    const call = limiter.check(api, '1', { signal });
    await clock.runDuring(
      call.catch(() => {}),
      clock.nowMs() + 60_000,
    );
    return call;
  }

  /** Makes a call whose caller gives up at once. */
  async function abandoned(item: ScriptItem): Promise<void> {
    const gone = new AbortController();
    script.add([item]);
    const call = limiter.check(api, '1', { signal: gone.signal });
    await clock.runUntil(clock.nowMs());
    gone.abort(new Error('gone'));
    await expect(call).rejects.toThrow('gone');
  }

  it('keeps the place of a cancelled call until its connection closes', async () => {
    start({ maxInFlight: 1 });
    await checked(DECISION);
    await abandoned('silent');
    script.add([DECISION]);
    const next = limiter.check(api, '1');
    await clock.runUntil(clock.nowMs() + 1);
    expect(script.sent).toHaveLength(2);
    script.disconnect();
    await clock.runDuring(next, 1000);
    expect(await next).toMatchObject({ source: 'server' });
  });

  it('retires a silent connection whose callers gave up, which is one failure', async () => {
    start({ breakerFailures: 2 });
    await checked(DECISION);
    await abandoned('silent');
    await abandoned('silent');
    await clock.runUntil(99);
    expect(script.dials).toBe(1);
    await clock.runUntil(100);
    expect(await checked(DECISION)).toMatchObject({ source: 'server' });
    expect(script.dials).toBe(2);
    await abandoned('silent');
    await clock.runUntil(200);
    await checked({ error: 'LOADING it' });
    expect((await limiter.check(api, '1')).reason).toBe('circuit');
  });

  it('keeps a connection on which something arrived after the cancelled call', async () => {
    start();
    await checked({ delay_ms: 60, reply: DECISION as number[] });
    // The reply to the first of these calls proves that the connection is alive.
    script.add([{ delay_ms: 50, reply: DECISION as number[] }]);
    const before = limiter.check(api, '1');
    await clock.runUntil(61);
    await abandoned({ delay_ms: 130, reply: DECISION as number[] });
    await clock.runUntil(500);
    expect(await before).toMatchObject({ source: 'server' });
    expect(await checked(DECISION)).toMatchObject({ source: 'server' });
    expect(script.dials).toBe(1);
  });

  it('retires a connection that falls silent during a search for the back end', async () => {
    start({ breakerFailures: 2 });
    const gone = new AbortController();
    script.add([{ error: "ERR unknown command 'RL.GCRA'" }, 'silent']);
    const call = limiter.check(api, '1', { signal: gone.signal });
    await clock.runUntil(10);
    gone.abort(new Error('gone'));
    await expect(call).rejects.toThrow('gone');
    await clock.runUntil(100);
    expect(await checked(DECISION)).toMatchObject({ source: 'server' });
    expect(script.dials).toBe(2);
  });

  it.runIf(driver.startsWith('ioredis'))(
    'is written together with others of its turn',
    async () => {
      start();
      await checked(DECISION);
      const before = script.pieces;
      script.add(Array.from({ length: 30 }, () => DECISION));
      const calls = Array.from({ length: 30 }, () => limiter.check(api, '1'));
      await clock.runDuring(Promise.all(calls), 1000);
      // Long pieces are written before the turn ends.
      expect(script.pieces - before).toBe(3);
    },
  );
});
