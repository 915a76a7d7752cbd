/**
 * The user's own connection, under our rules: nothing is queued for a server that is away, and
 * nothing is sent twice. One adapter for each driver, found by what the client can do, so that
 * neither is a dependency.
 */
import { ArgumentError, classified, MistakeError, UnavailableError } from './errors.js';
import type { Call } from './protocol.js';
import { slotOf } from './slots.js';

/** What a limiter asks. Own transports and fakes implement it. */
export interface Connection {
  /**
   * Sends a call once. When `signal` is aborted nobody waits any more: what is not yet sent is not
   * to be sent. Rejects with the driver's own error.
   */
  send(call: Call, signal: AbortSignal): Promise<unknown>;
  /** Ends what the adapter opened by itself; never the user's client. */
  close?(): void;
}

/** What is used of a client of ioredis. */
export interface IoRedisLike {
  readonly status: string;
  readonly options: IoRedisOptions;
  call(command: string, ...args: string[]): Promise<unknown>;
  connect(): Promise<unknown>;
  duplicate(override?: object): IoRedisLike;
  disconnect(): void;
  on(event: string, listener: (...args: never[]) => void): unknown;
  off(event: string, listener: (...args: never[]) => void): unknown;
}

interface IoRedisOptions {
  keyPrefix?: string | undefined;
  host?: string | undefined;
  port?: number | undefined;
  maxRetriesPerRequest?: number | null | undefined;
  autoResendUnfulfilledCommands?: boolean | undefined;
}

/** What is used of a cluster of ioredis. */
export interface IoRedisClusterLike {
  readonly isCluster: true;
  readonly status: string;
  readonly options: { keyPrefix?: string | undefined };
  /** For each slot its nodes as `host:port`, the primary first. */
  readonly slots: readonly (readonly string[] | undefined)[];
  nodes(role?: 'all' | 'master' | 'slave'): IoRedisLike[];
  refreshSlotsCache(done?: (error?: Error | null) => void): void;
  connect(): Promise<unknown>;
  on(event: string, listener: (...args: never[]) => void): unknown;
  off(event: string, listener: (...args: never[]) => void): unknown;
}

/** What is used of a client, or a pool, of node-redis. */
export interface NodeRedisLike {
  readonly isOpen: boolean;
  readonly isReady?: boolean;
  /** Of a client, which a pool does not have. */
  readonly options?: { disableOfflineQueue?: boolean | undefined } | undefined;
  duplicate?(override?: { disableOfflineQueue?: boolean }): NodeRedisLike;
  connect?(): Promise<unknown>;
  destroy?(): void;
  sendCommand(args: readonly string[], options?: { abortSignal?: AbortSignal }): Promise<unknown>;
  on(event: string, listener: (...args: never[]) => void): unknown;
  off(event: string, listener: (...args: never[]) => void): unknown;
}

/** What is used of a cluster of node-redis. */
export interface NodeRedisClusterLike {
  readonly isOpen: boolean;
  readonly masters: unknown;
  sendCommand(
    firstKey: string | undefined,
    isReadonly: boolean,
    args: readonly string[],
    options?: { abortSignal?: AbortSignal },
  ): Promise<unknown>;
}

/** Whatever a limiter can be made with. */
export type Client =
  | Connection
  | IoRedisLike
  | IoRedisClusterLike
  | NodeRedisLike
  | NodeRedisClusterLike;

/** Finds out what a client is. */
export function connectionOf(client: Client): Connection {
  if (client !== null && typeof client === 'object') {
    if ('isCluster' in client && client.isCluster) return new IoRedisClusterConnection(client);
    if ('call' in client && 'duplicate' in client) return new IoRedisConnection(client);
    if ('sendCommand' in client && 'masters' in client) return nodeRedisCluster(client);
    if ('sendCommand' in client) return new NodeRedisConnection(client as NodeRedisLike);
    if ('send' in client && typeof client.send === 'function') return client;
  }
  throw new ArgumentError('client', 'a client of node-redis or ioredis, or a Connection');
}

