/** The adapters for clients and clusters of node-redis, version 5.9 or newer. */
import type { Waiting } from '../rules/aborting.js';
import type { Call } from '../wire/words.js';
import { ClusterConnection, type Seed } from './cluster.js';
import type { Connection } from './connection.js';
import {
  type Dialling,
  driverPatienceOf,
  Generations,
  type Listener,
  patienceOf,
  Refusal,
  unreachable,
  whenEnded,
  within,
} from './generations.js';
import { type Address, nameOf } from './slots.js';

/** The part of a node-redis client or pool that the adapter uses. */
export interface NodeRedisLike {
  readonly isOpen: boolean;
  readonly isReady?: boolean;
  /** Present on a client, not on a pool. */
  readonly options?: { readonly socket?: object | undefined } | undefined;
  duplicate?(override?: object): NodeRedisLike;
  connect?(): Promise<unknown>;
  /** Present on a pool: true while it is closing, before `isOpen` is false. */
  readonly isClosing?: boolean;
  /** Present on a pool: lends a client of the pool. */
  // biome-ignore lint/suspicious/noExplicitAny: each version has another type of clients
  execute?(use: (client: any) => any): Promise<unknown>;
  destroy(): void;
  sendCommand(args: string[], options?: object): Promise<unknown>;
  on(event: string, listener: Listener): unknown;
  off(event: string, listener: Listener): unknown;
}

/** The part of a node-redis cluster that the adapter uses. */
export interface NodeRedisClusterLike {
  readonly isOpen: boolean;
  readonly masters: readonly NodeRedisMaster[];
  readonly _options?: NodeRedisClusterOptions | undefined;
  duplicate(overrides?: object): NodeRedisClusterLike;
  connect(): Promise<unknown>;
  destroy(): void;
  nodeClient(master: never): NodeRedisLike | Promise<NodeRedisLike>;
  on(event: string, listener: Listener): unknown;
  off(event: string, listener: Listener): unknown;
}

/** The options of a node-redis cluster that the adapter reads. */
export interface NodeRedisClusterOptions {
  readonly nodeAddressMap?: NodeAddressMap | undefined;
  readonly defaults?: { readonly socket?: { readonly socketTimeout?: number } } | undefined;
}

/** A primary that a cluster knows. */
export interface NodeRedisMaster extends Address {
  readonly client?: NodeRedisLike | undefined;
}

/** The addresses under which the application reaches the nodes of a cluster. */
export type NodeAddressMap =
  | Readonly<Record<string, Address>>
  | ((name: string) => Address | undefined);

/**
 * Reports to the driver, when it is about to queue a call, whether the caller still waits. Never
 * removes a call from the queue: after two such removals in a row node-redis 5.12 writes nothing
 * more, although it reports that it is ready.
 */
class WhenQueued {
  constructor(private readonly waiting: Waiting) {}

  get aborted(): boolean {
    return this.waiting.ended;
  }

  addEventListener(): void {}
  removeEventListener(): void {}
}

/**
 * Returns the options of a call: plain integers, and no `timeout`, which would remove calls from
 * the queue.
 */
function optionsOf(waiting: Waiting): object {
  return { abortSignal: new WhenQueued(waiting), timeout: undefined, typeMapping: {} };
}

/** Creates a client that neither queues calls nor connects by itself. */
function withoutRepeats(
  theirs: NodeRedisLike,
  terms: Dialling,
  differing: object = {},
): NodeRedisLike {
  const own = { reconnectStrategy: false, connectTimeout: driverPatienceOf(terms) };
  const socket = { ...theirs.options?.socket, ...differing, ...own };
  return theirs.duplicate?.({ disableOfflineQueue: true, socket }) as NodeRedisLike;
}

/** The clients whose socket is not connected yet. */
const connecting = new WeakSet<NodeRedisLike>();

/** The calls to a client of one node that was opened by `withoutRepeats`. */
const NODE = {
  async connect(own: NodeRedisLike) {
    connecting.add(own);
    own.on('connect', () => connecting.delete(own));
    return own.connect?.();
  },
  isReady: (own: NodeRedisLike) => own.isReady === true,
  isConnected: (own: NodeRedisLike) => own.isOpen && !connecting.has(own),
  /**
   * Closes a client, which throws if it is not open. The driver does not close a socket that is
   * still connecting, so such a socket is closed when it is connected.
   */
  drop(own: NodeRedisLike) {
    if (connecting.has(own)) own.on('connect', () => NODE.drop(own));
    else if (own.isOpen) own.destroy();
  },
};

/**
 * Opens connections of its own, with the options of the application's client, so that it can drop
 * one that is silent without touching the application's calls. They end with that client.
 */
export class NodeRedisConnection implements Connection {
  readonly #generations: Generations<NodeRedisLike>;
  readonly #forget: () => void;
  /** Of a pool: takes back the call at the end of its member. Undefined after `close`. */
  #forgetMember: (() => void) | undefined = () => {};
  /** Whether the application's client has ended before. */
  #isEnded = false;

