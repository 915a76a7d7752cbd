/** Tests the probes of the nodes of a cluster: each belongs to the circuit breaker of one node. */
import { expect, it } from 'vitest';
import { type Call, type Connection, gcra, Limiter, type LimiterOptions } from '../src/index.js';
import type { Waiting } from '../src/rules/aborting.js';
import { FakeClock } from '../src/testing.js';

const api = gcra('api', 6, 10, '60s');
const DECISION = [1, 6, 5, 0, 6000];
const LOADING = new Error('LOADING Redis is loading the dataset in memory');

/** A cluster whose nodes are the first letters of the subjects, once they are known. */
class Cluster implements Connection {
  readonly clock = new FakeClock();
  /** The nodes that are known. */
  readonly known = new Set<string | undefined>();
  /** The replies of the nodes. Default: a decision. */
  readonly replies = new Map<string | undefined, () => Promise<unknown>>();
  /** The nodes to which other nodes redirect. */
  readonly moved = new Map<string | undefined, string>();
  isReachable = true;

  limiter(options: LimiterOptions = {}): Limiter {
    const all = { clock: this.clock, breakerFailures: 1, logErrors: false, ...options };
    return new Limiter(this, all);
  }

  nodeOf({ keys }: Pick<Call, 'keys'>): string | undefined {
    const name = keys[0]?.split(':')[2]?.[0];
    return this.known.has(name) ? name : undefined;
  }

  async connect(node: string | undefined): Promise<void> {
    if (!this.isReachable) throw new Error('unreachable');
    if (node === undefined) for (const name of ['a', 'b']) this.known.add(name);
  }

  isUp(node: string | undefined): boolean {
    return node === undefined ? this.known.size > 1 : this.known.has(node);
  }

  async send(call: Call, waiting: Waiting): Promise<unknown> {
    const node = this.nodeOf(call);
    const to = this.moved.get(node) ?? node;
    if (to !== node) {
      waiting.waits?.(to);
      waiting.sends?.(to);
    }
    return this.replies.get(to)?.() ?? DECISION;
  }
}

it('the probe of an unknown node ends when the cluster is known', async () => {
  const cluster = new Cluster();
  const limiter = cluster.limiter();
  cluster.isReachable = false;
  expect((await limiter.check(api, 'a')).reason).toBe('connection');
  expect(limiter.openBreakers).toBe(1);
  cluster.isReachable = true;
  await cluster.clock.advance(1000);
  expect((await limiter.check(api, 'a')).source).toBe('server');
  expect(limiter.openBreakers).toBe(0);
});

/** Returns a cluster whose nodes have failed, and the probe of node b, which is in flight. */
async function probed() {
  const cluster = new Cluster();
  const limiter = cluster.limiter({ timeoutMs: 5000, silenceMs: 5000 });
  for (const name of ['a', 'b']) {
    cluster.known.add(name);
    cluster.replies.set(name, () => Promise.reject(LOADING));
    expect((await limiter.check(api, name)).reason).toBe('server');
  }
  await cluster.clock.advance(1000);
  let resume = () => {};
  const reply = new Promise((resolve) => {
    resume = () => resolve(DECISION);
  });
  cluster.replies.set('b', () => reply);
  return { cluster, limiter, probe: limiter.check(api, 'b'), resume };
}

/** Expects that the probe of node b is still the only call to it, until it gets its reply. */
async function expectProbe({ limiter, probe, resume }: Awaited<ReturnType<typeof probed>>) {
  expect((await limiter.check(api, 'b')).reason).toBe('circuit');
  resume();
  expect((await probe).source).toBe('server');
  expect((await limiter.check(api, 'b')).source).toBe('server');
  expect(limiter.openBreakers).toBe(0);
}

it('a call whose node was unknown does not pass the breaker of its node', async () => {
  const scene = await probed();
  const { cluster, limiter } = scene;
  cluster.known.delete('b');
  const moving = limiter.check(api, 'b');
  cluster.known.add('b');
  expect((await moving).reason).toBe('circuit');
  await expectProbe(scene);
});

it('a redirected probe ends no other probe, and closes the breaker that it left', async () => {
  const scene = await probed();
  const { cluster, limiter } = scene;
  cluster.moved.set('a', 'b');
  expect((await limiter.check(api, 'a')).reason).toBe('circuit');
  cluster.moved.delete('a');
  cluster.replies.delete('a');
  const both = [limiter.check(api, 'a'), limiter.check(api, 'a')];
  expect((await Promise.all(both)).map(({ source }) => source)).toEqual(['server', 'server']);
  await expectProbe(scene);
});
