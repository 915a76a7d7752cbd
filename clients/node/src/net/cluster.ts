/**
 * Routes calls to the nodes of a cluster, over connections of its own, one to each primary. The
 * application's cluster client only lends its configuration. The cluster clients of both drivers
 * would repeat a call, or keep calling a dead node.
 */
import type { Waiting } from '../rules/aborting.js';
import { CommandRejectedError, classified, UnavailableError } from '../rules/errors.js';
import type { Call } from '../wire/words.js';
import type { Connection } from './connection.js';
import {
  type Dialling,
  type Driver,
  type Emitter,
  Generations,
  patienceOf,
  unreachable,
  within,
} from './generations.js';
import { type Address, addressOf, nameOf, type SlotMap, slotMapOf, slotOf } from './slots.js';

/** The configuration of a cluster, taken from the application's client. */
export interface Seed<Client> {
  /** The nodes that the application's client knows. */
  readonly addresses: readonly Address[];
  /** Creates a client for one node, as `Driver.make` does. */
  make(address: Address): Client;
}

/** The calls to a driver, for a cluster. */
export interface ClusterDriver<Client extends Emitter> extends Omit<Driver<Client>, 'make'> {
  /** Returns the configuration. Waits until the application's client has one. */
  seed(): Promise<Seed<Client>>;
  send(client: Client, call: Call, waiting: Waiting): Promise<unknown>;
  /** Returns the address under which the application reaches a node. */
  translated(address: Address): Address;
  /** The text in front of each key that the driver adds. */
  readonly keyPrefix: string;
}

/** The number of open connections on which the slot map is requested at once. */
const READERS = 3;

export class ClusterConnection<Client extends Emitter> implements Connection {
  readonly #nodes = new Map<string, Generations<Client>>();
  #map: SlotMap | undefined;
  #seed: Seed<Client> | undefined;
  #reading: Promise<SlotMap> | undefined;
  /** The instant from which the slot map may be read again, in ms. */
  #readAgainAtMs = Number.NEGATIVE_INFINITY;
  #closed = false;

  constructor(
    private readonly driver: ClusterDriver<Client>,
    private readonly terms: Dialling,
  ) {}

  send(call: Call, waiting: Waiting): Promise<unknown> {
    const address = this.nodeOf(call);
    if (address === undefined) {
      this.#refresh();
      return Promise.reject(unreachable('no node is known for the slot of this key'));
    }
    const client = this.#nodes.get(address)?.ready;
    if (client === undefined) return Promise.reject(unreachable('the connection was lost'));
    const sent = this.driver.send(client, call, waiting);
    return sent.then(undefined, (error) => this.#failed(error, address, call, waiting));
  }

  /** Without a name, reads the slot map: no node is known before. */
  async connect(name: string | undefined, patienceMs?: number | undefined): Promise<void> {
    if (name === undefined) {
      await this.#read();
      return;
    }
    try {
      await this.#node(name).open(patienceMs);
    } catch (error) {
      if (!(error instanceof CommandRejectedError)) this.#refresh();
      throw error;
    }
  }

  /** Follows a redirection once. After other errors of a node, reads the slot map again. */
  async #failed(error: unknown, from: string, call: Call, waiting: Waiting): Promise<unknown> {
    const moved = /^(MOVED|ASK) \d+ (\S+)$/.exec(error instanceof Error ? error.message : '');
    const known = classified(error);
    const isLost = known instanceof UnavailableError && known.reason === 'connection';
    const isStale = /^-?(CLUSTERDOWN|READONLY|MASTERDOWN)\b/.test(known.message);
    if (moved?.[1] === 'MOVED' || isLost || isStale) this.#refresh();
    if (moved === null || waiting.ended) throw error;
    // The server refused the call before it ran, so the call counts once when it is sent elsewhere.
    const to = nameOf(this.driver.translated(addressOf(moved[2] as string, from)));
    const client = await this.#node(to).openFor(waiting, to);
    if (moved[1] === 'ASK') {
      const asking = { args: ['ASKING'], keys: [], readOnly: true };
      this.driver.send(client, asking, waiting).catch(() => {});
    }
    return this.driver.send(client, call, waiting).catch((cause: Error) => {
      if (!/^(MOVED|ASK) /.test(cause.message)) throw cause;
      throw new UnavailableError('server', `redirected twice: ${cause.message}`, { cause });
    });
  }

