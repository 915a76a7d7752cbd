/** Tests, on a real server, that clients that reset their connections pass no limit. */
import { connect, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Decision, fixed, Limiter, type LimiterOptions, lease } from '../../src/index.js';
import { applications, type Listening, listen, reset } from './applications.js';
import { proxy, type SilentProxy } from './proxy.js';
import { type Server, serve, until } from './server.js';
import { type Opened, type Version, versions } from './versions.js';

let server: Server;
let between: SilentProxy;
let opened: Opened;
let limiter: Limiter;
let listening: Listening;

/** The ways in which a client ends a request before its body is complete. */
const cuts: Record<string, (client: Socket) => void> = {
  closes: (client) => void client.destroy(),
  'half-closes': (client) => void client.end(),
  resets: (client) => void client.resetAndDestroy(),
};

const hour = fixed('hour', 1000, '1h');

async function start(options: LimiterOptions): Promise<void> {
  opened = await (versions['ioredis-6'] as Version).single([between.port]);
  limiter = new Limiter(opened.client, { logErrors: false, ...options });
  await until('it decides', async () => (await limiter.check(hour, '0')).source === 'server');
}

beforeEach(async () => {
  server = await serve();
  between = await proxy(server.port);
});
afterEach(async () => {
  listening.stop();
  await limiter.close();
  opened.close();
  server.admin.disconnect();
  await Promise.all([between.stop(), server.stop()]);
});

describe.each(Object.entries(applications))('%s', (_, application) => {
  it('decides the requests of one client although another one resets its own', async () => {
    between.moveAway(20);
    const degraded: Decision[] = [];
    await start({
      silenceMs: 1000,
      onDecision: ({ decision }) => {
        if (decision?.degraded) degraded.push(decision);
      },
    });
    listening = await listen(await application({ limiter, rule: hour, respond: () => 200 }));
    const { port } = listening;
    const worker = async () => {
      for (let left = 100; left > 0; left -= 1) {
        await reset(port, (act) => void setImmediate(act));
      }
    };
    let isOver = false;
    const over = Promise.all(Array.from({ length: 10 }, worker)).then(() => {
      isOver = true;
    });
    const statuses: number[] = [];
    while (!isOver || statuses.length <= 5)
      statuses.push((await fetch(`http://127.0.0.1:${port}/`)).status);
    await over;
    expect(degraded).toEqual([]);
    expect(new Set(statuses)).toEqual(new Set(statuses.includes(429) ? [200, 429] : [200]));
    expect(statuses.filter((status) => status === 200).length).toBeLessThanOrEqual(1000);
  });

  it('limits a client that resets its requests under a rule that counts successes', async () => {
    await start({ timeoutMs: 60_000 });
    const rule = fixed('successes', 10, '1h', { count: ({ status }) => status === 200 });
    let served = 0;
    let leave: (() => void) | undefined;
    const respond = async () => {
      const before = listening.closed;
      served += 1;
      await until('the request is sent', () => leave !== undefined);
      leave?.();
      await until('the client has left', () => listening.closed > before);
      return 404;
    };
    listening = await listen(await application({ limiter, rule, respond }));
    const { port } = listening;
    for (let request = 0; request < 30; request += 1) {
      leave = undefined;
      await reset(port, (act) => {
        leave = act;
      });
    }
    expect(served).toBe(10);
    expect((await fetch(`http://127.0.0.1:${port}/`)).status).toBe(429);
    expect(await limiter.peek(rule, 'all', { cost: 0 })).toMatchObject({ remaining: 0 });
  });

  it.each(Object.entries(cuts))('counts a body in which its client %s', async (_, cut) => {
    await start({ timeoutMs: 60_000 });
    let judged = 0;
    const count = () => {
      judged += 1;
      return false;
    };
    const rule = fixed('cut', 10, '1h', { count });
    let responses = 0;
    const onCut = () => {
      responses += 1;
    };
    listening = await listen(await application({ limiter, rule, respond: () => 200, onCut }));
    const client = connect(listening.port, '127.0.0.1').on('error', () => {});
    const fields = 'Host: x\r\nContent-Type: text/plain\r\nContent-Length: 100';
    client.write(`POST / HTTP/1.1\r\n${fields}\r\n\r\n0123456789`);
    await until('it is counted', async () => {
      return (await limiter.peek(rule, 'all', { cost: 0 })).remaining === 9;
    });
    cut(client);
    await until('the handler responds', () => responses === 1 && listening.closed === 1);
    // A refund would have begun.
    await limiter.peek(rule, 'all', { cost: 0 });
    client.destroy();
    expect(judged).toBe(0);
    expect(await limiter.peek(rule, 'all', { cost: 0 })).toMatchObject({ remaining: 9 });
  });

  it('runs no more handlers than a lease permits for a client that resets requests', async () => {
    await start({ timeoutMs: 60_000 });
    const rule = lease('jobs', 2, '1h');
    let [running, most] = [0, 0];
    let leave = () => {};
    let end = () => {};
    const ended = new Promise<void>((resolve) => {
      end = resolve;
    });
    const respond = async () => {
      running += 1;
      most = Math.max(most, running);
      leave();
      await ended;
      running -= 1;
      return 200;
    };
    listening = await listen(await application({ limiter, rule, respond }));
    const { port } = listening;
    for (let request = 1; request <= 50; request += 1) {
      await reset(port, (act) => {
        if (running === request) act();
        else leave = act;
      });
      await until('the client has left', () => listening.closed === request);
    }
    expect(most).toBe(2);
    end();
    await until('a permit is free', async () => {
      return (await fetch(`http://127.0.0.1:${port}/`)).status === 200;
    });
  });
});
