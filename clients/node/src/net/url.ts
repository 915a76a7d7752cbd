/** Makes a driver's client from a URL, for programs that have no client of their own. */
import { createRequire } from 'node:module';
import { InvalidArgumentError } from '../rules/errors.js';
import type { Client } from './drivers.js';
import type { IoRedisClusterLike, IoRedisLike } from './ioredis.js';
import type { NodeRedisClusterLike, NodeRedisLike } from './node-redis.js';

/** A client of this package, which the limiter closes. */
export interface Opened {
  readonly client: Client;
  close(): void;
}

/** The package of node-redis. Version 4, which cannot be used, has no pools. */
interface NodeRedis {
  createClient(options: object): NodeRedisLike;
  createCluster(options: object): NodeRedisClusterLike;
  readonly createClientPool?: unknown;
}

/** The package of ioredis. */
interface IoRedis {
  readonly default: new (options: object) => IoRedisLike;
  readonly Cluster: new (
    nodes: readonly object[],
    options: object,
  ) => IoRedisClusterLike & { disconnect(): void };
}

/** Returns the package of a driver. Throws if it is not installed. */
export type Load = (name: string) => unknown;

const installed: Load = (name) => createRequire(import.meta.url)(name);

/**
 * Makes a client of the installed driver, node-redis or else ioredis. It does not connect: the
 * limiter's own connections are its duplicates.
 *
 * @throws InvalidArgumentError for another URL, without the URL, which may have a password; and if
 * no driver is installed.
 */
export function opened(url: string, isCluster: boolean, load: Load = installed): Opened {
  const server = parsed(url);
  if (isCluster && ('path' in server.at || server.database !== 0)) {
    throw new InvalidArgumentError('url', 'a host, and no database but 0, for a cluster');
  }
  const redis = found(load, 'redis') as NodeRedis | undefined;
  if (redis?.createClientPool !== undefined) return nodeRedis(redis, server, isCluster);
  const ioredis = found(load, 'ioredis') as IoRedis | undefined;
  if (ioredis !== undefined) return ioRedis(ioredis, server, isCluster);
  throw new InvalidArgumentError('client', 'the package redis 5.9 or 6, or ioredis 5 or 6');
}

function found(load: Load, name: string): unknown {
  try {
    return load(name);
  } catch (error) {
    if ((error as { code?: unknown }).code === 'MODULE_NOT_FOUND') return undefined;
    throw error;
  }
}

/** The parts of a URL that name a server. */
interface Server {
  readonly at: { readonly host: string; readonly port: number } | { readonly path: string };
  readonly tls: boolean;
  readonly login: { readonly username?: string; readonly password?: string };
  readonly database: number;
}

function nodeRedis(redis: NodeRedis, server: Server, isCluster: boolean): Opened {
  const { at, tls, login, database } = server;
  const secured = tls ? { tls } : {};
  const socket = { ...at, ...secured };
  const client = isCluster
    ? redis.createCluster({ rootNodes: [{ socket }], defaults: { ...login, socket: secured } })
    : redis.createClient({ ...login, socket, database });
  // Without a listener an error ends the process. The limiter reports those of its connections.
  client.on('error', () => {});
  const close = () => {
    if (client.isOpen) client.destroy();
  };
  return { client, close };
}

function ioRedis(ioredis: IoRedis, server: Server, isCluster: boolean): Opened {
  const { at, tls, login, database: db } = server;
  const options = { ...login, ...(tls ? { tls: {} } : {}) };
  // A certificate has the name of its node, not the address.
  const dnsLookup = (name: string, done: (error: null, name: string) => void) => done(null, name);
  const named = tls ? { dnsLookup } : {};
  const client = isCluster
    ? new ioredis.Cluster([at], { lazyConnect: true, redisOptions: options, ...named })
    : new ioredis.default({ ...at, ...options, db, lazyConnect: true });
  client.on('error', () => {});
  return { client, close: () => client.disconnect() };
}

const FORMS = 'redis://[user:password@][host][:port][/database], rediss:// or redis+unix:///path';

const TCP = ['redis:', 'valkey:'];
const TLS = ['rediss:', 'valkeys:'];
const UNIX = ['unix:', 'redis+unix:', 'valkey+unix:'];

/** The options that the URL of a Unix socket may have, as those of the module's programs. */
const OF_UNIX = ['user', 'pass', 'db'];
const OF_TCP = ['db'];

/** Matches a URL without a host, which `URL` cannot read: `redis://:7911`. */
const WITHOUT_HOST = /^((?:redis|valkey)s?:\/\/)([^/?#]*@)?(:\d*)?(?=[/?#]|$)/i;

function parsed(text: string): Server {
  const full = String(text).replace(WITHOUT_HOST, '$1$2localhost$3');
  const url = URL.canParse(full) ? new URL(full) : undefined;
  if (url === undefined || url.hash !== '' || url.port === '0') throw refused();
  const isUnix = UNIX.includes(url.protocol);
  const isTls = TLS.includes(url.protocol);
  if (!isUnix && !isTls && !TCP.includes(url.protocol)) throw refused();
  if (isUnix === (url.hostname !== '')) throw refused();
  const options = isUnix ? OF_UNIX : OF_TCP;
  for (const name of url.searchParams.keys()) {
    if (options.includes(name)) continue;
    throw new InvalidArgumentError(name, `one of the options ${options.join(', ')} in the URL`);
  }
  const path = decoded(url.pathname);
  const [username, password, db] = OF_UNIX.map((name) => url.searchParams.get(name) ?? '');
  if (isUnix) {
    if (!/^\/./.test(path)) throw refused();
    const login = loginOf(username, password);
    return { at: { path }, tls: false, login, database: databaseOf(db) };
  }
  const host = decoded(url.hostname).replace(/^\[(.*)\]$/, '$1');
  return {
    at: { host, port: url.port === '' ? 6379 : Number(url.port) },
    tls: isTls,
    login: loginOf(decoded(url.username), decoded(url.password)),
    // As in the drivers of Python, the option precedes the path.
    database: databaseOf(db || path.slice(1)),
  };
}

function loginOf(username = '', password = ''): Server['login'] {
  return { ...(username && { username }), ...(password && { password }) };
}

function databaseOf(text = ''): number {
  if (!/^\d{0,9}$/.test(text)) throw refused();
  return Number(text);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw refused();
  }
}

/** Returns the error of a URL that cannot be read. It does not contain the URL. */
function refused(): InvalidArgumentError {
  return new InvalidArgumentError('url', FORMS);
}
