"""Sends calls once, each through the circuit breaker of its node and to the back end in use."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

from ._backends import Choice, unexecuted
from ._breaker import Breaker
from ._dial import LEASE_SLOTS
from ._errors import (
    TOO_MANY,
    CommandRejected,
    Reason,
    Retired,
    ThrottleError,
    TooManyReservations,
    Unavailable,
    Undialled,
    Unsent,
    is_rejection,
    is_temporary,
)
from ._options import Options
from ._protocol import Args, Kept
from ._steps import Send, Steps, Turn


class Asking:
    """The circuit breakers of a limiter, one per node, and its back end."""

    def __init__(
        self, options: Options, find_node: Callable[[str], Any], is_up: Callable[[Any], bool],
        rejected: Callable[[], None],
    ) -> None:  # fmt: skip
        """``is_up`` returns True if a connection to a node is open. ``rejected`` counts a call that
        the server refused.
        """
        self._is_up = is_up
        self._options, self._find_node, self._rejected = options, find_node, rejected
        self.clock, self._timeout_s = options.clock, options.timeout_ms / 1000
        self.backend = Choice(options.backend, options.clock, find_node)
        self.begin()

    def begin(self) -> None:
        """Forgets the calls in flight, also in the child of a fork."""
        self._lock = threading.Lock()
        self._breakers: dict[object, Breaker] = {}
        # For each node and slot, the number of calls on leases that have it or wait for it.
        self._slots: dict[object, list[int]] = {}
        self._turns: weakref.WeakValueDictionary[object, Any] = weakref.WeakValueDictionary()

    def keep(
        self, args: Args, until: float, is_over: Callable[[], bool] = lambda: False
    ) -> Steps[Any]:
        """Sends a renewal or an end of a lease or an admission. These have slots of their own.

        Waits for a slot at most until the instant ``until``. Nothing is sent if it ``is_over`` by
        then.
        """
        node = self._find_node(args[1])
        with self._lock:
            slots = self._slots.setdefault(node, [0] * LEASE_SLOTS)
            slot = slots.index(min(slots))
            slots[slot] += 1
        try:
            turn = yield Turn(("lease", node, slot), max(0.0, until - self.clock()))
            if turn is None:
                raise Unavailable("the ttl ended before the call was sent", "overloaded")
            try:
                if is_over():
                    raise Unavailable("the work ended before the call was sent", "overloaded")
                return (yield from self.ask(args, lease=True))
            finally:
                turn.release()
        finally:
            with self._lock:
                slots[slot] -= 1

    def ask(self, args: Args, *, lease: bool = False) -> Steps[Any]:
        """Sends a call once, if the circuit breaker of its node permits, and returns the reply."""
        began = self.clock()
        try:
            node = self._find_node(args[1])
        except Exception as error:
            judged = _judged(error)
            if judged is error:
                raise
            raise judged from error
        breaker = self.breaker(node)
        probe = breaker.enter(began, lease=lease, is_up=lease and self._is_up(node))
        answers, failures = breaker.answers, breaker.failures
        answered: bool | None = None
        timeout_s = self._timeout_s
        try:
            sent, tried, until = args, self.backend.found, began + timeout_s
            if tried.by != "module":
                if tried.by is None and args[0].startswith("RL."):
                    tried = yield from self.backend.find(node, args, tried, until)
                    timeout_s = max(0.001, until - self.clock())
                sent = self.backend.written(args, tried.by)
            try:
                reply = yield Send(node, Kept(sent) if lease else sent, timeout_s)
            except ThrottleError:
                # No error reply.
                raise
            except Exception as error:
                if not unexecuted(error, sent):
                    raise
                reply = yield from self.backend.again(node, args, tried, error, until)
            answered = True
        except Exception as error:
            self.backend.lost(error)
            judged = _judged(error)
            if isinstance(judged, Unsent) and breaker.answers != answers:
                # All connections were in use, but the server answered other calls meanwhile.
                judged.reason = "overloaded"
            answered = _verdict(judged, alone=probe or breaker.failures == failures)
            if answered and not isinstance(judged, TooManyReservations):
                self._rejected()
            if judged is error:
                raise
            raise judged from error
        finally:
            breaker.leave(self.clock(), probe, answered, lease=lease)
        return reply

    def turn(self, key: object, make: Callable[[], Any]) -> Any:
        """Returns the lock of a key. The lock exists while a caller has it or waits for it."""
        with self._lock:
            return self._turns.setdefault(key, make())

    def open_breakers(self) -> int:
        """Returns the number of nodes whose breaker is open."""
        now = self.clock()
        return sum(breaker.is_open(now) for breaker in list(self._breakers.values()))

    def breaker(self, node: object) -> Breaker:
        """Returns the breaker of a node. Each node has one, so a dead node blocks no other."""
        breaker = self._breakers.get(node)
        if breaker is None:
            options = self._options
            made = Breaker(
                options.max_in_flight, options.breaker_failures, options.breaker_pause_ms / 1000
            )
            breaker = self._breakers.setdefault(node, made)
        return breaker


def _verdict(error: ThrottleError, *, alone: bool) -> bool | None:
    """Returns True if the server has answered, False for a failure, and None for neither.

    ``alone`` is false if another failure was counted since the call began.
    """
    if not isinstance(error, Unavailable):
        return True
    if isinstance(error, Retired | Undialled) or error.reason == "overloaded":
        # The failure is counted already, or the call has not reached the node.
        return None
    # Calls that end together without an answer are one failure.
    return None if error.reason == "timeout" and not alone else False


def _judged(error: Exception) -> ThrottleError:
    """Converts a driver's error to an error of this package. The caller sets the cause."""
    if isinstance(error, ThrottleError):
        return error
    if is_rejection(error):
        if TOO_MANY in str(error):
            return TooManyReservations(str(error))
        hint = ""
        if "unknown command" in str(error) and "RL." in str(error):
            hint = ": is the module loaded on this server?"
        return CommandRejected(f"{error}{hint}")
    reason: Reason = "server" if is_temporary(error) else "connection"
    return Unavailable(f"no answer: {error or type(error).__name__}", reason)
