/** The adapters for clients and clusters of node-redis, version 5 or newer. */
import { CommandRejectedError, classified } from '../errors.js';
import type { Call } from '../protocol.js';
import type { Connection, Waiting } from './connection.js';
import { type Dialling, type Driver, Generations } from './generations.js';
import { away, endedBy, type Listener, Refusal, unlessAborted } from './opening.js';
import { slotOf } from './slots.js';

/** The part of a node-redis client or pool that the adapter uses. */
export interface NodeRedisLike {
  readonly isOpen: boolean;
  readonly isReady?: boolean;
  /** Present on a client, not on a pool. */
  readonly options?: { readonly socket?: object | undefined } | undefined;
  duplicate?(override?: object): NodeRedisLike;
  connect?(): Promise<unknown>;
  destroy(): void;
  sendCommand(args: string[], options?: object): Promise<unknown>;
  on(event: string, listener: Listener): unknown;
  off(event: string, listener: Listener): unknown;
}

/** The part of a node-redis cluster that the adapter uses. */
export interface NodeRedisClusterLike {
  readonly isOpen: boolean;
  readonly masters: readonly unknown[];
  /** The primary of each slot. */
  readonly slots: readonly ({ readonly master: { readonly address: string } } | undefined)[];
  readonly _options?:
    | { readonly defaults?: { disableOfflineQueue?: boolean | undefined } | undefined }
    | undefined;
  duplicate?(overrides?: object): NodeRedisClusterLike;
  connect?(): Promise<unknown>;
  destroy(): void;
  on(event: string, listener: Listener): unknown;
  off(event: string, listener: Listener): unknown;
  nodeClient(master: never): NodeRedisLike | Promise<NodeRedisLike>;
  sendCommand(
    firstKey: string | undefined,
    isReadonly: boolean,
    args: string[],
    options?: object,
  ): Promise<unknown>;
}

/**
 * Tells the driver, when it is about to queue a call, whether the caller still waits. Never removes
 * a call from the queue: after two such removals in a row node-redis 5.12 writes nothing more,
 * although it reports that it is ready.
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

/** Returns the options of a second client that neither queues calls nor connects by itself. */
function withoutRepeats(options: NodeRedisLike['options'], connectTimeout: number): object {
  const socket = { ...options?.socket, reconnectStrategy: false, connectTimeout };
  return { disableOfflineQueue: true, socket };
}

/**
 * Opens connections of its own, with the options of the application's client, so that it can drop
 * one that is silent without touching the application's calls. They end with that client.
 */
export class NodeRedisConnection implements Connection {
  readonly #theirs: NodeRedisLike;
  readonly #generations: Generations<NodeRedisLike>;
  readonly #onEnd = () => this.#generations.end();

