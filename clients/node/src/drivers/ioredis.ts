/** The adapters for clients and clusters of ioredis. Unlike ioredis, they send each call once. */
import type { Writable } from 'node:stream';
import { InvalidArgumentError } from '../errors.js';
import type { Call } from '../protocol.js';
import type { Connection, Waiting } from './connection.js';
import { type Dialling, type Driver, Generations } from './generations.js';
import { away, type Listener, Refusal, unlessAborted, untilReady } from './opening.js';
import { slotOf } from './slots.js';

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

interface IoRedisOptions {
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
    redisOptions?: IoRedisOptions | undefined;
  };
  /** The nodes of each slot as `host:port`, the primary first. */
  readonly slots: readonly (readonly string[] | undefined)[];
  nodes(role?: 'all' | 'master' | 'slave'): IoRedisLike[];
  refreshSlotsCache(done?: (error?: Error | null) => void): void;
  connect(): Promise<unknown>;
  on(event: string, listener: Listener): unknown;
  off(event: string, listener: Listener): unknown;
}

/** Waits while an ioredis client opens. A client that does not open counts as unavailable. */
async function opened(
  client: IoRedisLike | IoRedisClusterLike,
  signal: AbortSignal,
): Promise<void> {
  if (client.status === 'ready') return;
  if (client.status === 'wait') client.connect().catch(() => {});
  else if (client.status !== 'connecting' && client.status !== 'connect') {
    throw away(`the client is not connected: ${client.status}`);
  }
  await untilReady(client, signal);
}

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

/** The number of bytes after which collected calls are written: about ten calls. */
const WRITTEN_AT_ONCE_BYTES = 700;

/**
 * Writes the calls of one turn of the event loop together, because system calls cost the most. In a
 * long turn it writes several times, so that the server can start on the first calls.
 */
function written(client: IoRedisLike, args: readonly string[]): Promise<unknown> {
  const { stream } = client;
  if (stream !== undefined) {
    if (stream.writableCorked === 0) {
      stream.cork();
      process.nextTick(() => stream.uncork());
    } else if (stream.writableLength > WRITTEN_AT_ONCE_BYTES) {
      stream.uncork();
      stream.cork();
    }
  }
  return client.call(...(args as [string, ...string[]]));
}

/**
 * Opens connections of its own, with the options of the application's client but without retries,
 * so that it can drop one that is silent without touching the application's calls. They end with
 * that client.
 */
export class IoRedisConnection implements Connection {
  readonly #theirs: IoRedisLike;
  readonly #generations: Generations<IoRedisLike>;
  readonly #onEnd = () => this.#generations.end();

  constructor(client: IoRedisLike, terms: Dialling) {
    this.#theirs = client;
    const connectTimeout = Math.max(1000, terms.timeoutMs);
    const driver: Driver<IoRedisLike> = {
      make: () => client.duplicate({ ...WITHOUT_REPEATS, connectTimeout }),
      connect: (own) => own.connect(),
      isReady: (own) => own.status === 'ready',
      drop: dropped,
    };
    this.#generations = new Generations(driver, terms);
    client.on('end', this.#onEnd);
  }

  send(call: Call, waiting: Waiting): Promise<unknown> {
    const client = this.#generations.ready;
    if (client !== undefined) return written(client, this.#args(client, call));
    return unlessAborted(this.#generations.open(), waiting.signal).then((own) =>
      written(own, this.#args(own, call)),
    );
  }

  #args({ options: { keyPrefix } }: IoRedisLike, call: Call): readonly string[] {
    return prefixed(call, keyPrefix, keyPrefix);
  }

  retire(): boolean {
    return this.#generations.retire();
  }

  isUp(): boolean {
    return this.#generations.ready !== undefined;
  }

  close(): void {
    this.#theirs.off('end', this.#onEnd);
    this.#generations.close();
  }
}

/** Options of a client that sends each call once, at once, and connects only when told to. */
const WITHOUT_REPEATS = Object.freeze({
  maxRetriesPerRequest: 0,
  autoResendUnfulfilledCommands: false,
  enableOfflineQueue: false,
  enableAutoPipelining: false,
  stringNumbers: false,
  lazyConnect: true,
  retryStrategy: () => null,
  reconnectOnError: null,
});

/** Closes a client. The driver itself would wait two seconds for the server to close, too. */
function dropped(client: IoRedisLike): void {
  client.disconnect();
  client.stream?.destroy();
}

/**
 * Routes calls itself, over the cluster's clients for single nodes. The cluster client of ioredis
 * would send commands that it does not know to any node, and repeat a call whose connection broke.
 */
export class IoRedisClusterConnection implements Connection {
  readonly #cluster: IoRedisClusterLike;
  readonly #refusal: Refusal;

  constructor(cluster: IoRedisClusterLike) {
    const { enableAutoPipelining, stringNumbers } = cluster.options.redisOptions ?? {};
    if (enableAutoPipelining || stringNumbers) {
      // The node clients send the calls. With auto-pipelining, a call waits for the pipeline before
      // it.
      throw new InvalidArgumentError('client', 'no enableAutoPipelining and no stringNumbers');
    }
    this.#cluster = cluster;
    this.#refusal = new Refusal(cluster);
  }

  close(): void {
    this.#refusal.end();
  }

  async send(call: Call, waiting: Waiting): Promise<unknown> {
    if (this.#cluster.status !== 'ready') {
      this.#refusal.throwIfAny();
      await this.#refusal.during(opened(this.#cluster, waiting.signal));
    }
    const slot = slotOf((this.#cluster.options.keyPrefix ?? '') + (call.keys[0] as string));
    try {
      return await this.#ask(this.#cluster.slots[slot]?.[0], call, waiting);
    } catch (error) {
      const moved = /^(MOVED|ASK) \d+ (\S+)$/.exec(error instanceof Error ? error.message : '');
      if (moved === null || waiting.ended) throw error;
      // The server refused the call before it ran, so the call counts once when it is sent
      // elsewhere.
      if (moved[1] === 'MOVED') this.#refresh();
      return this.#ask(moved[2], call, waiting, moved[1] === 'ASK');
    }
  }

  nodeOf({ keys }: Pick<Call, 'keys'>): string | undefined {
    const slot = slotOf((this.#cluster.options.keyPrefix ?? '') + (keys[0] as string));
    return this.#cluster.slots[slot]?.[0];
  }

  primaries(): Connection[] {
    return this.#cluster.nodes('master').map((node) => ({
      send: async ({ args }: Call, waiting: Waiting) => {
        if (node.status !== 'ready') await opened(node, waiting.signal);
        return written(node, args);
      },
    }));
  }

  async #ask(
    address: string | undefined,
    call: Call,
    waiting: Waiting,
    asking = false,
  ): Promise<unknown> {
    const named = ({ options }: IoRedisLike) => `${options.host}:${options.port}` === address;
    const node = this.#cluster.nodes('all').find(named);
    if (node === undefined) {
      this.#refresh();
      throw away('no node is known for the slot of this key');
    }
    try {
      if (node.status !== 'ready') await opened(node, waiting.signal);
    } catch (error) {
      this.#refresh();
      throw error;
    }
    if (asking) written(node, ['ASKING']).catch(() => {});
    const { keyPrefix } = this.#cluster.options;
    return written(node, prefixed(call, keyPrefix, node.options.keyPrefix));
  }

  #refresh(): void {
    this.#cluster.refreshSlotsCache(() => {});
  }
}
