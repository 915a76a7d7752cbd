"""One connection to a node, and its exchange of a command for a reply."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import time
from collections.abc import Callable
from typing import Any, TypeVar

from .._rules.errors import Unavailable, counted, is_rejection, is_reply
from .._wire.call import Call
from .._wire.words import packed
from .dial import Login
from .timed_socket import LEAST_S, TimedSocket

L = TypeVar("L", bound="Link")
# Instants within this time are the same.
SAME_S = 0.0005
NEVER = float("inf")


class Link:
    """A connection, and the command that it carries: one at a time."""

    def __init__(self) -> None:
        self.generation = 0
        self.heard = -NEVER
        self.has_replied = False
        # The call that has the connection, before and after it has sent a command.
        self.holder: Call | None = None
        # The call whose command has no reply yet, and when that was sent.
        self.call: Call | None = None
        self.sent = self.ends = self.ends_at = 0.0
        # False while the thread of the call waits for the interpreter before it sends.
        self.is_sent = True
        # When the node first replied, on another connection, to a command that was sent later.
        self.overtaken = NEVER
        # The error with which the call ended before its reply.
        self.error: Exception | None = None

    @property
    def drains(self) -> bool:
        """True if the caller has gone."""
        return self.call is not None and self.call.drains


# Computed once: to combine flags takes longer than the call. Windows has no polled sockets.
_PEEK = int(socket.MSG_PEEK) | int(getattr(socket, "MSG_DONTWAIT", 0))


class SocketLink(Link):
    """A connection of the driver, on which one thread at a time sends and reads."""

    def __init__(self, connection: Any) -> None:
        super().__init__()
        self._connection = connection
        # Looks at the time for the call on this connection.
        self.look: Callable[[], float] = lambda: 0.0
        # Corrects the instant at which a command was sent.
        self.on_sent: Callable[[float], None] = lambda at: None
        self._socket = connection._sock
        self.timed = TimedSocket(self._socket)
        connection._sock = self.timed
        # Lets the parser read from the timed socket.
        connection._parser.on_connect(connection)
        # The replies to read, and whether the driver reads them.
        self._left, self._is_drivers = 0, False

    def exchange(
        self, args: tuple[str, ...], look: Callable[[], float], slice_s: float, at: float, *,
        asking: bool = False,
    ) -> Any:  # fmt: skip
        """Sends a command and reads its reply."""
        timed = self.timed
        timed.begin(look, slice_s, at)
        try:
            self._left, self._is_drivers = 1 + asking, asking
            if asking:
                timed.sendall(packed(("ASKING",)))
            timed.sendall(packed(args))
            if (sent := time.monotonic()) - at > LEAST_S:
                # This thread has waited for the interpreter before. Other threads see it as sent
                # only then.
                self.on_sent(sent)
            self.is_sent = True
            return self.read()
        finally:
            timed.end()

    def read(self) -> Any:
        """Reads the reply. Raises TimeoutError if it has not arrived, outside an exchange."""
        while True:
            reply = None if self._is_drivers else self.timed.integers()
            if reply is None:
                # It may have a part of a reply when the wait is resumed.
                self._is_drivers = True
                reply = self._connection.read_response(disconnect_on_error=False)
            self._left -= 1
            if not self._left:
                return reply

    def has_arrived(self, within_s: float) -> bool:
        """Returns True if something arrives within a time, or is being read. It is not read."""
        if self.timed.is_reading:
            return True
        with contextlib.suppress(OSError, ValueError):
            if self.timed.has_decrypted:
                return True
            if not hasattr(select, "poll"):
                return bool(select.select([self._socket], [], [], within_s)[0])
            # Each thread needs a poll of its own.
            readable = select.poll()
            readable.register(self._socket, select.POLLIN)
            return bool(readable.poll(within_s * 1000))
        return False

    @property
    def is_usable(self) -> bool:
        """False if the other side has closed the connection or sent unexpected data."""
        try:
            if not self.timed.is_polled:
                return self._connection._sock is not None and not self._connection.can_read(0)
            self._socket.recv(1, _PEEK)
        except BlockingIOError:
            return True
        except Exception:
            return False
        return False

    def interrupt(self) -> None:
        """Ends the call that waits on the connection, in another thread."""
        with contextlib.suppress(Exception):
            # The method of plain sockets, because TLS would take itself off the socket.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the connection."""
        self._connection.disconnect()


def call_once(make: Callable[[], Any], args: tuple[str, ...], timeout_s: float) -> Any:
    """Opens a connection for one call, and returns the reply."""
    connection, ends_at = make(), time.monotonic() + timeout_s

    def look() -> float:
        left_s = ends_at - time.monotonic()
        if left_s <= 0:
            raise counted("no reply in time", "timeout")
        return left_s

    try:
        connection.connect()
        return SocketLink(connection).exchange(args, look, max(LEAST_S, look()), time.monotonic())
    finally:
        connection.disconnect()


class AsyncLink(Link):
    """A connection of the driver."""

    def __init__(self, connection: Any) -> None:
        super().__init__()
        self.connection, self._writer = connection, connection._writer
        # The task that waits for the reply, and how often it was cancelled before.
        self.task: asyncio.Task[Any] | None = None
        # The replies to read.
        self._left = 0

    @property
    def is_open(self) -> bool:
        """True unless the other side has closed the connection."""
        reader = self.connection._reader
        return reader is not None and not reader.at_eof()

    async def exchange(self, args: tuple[str, ...], *, asking: bool) -> Any:
        """Sends a command and reads its reply."""
        self._left = 1
        if asking:
            self._left = 2
            self._writer.write(packed(("ASKING",)))
        self._writer.write(packed(args))
        return await self.read()

    async def read(self) -> Any:
        """Reads the reply. A wait that was cancelled may be resumed."""
        while True:
            reply = await self.connection.read_response(disconnect_on_error=False)
            self._left -= 1
            if not self._left:
                return reply

    def close(self) -> None:
        """Closes the connection without TLS's closing handshake, which would wait."""
        connection = self.connection
        if connection._writer is not None:
            with contextlib.suppress(Exception):
                connection._parser.on_disconnect()
            connection._writer.transport.abort()
            connection._reader = connection._writer = None


async def hang_up(connection: Any) -> None:
    """Closes a connection that was not opened completely."""
    writer = connection._writer
    await connection.disconnect(nowait=True)
    if writer is not None:
        writer.transport.abort()


async def call_once_in_loop(
    make: Callable[[], Any], args: tuple[str, ...], timeout_s: float
) -> Any:
    """Opens a connection for one call, and returns the reply."""
    connection, stage = make(), "connected, logged in, no reply to " + " ".join(args)
    login = Login(connection)
    login.watch()
    is_open = False
    try:
        async with asyncio.timeout(timeout_s):
            await connection.connect()
            login.end()
            is_open = True
            return await AsyncLink(connection).exchange(args, asking=False)
    except Exception as error:
        if is_reply(error) or is_rejection(error):
            raise
        failed = Unavailable(str(error) or "no reply in time")
        failed.stage = stage if is_open else login.stage
        raise failed from error
    finally:
        await hang_up(connection)
