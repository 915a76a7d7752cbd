/** Creates a limiter over a fake server and its clock. */
import { type Clock, gcra, Limiter, type LimiterOptions } from '../src/index.js';
import { RunClock } from '../src/net/clock.js';
import type { Dialling } from '../src/net/generations.js';
import { FakeServer } from '../src/testing.js';
import type { Call } from '../src/wire/words.js';

export const api = gcra('api', 6, 10, '60s');

export function over(options: LimiterOptions = {}): { server: FakeServer; limiter: Limiter } {
  const server = new FakeServer();
  const all = { clock: server.clock, logErrors: false, ...options };
  return { server, limiter: new Limiter(server, all) };
}

/** A server that decides at once, and replies `ms` later. */
class Far extends FakeServer {
  ms = 0;

  override async send(call: Call): Promise<unknown> {
    const reply = await super.send(call);
    await new Promise<void>((resolve) => void this.clock.after(this.ms, resolve));
    return reply;
  }
}

export function far(ms: number, options: LimiterOptions = {}) {
  const server = new Far();
  server.ms = ms;
  const all = { clock: server.clock, logErrors: false, ...options };
  return { server, limiter: new Limiter(server, all) };
}

/** Returns the terms on which the adapters of a limiter with this timeout dial. */
export function dialling(clock: Clock, timeoutMs: number): Dialling {
  return { run: new RunClock(clock, 25), timeoutMs, silenceMs: 100, pauseMs: 1000 };
}

/** The replies that grant and deny the only permit of a lease of 60 s. */
export const GRANTED = [1, 1, 0, 0, 60_000];
export const DENIED = [0, 1, 0, 60_000, 60_000];

export async function times<T>(count: number, call: (at: number) => Promise<T>): Promise<T[]> {
  const all: T[] = [];
  for (let at = 0; at < count; at += 1) all.push(await call(at));
  return all;
}

/** Advances the fake clock by `ms`, and returns the result of the call. */
export async function after<T>(server: FakeServer, ms: number, call: Promise<T>): Promise<T> {
  call.catch(() => {});
  await server.advance(ms);
  return call;
}
