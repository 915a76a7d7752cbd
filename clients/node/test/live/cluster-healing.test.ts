/** Tests, behind proxies on a real cluster, that a limiter dials a silent node again. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { gcra, Limiter } from '../../src/index.js';
import { proxy, type SilentProxy } from './proxy.js';
import { HEALED_MS, type Server, serveCluster, until } from './server.js';
import { versions } from './versions.js';

const api = gcra('api', 6000, 6000, '60s');

describe('a cluster behind proxies', () => {
  let nodes: Server[];
  let proxies: SilentProxy[];

  beforeAll(async () => {
    nodes = await serveCluster();
    proxies = await Promise.all(nodes.map(({ port }) => proxy(port)));
  }, 30_000);
  afterAll(async () => {
    for (const one of proxies) await one.stop();
    for (const { admin, stop } of nodes) {
      admin.disconnect();
      await stop();
    }
  });

  /** Returns the address at which a driver reaches each node, under the driver's own option. */
  function mapped(name: string): object {
    const map = Object.fromEntries(
      nodes.map(({ port }, at) => [
        `127.0.0.1:${port}`,
        { host: '127.0.0.1', port: proxies[at]?.port },
      ]),
    );
    return name.startsWith('node-redis') ? { nodeAddressMap: map } : { natMap: map };
  }

  it.each(Object.entries(versions))(
    'decides again when one node falls silent, and later all of them, by %s',
    async (name, { cluster }) => {
      const ports = proxies.map(({ port }) => port);
      const { client, close } = await cluster(ports, mapped(name));
      // On a busy machine a dial through a proxy takes longer, and a lost call costs a dial more.
      const limiter = new Limiter(client, { prefix: name, breakerFailures: 2, timeoutMs: 1000 });
      await until('it is ready', () =>
        limiter.ready().then(
          () => true,
          () => false,
        ),
      );
      const subjects = Array.from({ length: 12 }, (_, at) => String(at));
      const sources = async () => {
        const decisions = await Promise.all(subjects.map((one) => limiter.check(api, one)));
        return decisions.map(({ source }) => source);
      };
      const decides = async () => (await sources()).every((source) => source === 'server');
      await until('all nodes decide', decides);
      const before = proxies.map(({ accepted }) => accepted);
      proxies[0]?.silence();
      expect(new Set(await sources())).toEqual(new Set(['error', 'server']));
      const healing = async () => {
        const begin = performance.now();
        await until('all nodes decide again', decides);
        expect(performance.now() - begin).toBeLessThan(HEALED_MS);
      };
      await healing();
      const dials = proxies.map(({ accepted }, at) => accepted - (before[at] as number));
      expect(dials[0]).toBeGreaterThan(0);
      // The slot map is read over connections that are open.
      expect(dials.slice(1)).toEqual([0, 0]);
      for (const one of proxies) one.silence('new connections');
      const end = performance.now() + 500;
      await until('half a second is over', async () => {
        expect(new Set(await sources())).toEqual(new Set(['error']));
        return performance.now() > end;
      });
      for (const one of proxies) one.heal();
      await healing();
      await limiter.close();
      close();
    },
  );
});