function away(message: string): UnavailableError {
  return new UnavailableError('connection', message);
}

interface Emitter {
  on(event: string, listener: (...args: never[]) => void): unknown;
  off(event: string, listener: (...args: never[]) => void): unknown;
}

/** Waits for a client that is on its way for the first time, no longer than `signal` allows. */
function untilReady(client: Emitter, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (act: () => void) => () => {
      client.off('ready', onReady);
      for (const event of ['error', 'close', 'end']) client.off(event, onEnd);
      signal.removeEventListener('abort', onEnd);
      act();
    };
    const onReady = settle(resolve);
    const onEnd = settle(() => reject(away('the connection could not be opened')));
    client.on('ready', onReady);
    for (const event of ['error', 'close', 'end']) client.on(event, onEnd);
    signal.addEventListener('abort', onEnd, { once: true });
  });
}

/** Waits while a client of ioredis opens; whatever is not open then is away. */
async function opened(
  client: IoRedisLike | IoRedisClusterLike,
  signal: AbortSignal,
): Promise<void> {
  if (client.status === 'ready') return;
  if (client.status === 'wait') client.connect().catch(() => {});
  else if (client.status !== 'connecting' && client.status !== 'connect') {
    throw away(`the connection is not there: ${client.status}`);
  }
  await untilReady(client, signal);
}

/** Commands that ioredis knows get its `keyPrefix` from itself, the others from us. */
function prefixed({ args, keys }: Call, prefix: string, ownPrefix: string): readonly string[] {
  const known = !(args[0] as string).startsWith('RL.');
  const missing = known && ownPrefix !== '' ? '' : prefix;
  if (missing === '') return args;
  const rest = new Set(keys);
  return args.map((arg, at) => (isKeyAt(args, at) && rest.has(arg) ? missing + arg : arg));
}

function isKeyAt(args: readonly string[], at: number): boolean {
  return /ALL$/.test(args[0] as string) ? at % 2 === 1 : at === 1;
}

class IoRedisConnection implements Connection {
  readonly #client: IoRedisLike;
  readonly #own: boolean;
  #wasReady = false;

