/** The adapters for clients and clusters of ioredis. Unlike ioredis, they send each call once. */
import type { Writable } from 'node:stream';
import type { Call } from '../wire/words.js';
import { ClusterConnection, type Seed } from './cluster.js';
import type { Connection } from './connection.js';
import {
  type Dialling,
  driverPatienceOf,
  Generations,
  type Listener,
  patienceOf,
  unreachable,
  whenEnded,
} from './generations.js';
import { type Address, nameOf } from './slots.js';

/** The part of an ioredis client that the adapter uses. */
export interface IoRedisLike {
  readonly status: string;
  readonly options: IoRedisOptions;
  call(command: string, ...args: string[]): Promise<unknown>;
  readonly stream?: Writable | undefined;
  connect(): Promise<unknown>;
  duplicate(override?: object): IoRedisLike;
  disconnect(): void;
  on(event: string, listener: Listener): unknown;
  off(event: string, listener: Listener): unknown;
}

/** The options of an ioredis client that the adapter reads. */
export interface IoRedisOptions {
  keyPrefix?: string | undefined;
  host?: string | undefined;
  port?: number | undefined;
  maxRetriesPerRequest?: number | null | undefined;
  autoResendUnfulfilledCommands?: boolean | undefined;
  enableOfflineQueue?: boolean | undefined;
  enableAutoPipelining?: boolean | undefined;
  stringNumbers?: boolean | undefined;
  reconnectOnError?: ((error: Error) => boolean | 1 | 2) | null | undefined;
}

/** The part of an ioredis cluster that the adapter uses. */
export interface IoRedisClusterLike {
  readonly isCluster: boolean;
  readonly status: string;
  readonly options: {
    keyPrefix?: string | undefined;
    natMap?: NatMap | undefined;
  };
  nodes(role?: 'all' | 'master' | 'slave'): IoRedisLike[];
  connect(): Promise<unknown>;
  on(event: string, listener: Listener): unknown;
  off(event: string, listener: Listener): unknown;
}

/** The addresses under which the application reaches the nodes of a cluster. */
export type NatMap = Record<string, Address> | ((name: string) => Address | null | undefined);

/**
 * Adds the `keyPrefix` to the keys. The driver adds it only to commands that it knows, and it does
 * not know the module's.
 */
function prefixed({ args, keys }: Call, prefix = '', ownPrefix = ''): readonly string[] {
  const isAdded = ownPrefix !== '' && !args[0]?.startsWith('RL.');
  if (prefix === '' || isAdded) return args;
  const rest = new Set(keys);
  return args.map((arg, at) => (isKeyAt(args, at) && rest.has(arg) ? prefix + arg : arg));
}

function isKeyAt(args: readonly string[], at: number): boolean {
  const [command = '', , count] = args;
  if (/^RL\..*ALL$/.test(command)) return at % 2 === 1;
  if (command === 'DEL' || command.startsWith('RL.')) return at === 1;
  return at >= 3 && at < 3 + Number(count);
}

/** The number of characters after which joined calls are written: about ten calls. */
const WRITTEN_AT_ONCE = 700;

/** The streams whose writes are joined. */
const joining = new WeakSet<Writable>();

/**
 * Joins the texts that are written to a stream in one turn of the event loop, because system calls
 * cost the most, and then the pieces of one call. In a long turn it writes several times, so that
 * the server can start on the first calls.
 */
function join(stream: Writable): void {
  joining.add(stream);
  const write = stream.write.bind(stream) as (...given: unknown[]) => boolean;
  let joined = '';
  const flush = () => {
    const text = joined;
    joined = '';
    // A stream that has ended in the meantime has failed these calls.
    if (text !== '' && stream.writable) write(text);
  };
  stream.write = (...given: unknown[]) => {
    const [text] = given;
    if (typeof text !== 'string' || given.length > 1) {
      flush();
      return write(...given);
    }
    if (joined.length > WRITTEN_AT_ONCE) flush();
    if (joined === '') process.nextTick(flush);
    joined += text;
    return true;
  };
}

/** Sends a call on a connection of the limiter's own. */
function written(client: IoRedisLike, args: readonly string[]): Promise<unknown> {
  const { stream } = client;
  if (stream !== undefined && !joining.has(stream)) join(stream);
  return client.call(...(args as [string, ...string[]]));
}

