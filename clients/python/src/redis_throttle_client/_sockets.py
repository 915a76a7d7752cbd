"""Sockets for threads: a call waits on one until its deadline."""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from ._dial import MOST_DIALS, MOST_SOCKETS, Dial, Node
from ._errors import Unavailable, Unsent, is_rejection


class _Line:
    """One connection, and the timeout of its calls.

    Where possible, the kernel measures the timeout. Python's own timeouts add a system call before
    each send and each receive, and with threads each such call is a thread switch.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        # TLS sockets and those of gevent and eventlet wait by themselves, and know only Python's
        # timeouts.
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
                raise Unavailable("no answer in time", "timeout") from error
            raise

    def _wait(self, seconds: float) -> None:
        if not self._in_kernel:
            self._connection._sock.settimeout(seconds)
            return
        # Round to a millisecond, so that the option is set once for many calls.
        wait_us = max(1, round(seconds * 1000)) * 1000
        if wait_us != self._wait_us:
            value = struct.pack("ll", *divmod(wait_us, 1_000_000))
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                self._connection._sock.setsockopt(socket.SOL_SOCKET, option, value)
            self._wait_us = wait_us

    def usable(self) -> bool:
        """Returns False if the other side has closed the connection or sent unexpected data."""
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
        """True if there is a socket."""
        return self._connection._sock is not None

    def close(self) -> None:
        """Closes the connection. Later calls use another one."""
        self._connection.disconnect()


class _Waiter:
    """A call that waits for a connection, or for the error of a failed attempt to open one."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.line: _Line | None = None
        self.error: BaseException | None = None


class Sockets:
    """The connections to one server, last used first. Calls without a free one wait in a queue."""

    def __init__(self, make: Callable[[], Any], dial: Dial, most: int) -> None:
        self._make, self._dial, self._most = make, dial, min(most, MOST_SOCKETS)
        self.begin()
        _everyone.add(self)

    def begin(self) -> None:
        """Resets to no connections, also after a fork: a child must not use those of its parent."""
        self._lock = threading.Lock()
        self._idle: list[_Line] = []
        self._waiters: deque[_Waiter] = deque()
        self._open = self._dialling = 0
        self._closed = False

    def call(self, args: tuple[str, ...], deadline: float, *, asking: bool = False) -> Any:
        """Sends the call on one connection, and reads its reply by ``deadline``."""
        line = self._take(deadline)
        try:
            if asking:
                line.exchange(("ASKING",), deadline)
            reply = line.exchange(args, deadline)
        except self._dial.response_error as error:
            # After an error reply the connection can be used again. An error of the handshake is a
            # failed attempt to open it. A connection to a server that cannot decide now is dropped,
            # for example to a primary that has become a replica: the address may lead to another
            # server by now.
            if is_rejection(error):
                self._give(line)
            else:
                self._drop(line)
            raise error
        except BaseException:
            self._drop(line)
            raise
        self._give(line)
        return reply

    def _take(self, deadline: float) -> _Line:
        while True:
            with self._lock:
                # A call after ``close`` opens connections again.
                self._closed = False
                if not self._idle:
                    waiter = _Waiter()
                    self._waiters.append(waiter)
                    self._dial_more(1)
                    break
                line = self._idle.pop()
            if line.usable():
                return line
            self._drop(line)
        try:
            waiter.done.wait(max(0.0, deadline - time.monotonic()))
        except BaseException:
            self._leave(waiter)
            if waiter.line is not None:
                self._give(waiter.line)
            raise
        self._leave(waiter)
        if waiter.line is not None:
            return waiter.line
        raise waiter.error or Unsent("no connection in time")

    def _leave(self, waiter: _Waiter) -> None:
        with self._lock:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _dial_more(self, more: int = 0) -> None:
        """Opens connections for the waiting calls, at least ``more`` besides those being opened.

        Must be called under the lock.
        """
        wanted = min(max(len(self._waiters), self._dialling + more), MOST_DIALS)
        while self._dialling < wanted and self._open + self._dialling < self._most:
            try:
                threading.Thread(target=self._connect, daemon=True).start()
            except RuntimeError:
                # No thread can start: the waiters use connections that other calls return.
                return
            self._dialling += 1

    def _offer(self, line: _Line) -> bool:
        """Gives the connection to a waiter, or stores it. Returns False after ``close``. Must be
        called under the lock.
        """
        if self._waiters:
            waiter = self._waiters.popleft()
            waiter.line = line
            waiter.done.set()
        elif self._closed:
            return False
        else:
            self._idle.append(line)
        return True

    def _connect(self) -> None:
        """Opens a connection. A late connection serves the next caller."""
        line, failure = None, None
        try:
            connection = self._make()
            connection.connect()
            line = _Line(connection)
        except BaseException as error:
            failure = error
        kept = False
        with self._lock:
            self._dialling -= 1
            if line is not None:
                self._open += 1
                kept = self._offer(line)
            elif self._open:
                # If the server accepts no more connections, the waiters use those that are open.
                return
            elif self._waiters:
                waiter = self._waiters.popleft()
                waiter.error = failure
                waiter.done.set()
            self._dial_more()
        if line is not None and not kept:
            self._drop(line)

    def _give(self, line: _Line) -> None:
        with self._lock:
            kept = line.connected and self._offer(line)
        if not kept:
            self._drop(line)

    def _drop(self, line: _Line) -> None:
        line.close()
        with self._lock:
            self._open -= 1
            self._dial_more()

    def close(self) -> None:
        """Closes idle connections. Others are closed when their call or their opening ends."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for line in idle:
            self._drop(line)


_everyone: weakref.WeakSet[Sockets] = weakref.WeakSet()


def _begin_in_child() -> None:
    for sockets in list(_everyone):
        sockets.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)


class ServerTransport:
    """One server, from a ``redis.Redis`` or ``valkey.Valkey``."""

    def __init__(self, client: Any, timeout_s: float, most: int) -> None:
        pool = client.connection_pool
        dial = Dial(pool.connection_class, pool.connection_kwargs, timeout_s, wait=False)
        self._sockets = Sockets(dial.to(None), dial, most)

    def node(self, key: str) -> Node:
        """Returns None, because there is only one node."""
        return None

    def call(self, node: Node, args: tuple[str, ...], timeout_s: float) -> Any:
        """Sends a call and returns its reply."""
        return self._sockets.call(args, time.monotonic() + timeout_s)

    def close(self) -> None:
        """Closes the sockets."""
        self._sockets.close()