  /**
   * A client that would send a call again, as with the defaults of ioredis, is not used itself: a
   * second connection is opened with its options and without repetition.
   */
  constructor(client: IoRedisLike) {
    const { maxRetriesPerRequest, autoResendUnfulfilledCommands } = client.options;
    this.#own = maxRetriesPerRequest !== 0 && autoResendUnfulfilledCommands !== false;
    this.#client = this.#own
      ? client.duplicate({
          maxRetriesPerRequest: 0,
          autoResendUnfulfilledCommands: false,
          enableOfflineQueue: false,
          lazyConnect: false,
        })
      : client;
    // Without a listener the driver writes to the console; every call tells of it anyway.
    if (this.#own) this.#client.on('error', () => {});
  }

  async send(call: Call, signal: AbortSignal): Promise<unknown> {
    const client = this.#client;
    if (client.status !== 'ready') {
      if (this.#wasReady && client.status !== 'wait') throw away('the connection is not there');
      await opened(client, signal);
    }
    this.#wasReady = true;
    const prefix = client.options.keyPrefix ?? '';
    const [command, ...args] = prefixed(call, prefix, prefix);
    return client.call(command as string, ...args);
  }

  close(): void {
    if (this.#own) this.#client.disconnect();
  }
}

/**
 * Routes by itself: ioredis sends commands that it does not know to any node, and repeats what a
 * lost connection left without an answer. Its nodes, asked one by one, do neither.
 */
class IoRedisClusterConnection implements Connection {
  readonly #cluster: IoRedisClusterLike;

  constructor(cluster: IoRedisClusterLike) {
    this.#cluster = cluster;
  }

  async send(call: Call, signal: AbortSignal): Promise<unknown> {
    await opened(this.#cluster, signal);
    const prefix = this.#cluster.options.keyPrefix ?? '';
    const slot = slotOf(prefix + (call.keys[0] as string));
    try {
      return await this.#ask(this.#cluster.slots[slot]?.[0], call, signal);
    } catch (error) {
      const moved = /^(MOVED|ASK) \d+ (\S+)$/.exec(error instanceof Error ? error.message : '');
      if (moved === null || signal.aborted) throw error;
      // The server refused the call before it ran: to send it elsewhere counts nothing twice.
      if (moved[1] === 'MOVED') this.#refresh();
      return this.#ask(moved[2], call, signal, moved[1] === 'ASK');
    }
  }

  async #ask(
    address: string | undefined,
    call: Call,
    signal: AbortSignal,
    asking = false,
  ): Promise<unknown> {
    const named = ({ options }: IoRedisLike) => `${options.host}:${options.port}` === address;
    const node = this.#cluster.nodes('all').find(named);
    if (node === undefined) {
      this.#refresh();
      throw away('the node of this slot is not known');
    }
    try {
      await opened(node, signal);
    } catch (error) {
      this.#refresh();
      throw error;
    }
    const prefix = this.#cluster.options.keyPrefix ?? '';
    const [command, ...args] = prefixed(call, prefix, node.options.keyPrefix ?? '');
    if (asking) node.call('ASKING').catch(() => {});
    return node.call(command as string, ...args);
  }

  #refresh(): void {
    this.#cluster.refreshSlotsCache(() => {});
  }
}

/**
 * A client with an offline queue is not used itself: what it is about to send while it loses its
 * connection makes node-redis 5.12 take the replies of the next connection for those of the last,
 * and never become ready again. A second connection is opened with its options and without that
 * queue.
 */
class NodeRedisConnection implements Connection {
  readonly #client: NodeRedisLike;
  readonly #own: boolean;
  #wasReady = false;

  constructor(client: NodeRedisLike) {
    const { options, duplicate } = client;
    this.#own = options?.disableOfflineQueue !== true && duplicate !== undefined;
    this.#client = this.#own
      ? (client.duplicate?.({ disableOfflineQueue: true }) ?? client)
      : client;
    if (!this.#own) return;
    // Without a listener an error would end the process; every call tells of it anyway.
    this.#client.on('error', () => {});
    this.#client.connect?.().catch(() => {});
  }

  async send({ args }: Call, signal: AbortSignal): Promise<unknown> {
    const client = this.#client;
    const opens = this.#own && !this.#wasReady;
    if (!client.isOpen && !opens) throw away('the client is not connected');
    if (client.isReady === false) {
      if (this.#wasReady) throw away('the connection is not there');
      await untilReady(client, signal);
    }
    this.#wasReady = true;
    return client.sendCommand(args, { abortSignal: signal });
  }

  close(): void {
    if (this.#own) this.#client.destroy?.();
  }
}

/**
 * node-redis keeps asking a node that died, for only `MOVED` tells it of a failover. So after a
 * call that found nobody, the next one under that slot goes to any node: one that lives answers, or
 * says who has it.
 */
function nodeRedisCluster(cluster: NodeRedisClusterLike): Connection {
  const lost = new Set<number>();
  return {
    async send({ args, keys }, signal) {
      if (!cluster.isOpen) throw away('the cluster is not connected');
      const key = keys[0] as string;
      const slot = slotOf(key);
      const firstKey = lost.has(slot) ? undefined : key;
      try {
        const reply = await cluster.sendCommand(firstKey, false, args, { abortSignal: signal });
        lost.delete(slot);
        return reply;
      } catch (error) {
        if (error instanceof TypeError) {
          // The driver's own, while it has no table of the slots.
          lost.add(slot);
          throw new UnavailableError('connection', error.message, { cause: error });
        }
        const found = !signal.aborted && classified(error) instanceof MistakeError;
        if (found) lost.delete(slot);
        else lost.add(slot);
        throw error;
      }
    },
  };
}
