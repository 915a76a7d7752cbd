/** Tests, on a real server, the renewals and the releases of many leases. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Limiter, lease, quota } from '../../src/index.js';
import { applications, listen } from './applications.js';
import { proxy, type SilentProxy } from './proxy.js';
import { type Server, serve, until } from './server.js';
import { type Opened, type Version, versions } from './versions.js';

let server: Server;
let between: SilentProxy;
let opened: Opened;
let limiter: Limiter;
let sent = '';

const newest = Object.entries(versions).filter(([name]) => name.endsWith('6'));

/** Returns the number of commands of this name that were sent. */
function count(command: string): number {
  return sent.split(`${command}\r\n`).length - 1;
}

beforeEach(async () => {
  server = await serve();
  sent = '';
  between = await proxy(server.port, (text) => {
    sent += text;
  });
});
afterEach(async () => {
  await server.admin.call('CLIENT', 'UNPAUSE');
  await limiter.close();
  opened.close();
  server.admin.disconnect();
  await Promise.all([between.stop(), server.stop()]);
});

describe.each(Object.entries(applications))('%s', (_, application) => {
  it('responds before its lease is released, which close awaits', async () => {
    opened = await (versions['ioredis-6'] as Version).single([between.port]);
    limiter = new Limiter(opened.client, { timeoutMs: 60_000, logErrors: false });
    const respond = async () => {
      await server.admin.call('CLIENT', 'PAUSE', '60000', 'WRITE');
      return 200;
    };
    const rule = lease('jobs', 1, '1h');
    const listening = await listen(await application({ limiter, rule, respond }));
    const response = await fetch(`http://127.0.0.1:${listening.port}/`);
    expect([response.status, await response.text()]).toEqual([200, 'ok']);
    listening.stop();
    expect(await server.admin.call('DBSIZE')).toBe(1);
    await until('the release is sent', () => count('RL.RELEASE') === 1);
    const closed = limiter.close();
    await server.admin.call('CLIENT', 'UNPAUSE');
    await closed;
    expect(await server.admin.call('DBSIZE')).toBe(0);
  });
});

describe.each(newest)('%s', (_, { single }) => {
  it('renews while releases are in flight and in line, which close awaits', async () => {
    opened = await single([between.port]);
    limiter = new Limiter(opened.client, { timeoutMs: 60_000, logErrors: false });
    const short = lease('short', 48, '1h');
    const permits = await Promise.all(Array.from({ length: 48 }, () => limiter.lease(short, '1')));
    const kept = await limiter.lease(lease('long', 1, '1h'), '1');
    const month = quota('month', 10, 'month');
    const reserved = await limiter.reserve(month, '1', { ttl: '3s' });
    await server.admin.call('CLIENT', 'PAUSE', '60000', 'WRITE');
    const released = permits.map((permit) => permit.release());
    await until('all slots of ends are taken', () => count('RL.RELEASE') >= 32);
    const renewed = kept.renew();
    const before = count('RL.RESERVE');
    await until('both are renewed', () => count('RL.RENEW') + count('RL.RESERVE') > before + 1);
    expect(count('RL.RELEASE')).toBe(32);
    const closed = limiter.close();
    await server.admin.call('CLIENT', 'UNPAUSE');
    await Promise.all([renewed, ...released, closed]);
    expect(reserved.held).toBe(false);
    expect(await server.admin.call('DBSIZE')).toBe(0);
    expect(limiter.counters.unsettled).toBe(0);
  });
});
