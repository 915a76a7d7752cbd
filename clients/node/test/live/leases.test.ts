/** Tests, on a real server, the renewals and the releases of many leases. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Limiter, lease, quota } from '../../src/index.js';
import { proxy, type SilentProxy } from './proxy.js';
import { type Server, serve, until } from './server.js';
import { type Opened, versions } from './versions.js';

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
