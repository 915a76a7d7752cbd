"""Sockets for threads: a call waits on one, by its deadline."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from ._dial import Dial, Node
from ._errors import Unavailable, is_mistake


class _Late:
    """A connection on its way; who gave up waiting leaves it to the next caller."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.connection: Any = None
        self.error: BaseException | None = None
        self.abandoned = False


class Sockets:
    """The idle connections to one server, last used first."""

    def __init__(self, make: Callable[[], Any], dial: Dial, most: int) -> None:
        self._make, self._dial, self._most = make, dial, most
        self._idle: list[Any] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def call(self, args: tuple[str, ...], deadline: float, *, asking: bool = False) -> Any:
        """Sends the call on one connection and reads its reply, by ``deadline``."""
        connection = self._take(deadline)
        try:
            if asking:
                self._exchange(connection, ("ASKING",), deadline)
            reply = self._exchange(connection, args, deadline)
        except self._dial.response_error as error:
            # An error reply leaves the connection in order. Not one of the handshake: it is none.
            # A server that cannot decide now, such as a primary that is a replica by now, is left:
            # the next call may find another one at the same address.
            if is_mistake(error):
                self._give(connection)
            else:
                connection.disconnect()
            raise error
        except BaseException:
            connection.disconnect()
            raise
        self._give(connection)
        return reply

    @staticmethod
    def _exchange(connection: Any, args: tuple[str, ...], deadline: float) -> Any:
        connection._sock.settimeout(max(0.001, deadline - time.monotonic()))
        connection.send_packed_command(connection.pack_command(*args), check_health=False)
        connection._sock.settimeout(max(0.001, deadline - time.monotonic()))
        return connection.read_response()

    def _take(self, deadline: float) -> Any:
        if self._pid != os.getpid():
            # A child must not talk on its parent's sockets.
            self._idle, self._pid, self._lock = [], os.getpid(), threading.Lock()
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            if _usable(connection):
                return connection
            connection.disconnect()
        late = _Late()
        threading.Thread(target=self._connect, args=(late,), daemon=True).start()
        late.done.wait(max(0.0, deadline - time.monotonic()))
        with self._lock:
            late.abandoned = not late.done.is_set()
        if late.abandoned:
            raise Unavailable("no connection in time")
        if late.error is not None:
            raise late.error
        return late.connection

    def _connect(self, late: _Late) -> None:
        try:
            connection = self._make()
            connection.connect()
            late.connection = connection
        except BaseException as error:
            late.error = error
        with self._lock:
            late.done.set()
            if late.abandoned and late.connection is not None:
                self._idle.append(late.connection)

    def _give(self, connection: Any) -> None:
        if connection._sock is not None and len(self._idle) < self._most:
            self._idle.append(connection)
        else:
            connection.disconnect()

    def close(self) -> None:
        """Closes what is idle."""
        while self._idle:
            self._idle.pop().disconnect()


def _usable(connection: Any) -> bool:
    """False when the other side has gone, or has something to say that nobody asked for."""
    try:
        return connection._sock is not None and not connection.can_read(0)
    except Exception:
        return False


class ServerTransport:
    """One server, from a ``redis.Redis`` or ``valkey.Valkey``."""

    def __init__(self, client: Any, timeout_s: float, most: int) -> None:
        pool = client.connection_pool
        dial = Dial(pool.connection_class, pool.connection_kwargs, timeout_s, wait=False)
        self._sockets = Sockets(dial.to(None), dial, most)

    def node(self, key: str) -> Node:
        """There is one."""
        return None

    def call(self, node: Node, args: tuple[str, ...], timeout_s: float) -> Any:
        """The reply."""
        return self._sockets.call(args, time.monotonic() + timeout_s)

    def close(self) -> None:
        """Closes the sockets."""
        self._sockets.close()
