/** The adapters for clients and clusters of node-redis, version 5 or newer. */
import { CommandRejectedError, classified } from '../errors.js';
import type { Call } from '../protocol.js';
import type { Connection, Waiting } from './connection.js';
import { away, endedBy, type Listener, Refusal, untilReady } from './opening.js';
import { slotOf } from './slots.js';

/** The part of a node-redis client or pool that the adapter uses. */
export interface NodeRedisLike {
  readonly isOpen: boolean;
  readonly isReady?: boolean;
  /** Present on a client, not on a pool. */
  readonly options?: { disableOfflineQueue?: boolean | undefined } | undefined;
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

/**
 * Wraps a client. A client with an offline queue is not used itself. If it loses its connection
 * while it sends, node-redis 5.12 takes the replies of the next connection for those of the lost
 * one, and never becomes ready again. The adapter then opens a second connection with the same
 * options but without that queue. That connection ends with the client.
 */
export class NodeRedisConnection implements Connection {
  readonly #theirs: NodeRedisLike;
  readonly #client: NodeRedisLike;
  readonly #own: boolean;
  readonly #isPool: boolean;
  readonly #refusal: Refusal;
  readonly #onEnd = () => this.#end();
  #wasReady = false;
  #closed = false;

  constructor(client: NodeRedisLike) {
    const { options, duplicate } = client;
    this.#theirs = client;
    this.#isPool = duplicate === undefined;
    this.#own = options?.disableOfflineQueue !== true && duplicate !== undefined;
    this.#client = client;
    if (this.#own && duplicate !== undefined) {
      this.#client = duplicate.call(client, { disableOfflineQueue: true });
      client.on('end', this.#onEnd);
    }
    this.#refusal = new Refusal(this.#client);
    if (this.#own) this.#open();
  }

  async send({ args }: Call, waiting: Waiting): Promise<unknown> {
    const client = this.#client;
    const back = this.#own && !client.isOpen && this.#theirs.isOpen && !this.#closed;
    if (back) this.#open();
    const opens = back || (this.#own && !this.#wasReady);
    if (!client.isOpen && !opens) {
      this.#refusal.throwIfAny();
      throw away('the client is not connected');
    }
    if (client.isReady === false) {
      this.#refusal.throwIfAny();
      if (this.#wasReady && !back) throw away('the connection is lost');
      await this.#refusal.during(untilReady(client, waiting.signal));
    }
    this.#wasReady = true;
    const options = optionsOf(waiting);
    // A connection of a pool has one call at a time, and may keep that call while it is
    // unavailable.
    return client.sendCommand(
      [...args],
      this.#isPool ? { ...options, abortSignal: waiting.signal } : options,
    );
  }

  #open(): void {
    this.#client.connect?.().catch(() => {});
  }

  #end(): void {
    if (this.#client.isOpen) this.#client.destroy();
  }

  close(): void {
    this.#closed = true;
    if (!this.#own) {
      this.#refusal.end();
      return;
    }
    this.#theirs.off('end', this.#onEnd);
    this.#end();
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
