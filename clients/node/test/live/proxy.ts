/** A proxy in front of a server: it can fall silent without closing a connection, and move. */
import { createConnection, createServer, type Socket } from 'node:net';

export interface SilentProxy {
  readonly port: number;
  /** The number of connections accepted so far. */
  readonly accepted: number;
  /**
   * Stops passing bytes on the connections that are open now.
   *
   * @param also Whether new connections are silent as well, until `heal`. Otherwise they work.
   */
  silence(also?: 'new connections'): void;
  /** Makes new connections work. Those that were silent stay so. */
  heal(): void;
  /** Leads new connections to another port. The open ones stay where they are. */
  leadTo(port: number): void;
  stop(): Promise<void>;
}

export async function proxy(port: number): Promise<SilentProxy> {
  let target = port;
  let accepted = 0;
  let isSilent = false;
  const silent = new Set<[Socket, Socket]>();
  const open = new Set<[Socket, Socket]>();
  const server = createServer((from) => {
    accepted += 1;
    const to = createConnection(target, '127.0.0.1');
    const pair: [Socket, Socket] = [from, to];
    (isSilent ? silent : open).add(pair);
    for (const socket of pair) {
      socket.on('error', () => {});
      socket.on('close', () => {
        if (!open.delete(pair)) return;
        from.destroy();
        to.destroy();
      });
    }
    if (isSilent) {
      from.resume();
      return;
    }
    from.pipe(to);
    to.pipe(from);
  });
  server.listen(0, '127.0.0.1');
  await new Promise((done) => server.once('listening', done));
  return {
    port: (server.address() as { port: number }).port,
    get accepted() {
      return accepted;
    },
    silence(also) {
      isSilent = also !== undefined;
      for (const pair of open) {
        open.delete(pair);
        silent.add(pair);
        const [from, to] = pair;
        from.unpipe(to);
        to.unpipe(from);
        from.resume();
        to.resume();
      }
    },
    heal() {
      isSilent = false;
    },
    leadTo(port) {
      target = port;
    },
    async stop() {
      for (const pair of [...open, ...silent]) for (const socket of pair) socket.destroy();
      await new Promise((done) => server.close(done));
    },
  };
}
