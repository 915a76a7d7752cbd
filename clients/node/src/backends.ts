/**
 * Chooses the back end: the module, or without it the library, as functions or as a script. The
 * choice is remembered. A new search starts only when an error proves that a call did not run.
 */
import type { Clock } from './clock.js';
import type { Connection, Waiting } from './drivers/connection.js';
import { ArgumentError, classified, MistakeError } from './errors.js';
import { type Call, inLibrary, probe } from './protocol.js';
import { UntilGivenUp } from './waiting.js';

/** The back end that answers: the module, or the library as functions or as a script. */
export type Backend = 'module' | 'functions' | 'script';

interface Choice {
  readonly backend: Backend;
  /** The script's SHA-1; only for a script. */
  readonly sha1?: string;
}

const MODULE: Choice = { backend: 'module' };
/** Without marks around the name, the library wrote the error. */
const UNKNOWN_COMMAND = /^ERR unknown command ['`]([^'`]*)/i;
const NO_FUNCTION = /^ERR Function not found/i;
const NO_SCRIPT = /^NOSCRIPT/;
const LIBRARY_EXISTS = /^ERR Library '.*' already exists/i;
/** Another client may load a library between our FCALL and our LOAD. */
const LOADS_MAX = 3;
/** A search outlives the call that started it, so that a later call uses its result. */
const SEARCH_MAX_MS = 1000;

function says(error: unknown, ...any: readonly RegExp[]): boolean {
  const message = error instanceof Error ? error.message : '';
  return any.some((pattern) => pattern.test(message));
}

/** Returns true if the server refused the call before running it, because it lacks the command. */
function didNotRun(error: unknown, { args: [command = ''] }: Call): boolean {
  if (command === 'EVALSHA') return says(error, NO_SCRIPT);
  if (command.startsWith('FCALL') && says(error, NO_FUNCTION)) return true;
  if (!/^(RL\.|FCALL)/.test(command) || !(error instanceof Error)) return false;
  return UNKNOWN_COMMAND.exec(error.message)?.[1]?.toUpperCase() === command;
}

/** Returns true if a version comes before another: 0.9.1 before 0.10.0, an unreadable one first. */
function isOlder(one: string, other: string): boolean {
  const [ours, theirs] = [one, other].map((version) => version.split('.').map(Number));
  const at = theirs?.findIndex((number, place) => number !== (ours?.[place] ?? 0)) ?? -1;
  return at >= 0 && !((ours?.[at] ?? 0) > (theirs?.[at] as number));
}

/** A connection that sends each call to the back end that the server has. */
export class Backends implements Connection {
  readonly #connection: Connection;
  readonly #clock: Clock;
  readonly #timeoutMs: number;
  readonly #wanted: Backend | 'auto';
  #choice: Choice | undefined;
  #search: { found: Promise<Choice>; waiting: Waiting } | undefined;

  /** @param wanted One back end, or `auto`: the first that the server has, in their order. */
  constructor(
    connection: Connection,
    clock: Clock,
    timeoutMs: number,
    wanted: Backend | 'auto' = 'auto',
  ) {
    if (!['auto', 'module', 'functions', 'script'].includes(wanted)) {
      throw new ArgumentError('backend', 'auto, module, functions or script');
    }
    this.#connection = connection;
    this.#clock = clock;
    this.#timeoutMs = timeoutMs;
    this.#wanted = wanted;
    if (wanted === 'auto' || wanted === 'module') this.#choice = MODULE;
  }

  /** The back end that answered last. */
  get answering(): Backend {
    return this.#choice?.backend ?? 'module';
  }

  send(call: Call, waiting: Waiting): Promise<unknown> {
    const choice = this.#choice;
    // Every server knows the other commands, so they need no choice.
    const needsOne = choice === undefined && (call.args[0] as string).startsWith('RL.');
    if (needsOne) return this.#sendAnew(choice, call, waiting);
    const sent = written(call, choice ?? MODULE);
    // No `await`: it costs time, and a retry is rare.
    return this.#connection.send(sent, waiting).then(undefined, (error) => {
      if (this.#wanted === 'module' || waiting.ended || !didNotRun(error, sent)) {
        throw this.#noted(error);
      }
      return this.#sendAnew(choice, call, waiting);
    });
  }

  /** Starts the next call with the module: after a restart the server may have it. */
  #noted(error: unknown): unknown {
    if (this.#wanted === 'auto' && this.#choice !== MODULE) {
      const { reason } = classified(error) as { reason?: string };
      if (reason === 'connection' || says(error, /^LOADING/)) this.#choice = MODULE;
    }
    return error;
  }

  nodeOf(call: Pick<Call, 'keys'>): string | undefined {
    return this.#connection.nodeOf?.(call);
  }

  close(): void {
    this.#connection.close?.();
  }

  async #sendAnew(failed: Choice | undefined, call: Call, waiting: Waiting): Promise<unknown> {
    let choice = failed;
    for (let left = 1; ; left -= 1) {
      choice = await this.#found(choice, call);
      // The caller was answered when it gave up, so the call must not count now.
      if (waiting.ended) return undefined;
      const sent = written(call, choice);
      try {
        return await this.#connection.send(sent, waiting);
      } catch (error) {
        // A back end that another call found may be gone again. If it is missing twice, throw.
        if (left === 0 || waiting.ended || !didNotRun(error, sent)) throw this.#noted(error);
      }
    }
  }

  /** Runs one search for all calls that need one. A search that takes too long is abandoned. */
  #found(failed: Choice | undefined, call: Call): Promise<Choice> {
    const choice = this.#choice;
    // Another call has found one since this call was sent.
    if (choice !== undefined && choice !== failed) return Promise.resolve(choice);
    if (this.#search !== undefined && !this.#search.waiting.ended) return this.#search.found;
    const waiting = new UntilGivenUp();
    const patienceMs = Math.max(SEARCH_MAX_MS, this.#timeoutMs);
    const stop = this.#clock.after(patienceMs, () => waiting.end());
    const found = this.#find(failed, call, waiting).then((choice) => {
      if (!waiting.ended) this.#choice = choice;
      return choice;
    });
    const search = { found, waiting };
    const end = () => {
      stop();
      if (this.#search === search) this.#search = undefined;
    };
    found.then(end, end);
    this.#search = search;
    return found;
  }

  async #find(failed: Choice | undefined, call: Call, waiting: Waiting): Promise<Choice> {
    const wanted = this.#wanted;
    if (wanted === 'auto' && failed !== MODULE && (await this.#hasModule(call, waiting))) {
      return MODULE;
    }
    // A process whose servers have the module never reads the library.
    const library = await import('./library.js');
    const ask = (node: Connection, ...args: string[]) =>
      node.send({ args, keys: call.keys, readOnly: false }, waiting);
    if (wanted !== 'script') {
      try {
        await this.#onPrimaries((node) => load(library, (...args) => ask(node, ...args)));
        return { backend: 'functions' };
      } catch (error) {
        const isRefused = error instanceof MistakeError || says(error, /^READONLY/);
        // Without a password the server refuses the script as well.
        if (wanted === 'functions' || !isRefused || says(error, /^NOAUTH/)) throw error;
      }
    }
    await this.#onPrimaries(async (node) => {
      // EVALSHA first: a server refuses an unauthenticated client, and a text as long as the script
      // ends the connection.
      await ask(node, 'EVALSHA', library.scriptSha1, '0', 'VERSION').catch((error) => {
        if (!says(error, NO_SCRIPT)) throw error;
        return ask(node, 'EVAL', library.script, '0', 'VERSION');
      });
    });
    return { backend: 'script', sha1: library.scriptSha1 };
  }

  /** Returns true if the server knows the module's command, even if it refuses the call. */
  async #hasModule(call: Call, waiting: Waiting): Promise<boolean> {
    const asked = probe(call.keys[0] as string);
    try {
      await this.#connection.send(asked, waiting);
      return true;
    } catch (error) {
      const known = classified(error);
      if (!(known instanceof MistakeError) || known.kind === 'NOAUTH') throw known;
      return !didNotRun(error, asked);
    }
  }

  /**
   * Runs `act` on every primary of a cluster, because a slot may move to any of them. Throws what a
   * primary refuses. Waits at most half of the deadline for a primary that does not answer.
   */
  async #onPrimaries(act: (node: Connection) => Promise<unknown>): Promise<void> {
    const nodes = this.#connection.primaries?.() ?? [this.#connection];
    const ended = Promise.allSettled(nodes.map(act)).then((outcomes) => {
      const errors = outcomes.flatMap((outcome) =>
        outcome.status === 'rejected' ? [classified(outcome.reason)] : [],
      );
      const refusal = errors.find((error) => error instanceof MistakeError);
      if (refusal !== undefined || errors.length === nodes.length) throw refusal ?? errors[0];
    });
    if (nodes.length === 1) return ended;
    let stop = () => {};
    const patience = new Promise<void>((resolve) => {
      stop = this.#clock.after(this.#timeoutMs / 2, resolve);
    });
    return Promise.race([ended, patience]).finally(stop);
  }
}

/**
 * Loads the library of functions, unless it or a newer one is there, which serves older callers.
 */
async function load(
  library: { readonly version: string; readonly functions: string },
  ask: (...args: string[]) => Promise<unknown>,
): Promise<void> {
  for (let left = LOADS_MAX - 1; ; left -= 1) {
    const there = await ask('FCALL', 'rl_version', '0').catch((error) => {
      if (!says(error, NO_FUNCTION)) throw error;
    });
    if (there !== undefined && !isOlder(String(there), library.version)) return;
    // REPLACE only over an older version, so that no newer or foreign library is overwritten.
    const replace = there === undefined ? [] : ['REPLACE'];
    try {
      await ask('FUNCTION', 'LOAD', ...replace, library.functions);
      return;
    } catch (error) {
      if (left === 0 || !says(error, LIBRARY_EXISTS)) throw error;
    }
  }
}

function written(call: Call, { backend, sha1 }: Choice): Call {
  return backend === 'module' ? call : inLibrary(call, sha1);
}
