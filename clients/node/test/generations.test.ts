/** Tests when a server is dialled, with a driver of the test's own. */
import { EventEmitter } from 'node:events';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { Generations } from '../src/net/generations.js';
import { FakeClock } from '../src/testing.js';
import { dialling } from './fakes.js';

class Client extends EventEmitter {
  isUp = false;
}

/** A server that accepts the dials, or refuses them, and the connections to it. */
function dialled(timeoutMs = 100) {
  const clock = new FakeClock();
  const server = { dials: 0, dropped: 0, accept: async (_: Client) => {} };
  const driver = {
    make: () => new Client(),
    connect: async (client: Client) => {
      server.dials += 1;
      await server.accept(client);
      client.isUp = true;
    },
    isReady: ({ isUp }: Client) => isUp,
    isConnected: () => false,
    drop: (client: Client) => {
      server.dropped += 1;
      client.isUp = false;
    },
  };
  const generations = new Generations(driver, dialling(clock, timeoutMs));
  return { clock, server, generations };
}

const refuse = () => Promise.reject(new Error('connect ECONNREFUSED'));

describe('a server', () => {
  afterEach(() => {
    vi.restoreAllMocks();
  });

  it.each([
    [0, 1000],
    [0.5, 900],
    [1 - 1e-9, 800],
  ])(
    'is dialled again after a pause that differs by chance (%d: %i ms)',
    async (chance, pauseMs) => {
      vi.spyOn(Math, 'random').mockReturnValue(chance);
      const { clock, server, generations } = dialled();
      server.accept = refuse;
      await expect(generations.open()).rejects.toMatchObject({ reason: 'connection' });
      await clock.advance(pauseMs - 1);
      await expect(generations.open()).rejects.toThrow(/dialled again in/);
      expect(server.dials).toBe(1);
      await clock.advance(1);
      server.accept = async () => {};
      await generations.open();
      expect(server.dials).toBe(2);
    },
  );

  it('is dialled again after a pause that begins when a dial has got no reply', async () => {
    vi.spyOn(Math, 'random').mockReturnValue(0);
    const { clock, server, generations } = dialled();
    server.accept = () => new Promise(() => {});
    const failed = expect(generations.open()).rejects.toMatchObject({ reason: 'connection' });
    await clock.advance(1000);
    await failed;
    server.accept = async () => {};
    await clock.advance(999);
    await expect(generations.open()).rejects.toThrow(/dialled again in/);
    await clock.advance(1);
    await generations.open();
    expect(server.dials).toBe(2);
  });

  it('is dialled once for all callers that wait', async () => {
    const { server, generations } = dialled();
    const opened = await Promise.all([1, 2, 3].map(() => generations.open()));
    expect(new Set(opened).size).toBe(1);
    expect(await generations.open()).toBe(opened[0]);
    expect([server.dials, server.dropped]).toEqual([1, 0]);
  });

  it.each([
    [100, 1000],
    [3000, 3000],
  ])(
    'that does not reply to a dial is given up, with timeoutMs %i after %i ms',
    async (timeoutMs, givenUpMs) => {
      const { clock, server, generations } = dialled(timeoutMs);
      server.accept = () => new Promise(() => {});
      let error: unknown;
      generations.open().catch((reason) => {
        error = reason;
      });
      await clock.advance(givenUpMs - 1);
      expect(error).toBeUndefined();
      await clock.advance(1);
      expect(error).toMatchObject({ reason: 'connection' });
      expect(server.dropped).toBe(1);
    },
  );

  it('is given more time by a more patient caller', async () => {
    const { clock, server, generations } = dialled();
    server.accept = () => new Promise((resolve) => void clock.after(4000, resolve));
    const opened = generations.open();
    await clock.advance(500);
    const patient = generations.open(5000);
    await clock.advance(3500);
    expect(await patient).toBe(await opened);
  });

  it('that closes the connection during the login is given up at once', async () => {
    const { clock, server, generations } = dialled();
    const clients: Client[] = [];
    server.accept = (client) => {
      clients.push(client);
      return new Promise(() => {});
    };
    const opened = generations.open();
    await clock.advance(0);
    clients[0]?.emit('error', new Error('Socket closed unexpectedly'));
    await expect(opened).rejects.toMatchObject({ reason: 'connection' });
    expect(server.dropped).toBe(1);
  });

  it('that accepts a dial late serves the next caller', async () => {
    const { clock, server, generations } = dialled();
    server.accept = () => new Promise((resolve) => void clock.after(500, resolve));
    const late = generations.open();
    await clock.advance(500);
    expect(await generations.open()).toBe(await late);
    expect(server.dials).toBe(1);
  });

  it.each(['end', 'close'] as const)('is no longer dialled after %s', async (ends) => {
    const { clock, server, generations } = dialled();
    server.accept = () => new Promise(() => {});
    const opened = generations.open();
    await clock.advance(0);
    generations[ends]();
    await expect(opened).rejects.toMatchObject({ reason: 'connection' });
    expect([server.dropped, clock.pending]).toEqual([1, 0]);
  });

  it('is dialled again at once after a dial that was given up', async () => {
    const { clock, server, generations } = dialled();
    let accept = () => {};
    server.accept = () => new Promise<void>((resolve) => (accept = resolve));
    const opened = generations.open();
    await clock.advance(0);
    generations.end();
    server.accept = async () => {};
    const next = generations.open();
    await expect(opened).rejects.toMatchObject({ reason: 'connection' });
    expect(generations.ready).toBe(await next);
    // A late reply to the first dial changes nothing.
    accept();
    await clock.advance(0);
    expect(generations.ready).toBe(await next);
    expect([server.dials, server.dropped]).toEqual([2, 1]);
  });

  it('is dialled at once after a connection was retired', async () => {
    const { server, generations } = dialled();
    await generations.open();
    expect(generations.retire()).toBe(true);
    expect(generations.retire()).toBe(false);
    await generations.open();
    expect([server.dials, server.dropped]).toEqual([2, 1]);
  });
});