  constructor(client: NodeRedisLike, terms: Dialling) {
    this.#theirs = client;
    const connectTimeoutMs = Math.max(1000, terms.timeoutMs);
    const driver: Driver<NodeRedisLike> = {
      make: () =>
        client.duplicate?.(withoutRepeats(client.options, connectTimeoutMs)) as NodeRedisLike,
      connect: async (own) => own.connect?.(),
      isReady: (own) => own.isReady === true,
      drop: dropped,
    };
    this.#generations = new Generations(driver, terms);
    client.on('end', this.#onEnd);
  }

  send({ args }: Call, waiting: Waiting): Promise<unknown> {
    const client = this.#generations.ready;
    if (client !== undefined) return client.sendCommand([...args], optionsOf(waiting));
    return this.#opened(waiting).then((own) => own.sendCommand([...args], optionsOf(waiting)));
  }

  async #opened(waiting: Waiting): Promise<NodeRedisLike> {
    return unlessAborted(this.#generations.open(), waiting.signal);
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

/** Closes a client, which throws if it is not open. */
function dropped(client: NodeRedisLike): void {
  if (client.isOpen) client.destroy();
}

/**
 * Wraps a pool, which cannot be duplicated. A connection of a pool has one call at a time, and may
 * keep that call while it is unavailable.
 */
export class NodeRedisPoolConnection implements Connection {
  constructor(private readonly pool: NodeRedisLike) {}

  async send({ args }: Call, waiting: Waiting): Promise<unknown> {
    if (!this.pool.isOpen) throw away('the client is not connected');
    const options = { ...optionsOf(waiting), abortSignal: waiting.signal };
    return this.pool.sendCommand([...args], options);
  }
}

/**
 * Wraps a cluster. If its nodes have an offline queue, the adapter opens a second cluster with the
 * same options but without that queue, as it does for a client.
 *
 * node-redis keeps calling a dead node, because only `MOVED` tells it of a failover. So after a
 * call that reached no node, the next call on that slot goes to any node. A live node answers or
 * redirects.
 */
export class NodeRedisClusterConnection implements Connection {
  readonly #theirs: NodeRedisClusterLike;
  readonly #cluster: NodeRedisClusterLike;
  readonly #own: boolean;
  readonly #refusal: Refusal;
  readonly #lost = new Set<number>();
  readonly #onEnd = () => this.#end();
  #opening: Promise<unknown> | undefined;
  #closed = false;

  constructor(cluster: NodeRedisClusterLike) {
    const { duplicate, _options: options } = cluster;
    const { defaults } = options ?? {};
    this.#theirs = cluster;
    this.#own = defaults?.disableOfflineQueue !== true && duplicate !== undefined;
    this.#cluster = cluster;
    if (this.#own && duplicate !== undefined) {
      const overrides = { defaults: { ...defaults, disableOfflineQueue: true } };
      this.#cluster = duplicate.call(cluster, overrides);
      cluster.on('disconnect', this.#onEnd);
    }
    this.#refusal = new Refusal(this.#cluster);
    if (this.#own) this.#open();
  }

  async send({ args, keys }: Call, waiting: Waiting): Promise<unknown> {
    const cluster = this.#cluster;
    if (this.#own && !cluster.isOpen && this.#theirs.isOpen && !this.#closed) this.#open();
    if (this.#opening !== undefined) await endedBy(this.#opening, waiting.signal);
    if (!cluster.isOpen) {
      this.#refusal.throwIfAny();
      throw away('the cluster is not connected');
    }
    const key = keys[0] as string;
    const slot = slotOf(key);
    const lost = this.#lost;
    const ask = (firstKey: string | undefined) =>
      cluster.sendCommand(firstKey, false, [...args], optionsOf(waiting));
    try {
      const reply = await ask(lost.has(slot) ? undefined : key).catch((error) => {
        // The driver throws this error before it sends: the slot is not in its table.
        if (error instanceof TypeError && !lost.has(slot)) return ask(undefined);
        throw error;
      });
      lost.delete(slot);
      return reply;
    } catch (error) {
      const unknown = error instanceof TypeError;
      const found = !unknown && !waiting.ended && classified(error) instanceof CommandRejectedError;
      if (found) lost.delete(slot);
      else lost.add(slot);
      throw unknown ? away(`no node is known for the slot of this key: ${error.message}`) : error;
    }
  }

  nodeOf({ keys }: Pick<Call, 'keys'>): string | undefined {
    return this.#cluster.slots[slotOf(keys[0] as string)]?.master.address;
  }

  primaries(): Connection[] {
    const cluster = this.#cluster;
    return cluster.masters.map((master) => ({
      send: async ({ args }: Call, waiting: Waiting) =>
        (await cluster.nodeClient(master as never)).sendCommand([...args], optionsOf(waiting)),
    }));
  }

  #open(): void {
    const opening = this.#cluster.connect?.().then(
      () => {},
      () => {},
    );
    this.#opening = opening?.finally(() => {
      this.#opening = undefined;
    });
  }

  #end(): void {
    if (this.#cluster.isOpen) this.#cluster.destroy();
  }

  close(): void {
    this.#closed = true;
    if (!this.#own) {
      this.#refusal.end();
      return;
    }
    this.#theirs.off('disconnect', this.#onEnd);
    this.#end();
  }
}
