"""The connections of threads to a node: a call waits on one in slices of a tick."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from .._rules.errors import LimiterClosed, ThrottleError, counted, is_reply, lost
from .._rules.options import Bounds
from .._wire.call import Call
from .breaker import Breaker, Breakers
from .connection import SocketLink
from .dial import Login, Node
from .fork import forgets
from .line import Waiter
from .pool import Dialling
from .timed_socket import LEAST_S, readable
from .traffic import Traffic

# The threads in line of which each looks once per tick, and the most ticks between its looks.
_LOOKERS, _MOST_TICKS = 16, 4
# The most threads that dial, far more than dials at a time: the search for an address has no
# deadline.
_MOST_DIALLING = 32
# The pause between two looks of a limiter that is being closed.
_QUIET_S = 0.001


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


class _Pool(Traffic[SocketLink, _Waiter]):
    """The traffic of a process to a node. Its methods are called under the lock."""

    def __init__(
        self, make: Callable[[], Any], bounds: Bounds, breaker: Callable[[], Breaker],
        lock: threading.RLock,
    ) -> None:  # fmt: skip
        super().__init__(bounds, breaker)
        self._make, self._lock = make, lock
        # The next look, which the first thread makes whose wait ends.
        self._looks_at = 0.0
        # The threads that dial, also those whose dial has ended without them.
        self._dialling = 0

    def _dial(self, dialling: Dialling, patience_s: float) -> bool:
        if self._dialling >= _MOST_DIALLING:
            # They hang, perhaps in the search for an address. This dial ends when its time is over.
            return True
        try:
            args = dialling, patience_s
            threading.Thread(target=self._connect, args=args, daemon=True).start()
        except RuntimeError:
            # No thread can start: the callers use connections that others return.
            return False
        self._dialling += 1
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
            link = SocketLink(connection)
            link.look = partial(self.look_for, link)
            link.on_sent = partial(self.sent_at, link)
        except Exception as error:
            with self._lock:
                self._dialling -= 1
                self.dial_failed(dialling, error, time.monotonic())
        else:
            with self._lock:
                self._dialling -= 1
                self.dialled(dialling, link, login.is_heard, time.monotonic())

    def look_for(self, link: SocketLink | None = None) -> float:
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

    @property
    def ticks(self) -> int:
        """The ticks between two looks of a thread in line.

        If many threads wait, some of them look often enough, next to those of commands in flight.
        All at once would take a core.
        """
        return min(_MOST_TICKS, 1 + self.waiting // _LOOKERS) if self.in_flight else 1

    def send(self, link: SocketLink, call: Call, at: float) -> None:
        link.is_sent = False
        super().send(link, call, at)

    def sent_at(self, link: SocketLink, at: float) -> None:
        """Corrects the instant at which a command was sent."""
        with self._lock:
            if link in self.in_flight:
                self.send_again(link, at)

    def _is_usable(self, link: SocketLink) -> bool:
        return link.is_usable

    def _hang_up(self, link: SocketLink) -> None:
        if link.call is None or link.drains:
            link.close()
        else:
            # Its own thread closes it.
            link.interrupt()

    def _interrupt(self, link: SocketLink) -> None:
        """Does nothing: the thread of the call looks at the time itself."""

    def read_arrived(self) -> None:
        draining = {link.timed: link for link in self.in_flight if link.drains}
        if not draining:
            return
        at = time.monotonic()
        for timed in readable(draining):
            link = draining[timed]
            try:
                reply = link.read()
            except TimeoutError:
                continue
            except Exception as error:
                self.failed(link, error, at)
            else:
                self.replied(link, reply, at)
                self.give(link, at)

    def _has_arrived(self, link: SocketLink) -> bool:
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
        try:
            found, at = self._find(call)
            if not isinstance(found, SocketLink):
                return found
            return self._exchange(found, args, at, asking=asking)
        except ThrottleError:
            raise
        except BaseException:
            # A signal, or another thread, may have raised it at any line.
            with self._lock:
                self._repair(call)
            raise

    def _find(self, call: Call) -> tuple[Any, float]:
        """Returns a connection that is about to send, and the time; or a known denial."""
        pool, waiter = self.pool, None
        try:
            while True:
                with self._lock:
                    at = time.monotonic()
                    found = pool.find(call, at)
                    if found is None:
                        waiter = _Waiter(call)
                        pool.join(waiter, at)
                    elif isinstance(found, SocketLink):
                        pool.send(found, call, at)
                        return found, at
                    else:
                        return found, at
                found = self._wait(waiter)
                with self._lock:
                    at = time.monotonic()
                    pool.end_wait(waiter, at)
                    if not isinstance(found, SocketLink):
                        return found, at
                    # Otherwise it was closed before this thread ran.
                    if found in pool.links:
                        pool.send(found, call, at)
                        return found, at
        except BaseException:
            if waiter is not None and waiter.result is None:
                with self._lock:
                    pool.leave(waiter)
            raise

    def _wait(self, waiter: _Waiter) -> Any:
        """Waits in line. Returns a connection or the known denial of the call."""
        slice_s, pool = self._bounds.tick_s, self.pool
        while not waiter.ended.wait(slice_s):
            slice_s = pool.look_for() * pool.ticks
            if time.monotonic() > waiter.call.ends_at:
                with self._lock:
                    # The thread that took it out of the line was interrupted.
                    if waiter.result is None and not pool.has_in_line(waiter):
                        raise counted("no place in time", "overloaded")
        if isinstance(waiter.result, Exception):
            raise waiter.result
        return waiter.result

    def _repair(self, call: Call) -> None:
        """Frees the connection of a call that was interrupted, also within a change of the pool."""
        pool, at = self.pool, time.monotonic()
        for link in list(pool.in_flight):
            if link.call is call and not link.drains:
                self._leave(link)
            elif link.drains and link.timed.is_reading:
                # The thread was interrupted while it read this reply, for a caller that has gone.
                pool.lose(link, _interrupted(), at)
        pool.repair(call, _interrupted(), at)

    def _exchange(self, link: SocketLink, args: tuple[str, ...], at: float, *, asking: bool) -> Any:
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
            pool.replied(link, reply, at)
            pool.give(link, at)
        if link.error is not None:
            raise link.error
        return reply

    def _leave(self, link: SocketLink) -> None:
        """Lets the command of a caller that has gone drain, or closes a closed connection."""
        if link.call is None:
            return
        self.pool.abandon(link)
        if not link.is_sent or link.timed.is_reading:
            # A part of the command was not sent, or a part of the reply is not there any more.
            link.error = link.error or lost(_interrupted())
            self.pool.drop(link, time.monotonic())
        if link not in self.pool.links:
            link.close()
            self.pool.lose(link, link.error or Exception(), time.monotonic())
        elif link.call.gives_back:
            threading.Thread(target=self._await_reply, args=(link,), daemon=True).start()

    def _await_reply(self, link: SocketLink) -> None:
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


def _interrupted() -> Exception:
    return ConnectionError("the call was interrupted")
