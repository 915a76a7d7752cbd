/** Scripted connections for the timelines: sockets of a driver whose server follows a script. */
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { Redis } from 'ioredis';
import Redis5 from 'ioredis-5';
import { createClient } from 'redis';
import { createClient as createClient5 } from 'redis-5';
import type { Client, Clock } from '../src/index.js';
import { slotOf } from '../src/net/slots.js';

const listened = (client: { on(event: 'error', listener: () => void): unknown }) =>
  client.on('error', () => {}) as Client;

/** Creates a client of each driver, which dials with `net.createConnection`. */
export const drivers = {
  'node-redis 6': () => listened(createClient({ RESP: 2 })),
  'node-redis 5': () => listened(createClient5({ RESP: 2 })),
  'ioredis 6': () => listened(new Redis({ lazyConnect: true })),
  'ioredis 5': () => listened(new (Redis5 as unknown as typeof Redis)({ lazyConnect: true })),
};

/** The node of a cluster that its clients know at first. */
const SEED = { host: 'a', port: 1 };
const silent = { on() {}, off() {}, destroy() {}, connect: async () => {} };

/** Creates a client of a cluster for each driver. It only lends its configuration. */
const ofNodeRedis = (client: unknown) =>
  ({
    ...silent,
    isOpen: true,
    sendCommand() {},
    masters: [{ ...SEED, client }],
  }) as unknown as Client;
const ofIoRedis = (client: unknown) =>
  ({
    ...silent,
    isCluster: true,
    status: 'ready',
    options: {},
    nodes: () => [client],
  }) as unknown as Client;

export const clusters: Record<keyof typeof drivers, () => Client> = {
  'node-redis 6': () => ofNodeRedis(createClient({ RESP: 2, socket: SEED })),
  'node-redis 5': () => ofNodeRedis(createClient5({ RESP: 2, socket: SEED })),
  'ioredis 6': () => ofIoRedis(new Redis({ ...SEED, lazyConnect: true })),
  'ioredis 5': () =>
    ofIoRedis(new (Redis5 as unknown as typeof Redis)({ ...SEED, lazyConnect: true })),
};

/** A reply in the words of cases.json. */
type Reply = number | string | { error: string } | Reply[];
export type ScriptItem = Reply | { delay_ms: number; reply: Reply } | { dial_ms: number };

/** The commands with which a driver opens a connection. */
const HANDSHAKE = new Set(['AUTH', 'CLIENT', 'HELLO', 'INFO', 'PING', 'SELECT']);
/** The turns of the event loop after which nothing more happens at an instant. */
const TURNS = 25;

/** Runs all pending work that does not wait for a timer of the clock. */
async function settled(): Promise<void> {
  for (let turn = 0; turn < TURNS; turn += 1) await new Promise((done) => setImmediate(done));
}

/** Returns a reply as RESP2. */
function encoded(reply: Reply): string {
  if (Array.isArray(reply)) return `*${reply.length}\r\n${reply.map(encoded).join('')}`;
  if (typeof reply === 'number') return `:${reply}\r\n`;
  if (typeof reply === 'object') return `-${reply.error}\r\n`;
  return `$${Buffer.byteLength(reply)}\r\n${reply}\r\n`;
}

/** A clock that stands still. Between two timers it lets the drivers read and write. */
export class FrozenClock implements Clock {
  #nowMs = 0;
  #timers: { atMs: number; call: () => void; isNetwork: boolean }[] = [];

  nowMs(): number {
    return this.#nowMs;
  }

