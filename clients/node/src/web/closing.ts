/** The end of a response of `node:http`, however it comes. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { Followers } from '../rules/aborting.js';

const sockets = new Followers<Socket>();

/** Returns true if the response has ended or the client has left. */
export function isClosed({ socket }: IncomingMessage, response: ServerResponse): boolean {
  return response.destroyed || response.closed || Boolean(socket?.destroyed);
}

/**
 * Calls `act`, perhaps twice, when the response has ended or the client has left, which may already
 * have happened.
 *
 * @returns A function that takes the call back.
 */
export function whenClosed(
  request: IncomingMessage,
  response: ServerResponse,
  act: () => void,
): () => void {
  if (isClosed(request, response)) {
    act();
    return () => {};
  }
  const { socket } = request;
  response.once('close', act);
  // The response to a pipelined request has no connection before the one in front of it has ended,
  // and is not closed if the client leaves before.
  if (response.socket !== null || !(socket instanceof Socket)) {
    return () => void response.off('close', act);
  }
  const unfollow = sockets.add(
    socket,
    act,
    (listener) => socket.on('close', listener),
    (listener) => socket.off('close', listener),
  );
  response.once('close', unfollow);
  return () => {
    unfollow();
    response.off('close', act).off('close', unfollow);
  };
}
