/**
 * Who decides: the module, or where there is none the library, as functions or as a script. One
 * choice is remembered, and found anew only when a call ends with what proves that it did not run.
 */
import type { Clock } from './clock.js';
import type { Connection, Waiting } from './drivers/connection.js';
import { ArgumentError, classified, MistakeError } from './errors.js';
import { type Call, inLibrary, probe } from './protocol.js';
import { UntilGivenUp } from './waiting.js';

/** What answers: the module, or the library as functions or as a script. */
export type Backend = 'module' | 'functions' | 'script';

interface Choice {
  readonly backend: Backend;
  /** Of a script. */
  readonly sha1?: string;
}

const MODULE: Choice = { backend: 'module' };
/** Without marks around a name it is the library that speaks. */
const UNKNOWN_COMMAND = /^ERR unknown command ['`]([^'`]*)/i;
const NO_FUNCTION = /^ERR Function not found/i;
const NO_SCRIPT = /^NOSCRIPT/;
const LIBRARY_EXISTS = /^ERR Library '.*' already exists/i;
/** Somebody may load a library between our question and our answer to it. */
const LOADS_MAX = 3;
/** A search goes on when its call has timed out, so that a later one finds what it found. */
const SEARCH_MAX_MS = 1000;

function says(error: unknown, ...any: readonly RegExp[]): boolean {
  const message = error instanceof Error ? error.message : '';
  return any.some((pattern) => pattern.test(message));
}

/** Whether the server says, before it runs anything of a call, that it has no such command. */
function didNotRun(error: unknown, { args: [command = ''] }: Call): boolean {
  if (command === 'EVALSHA') return says(error, NO_SCRIPT);
  if (command.startsWith('FCALL') && says(error, NO_FUNCTION)) return true;
  if (!/^(RL\.|FCALL)/.test(command) || !(error instanceof Error)) return false;
  return UNKNOWN_COMMAND.exec(error.message)?.[1]?.toUpperCase() === command;
}

/** Whether a version comes before another, such as 0.9.1 before 0.10.0; what is none before all. */
function isOlder(one: string, other: string): boolean {
  const [ours, theirs] = [one, other].map((version) => version.split('.').map(Number));
  const at = theirs?.findIndex((number, place) => number !== (ours?.[place] ?? 0)) ?? -1;
  return at >= 0 && !((ours?.[at] ?? 0) > (theirs?.[at] as number));
}

/** A connection over whose server one of the back ends answers. */
export class Backends implements Connection {
  readonly #connection: Connection;
  readonly #clock: Clock;
  readonly #timeoutMs: number;
  readonly #wanted: Backend | 'auto';
  #choice: Choice | undefined;
  #search: { found: Promise<Choice>; waiting: Waiting } | undefined;

  /** @param wanted One of them alone, or `auto`: the first that is there, in their order. */
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

  /** Which one answered last. */
  get answering(): Backend {
    return this.#choice?.backend ?? 'module';
  }

  send(call: Call, waiting: Waiting): Promise<unknown> {
    const choice = this.#choice;
    // What every server knows needs none.
    const needsOne = choice === undefined && (call.args[0] as string).startsWith('RL.');
    if (needsOne) return this.#sendAnew(choice, call, waiting);
    const sent = written(call, choice ?? MODULE);
    // No `await`: each costs, and here nearly always for nothing.
    return this.#connection.send(sent, waiting).then(undefined, (error) => {
      if (this.#wanted === 'module' || waiting.ended || !didNotRun(error, sent)) {
        throw this.#noted(error);
      }
      return this.#sendAnew(choice, call, waiting);
    });
  }

  /** After a restart the server may have the module: the next call begins with it. */
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
      // Whoever gave it up was answered: it must not count now.
      if (waiting.ended) return undefined;
      const sent = written(call, choice);
      try {
        return await this.#connection.send(sent, waiting);
      } catch (error) {
        // What another call had found may have gone since. What never stays is a mistake.
        if (left === 0 || waiting.ended || !didNotRun(error, sent)) throw this.#noted(error);
      }
    }
  }

  /** One search for all calls that need one. One that takes too long is left to itself. */
  #found(failed: Choice | undefined, call: Call): Promise<Choice> {
    const choice = this.#choice;
    // Another call has found it since this one was sent.
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
    // Who has the module never reads it.
    const library = await import('./library.js');
    const ask = (node: Connection, ...args: string[]) =>
      node.send({ args, keys: call.keys, readOnly: false }, waiting);
    if (wanted !== 'script') {
      try {
        await this.#onPrimaries((node) => load(library, (...args) => ask(node, ...args)));
        return { backend: 'functions' };
      } catch (error) {
        const isRefused = error instanceof MistakeError || says(error, /^READONLY/);
        // Without a password nothing else is let in either.
        if (wanted === 'functions' || !isRefused || says(error, /^NOAUTH/)) throw error;
      }
    }
    await this.#onPrimaries(async (node) => {
      // Asked first by its name: whom the server does not know it refuses, and a text as long as
      // the script ends the connection.
      await ask(node, 'EVALSHA', library.scriptSha1, '0', 'VERSION').catch((error) => {
        if (!says(error, NO_SCRIPT)) throw error;
        return ask(node, 'EVAL', library.script, '0', 'VERSION');
      });
    });
    return { backend: 'script', sha1: library.scriptSha1 };
  }

  /** Whatever the server says about a command that it knows: it has the module. */
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
   * On each primary of a cluster, for a slot may move to any. What one of them refuses is thrown;
   * for one that does not answer nobody waits longer than for half of the deadline.
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

/** The library of functions, unless it or a newer one is there, which serves older callers. */
async function load(
  library: { readonly version: string; readonly functions: string },
  ask: (...args: string[]) => Promise<unknown>,
): Promise<void> {
  for (let left = LOADS_MAX - 1; ; left -= 1) {
    const there = await ask('FCALL', 'rl_version', '0').catch((error) => {
      if (!says(error, NO_FUNCTION)) throw error;
    });
    if (there !== undefined && !isOlder(String(there), library.version)) return;
    // Without REPLACE where there was none: so nobody's newer one, or other one, is overwritten.
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
