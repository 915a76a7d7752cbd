"""Sockets for threads: a call waits on one in slices of a tick."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ._breaker import Breaker, Breakers
from ._connections import Dialling
from ._dial import Dial, Login, Node
from ._errors import LimiterClosed, counted, is_reply, lost, repeated, retires
from ._fork import forgets
from ._line import Waiter
from ._link import Link
from ._options import Bounds
from ._protocol import packed
from ._steps import Call
from ._timed_socket import LEAST_S, TimedSocket
from ._traffic import Traffic

# Made once: to combine flags takes longer than the call. Windows has no polled sockets.
_PEEK = int(socket.MSG_PEEK) | int(getattr(socket, "MSG_DONTWAIT", 0))
# The pause between two looks of a limiter that is being closed.
_QUIET_S = 0.001


class _Link(Link):
    """A connection of the driver."""

    def __init__(self, connection: Any) -> None:
        super().__init__()
        self._connection = connection
        # Looks at the time for the call on this connection.
        self.look: Callable[[], float] = lambda: 0.0
        # Corrects the instant at which a command was sent.
        self.on_sent: Callable[[float], None] = lambda at: None
        self._socket = connection._sock
        self._timed = TimedSocket(self._socket)
        connection._sock = self._timed
        # Lets the parser read from the timed socket.
        connection._parser.on_connect(connection)
        # The replies to read, and whether the driver reads them.
        self._left, self._is_drivers = 0, False

    def exchange(
        self, args: tuple[str, ...], look: Callable[[], float], slice_s: float, at: float, *,
        asking: bool = False,
    ) -> Any:  # fmt: skip
        """Sends a command and reads its reply."""
        timed = self._timed
        timed.begin(look, slice_s, at)
        try:
            self._left, self._is_drivers = 1 + asking, asking
            if asking:
                timed.sendall(packed(("ASKING",)))
            timed.sendall(packed(args))
            if (sent := time.monotonic()) - at > LEAST_S:
                # This thread has waited for the interpreter before.
                self.on_sent(sent)
            return self.read()
        finally:
            timed.end()

    def read(self) -> Any:
        """Reads the reply. Raises TimeoutError if it has not arrived, outside an exchange."""
        while True:
            reply = None if self._is_drivers else self._timed.integers()
            if reply is None:
                # It may have a part of a reply when the wait is resumed.
                self._is_drivers = True
                reply = self._connection.read_response(disconnect_on_error=False)
            self._left -= 1
            if not self._left:
                return reply

    def has_arrived(self, within_s: float) -> bool:
        """Returns True if something arrives within a time. It is not read."""
        with contextlib.suppress(OSError, ValueError):
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
            if not self._timed.is_polled:
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


def ask_once(make: Callable[[], Any], args: tuple[str, ...], timeout_s: float) -> Any:
    """Opens a connection for one call, and returns the reply."""
    connection, ends_at = make(), time.monotonic() + timeout_s

    def look() -> float:
        left_s = ends_at - time.monotonic()
        if left_s <= 0:
            raise counted("no answer in time", "timeout")
        return left_s

    try:
        connection.connect()
        return _Link(connection).exchange(args, look, max(LEAST_S, look()), time.monotonic())
    finally:
        connection.disconnect()


class _Waiter(Waiter):
    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self.ended = threading.Event()
        self.result: Any = None

    @property
    def has_left(self) -> bool:
        return False

    def resolve(self, result: Any) -> None:
        self.result = result
        self.ended.set()


class _Pool(Traffic[_Link, _Waiter]):
    """The traffic of a process to a node. Its methods are called under the lock."""

    def __init__(
        self, make: Callable[[], Any], bounds: Bounds, breaker: Callable[[], Breaker],
        lock: threading.RLock,
    ) -> None:  # fmt: skip
        super().__init__(bounds, breaker)
        self._make, self._lock = make, lock
        # The next look, which the first thread makes whose wait ends.
        self._looks_at = 0.0

    def _dial(self, dialling: Dialling, patience_s: float) -> bool:
        try:
            args = dialling, patience_s
            threading.Thread(target=self._connect, args=args, daemon=True).start()
        except RuntimeError:
            # No thread can start: the callers use connections that others return.
            return False
        return True

    def _connect(self, dialling: Dialling, patience_s: float) -> None:
        try:
            connection = self._make()
            connection.socket_connect_timeout = connection.socket_timeout = patience_s
            login = dialling.login = Login(connection)
            login.watch()
            try:
                connection.connect()
            finally:
                login.end()
            link = _Link(connection)
            link.look = partial(self.look_for, link)
            link.on_sent = partial(self.sent_at, link)
        except Exception as error:
            with self._lock:
                self.dial_failed(dialling, error, time.monotonic())
        else:
            with self._lock:
                self.dialled(dialling, link, login.is_heard, time.monotonic())

    def look_for(self, link: _Link | None = None) -> float:
        """Ends what is due, and returns the time until the next look.

        Raises the error of the call on ``link`` if that has ended.
        """
        at = time.monotonic()
        if at >= self._looks_at - LEAST_S:
            with self._lock:
                if at >= self._looks_at - LEAST_S:
                    at = time.monotonic()
                    self._looks_at = at + self.look(at)
        if link is not None and link.error is not None:
            raise link.error
        return max(LEAST_S, self._looks_at - at)

    def sent_at(self, link: _Link, at: float) -> None:
        """Corrects the instant at which a command was sent."""
        link.sent = self.now(at)

    def _is_usable(self, link: _Link) -> bool:
        return link.is_usable

    def _hang_up(self, link: _Link) -> None:
        if link.call is None or link.drains:
            link.close()
        else:
            # Its own thread closes it.
            link.interrupt()

    def _interrupt(self, link: _Link) -> None:
        """Does nothing: the thread of the call looks at the time itself."""

    def read_arrived(self) -> None:
        at = time.monotonic()
        for link in list(self.in_flight):
            if not link.drains:
                continue
            try:
                reply = link.read()
            except TimeoutError:
                continue
            except Exception as error:
                self.failed(link, error, at)
            else:
                self.answer(link, reply, at)
                self.give(link, at)

    def failed(self, link: _Link, error: Exception, at: float) -> Exception:
        """Ends a command with an error reply, or that of a lost connection. Returns the error."""
        if not is_reply(error):
            self.lose(link, error, at)
            return link.error or lost(error)
        self.answer(link, error, at)
        if retires(error) and not self.retire_once(link, at):
            error = repeated(error)
        self.give(link, at)
        return link.error or error

    def _has_arrived(self, link: _Link) -> bool:
        # A reply that arrives byte by byte counts for a time only.
        return not link.drains and time.monotonic() < link.ends_at and link.has_arrived(0)


class Sockets:
    """The connections to one node, for threads."""

    def __init__(
        self, make: Callable[[], Any], bounds: Bounds, breakers: Breakers, node: Node
    ) -> None:  # fmt: skip
        self._make, self._bounds = make, bounds
        self._breakers, self._node = breakers, node
        forgets(self)

    def begin(self) -> None:
        """Resets to no connections, also after a fork: a child must not use those of its parent."""
        self._lock = threading.RLock()
        self.pool = _Pool(
            self._make, self._bounds, lambda: self._breakers.of(self._node), self._lock
        )

    def call(self, args: tuple[str, ...], call: Call, *, asking: bool = False) -> Any:
        """Sends a command, and returns the reply or the known denial of the call."""
        pool = self.pool
        while True:
            with self._lock:
                at = time.monotonic()
                found = pool.find(call, at)
                if isinstance(found, _Link):
                    pool.send(found, call, at)
                    break
                if found is not None:
                    return found
                waiter = _Waiter(call)
                pool.join(waiter, at)
            found = self._wait(waiter)
            with self._lock:
                at = time.monotonic()
                pool.end_wait(waiter, at)
                if not isinstance(found, _Link):
                    return found
                # Otherwise it was closed before this thread ran.
                if found in pool.links:
                    pool.send(found, call, at)
                    break
        return self._exchange(found, args, at, asking=asking)

    def _wait(self, waiter: _Waiter) -> Any:
        """Waits in line. Returns a connection or the known denial of the call."""
        try:
            slice_s = self._bounds.tick_s
            while not waiter.ended.wait(slice_s):
                slice_s = self.pool.look_for()
        except BaseException:
            with self._lock:
                self.pool.leave(waiter)
                if isinstance(waiter.result, _Link):
                    self.pool.give(waiter.result, time.monotonic())
            raise
        if isinstance(waiter.result, Exception):
            raise waiter.result
        return waiter.result

    def _exchange(self, link: _Link, args: tuple[str, ...], at: float, *, asking: bool) -> Any:
        pool = self.pool

        try:
            reply = link.exchange(args, link.look, self._bounds.tick_s, at, asking=asking)
        except Exception as error:
            with self._lock:
                if link.error is None or is_reply(error):
                    ended = pool.failed(link, error, time.monotonic())
                else:
                    self._leave(link)
                    ended = link.error
            if ended is error:
                raise
            raise ended from error
        except BaseException:
            with self._lock:
                self._leave(link)
            raise
        with self._lock:
            at = time.monotonic()
            pool.answer(link, reply, at)
            pool.give(link, at)
        if link.error is not None:
            raise link.error
        return reply

    def _leave(self, link: _Link) -> None:
        """Lets the command of a caller that has gone drain, or closes a closed connection."""
        if link.call is None:
            return
        self.pool.abandon(link)
        if link not in self.pool.links:
            link.close()
            self.pool.lose(link, link.error or Exception(), time.monotonic())
        elif link.call.gives_back:
            threading.Thread(target=self._await_reply, args=(link,), daemon=True).start()

    def _await_reply(self, link: _Link) -> None:
        """Reads a reply that gives something back, even if no other call does."""
        while link.drains:
            link.has_arrived(self._bounds.tick_s)
            with self._lock:
                self.pool.read_arrived()
                self.pool.look(time.monotonic())

    @property
    def is_up(self) -> bool:
        """True if a connection is open."""
        return bool(self.pool.links)

    def catch_up(self) -> None:
        """Reads what has arrived for callers that have gone."""
        with self._lock:
            self.pool.read_arrived()

    def quiet(self, timeout_s: float) -> None:
        """Ends the calls in line, and waits for those in flight."""
        with self._lock:
            self.pool.end_line(LimiterClosed, kept=False)
        ends_at = time.monotonic() + timeout_s
        while time.monotonic() < ends_at:
            with self._lock:
                if self.pool.is_quiet:
                    return
            time.sleep(_QUIET_S)

    def close(self) -> None:
        """Closes all connections."""
        with self._lock:
            self.pool.is_closed = True
            self.pool.end_line(LimiterClosed)
            self.pool.retire(time.monotonic(), LimiterClosed())

    def leave(self) -> None:
        """Closes the connections, each as soon as no call uses it."""
        with self._lock:
            self.pool.is_closed = True
            for link in list(self.pool.idle):
                self.pool.drop(link, time.monotonic())


class ServerTransport:
    """One server, from a ``redis.Redis`` or ``valkey.Valkey``."""

    def __init__(self, client: Any, bounds: Bounds, breakers: Breakers) -> None:
        pool = client.connection_pool
        dial = Dial(pool.connection_class, pool.connection_kwargs, bounds.dial_s, wait=False)
        self._sockets = Sockets(dial.to(None), bounds, breakers, None)

    def node(self, key: str) -> Node:
        """Returns None, because there is only one node."""
        return None

    def call(self, node: Node, args: tuple[str, ...], call: Call) -> Any:
        """Sends a command, and returns the reply or the known denial of the call."""
        return self._sockets.call(args, call)

    def is_up(self, node: Node) -> bool:
        """Returns True if a connection is open."""
        return self._sockets.is_up

    def catch_up(self, node: Node) -> None:
        """Reads what has arrived for callers that have gone."""
        self._sockets.catch_up()

    def quiet(self, timeout_s: float) -> None:
        """Ends the calls in line, and waits for those in flight."""
        self._sockets.quiet(timeout_s)

    def close(self) -> None:
        """Closes the sockets."""
        self._sockets.close()
