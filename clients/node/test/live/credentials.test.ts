/** Tests, with a real server, that new connections call node-redis' provider of credentials. */
import * as redis from 'redis';
import * as redis5 from 'redis-5';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Client, CommandRejectedError, gcra, Limiter } from '../../src/index.js';
import { type Server, serve, until } from './server.js';

const api = gcra('api', 600, 600, '60s');
const libraries = {
  'node-redis-6': redis,
  'node-redis-5': redis5 as unknown as typeof redis,
};
const cases = Object.keys(libraries).flatMap((name) => [[name, 2] as const, [name, 3] as const]);

describe.each(cases)('the credentials provider of %s with RESP%i', (name, RESP) => {
  let server: Server;
  let limiter: Limiter;
  let password: string | undefined;
  /** The passwords that the provider has given. */
  let given: (string | undefined)[];

  beforeEach(async () => {
    server = await serve();
    await server.admin.call('ACL', 'SETUSER', 'default', 'resetpass', '>first');
    password = 'first';
    given = [];
    const credentials = async () => {
      given.push(password);
      return password === undefined ? {} : { password };
    };
    const credentialsProvider = { type: 'async-credentials-provider', credentials } as const;
    const { createClient } = libraries[name as keyof typeof libraries];
    const socket = { port: server.port };
    const client = createClient({ socket, RESP, credentialsProvider }).on('error', () => {});
    limiter = new Limiter(client as unknown as Client, { timeoutMs: 60_000, breakerPauseMs: 50 });
  });
  afterEach(async () => {
    await limiter.close();
    server.admin.disconnect();
    await server.stop();
  });

  /** Checks until the server has refused the credentials, and returns the error's kind. */
  async function refused(): Promise<string> {
    let error: unknown;
    await until('the server refuses', async () => {
      error = await limiter.check(api, '42').catch((thrown) => thrown);
      return error instanceof CommandRejectedError;
    });
    return (error as CommandRejectedError).kind;
  }

  /** Checks until the server decides. Until it is dialled again, calls throw the last refusal. */
  async function decided(): Promise<void> {
    await until('the server decides', async () => {
      const decision = await limiter.check(api, '42').catch(() => undefined);
      return decision?.source === 'server';
    });
  }

  it('is called again after WRONGPASS', async () => {
    await decided();
    await server.admin.call('ACL', 'SETUSER', 'default', 'resetpass', '>second');
    await server.admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    expect(await refused()).toBe('WRONGPASS');
    password = 'second';
    await decided();
    expect(given[0]).toBe('first');
    expect(given.at(-1)).toBe('second');
  });

  it('is called again after NOAUTH', async () => {
    password = undefined;
    expect(await refused()).toBe('NOAUTH');
    password = 'first';
    await decided();
    expect(given[0]).toBeUndefined();
    expect(given.at(-1)).toBe('first');
  });
});
