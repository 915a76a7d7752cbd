"""Sockets for threads: a call waits on one until its deadline."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from ._dial import Dial, Node
from ._errors import Unavailable, Unsent, is_reply, retires
from ._fork import forgets
from ._protocol import Kept, packed
from ._queue import Pace, Queue

# Made once: to combine flags takes longer than the call. Windows has no polled sockets.
_PEEK = int(socket.MSG_PEEK) | int(getattr(socket, "MSG_DONTWAIT", 0))
# The most bytes of one reading.
_MOST_BYTES = 65_536


class _Timed:
    """A socket whose sends and reads end at a deadline, also if signals interrupt them."""

    def __init__(self, plain: Any) -> None:
        self._socket = plain
        # Bytes that were read, but not by the driver, which reads them first.
        self._unread = b""
        self._deadline: float | None = None
        # TLS sockets and those of gevent and eventlet wait by themselves, by Python's timeouts.
        # Other sockets are polled: one system call to send, and two to read.
        self.is_polled = type(plain).__module__ == "socket" and hasattr(select, "poll")
        if self.is_polled:
            plain.setblocking(False)
            self._readable, self._writable = select.poll(), select.poll()
            self._readable.register(plain, select.POLLIN)
            self._writable.register(plain, select.POLLOUT)

    def begin(self, deadline: float) -> None:
        """Begins a call that ends by ``deadline``."""
        self._deadline = deadline

    def end(self) -> None:
        """Ends the call. The driver may look for unexpected data without a wait."""
        self._deadline = None

    def _left_s(self) -> float:
        return 0.0 if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def _wait(self, ready: Any) -> None:
        """Waits until the socket is ready. At the deadline it may still be."""
        # Python repeats an interrupted poll with the time that is left.
        if not ready.poll(self._left_s() * 1000):
            raise TimeoutError("the deadline has passed")

    def _read(self, read: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if not self.is_polled:
            self._set_timeout()
            return read(*args)
        while True:
            self._wait(self._readable)
            with contextlib.suppress(BlockingIOError):
                return read(*args)

    def _set_timeout(self) -> None:
        if self._deadline is not None:
            self._socket.settimeout(max(0.001, self._left_s()))

    def recv(self, *args: Any) -> Any:
        """Reads bytes."""
        if self._unread:
            most = args[0]
            unread, self._unread = self._unread[:most], self._unread[most:]
            return unread
        return self._read(self._socket.recv, args)

    def recv_into(self, *args: Any) -> Any:
        """Reads bytes into a buffer."""
        if self._unread:
            unread = self.recv(len(args[0]))
            args[0][: len(unread)] = unread
            return len(unread)
        return self._read(self._socket.recv_into, args)

    def integers(self) -> list[int] | None:
        """Reads a reply and returns its integers; None, without reading it, if it is another one.

        Most replies have a few integers. The driver takes several times as long to read them.
        """
        read = self._read(self._socket.recv, (_MOST_BYTES,))
        if read[:1] == b"*" and read[-2:] == b"\r\n":
            size, *integers = read[1:-2].split(b"\r\n:")
            with contextlib.suppress(ValueError):
                if int(size) == len(integers):
                    return [int(integer) for integer in integers]
        self._unread = read
        return None

    def sendall(self, data: Any) -> None:
        """Sends all bytes."""
        if not self.is_polled:
            self._set_timeout()
            self._socket.sendall(data)
            return
        left = memoryview(data)
        while left:
            try:
                left = left[self._socket.send(left) :]
            except BlockingIOError:
                self._wait(self._writable)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


class _Line:
    """One connection. ``dial_s`` is the time that its dial took, until it is idle or used."""

    def __init__(self, connection: Any, dial_s: float = 0.0) -> None:
        self._connection, self.dial_s = connection, dial_s
        self.generation = 0
        self._socket = connection._sock
        self._timed = _Timed(self._socket)
        connection._sock = self._timed
        # Lets the parser read from the timed socket.
        connection._parser.on_connect(connection)

    def exchange(self, args: tuple[str, ...], deadline: float) -> Any:
        """Sends one call and reads its reply."""
        connection = self._connection
        self._timed.begin(deadline)
        try:
            self._timed.sendall(packed(args))
            reply = self._timed.integers()
            return connection.read_response(disconnect_on_error=False) if reply is None else reply
        except Exception as error:
            if time.monotonic() >= deadline:
                raise Unavailable("no answer in time", "timeout") from error
            raise
        finally:
            self._timed.end()

    def usable(self) -> bool:
        """Returns False if the other side has closed the connection or sent unexpected data."""
        try:
            if not self._timed.is_polled:
                return self.connected and not self._connection.can_read(0)
            self._socket.recv(1, _PEEK)
        except BlockingIOError:
            return True
        except Exception:
            return False
        return False

    @property
    def connected(self) -> bool:
        """True if there is a socket."""
        return self._connection._sock is not None

    def interrupt(self) -> None:
        """Ends the call that waits on the connection, in another thread."""
        with contextlib.suppress(Exception):
            # The method of plain sockets, because TLS would take itself off the socket.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the connection. Later calls use another one."""
        self._connection.disconnect()


