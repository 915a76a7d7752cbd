/** Tests how calls, leases and the circuit breaker treat a connection that is of no use. */
import { describe, expect, it } from 'vitest';
import { type Call, type Connection, Limiter, type LimiterOptions, lease } from '../src/index.js';
import { FakeClock } from '../src/testing.js';
import { api } from './fakes.js';

type Reply = unknown[] | number | Error | 'silent';

/** A connection that replies by a script, and counts its generations. */
class Scripted implements Connection {
  readonly clock = new FakeClock();
  readonly sent: string[] = [];
  generation = 1;
  up = true;
  reply: (call: Call) => Reply = () => [1, 6, 5, 0, 6000];

  async send(call: Call): Promise<unknown> {
    this.sent.push(call.args[0] as string);
    const reply = this.reply(call);
    if (reply instanceof Error) throw reply;
    return reply === 'silent' ? new Promise(() => {}) : reply;
  }

  retire(): boolean {
    this.generation += 1;
    return true;
  }

  isUp(): boolean {
    return this.up;
  }
}

function over(options: LimiterOptions = {}) {
  const server = new Scripted();
  return { server, limiter: new Limiter(server, { clock: server.clock, ...options }) };
}

describe('an error reply', () => {
  it.each([
    ['WRONGPASS invalid username-password pair', 2],
    ['WRONGTYPE Operation against a key', 1],
  ])('%s leads to generation %i', async (message, generation) => {
    const { server, limiter } = over();
    server.reply = () => new Error(message);
    await limiter.check(api, '1').catch(() => {});
    expect(server.generation).toBe(generation);
  });
});

describe('the calls of leases', () => {
  const jobs = lease('jobs', 50, '60s');
  const granted = () => [1, 50, 1, 0, 60_000];

  it('do not count as calls in flight, and at most 32 releases run at once', async () => {
    const { server, limiter } = over({ maxInFlight: 1 });
    server.reply = granted;
    const leases = [];
    for (let at = 0; at < 34; at += 1) leases.push(await limiter.lease(jobs, '7'));
    server.reply = () => 'silent';
    const check = limiter.check(api, '1');
    const releases = Promise.all(leases.map((one) => one.release()));
    await server.clock.advance(0);
    const count = () => server.sent.filter((command) => command === 'RL.RELEASE').length;
    expect(count()).toBe(32);
    server.reply = () => 1;
    await server.clock.advance(100);
    await Promise.all([check, releases]);
    // The two that waited get their replies, and the 32 are sent again.
    expect(count()).toBe(34);
    await server.clock.advance(100);
    expect(count()).toBe(66);
    await server.clock.advance(60_000);
    expect(count()).toBe(66);
  });

  it('count for the breaker, which decides before the bound of calls in flight', async () => {
    const { server, limiter } = over({ maxInFlight: 1, maxWaiting: 0, breakerFailures: 1 });
    server.reply = granted;
    const held = await limiter.lease(jobs, '7');
    server.reply = () => 'silent';
    const first = limiter.check(api, '1');
    expect(await limiter.check(api, '2')).toMatchObject({ reason: 'overloaded' });
    server.reply = () => new Error('LOADING');
    await held.release();
    expect(await limiter.check(api, '2')).toMatchObject({ reason: 'circuit' });
    // The repetition of the release is heard after 100 ms.
    await server.clock.advance(200);
    await first;
    await limiter.close();
  });
});