  #node(address: string): Generations<Client> {
    const known = this.#nodes.get(address);
    if (known !== undefined) return known;
    const make = () => (this.#seed as Seed<Client>).make(addressOf(address, ''));
    const node = new Generations<Client>({ ...this.driver, make }, this.terms);
    this.#nodes.set(address, node);
    return node;
  }

  nodeOf({ keys }: Pick<Call, 'keys'>): string | undefined {
    return this.#map?.[slotOf(this.driver.keyPrefix + (keys[0] as string))];
  }

  async primaries(): Promise<Connection[]> {
    const map = this.#map ?? (await this.#read());
    const addresses = new Set(map.filter((address) => address !== undefined));
    return [...addresses].map((address) => ({
      send: async (call: Call, waiting: Waiting) => {
        const client = await this.#node(address).openFor(waiting, address);
        return this.driver.send(client, call, waiting);
      },
    }));
  }

  retire(node = ''): boolean {
    if (this.#nodes.get(node)?.retire() !== true) return false;
    this.#refresh();
    return true;
  }

  isUp(node: string | undefined): boolean {
    if (node === undefined) return this.#map !== undefined;
    return this.#nodes.get(node)?.ready !== undefined;
  }

  /** Closes the connections until the next call. */
  end(): void {
    for (const node of this.#nodes.values()) node.end();
  }

  close(): void {
    this.#closed = true;
    for (const node of this.#nodes.values()) node.close();
  }

  /** Reads the slot map again, at most once in `silenceMs`. */
  #refresh(): void {
    if (this.terms.run.clock.nowMs() >= this.#readAgainAtMs) this.#read().catch(() => {});
  }

  /** Reads the slot map. All callers that wait share one reading. */
  #read(): Promise<SlotMap> {
    if (this.#closed) return Promise.reject(unreachable('the limiter is closed'));
    this.#reading ??= this.#readFromAny()
      .then((map) => this.#installed(map))
      .finally(() => {
        this.#reading = undefined;
        this.#readAgainAtMs = this.terms.run.clock.nowMs() + this.terms.silenceMs;
      });
    return this.#reading;
  }

  async #readFromAny(): Promise<SlotMap> {
    const open = [...this.#nodes].filter(([, node]) => node.ready !== undefined);
    const readers = open.map(([address]) => address).slice(0, READERS);
    try {
      return await this.#firstOf(readers, this.terms.silenceMs);
    } catch {
      const seed = await this.#seeded();
      const all = new Set([...seed.addresses.map(nameOf), ...this.#nodes.keys()]);
      return this.#firstOf([...all], patienceOf(this.terms));
    }
  }

  /** Returns the newest configuration. The application's client may have lost all its nodes. */
  async #seeded(): Promise<Seed<Client>> {
    const patienceMs = patienceOf(this.terms);
    const text = `no configuration in ${patienceMs} ms`;
    try {
      this.#seed = await within(this.terms.run, patienceMs, this.driver.seed(), text);
    } catch (error) {
      if (this.#seed === undefined) throw error;
    }
    return this.#seed;
  }

  /** Returns the first slot map that a node returns. */
  async #firstOf(addresses: readonly string[], patienceMs: number): Promise<SlotMap> {
    try {
      const any = Promise.any(addresses.map((one) => this.#readFrom(one)));
      return await within(this.terms.run, patienceMs, any, `no slot map in ${patienceMs} ms`);
    } catch (error) {
      const errors = error instanceof AggregateError ? error.errors : [error];
      const refusal = errors.find((one) => one instanceof CommandRejectedError);
      throw refusal ?? errors[0] ?? unreachable('no node of the cluster is known');
    }
  }

  async #readFrom(address: string): Promise<SlotMap> {
    const client = await this.#node(address).open();
    const call = { args: ['CLUSTER', 'SLOTS'], keys: [], readOnly: true };
    const waiting = { ended: false, signal: new AbortController().signal };
    const reply = await this.driver.send(client, call, waiting).catch((error) => {
      throw classified(error);
    });
    // A node that was reset knows no slots, and would leave no node to query.
    if ((reply as unknown[]).length === 0) throw unreachable(`${address} knows no slots`);
    return slotMapOf(reply, address, (one) => this.driver.translated(one));
  }

  /** Stores the map, and closes the connections to nodes that are no longer a primary. */
  #installed(map: SlotMap): SlotMap {
    this.#map = map;
    const primaries = new Set(map);
    for (const [address, node] of this.#nodes) {
      if (primaries.has(address)) continue;
      node.close();
      this.#nodes.delete(address);
    }
    return map;
  }
}