def ask_once(make: Callable[[], Any], args: tuple[str, ...], timeout_s: float) -> Any:
    """Opens a connection for one call, and returns the reply."""
    connection, deadline = make(), time.monotonic() + timeout_s
    try:
        connection.connect()
        return _Line(connection).exchange(args, deadline)
    finally:
        connection.disconnect()


class _Waiter:
    """A call that waits for a connection, or for the error of a failed attempt to open one."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.line: _Line | None = None
        self.error: BaseException | None = None


class Sockets:
    """The connections to one server, last used first. Calls without a free one wait in a queue."""

    def __init__(self, make: Callable[[], Any], dial: Dial, most: int) -> None:
        self._make, self._dial, self._most = make, dial, most
        forgets(self)

    def begin(self) -> None:
        """Resets to no connections, also after a fork: a child must not use those of its parent."""
        self._lock = threading.Lock()
        self._idle: list[_Line] = []
        self._in_use: set[_Line] = set()
        self._waiters: Queue[_Waiter] = Queue()
        self._pace = Pace(self._dial)
        self._open = self._dialling = 0
        self._closed = self._is_left = False

    def call(self, args: tuple[str, ...], deadline: float, *, asking: bool = False) -> Any:
        """Sends the call on one connection, and reads its reply by ``deadline``."""
        line = self._take(deadline, lease=isinstance(args, Kept))
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            self._give(line)
            raise Unsent
        if left_s < line.dial_s:
            self._give(line)
            raise Unavailable("the dial left too little time for the call", "timeout")
        line.dial_s = 0
        try:
            if asking:
                line.exchange(("ASKING",), deadline)
            reply = line.exchange(args, deadline)
        except BaseException as error:
            if is_reply(error) and not retires(error):
                self._give(line)
                raise
            late = isinstance(error, Unavailable)
            first = (late or retires(error)) and self._retire(line.generation)
            self._drop(line)
            if first or line.generation == self._pace.generation:
                raise
            ended = self._pace.ended(error, late=late)
            if ended is None:
                raise
            raise ended from error
        self._give(line)
        return reply

    @property
    def is_up(self) -> bool:
        """True if a connection is open."""
        return bool(self._idle or self._in_use)

    def _retire(self, generation: int) -> bool:
        """Closes all connections of this generation, and ends their calls.

        Returns False if another call has done so.
        """
        with self._lock:
            if not self._pace.retire(generation):
                return False
            idle, self._idle = self._idle, []
            in_use = list(self._in_use)
            self._in_use.clear()
            # What the attempts under way open is too old, and is dropped.
            self._dialling = 0
        for line in in_use:
            line.interrupt()
        for line in idle:
            self._drop(line)
        return True

    def _take(self, deadline: float, *, lease: bool = False) -> _Line:
        while True:
            with self._lock:
                # A call after ``close`` opens connections again.
                self._closed = self._is_left
                if not self._idle:
                    dials = self._open or self._dialling
                    if not dials and self._pace.pauses(time.monotonic()):
                        raise self._pace.refused()
                    waiter = _Waiter()
                    self._waiters.append(waiter, lease=lease)
                    self._dial_more(begins=True)
                    if not self._open and not self._dialling:
                        self._waiters.discard(waiter)
                        raise self._pace.refused()
                    break
                line = self._idle.pop()
                self._in_use.add(line)
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
        raise waiter.error or Unsent()

    def _leave(self, waiter: _Waiter) -> None:
        with self._lock:
            self._waiters.discard(waiter)

    def _dial_more(self, *, begins: bool = False) -> None:
        """Opens connections for the waiting calls; see :meth:`Pace.begins_dial`.

        Must be called under the lock.
        """
        most = self._waiters.most(self._most)
        while self._open + self._dialling < most and self._pace.begins_dial(
            time.monotonic(), len(self._waiters), self._open, self._dialling, begins=begins
        ):
            begins = False
            try:
                generation = self._pace.generation
                threading.Thread(target=self._connect, args=(generation,), daemon=True).start()
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
            self._in_use.add(line)
            waiter.done.set()
        elif self._closed:
            return False
        else:
            self._in_use.discard(line)
            line.dial_s = 0
            self._idle.append(line)
        return True

    def _connect(self, generation: int) -> None:
        """Opens a connection. A late connection serves the next caller."""
        line, failure, began = None, None, time.monotonic()
        try:
            connection = self._make()
            connection.connect()
            line = _Line(connection, time.monotonic() - began)
        except Exception as error:
            failure = error
        kept = False
        with self._lock:
            self._open += line is not None
            # After a retirement the node may be another one than at the beginning.
            if generation == self._pace.generation:
                self._dialling -= 1
                if line is not None:
                    line.generation = generation
                    kept = self._offer(line)
                elif failure is not None:
                    self._refuse(began, failure)
            if line is None or kept:
                self._dial_more()
        if line is not None and not kept:
            self._drop(line)

    def _refuse(self, began: float, error: Exception) -> None:
        """Ends all waiting calls. Must be called under the lock."""
        self._pace.failed(began, error)
        # If connections are open, or other attempts under way, the waiters use those.
        while self._waiters and not self._open and not self._dialling:
            waiter = self._waiters.popleft()
            waiter.error = error
            waiter.done.set()
            error = self._pace.refused()

    def _give(self, line: _Line) -> None:
        with self._lock:
            current = line.generation == self._pace.generation
            kept = current and line.connected and self._offer(line)
        if not kept:
            self._drop(line)

    def _drop(self, line: _Line) -> None:
        line.close()
        with self._lock:
            self._in_use.discard(line)
            self._open -= 1
            self._dial_more()

    def close(self) -> None:
        """Closes idle connections. Others are closed when their call or their opening ends."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for line in idle:
            self._drop(line)

    def leave(self) -> None:
        """Closes the connections for good, each as soon as no call uses it."""
        self._is_left = True
        self.close()


class ServerTransport:
    """One server, from a ``redis.Redis`` or ``valkey.Valkey``."""

    def __init__(self, client: Any, timeout_s: float, most: int, pause_s: float = 1.0) -> None:
        pool = client.connection_pool
        dial = Dial(
            pool.connection_class, pool.connection_kwargs, timeout_s, wait=False, pause_s=pause_s
        )
        self._sockets = Sockets(dial.to(None), dial, most)

    def node(self, key: str) -> Node:
        """Returns None, because there is only one node."""
        return None

    def call(self, node: Node, args: tuple[str, ...], timeout_s: float) -> Any:
        """Sends a call and returns its reply."""
        return self._sockets.call(args, time.monotonic() + timeout_s)

    def is_up(self, node: Node) -> bool:
        """Returns True if a connection is open."""
        return self._sockets.is_up

    def close(self) -> None:
        """Closes the sockets."""
        self._sockets.close()
