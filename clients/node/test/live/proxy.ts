/** A proxy in front of a server: it can fall silent without closing a connection, and move. */
import { createConnection, createServer, type Socket } from 'node:net';
import { Transform } from 'node:stream';

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
  /** Loses the next reply on each connection that is open now, and closes the connection. */
  loseReplies(): void;
  /** Makes new connections work. Those that were silent stay so. */
  heal(): void;
  /** Delays all bytes of new connections, as if the server were this many ms away and back. */
  moveAway(roundTripMs: number): void;
  /** Leads new connections to another port. The open ones stay where they are. */
  leadTo(port: number): void;
  stop(): Promise<void>;
}

/** @param onSent Called with what clients send. */
export async function proxy(
  port: number,
  onSent: (text: string) => void = () => {},
): Promise<SilentProxy> {
  let target = port;
  let accepted = 0;
  let isSilent = false;
  let roundTripMs = 0;
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
    from.on('data', (part) => onSent(part.toString('latin1'))).pipe(to);
    if (roundTripMs === 0) to.pipe(from);
    else to.pipe(delaying(roundTripMs)).pipe(from);
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
    loseReplies() {
      for (const [from, to] of open) {
        to.unpipe(from);
        to.once('data', () => from.destroy()).resume();
      }
    },
    moveAway(ms) {
      roundTripMs = ms;
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

/** Passes bytes on after a delay, which is twice as long for the first: they follow a TCP dial. */
function delaying(roundTripMs: number): Transform {
  let readyMs = performance.now() + 2 * roundTripMs;
  return new Transform({
    transform(chunk, _, done) {
      readyMs = Math.max(readyMs, performance.now() + roundTripMs);
      setTimeout(() => this.push(chunk), readyMs - performance.now());
      done();
    },
  });
}
