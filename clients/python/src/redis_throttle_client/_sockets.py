"""Sockets for threads: a call waits on one, by its deadline."""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from ._dial import Dial, Node
from ._errors import Unavailable, is_mistake


class _Line:
    """One connection, and how long a call waits on it.

    The kernel keeps the time where it can: Python's own time-outs take a system call more before
    each send and each receive, and between threads each of them is a change of turns.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        # Not those of TLS, nor those that gevent and eventlet put in their place: these wait
        # themselves, and know Python's time-outs only.
        plain = type(connection._sock).__module__ == "socket"
        self._in_kernel = plain and sys.platform != "win32"
        self._wait_us = 0
        if self._in_kernel:
            connection._sock.settimeout(None)

    def exchange(self, args: tuple[str, ...], deadline: float) -> Any:
        """Sends one call and reads its reply."""
        connection = self._connection
        self._wait(max(0.001, deadline - time.monotonic()))
        try:
            connection.send_packed_command(connection.pack_command(*args), check_health=False)
            return connection.read_response()
        except Exception as error:
            if time.monotonic() >= deadline:
                raise Unavailable("no answer in time") from error
            raise

    def _wait(self, seconds: float) -> None:
        if not self._in_kernel:
            self._connection._sock.settimeout(seconds)
            return
        # To the millisecond, so that it is set once for many calls.
        wait_us = max(1, round(seconds * 1000)) * 1000
        if wait_us != self._wait_us:
            value = struct.pack("ll", *divmod(wait_us, 1_000_000))
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                self._connection._sock.setsockopt(socket.SOL_SOCKET, option, value)
            self._wait_us = wait_us

    def usable(self) -> bool:
        """False when the other side has gone, or has something to say that nobody asked for."""
        try:
            if not self._in_kernel:
                return self.connected and not self._connection.can_read(0)
            self._connection._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except Exception:
            return False
        return False

    @property
    def connected(self) -> bool:
        """Whether there is a socket."""
        return self._connection._sock is not None

    def close(self) -> None:
        """Ends the connection: who is asked late is asked on another one."""
        self._connection.disconnect()


class _Late:
    """A connection on its way; who gave up waiting leaves it to the next caller."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.line: _Line | None = None
        self.error: BaseException | None = None
        self.abandoned = False


class Sockets:
    """The idle connections to one server, last used first."""

    def __init__(self, make: Callable[[], Any], dial: Dial, most: int) -> None:
        self._make, self._dial, self._most = make, dial, most
        self._idle: list[_Line] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def call(self, args: tuple[str, ...], deadline: float, *, asking: bool = False) -> Any:
        """Sends the call on one connection and reads its reply, by ``deadline``."""
        line = self._take(deadline)
        try:
            if asking:
                line.exchange(("ASKING",), deadline)
            reply = line.exchange(args, deadline)
        except self._dial.response_error as error:
            # An error reply leaves the connection in order. Not one of the handshake: it is none.
            # A server that cannot decide now, such as a primary that is a replica by now, is left:
            # the next call may find another one at the same address.
            if is_mistake(error):
                self._give(line)
            else:
                line.close()
            raise error
        except BaseException:
            line.close()
            raise
        self._give(line)
        return reply

    def _take(self, deadline: float) -> _Line:
        if self._pid != os.getpid():
            # A child must not talk on its parent's sockets.
            self._idle, self._pid, self._lock = [], os.getpid(), threading.Lock()
        while self._idle:
            try:
                line = self._idle.pop()
            except IndexError:
                break
            if line.usable():
                return line
            line.close()
        late = _Late()
        threading.Thread(target=self._connect, args=(late,), daemon=True).start()
        late.done.wait(max(0.0, deadline - time.monotonic()))
        with self._lock:
            late.abandoned = not late.done.is_set()
        if late.abandoned:
            raise Unavailable("no connection in time")
        if late.line is None:
            raise late.error or Unavailable("no connection")
        return late.line

    def _connect(self, late: _Late) -> None:
        try:
            connection = self._make()
            connection.connect()
            late.line = _Line(connection)
        except BaseException as error:
            late.error = error
        with self._lock:
            late.done.set()
            if late.abandoned and late.line is not None:
                self._idle.append(late.line)

    def _give(self, line: _Line) -> None:
        if line.connected and len(self._idle) < self._most:
            self._idle.append(line)
        else:
            line.close()

    def close(self) -> None:
        """Closes what is idle."""
        while self._idle:
            self._idle.pop().close()


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
