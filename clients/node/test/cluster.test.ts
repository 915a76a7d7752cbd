/** Tests how calls are routed to the nodes of a cluster, with a driver of the test's own. */
import { EventEmitter } from 'node:events';
import { describe, expect, it } from 'vitest';
import { gcra, Limiter, type LimiterOptions } from '../src/index.js';
import { ClusterConnection, type ClusterDriver } from '../src/net/cluster.js';
import { nameOf } from '../src/net/slots.js';
import { FakeClock } from '../src/testing.js';
import type { Call } from '../src/wire/words.js';
import { dialling } from './fakes.js';

const api = gcra('api', 6, 10, '60s');
const DECISION = [1, 6, 5, 0, 6000];

/** A client of one node. */
class NodeClient extends EventEmitter {
  isUp = false;
  constructor(readonly address: string) {
    super();
  }
}

/** A cluster of two nodes, which share the slots by halves. */
class Cluster {
  readonly clock = new FakeClock();
  readonly sent: string[] = [];
  /** The dials, by address. */
  readonly dials: string[] = [];
  /** The text that each half of the slots is on. */
  halves: [string, string] = ['a:1', 'b:1'];
  reply: (address: string, call: Call) => unknown = () => DECISION;
  readonly driver: ClusterDriver<NodeClient> = {
    keyPrefix: '',
    seed: async () => ({
      addresses: [{ host: 'a', port: 1 }],
      make: (address) => new NodeClient(nameOf(address)),
    }),
    connect: async (client) => {
      this.dials.push(client.address);
      client.isUp = true;
    },
    isReady: (client) => client.isUp,
    isConnected: () => false,
    drop: (client) => {
      client.isUp = false;
    },
    translated: (address) => address,
    send: async (client, call) => this.#reply(client.address, call),
  };

  async #reply(address: string, call: Call): Promise<unknown> {
    this.sent.push(`${address} ${call.args[0]}`);
    if (call.args[0] === 'CLUSTER') {
      return this.halves.map((half, at) => {
        const [host, port] = half.split(':');
        // A node may not know its own host.
        const known = half === address ? '' : host;
        return [at * 8192, at * 8192 + 8191, [known, Number(port), 'id']];
      });
    }
    const reply = this.reply(address, call);
    if (reply instanceof Error) throw reply;
    return reply;
  }

  limiter(options: LimiterOptions = {}): Limiter {
    const connection = new ClusterConnection(this.driver, dialling(this.clock, 100));
    return new Limiter(connection, { clock: this.clock, ...options });
  }
}

/** Subjects whose keys are in the first and in the second half of the slots. */
const [first, second] = ['1', '2'] as const;

