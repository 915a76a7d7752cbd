/** Tests each driver over TLS, with a proxy in front of a real server. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type AddressInfo, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer, type TLSSocket, type Server as TlsServer } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { gcra, Limiter } from '../../src/index.js';
import { type Load, opened } from '../../src/net/url.js';
import { BACKEND, type Server, serve, until } from './server.js';
import { versions } from './versions.js';

const api = gcra('api', 6, 10, '60s');
const require = createRequire(import.meta.url);

/** Creates a key and a self-signed certificate for 127.0.0.1. */
function certified(): { key: string; cert: string } {
  const folder = mkdtempSync(join(tmpdir(), 'redis-throttle-tls-'));
  const [key, cert] = [join(folder, 'key'), join(folder, 'cert')];
  const subject = ['-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1'];
  const request = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', ...subject];
  execFileSync('openssl', [...request, '-keyout', key, '-out', cert], { stdio: 'ignore' });
  const pair = { key: readFileSync(key, 'utf8'), cert: readFileSync(cert, 'utf8') };
  rmSync(folder, { recursive: true });
  return pair;
}

describe('through TLS', () => {
  const pair = certified();
  const sockets = new Set<TLSSocket>();
  let server: Server;
  let encrypted: TlsServer;
  let port: number;

  beforeAll(async () => {
    server = await serve();
    await server.clock.freeze();
    encrypted = createServer(pair, (near) => {
      sockets.add(near);
      const far = connect(server.port, '127.0.0.1');
      for (const end of [near, far]) {
        end.on('error', () => {}).on('close', () => [near, far].map((each) => each.destroy()));
      }
      near.pipe(far).pipe(near);
    });
    encrypted.listen(0, '127.0.0.1');
    await new Promise((done) => encrypted.once('listening', done));
    port = (encrypted.address() as AddressInfo).port;
  });
  afterAll(async () => {
    for (const socket of sockets) socket.destroy();
    encrypted.close();
    server.admin.disconnect();
    await server.stop();
  });

  it.each(Object.entries(versions))('%s decides, and reconnects', async (name, { single }) => {
    const isNodeRedis = name.startsWith('node-redis');
    const host = '127.0.0.1';
    const options = isNodeRedis
      ? { socket: { host, ca: pair.cert, tls: true } }
      : { host, tls: { ca: pair.cert } };
    const { client, close } = await single([port], options);
    const limiter = new Limiter(client, { timeoutMs: 60_000, breakerPauseMs: 1 });
    expect(await limiter.ready()).toBe(BACKEND);
    for (let call = 0; call < 7; call += 1) {
      const decision = await limiter.check(api, name);
      expect([decision.source, decision.allowed]).toEqual(['server', call < 6]);
    }
    for (const socket of sockets) socket.destroy();
    await until(
      'it decides again',
      async () => (await limiter.peek(api, name)).source === 'server',
    );
    expect((await limiter.peek(api, name)).allowed).toBe(false);
    await limiter.close();
    close();
  });

  it.each(['redis', 'ioredis'])('a limiter of a rediss:// URL decides with %s', async (driver) => {
    // Its certificates are those that the process trusts. A test cannot add one after its start.
    process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
    try {
      const load: Load = (name) => require(name === driver ? name : 'not-installed');
      const { client, close } = opened(`rediss://127.0.0.1:${port}`, false, load);
      const limiter = new Limiter(client, { timeoutMs: 60_000 });
      expect(await limiter.ready()).toBe(BACKEND);
      expect([...sockets].some((socket) => !socket.destroyed)).toBe(true);
      await limiter.close();
      close();
    } finally {
      delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
    }
  });
});