  constructor(client: NodeRedisLike, terms: Dialling) {
    const make = async () => {
      const template = client.duplicate === undefined ? await this.#memberOf(client) : client;
      return withoutRepeats(template, terms);
    };
    const isEnded = () => this.#isEnded && !client.isOpen;
    this.#generations = new Generations({ ...NODE, make, isEnded }, terms);
    this.#forget = whenEnded(client, 'end', () => {
      this.#isEnded = true;
      this.#generations.end();
    });
  }

  /** Returns a client of a pool, whose options are those of the pool. It ends with the pool. */
  async #memberOf(pool: NodeRedisLike): Promise<NodeRedisLike> {
    if (!pool.isOpen || pool.isClosing) throw unreachable('the client is not connected');
    const member = (await pool.execute?.((one: NodeRedisLike) => one)) as NodeRedisLike;
    if (this.#forgetMember === undefined) throw unreachable('the limiter is closed');
    this.#forgetMember();
    this.#forgetMember = whenEnded(member, 'end', () => void this.#memberEnded(pool));
    return member;
  }

  /** Called at the end of a member: the pool has ended, or it has too many idle clients. */
  async #memberEnded(pool: NodeRedisLike): Promise<void> {
    // A pool ends after its members.
    await Promise.resolve();
    await this.#memberOf(pool).catch(() => this.#generations.end());
  }

  send({ args }: Call, waiting: Waiting): Promise<unknown> {
    const client = this.#generations.ready;
    if (client === undefined) return Promise.reject(unreachable('the connection was lost'));
    return client.sendCommand([...args], optionsOf(waiting));
  }

  connect(_: undefined, patienceMs?: number | undefined): Promise<unknown> {
    return this.#generations.open(patienceMs);
  }

  retire(): boolean {
    return this.#generations.retire();
  }

  isUp(): boolean {
    return this.#generations.ready !== undefined;
  }

  close(): void {
    this.#forget();
    this.#forgetMember?.();
    this.#forgetMember = undefined;
    this.#generations.close();
  }
}

/**
 * Opens connections of its own to the nodes of a cluster. They end with the application's client.
 */
export class NodeRedisClusterConnection extends ClusterConnection<NodeRedisLike> {
  readonly #forget: () => void;

  constructor(cluster: NodeRedisClusterLike, terms: Dialling) {
    const map = cluster._options?.nodeAddressMap;
    const mapped = (name: string) => (typeof map === 'function' ? map(name) : map?.[name]);
    super(
      {
        ...NODE,
        keyPrefix: '',
        seed: () => seedOf(cluster, terms),
        send: (client, { args }, waiting) => client.sendCommand([...args], optionsOf(waiting)),
        translated: (address) => mapped(nameOf(address)) ?? address,
      },
      terms,
    );
    this.#forget = whenEnded(cluster, 'disconnect', () => this.end());
  }

  override close(): void {
    this.#forget();
    super.close();
  }
}

/**
 * Returns the configuration of a cluster's clients. If the cluster has none yet, a second cluster
 * connects for a moment.
 */
async function seedOf(
  cluster: NodeRedisClusterLike,
  terms: Dialling,
): Promise<Seed<NodeRedisLike>> {
  const [known] = cluster.masters.filter(({ client }) => client !== undefined);
  if (known?.client !== undefined) return seeded(cluster.masters, known.client, terms);
  const defaults = cluster._options?.defaults;
  const patienceMs = patienceOf(terms);
  // Without a `socketTimeout` the second cluster would never close a socket that is silent.
  const limits = { socketTimeout: patienceMs, connectTimeout: patienceMs };
  const socket = { ...defaults?.socket, ...limits };
  const second = cluster.duplicate({
    minimizeConnections: true,
    defaults: { ...defaults, socket },
  });
  const refusal = new Refusal(second);
  const opened = async () => {
    await refusal.during(second.connect());
    const [master] = second.masters;
    if (master === undefined) throw unreachable('the cluster has no primary');
    const template = await second.nodeClient(master as never);
    return seeded(second.masters, template, terms, {
      socketTimeout: defaults?.socket?.socketTimeout,
    });
  };
  try {
    return await within(terms.run, patienceMs, opened(), `no node in ${patienceMs} ms`);
  } finally {
    if (second.isOpen) second.destroy();
  }
}

function seeded(
  masters: readonly NodeRedisMaster[],
  template: NodeRedisLike,
  terms: Dialling,
  differing: object = {},
): Seed<NodeRedisLike> {
  return {
    addresses: masters.map(({ client, host, port }) => {
      // The socket of a client leads to the address under which the application reaches the node.
      const socket = client?.options?.socket as Partial<Address> | undefined;
      return { host: socket?.host ?? host, port: socket?.port ?? port };
    }),
    make: (address) => withoutRepeats(template, terms, { ...address, ...differing }),
  };
}
