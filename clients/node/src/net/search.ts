/** Sends the commands of a search for a back end, in flight to a node like those of calls. */
import { UntilGivenUp, type Waiting, whenAborted } from '../rules/aborting.js';
import { CommandRejectedError, classified } from '../rules/errors.js';
import type { Call } from '../wire/words.js';
import type { Command, Link, List } from './line.js';
import type { Node, Nodes } from './node.js';

/**
 * Sends a command of a search over one of the connections to a node.
 *
 * @param name The name of the node, if it is known.
 * @param search The search, whose end ends the command.
 */
export async function searched(
  nodes: Nodes,
  connection: { send(call: Call, waiting: Waiting): Promise<unknown> },
  call: Call,
  name: string | undefined,
  search: Waiting,
): Promise<unknown> {
  const command = new SearchCommand(search, nodes);
  command.sends(name);
  try {
    const reply = await connection.send(call, command);
    command.leave(true);
    return reply;
  } catch (error) {
    const known = classified(error);
    command.leave(known instanceof CommandRejectedError || known.reason === 'server');
    throw error;
  }
}

/** A command of a search. It takes no place. */
class SearchCommand extends UntilGivenUp implements Command {
  list: List | undefined;
  before: Command | undefined;
  after: Command | undefined;
  sentMs: number | undefined;
  readonly endsAtMs = Number.POSITIVE_INFINITY;
  readonly latestMs = Number.POSITIVE_INFINITY;
  #node: Node | undefined;
  #link: Link | undefined;

  constructor(
    search: Waiting,
    private readonly nodes: Nodes,
  ) {
    super();
    whenAborted(search.signal, () => this.end());
  }

  waits(): void {
    this.leave(false);
  }

  sends(name: string | undefined): void {
    this.leave(false);
    const { clock, run } = this.nodes;
    const nowMs = clock.nowMs();
    this.#node = this.nodes.of(name);
    this.sentMs = run.at(nowMs);
    this.#link = this.#node.sends(this, false, this.sentMs, nowMs);
  }

  /** @param hasReplied Whether the server has replied. */
  leave(hasReplied: boolean): void {
    if (this.list === undefined) return;
    if (hasReplied) this.#node?.hears(this.#link as Link);
    this.#node?.leaves(this, false);
  }

  lose(): void {
    this.leave(false);
  }

  giveUp(): void {}
  expire(): void {}
}
