/**
 * Chooses the back end: the module if the server has it, otherwise the library, as functions or as
 * a script. The choice is remembered. A new search starts only when an error proves that a call did
 * not run.
 */
import { UntilGivenUp, type Waiting } from '../rules/aborting.js';
import type { Clock } from '../rules/clock.js';
import {
  CommandRejectedError,
  classified,
  InvalidArgumentError,
  NotSentError,
} from '../rules/errors.js';
import type { Backend } from '../rules/options.js';
import { warnOnce } from '../rules/warnings.js';
import { type Call, inLibrary, probe } from './words.js';

interface Choice {
  readonly backend: Backend;
  /** The script's SHA-1; only for a script. */
  readonly sha1?: string;
}

const MODULE: Choice = { backend: 'module' };
/** Matches the server's error for an unknown command. The library's own has no quotes. */
const UNKNOWN_COMMAND = /^ERR unknown command ['`]([^'`]*)/i;
const NO_FUNCTION = /^ERR Function not found/i;
const NO_SCRIPT = /^NOSCRIPT/;
const LIBRARY_EXISTS = /^ERR Library '.*' already exists/i;
/**
 * The maximum number of attempts to load the library. An attempt fails if another client loads a
 * library after the version check.
 */
const LOADS_MAX = 3;
/**
 * The maximum duration of a search. A search may outlast the call that started it, because later
 * calls use its result.
 */
const SEARCH_MAX_MS = 1000;

function says(error: unknown, ...any: readonly RegExp[]): boolean {
  const message = error instanceof Error ? error.message : '';
  return any.some((pattern) => pattern.test(message));
}

/**
 * Returns true if the call did not run, because the server lacks its command, function or script.
 */
function didNotRun(error: unknown, { args: [command = ''] }: Call): boolean {
  if (command === 'EVALSHA') return says(error, NO_SCRIPT);
  if (command.startsWith('FCALL') && says(error, NO_FUNCTION)) return true;
  if (!/^(RL\.|FCALL)/.test(command) || !(error instanceof Error)) return false;
  return UNKNOWN_COMMAND.exec(error.message)?.[1]?.toUpperCase() === command;
}

/**
 * Returns true if version `one` is older than `other`. 0.9.1 is older than 0.10.0. An unreadable
 * `one` counts as older.
 */
function isOlder(one: string, other: string): boolean {
  const [ours, theirs] = [one, other].map((version) => version.split('.').map(Number));
  const at = theirs?.findIndex((number, place) => number !== (ours?.[place] ?? 0)) ?? -1;
  return at >= 0 && !((ours?.[at] ?? 0) > (theirs?.[at] as number));
}

/** The caller of a call. */
export interface Caller extends Waiting {
  /** Called with the reply. */
  receive(reply: unknown): void;
  /** Called with the error of the driver, or of the search for a back end. */
  fail(error: unknown): void;
}

function report(sent: Promise<unknown>, caller: Caller): void {
  sent.then(
    (reply) => caller.receive(reply),
    (error) => caller.fail(error),
  );
}

/** The part of a connection that finds and uses a back end. */
export interface Sender {
  send(call: Call, waiting: Waiting): Promise<unknown>;
  nodeOf?(call: Pick<Call, 'keys'>): string | undefined;
  primaries?(): Sender[] | Promise<Sender[]>;
  close?(): void;
}

/**
 * Sends a command of a search.
 *
 * @param waiting The search.
 */
export type Searched = (sender: Sender, call: Call, waiting: Waiting) => Promise<unknown>;

/** Sends each call to the back end that the server has. */
export class Backends {
  readonly #connection: Sender;
  readonly #clock: Clock;
  readonly #searched: Searched;
  readonly #timeoutMs: number;
  readonly #wanted: Backend | 'auto';
  #choice: Choice | undefined;
  #search: { found: Promise<Choice>; waiting: Waiting } | undefined;

  /**
   * @param wanted A back end, or `auto` for the first available one, in the order module,
   * functions, script.
   */
  constructor(
    connection: Sender,
    clock: Clock,
    searched: Searched,
    timeoutMs: number,
    wanted: Backend | 'auto' = 'auto',
  ) {
    if (!['auto', 'module', 'functions', 'script'].includes(wanted)) {
      throw new InvalidArgumentError('backend', 'auto, module, functions or script');
    }
    this.#connection = connection;
    this.#clock = clock;
    this.#searched = searched;
    this.#timeoutMs = timeoutMs;
    this.#wanted = wanted;
    if (wanted === 'auto' || wanted === 'module') this.#choice = MODULE;
  }

  /** The back end in use. */
  get current(): Backend {
    return this.#choice?.backend ?? 'module';
  }

  /** Sends a call. Its result is reported to the caller, later than this method returns. */
  send(call: Call, caller: Caller): void {
    const choice = this.#choice;
    // Every server knows the commands other than the module's, so they need no back end.
    if (choice === undefined && (call.args[0] as string).startsWith('RL.')) {
      report(this.#sendAgain(choice, call, caller), caller);
      return;
    }
    const sent = written(call, choice ?? MODULE);
    // Each further promise would cost each call time, and a retry is rare.
    this.#sendOnce(sent, caller).then(
      (reply) => caller.receive(reply),
      (error) => {
        if (this.#wanted === 'module' || caller.ended || !didNotRun(error, sent)) {
          caller.fail(this.#noted(error));
        } else report(this.#sendAgain(choice, call, caller), caller);
      },
    );
  }

  /** Sends a command. If the application's connection throws, rejects. */
  #sendOnce(call: Call, waiting: Waiting): Promise<unknown> {
    try {
      return this.#connection.send(call, waiting);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /**
   * Returns the error. After a lost connection, also makes the next call try the module first,
   * because the server may have been restarted with the module.
   */
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
    try {
      this.#connection.close?.();
    } catch (error) {
      warnOnce('RL_CONNECTION', 'a connection was not closed, because its adapter throws', error);
    }
  }

  async #sendAgain(failed: Choice | undefined, call: Call, waiting: Waiting): Promise<unknown> {
    let choice = failed;
    for (let left = 1; ; left -= 1) {
      waiting.waits?.();
      choice = await this.#found(choice, call);
      // A caller that gave up has its result already, so its call must not count now.
      if (waiting.ended) throw new NotSentError('overloaded', 'not sent: the caller has gone');
      const sent = written(call, choice);
      waiting.sends?.(this.nodeOf(call));
      try {
        return await this.#connection.send(sent, waiting);
      } catch (error) {
        // A back end that another call found may be gone again. Throw if it is missing a second
        // time.
        if (left === 0 || waiting.ended || !didNotRun(error, sent)) throw this.#noted(error);
      }
    }
  }

  /** Runs one search for all calls that need one. A search that takes too long is abandoned. */
  #found(failed: Choice | undefined, call: Call): Promise<Choice> {
    const choice = this.#choice;
    // Another call has found a back end since this call was sent.
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
    // A process whose servers have the module need not load the library's text.
    const library = await import('./library.js');
    const send = (node: Sender, ...args: string[]) =>
      this.#searched(node, { args, keys: call.keys, readOnly: false }, waiting);
    if (wanted !== 'script') {
      try {
        await this.#onPrimaries((node) => load(library, (...args) => send(node, ...args)));
        return { backend: 'functions' };
      } catch (error) {
        const isRefused = error instanceof CommandRejectedError || says(error, /^READONLY/);
        // The server would refuse the script to an unauthenticated client as well.
        if (wanted === 'functions' || !isRefused || says(error, /^NOAUTH/)) throw error;
      }
    }
    await this.#onPrimaries(async (node) => {
      // Send EVALSHA first, because a server refuses it to an unauthenticated client. For a text as
      // long as the script, the server would close that client's connection.
      await send(node, 'EVALSHA', library.scriptSha1, '0', 'VERSION').catch((error) => {
        if (!says(error, NO_SCRIPT)) throw error;
        return send(node, 'EVAL', library.script, '0', 'VERSION');
      });
    });
    return { backend: 'script', sha1: library.scriptSha1 };
  }

  /** Returns true if the server has the module, even if it refuses the call. */
  async #hasModule(call: Call, waiting: Waiting): Promise<boolean> {
    const sent = probe(call.keys[0] as string);
    try {
      await this.#searched(this.#connection, sent, waiting);
      return true;
    } catch (error) {
      const known = classified(error);
      if (!(known instanceof CommandRejectedError) || known.kind === 'NOAUTH') throw known;
      return !didNotRun(error, sent);
    }
  }

  /**
   * Runs `act` on every primary of a cluster, because a slot may move to any of them. Throws the
   * error of a primary that refuses. Waits at most half of the deadline for a primary that does not
   * reply.
   */
  async #onPrimaries(act: (node: Sender) => Promise<unknown>): Promise<void> {
    const nodes = (await this.#connection.primaries?.()) ?? [this.#connection];
    const ended = Promise.allSettled(nodes.map(act)).then((outcomes) => {
      const errors = outcomes.flatMap((outcome) =>
        outcome.status === 'rejected' ? [classified(outcome.reason)] : [],
      );
      const refusal = errors.find((error) => error instanceof CommandRejectedError);
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
 * Loads the function library, unless the server has the same or a newer version. A newer one serves
 * older clients too.
 */
async function load(
  library: { readonly version: string; readonly functions: string },
  send: (...args: string[]) => Promise<unknown>,
): Promise<void> {
  for (let left = LOADS_MAX - 1; ; left -= 1) {
    const there = await send('FCALL', 'rl_version', '0').catch((error) => {
      if (!says(error, NO_FUNCTION)) throw error;
    });
    if (there !== undefined && !isOlder(String(there), library.version)) return;
    // Use REPLACE only over an older version, so that no newer or foreign library is overwritten.
    const replace = there === undefined ? [] : ['REPLACE'];
    try {
      await send('FUNCTION', 'LOAD', ...replace, library.functions);
      return;
    } catch (error) {
      if (left === 0 || !says(error, LIBRARY_EXISTS)) throw error;
    }
  }
}

function written(call: Call, { backend, sha1 }: Choice): Call {
  return backend === 'module' ? call : inLibrary(call.withoutModule?.() ?? call, sha1);
}