/** Options of a client that sends each call once, at once, and connects only by `connect`. */
const WITHOUT_REPEATS = Object.freeze({
  maxRetriesPerRequest: 0,
  autoResendUnfulfilledCommands: false,
  enableOfflineQueue: false,
  enableAutoPipelining: false,
  stringNumbers: false,
  lazyConnect: true,
  readOnly: false,
  retryStrategy: () => null,
  reconnectOnError: null,
  // The time for which a closed client waits for the server to close too. A client that is closed
  // while it connects has no other end.
  disconnectTimeout: 0,
});

/** The calls to a client of one node that was opened with `WITHOUT_REPEATS`. */
const NODE = {
  connect: (own: IoRedisLike) => own.connect(),
  isReady: (own: IoRedisLike) => own.status === 'ready',
  isConnected: (own: IoRedisLike) => own.status === 'connect',
  /** Closes a client, and its socket at once. */
  drop(own: IoRedisLike) {
    own.disconnect();
    own.stream?.destroy();
  },
};

/**
 * Opens connections of its own, with the options of the application's client but without retries,
 * so that it can drop one that is silent without touching the application's calls. They end with
 * that client.
 */
export class IoRedisConnection implements Connection {
  readonly #generations: Generations<IoRedisLike>;
  readonly #forget: () => void;

  constructor(client: IoRedisLike, terms: Dialling) {
    const connectTimeout = driverPatienceOf(terms);
    const make = () => client.duplicate({ ...WITHOUT_REPEATS, connectTimeout });
    const isEnded = () => client.status === 'end';
    this.#generations = new Generations({ ...NODE, make, isEnded }, terms);
    this.#forget = whenEnded(client, 'end', () => this.#generations.end());
  }

  send(call: Call): Promise<unknown> {
    const client = this.#generations.ready;
    if (client === undefined) return Promise.reject(unreachable('the connection was lost'));
    const { keyPrefix } = client.options;
    return written(client, prefixed(call, keyPrefix, keyPrefix));
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
    this.#generations.close();
  }
}

/**
 * Opens connections of its own to the nodes of a cluster. They end with the application's client.
 */
export class IoRedisClusterConnection extends ClusterConnection<IoRedisLike> {
  readonly #forget: () => void;

  constructor(cluster: IoRedisClusterLike, terms: Dialling) {
    const { keyPrefix = '', natMap } = cluster.options;
    const mapped = (name: string) => (typeof natMap === 'function' ? natMap(name) : natMap?.[name]);
    super(
      {
        ...NODE,
        keyPrefix,
        seed: () => seedOf(cluster, terms),
        send: (client, call) => written(client, prefixed(call, keyPrefix)),
        translated: (address) => mapped(nameOf(address)) ?? address,
      },
      terms,
    );
    this.#forget = whenEnded(cluster, 'end', () => this.end());
  }

  override close(): void {
    this.#forget();
    super.close();
  }
}

/** Returns the configuration of a cluster's clients. It has none before it has begun to connect. */
async function seedOf(cluster: IoRedisClusterLike, terms: Dialling): Promise<Seed<IoRedisLike>> {
  if (cluster.status === 'wait') cluster.connect().catch(() => {});
  if (cluster.nodes('all').length === 0 && cluster.status === 'connecting') {
    await firstNodeOf(cluster, terms);
  }
  const nodes = cluster.nodes('all');
  const [template] = nodes;
  if (template === undefined) throw unreachable(`the client is not connected: ${cluster.status}`);
  const options = { ...WITHOUT_REPEATS, connectTimeout: driverPatienceOf(terms), keyPrefix: '' };
  return {
    addresses: nodes.map(({ options: { host = '127.0.0.1', port = 6379 } }) => ({ host, port })),
    make: ({ host, port }) => template.duplicate({ ...options, host, port }),
  };
}

/** Waits until a cluster has a node or gives up, but not longer than for a dial. */
function firstNodeOf(cluster: IoRedisClusterLike, terms: Dialling): Promise<void> {
  return new Promise((resolve) => {
    const events = ['+node', 'close', 'end'];
    let stop = () => {};
    const end = () => {
      stop();
      for (const event of events) cluster.off(event, end);
      resolve();
    };
    for (const event of events) cluster.on(event, end);
    stop = terms.run.after(patienceOf(terms), end);
  });
}