  /** @param isNetwork Whether `call` happens outside of the process. */
  after(ms: number, call: () => void, isNetwork = false): () => void {
    const timer = { atMs: this.#nowMs + ms, call, isNetwork };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  }

  /** Runs the next timer if it is due at `untilMs` or earlier. Returns false if none is. */
  async #next(untilMs: number): Promise<boolean> {
    await settled();
    const due = this.#timers.filter(({ atMs }) => atMs <= untilMs);
    const [next] = due.sort((a, b) => a.atMs - b.atMs);
    if (next === undefined) return false;
    this.#timers = this.#timers.filter((timer) => timer !== next);
    this.#nowMs = Math.max(this.#nowMs, next.atMs);
    next.call();
    return true;
  }

  async runUntil(instantMs: number): Promise<void> {
    while (await this.#next(instantMs)) {}
    this.#nowMs = Math.max(this.#nowMs, instantMs);
    await settled();
  }

  /** Stops the process for a time. What arrives meanwhile is read before its timers run. */
  async pause(ms: number): Promise<void> {
    this.#nowMs += ms;
    const arrived = this.#timers.filter(({ atMs, isNetwork }) => isNetwork && atMs <= this.#nowMs);
    this.#timers = this.#timers.filter((timer) => !arrived.includes(timer));
    for (const { call } of arrived.sort((a, b) => a.atMs - b.atMs)) call();
    await settled();
  }

  /** Runs timers until `work` has ended, up to `longestMs`. */
  async runDuring(work: Promise<unknown>, longestMs: number): Promise<void> {
    let ended = false;
    const end = () => {
      ended = true;
    };
    work.then(end, end);
    await settled();
    while (!ended) {
      if (!(await this.#next(longestMs))) throw new Error('a call does not end');
      await settled();
    }
  }
}

/** A server that replies to each command with the next item of its script. */
export class Script {
  /** The commands that arrived. */
  readonly sent: string[] = [];
  /** The commands for which the script had no reply. */
  readonly unexpected: string[] = [];
  dials = 0;
  /** The number of pieces in which commands arrived. */
  pieces = 0;
  /** The number of the connection on which the last command arrived. */
  generation = 0;
  isOver = false;
  /** Of a cluster: the name of the node of each key. */
  nodes: ReadonlyMap<string, string> | undefined;
  #opened = 0;
  readonly #items: ScriptItem[] = [];
  readonly #byKey = new Map<string, ScriptItem[]>();
  readonly #open = new Set<ScriptedSocket>();

  constructor(private readonly clock: FrozenClock) {}

  /** Adds items, for the commands with this key if it is given. */
  add(items: readonly ScriptItem[], key?: string): void {
    if (key === undefined) this.#items.push(...items);
    else this.#byKey.set(key, [...(this.#byKey.get(key) ?? []), ...items]);
  }

  /** Returns the items that no command has used. */
  left(): ScriptItem[] {
    return [...this.#items, ...[...this.#byKey.values()].flat()];
  }

  /** Opens a connection, or refuses it, in place of `net.createConnection`. */
  dial({ host, port }: { host?: string; port?: number } = {}): Socket {
    this.dials += 1;
    const isRefused = this.isOver || this.#items[0] === 'refuse';
    if (isRefused && !this.isOver) this.#items.shift();
    if (!isRefused) this.#opened += 1;
    const [item] = this.#items;
    const isSlow = typeof item === 'object' && 'dial_ms' in item;
    if (isSlow) this.#items.shift();
    const dialMs = isSlow ? item.dial_ms : 0;
    const node = this.nodes === undefined ? '' : `${host}:${port} `;
    const socket = new ScriptedSocket(this.#opened, node, (words, isFirst) =>
      this.#arrived(socket, words, isFirst),
    );
    if (dialMs === 0) process.nextTick(() => socket.connect());
    else this.clock.after(dialMs, () => socket.connect(), true);
    if (isRefused) socket.refuse();
    else {
      this.#open.add(socket);
      socket.once('close', () => this.#open.delete(socket));
    }
    return socket as unknown as Socket;
  }

  /** Closes all connections from the server's side. */
  disconnect(): void {
    for (const socket of this.#open) socket.destroy();
  }

  #arrived(socket: ScriptedSocket, words: readonly string[], isFirst: boolean): void {
    if (isFirst) this.pieces += 1;
    const reply = socket.turn();
    const opens = HANDSHAKE.has((words[0] as string).toUpperCase());
    const item = opens ? 'OK' : words[0] === 'CLUSTER' ? this.#slots() : this.#item(socket, words);
    if (item === 'silent') return;
    if (item === 'lost' || item === 'close') socket.destroy();
    else if (typeof item === 'object' && 'delay_ms' in item) {
      this.clock.after(item.delay_ms, () => reply(item.reply), true);
    } else if (typeof item !== 'object' || !('dial_ms' in item)) reply(item);
  }

  #slots(): Reply {
    return [...(this.nodes ?? [])].map(([key, node]) => {
      const [host = '', port] = node.split(':');
      return [slotOf(key), slotOf(key), [host, Number(port), 'id']];
    });
  }

  /** Records a command and returns its item. */
  #item(socket: ScriptedSocket, words: readonly string[]): ScriptItem {
    if (this.isOver) return { error: 'ERR the timeline is over' };
    this.generation = socket.number;
    this.sent.push(socket.node + words.join(' '));
    for (const word of words.slice(1)) {
      const item = this.#byKey.get(word)?.shift();
      if (item !== undefined) return item;
    }
    const item = this.#items.shift();
    if (item === undefined) this.unexpected.push(words.join(' ').slice(0, 80));
    return item ?? 'silent';
  }
}

/** The client's end of a scripted connection, as far as the drivers use it. */
class ScriptedSocket extends Duplex {
  connecting = true;
  readonly remoteAddress = '127.0.0.1';
  readonly remotePort = 6379;
  #received = '';
  /** The commands without a reply, in order. */
  readonly #turns: { text?: string }[] = [];

  constructor(
    readonly number: number,
    /** Of a cluster: the name of the node, and a space. */
    readonly node: string,
    private readonly onCommand: (words: readonly string[], isFirst: boolean) => void,
  ) {
    super();
  }

  connect(): void {
    this.connecting = false;
    if (!this.destroyed) this.emit('connect');
  }

  refuse(): void {
    this.destroy(Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' }));
  }

  /** Returns the function that replies to the next command. Replies leave in the order of turns. */
  turn(): (reply: Reply) => void {
    const turn: { text?: string } = {};
    this.#turns.push(turn);
    return (reply) => {
      turn.text = encoded(reply);
      while (this.#turns[0]?.text !== undefined) {
        const { text } = this.#turns.shift() as { text: string };
        if (!this.destroyed) this.push(text);
      }
    };
  }

  override _read(): void {}

  override _write(chunk: Buffer, _: string, done: () => void): void {
    this.#received += chunk.toString('latin1');
    let isFirst = true;
    for (let words = this.#command(); words !== undefined; words = this.#command()) {
      this.onCommand(words, isFirst);
      isFirst = false;
    }
    done();
  }

  /** Removes a complete command from what was received, and returns its words. */
  #command(): string[] | undefined {
    const first = this.#received.indexOf('\r\n');
    if (first < 0) return undefined;
    let at = first + 2;
    const words: string[] = [];
    for (let left = Number(this.#received.slice(1, first)); left > 0; left -= 1) {
      const end = this.#received.indexOf('\r\n', at);
      if (end < 0) return undefined;
      const begin = end + 2;
      at = begin + Number(this.#received.slice(at + 1, end)) + 2;
      if (this.#received.length < at) return undefined;
      words.push(Buffer.from(this.#received.slice(begin, at - 2), 'latin1').toString());
    }
    this.#received = this.#received.slice(at);
    return words;
  }

  setNoDelay(): this {
    return this;
  }
  setKeepAlive(): this {
    return this;
  }
  setTimeout(): this {
    return this;
  }
  ref(): this {
    return this;
  }
  unref(): this {
    return this;
  }
}