describe('a cluster', () => {
  it('is queried again a second after no node returned its configuration', async () => {
    const cluster = new Cluster();
    const limiter = cluster.limiter();
    const { seed } = cluster.driver;
    cluster.driver.seed = () => new Promise(() => {});
    const call = limiter.check(api, first);
    await cluster.clock.advance(1000);
    expect(await call).toMatchObject({ reason: 'connection' });
    cluster.driver.seed = seed;
    expect((await limiter.check(api, first)).source).toBe('server');
  });

  it.each([
    ['no slots', []],
    ['half of the slots', ['a:1']],
  ])('is read again if a node knows %s', async (_, halves) => {
    const cluster = new Cluster();
    const limiter = cluster.limiter();
    cluster.halves = halves as unknown as [string, string];
    expect(await limiter.check(api, second)).toMatchObject({ reason: 'connection' });
    cluster.halves = ['a:1', 'b:1'];
    await cluster.clock.advance(1200);
    // A call for an unknown slot has the map read, for the next one.
    await limiter.check(api, second);
    await cluster.clock.advance(1);
    expect((await limiter.check(api, second)).source).toBe('server');
  });

  it('keeps the connections to other nodes when a call to one times out', async () => {
    const cluster = new Cluster();
    const limiter = cluster.limiter();
    await limiter.check(api, first);
    await limiter.check(api, second);
    cluster.reply = (address) => (address === 'a:1' ? new Promise(() => {}) : DECISION);
    const silent = limiter.check(api, first);
    await cluster.clock.advance(100);
    expect(await silent).toMatchObject({ reason: 'timeout' });
    cluster.reply = () => DECISION;
    expect((await limiter.check(api, second)).source).toBe('server');
    expect((await limiter.check(api, first)).source).toBe('server');
    expect(cluster.dials).toEqual(['a:1', 'b:1', 'a:1']);
  });

  it('retires the node that a call went to, although its slot has moved since', async () => {
    const cluster = new Cluster();
    const limiter = cluster.limiter();
    await limiter.check(api, first);
    await limiter.check(api, second);
    cluster.reply = (address) => (address === 'a:1' ? new Promise(() => {}) : DECISION);
    const silent = limiter.check(api, first);
    cluster.halves = ['b:1', 'a:1'];
    cluster.reply = (address) => (address === 'b:1' ? new Error('CLUSTERDOWN down') : DECISION);
    await cluster.clock.advance(99);
    await limiter.check(api, second);
    await cluster.clock.advance(1);
    expect(await silent).toMatchObject({ reason: 'timeout' });
    cluster.reply = () => DECISION;
    expect((await limiter.check(api, first)).source).toBe('server');
    expect((await limiter.check(api, second)).source).toBe('server');
    // The node `b:1` was not dialled again.
    expect(cluster.dials).toEqual(['a:1', 'b:1', 'a:1']);
  });

  it('has its slot map read again after MASTERDOWN', async () => {
    const cluster = new Cluster();
    const limiter = cluster.limiter();
    await limiter.check(api, first);
    await cluster.clock.advance(100);
    cluster.halves = ['c:1', 'b:1'];
    cluster.reply = (address) => (address === 'a:1' ? new Error('MASTERDOWN it') : DECISION);
    expect(await limiter.check(api, first)).toMatchObject({ reason: 'server' });
    await cluster.clock.advance(0);
    expect((await limiter.check(api, first)).source).toBe('server');
    expect(cluster.sent.at(-1)).toBe('c:1 RL.GCRA');
  });

  it('has its slot map read at most once in timeoutMs', async () => {
    const cluster = new Cluster();
    const limiter = cluster.limiter();
    await limiter.check(api, first);
    cluster.reply = () => new Error('CLUSTERDOWN The cluster is down');
    const readings = () => cluster.sent.filter((text) => text.endsWith('CLUSTER')).length;
    await limiter.check(api, first);
    await cluster.clock.advance(99);
    expect(readings()).toBe(1);
    await cluster.clock.advance(1);
    await limiter.check(api, first);
    await limiter.check(api, second);
    await cluster.clock.advance(0);
    expect(readings()).toBe(2);
  });

  it('is sent a call again once only', async () => {
    const cluster = new Cluster();
    const limiter = cluster.limiter();
    cluster.reply = () => new Error('MOVED 1 c:1');
    expect(await limiter.check(api, first)).toMatchObject({ reason: 'server' });
    expect(cluster.sent.filter((text) => text.endsWith('RL.GCRA'))).toHaveLength(2);
  });

  it.each([
    ['MOVED', ['c:1', 'b:1']],
    ['ASK', ['a:1', 'b:1']],
  ] as const)('retires the node that was silent after %s, and no other', async (word, halves) => {
    const cluster = new Cluster();
    const limiter = cluster.limiter({ breakerFailures: 1 });
    await limiter.check(api, first);
    await limiter.check(api, second);
    const silent = new Promise(() => {});
    cluster.halves = [...halves];
    cluster.reply = (address) => (address === 'a:1' ? new Error(`${word} 1 c:1`) : silent);
    const call = limiter.check(api, first);
    await cluster.clock.advance(100);
    expect(await call).toMatchObject({ reason: 'timeout' });
    cluster.reply = () => DECISION;
    expect((await limiter.check(api, second)).source).toBe('server');
    cluster.reply = (address) => (address === 'a:1' ? new Error(`${word} 1 c:1`) : DECISION);
    await cluster.clock.advance(1000);
    expect((await limiter.check(api, first)).source).toBe('server');
    expect(cluster.dials).toEqual(['a:1', 'b:1', 'c:1', 'c:1']);
  });

  it('counts a dial after a redirection for the node that is dialled', async () => {
    const cluster = new Cluster();
    const limiter = cluster.limiter({ breakerFailures: 1 });
    await limiter.check(api, first);
    const { connect } = cluster.driver;
    cluster.driver.connect = async (client) => {
      if (client.address === 'c:1') await new Promise(() => {});
      return connect(client);
    };
    cluster.reply = (address) => (address === 'a:1' ? new Error('ASK 1 c:1') : DECISION);
    const call = limiter.check(api, first);
    await cluster.clock.advance(100);
    expect(await call).toMatchObject({ reason: 'connection' });
    cluster.reply = () => DECISION;
    expect((await limiter.check(api, first)).source).toBe('server');
    expect(cluster.dials).toEqual(['a:1']);
  });

  it('counts a time-out after a redirection for the node that was silent', async () => {
    const cluster = new Cluster();
    const limiter = cluster.limiter({ breakerFailures: 1 });
    await limiter.check(api, first);
    const silent = new Promise(() => {});
    cluster.reply = (address) => (address === 'a:1' ? new Error('ASK 1 c:1') : silent);
    const call = limiter.check(api, first);
    await cluster.clock.advance(100);
    expect(await call).toMatchObject({ reason: 'timeout' });
    cluster.reply = () => DECISION;
    expect((await limiter.check(api, first)).source).toBe('server');
    expect(cluster.dials).toEqual(['a:1', 'c:1']);
    await cluster.clock.advance(100);
    cluster.halves = ['c:1', 'b:1'];
    cluster.reply = () => new Error('CLUSTERDOWN The cluster is down');
    await limiter.check(api, first);
    await cluster.clock.advance(0);
    cluster.reply = () => DECISION;
    expect(await limiter.check(api, first)).toMatchObject({ reason: 'circuit' });
    await cluster.clock.advance(1000);
    expect((await limiter.check(api, first)).source).toBe('server');
    expect(cluster.dials).toEqual(['a:1', 'c:1', 'c:1']);
  });

  it('frees the slot of a redirected call at both nodes', async () => {
    const cluster = new Cluster();
    const limiter = cluster.limiter({ maxInFlight: 1 });
    await limiter.check(api, first);
    cluster.reply = (address) => (address === 'a:1' ? new Error('ASK 1 c:1') : DECISION);
    for (let left = 3; left > 0; left -= 1) {
      expect((await limiter.check(api, first)).source).toBe('server');
    }
    cluster.reply = () => DECISION;
    expect((await limiter.check(api, first)).source).toBe('server');
  });

  it('reads the slot map from the other nodes when one is gone', async () => {
    const cluster = new Cluster();
    const limiter = cluster.limiter();
    await limiter.check(api, first);
    await limiter.check(api, second);
    const { connect } = cluster.driver;
    const gone = async (client: NodeClient) => {
      if (client.address === 'a:1') throw new Error('connect ECONNREFUSED');
      return connect(client);
    };
    cluster.driver.connect = gone;
    cluster.reply = (address) => (address === 'a:1' ? new Error('Socket closed') : DECISION);
    cluster.halves = ['c:1', 'b:1'];
    await cluster.clock.advance(100);
    expect(await limiter.check(api, first)).toMatchObject({ reason: 'connection' });
    await cluster.clock.advance(0);
    expect((await limiter.check(api, first)).source).toBe('server');
    expect(cluster.sent.at(-1)).toBe('c:1 RL.GCRA');
  });
});
