"""Sends a command to its node once, through the circuit breaker and to the back end in use."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from typing import Any

from .._rules.decision import Decision
from .._rules.errors import (
    CommandRejected,
    LimiterClosed,
    ThrottleError,
    TooManyReservations,
    Unavailable,
    counted,
    judge,
)
from .._rules.options import Options
from .._wire.backends import Choice, unexecuted
from .._wire.call import Call, Send, Steps, Turn
from .._wire.words import Args
from .breaker import Breaker, Breakers
from .dial import END_SLOTS, RENEWAL_SLOTS


class Sender:
    """Sends the commands of a limiter, through the breakers and to its back end."""

    def __init__(
        self, options: Options, breakers: Breakers, find_node: Callable[[str], Any],
        is_up: Callable[[Any], bool], catch_up: Callable[[Any], None],
        rejected: Callable[[], None],
    ) -> None:  # fmt: skip
        """``is_up`` returns True if a connection to a node is open. ``catch_up`` reads what has
        arrived from a node. ``rejected`` counts a call that the server refused.
        """
        self.breakers, self._find_node, self._is_up = breakers, find_node, is_up
        self._catch_up = catch_up
        self._rejected, self._late = rejected, self._end_late
        self.clock, self._timeout_s = options.clock, options.timeout_ms / 1000
        # True after the connections were closed for good.
        self.has_ended = False
        # The time of a dial, if that is longer than usual.
        self.dial_s = 0.0
        self.backend = Choice(options.backend, options.clock, find_node)
        self.begin()

    def begin(self) -> None:
        """Forgets the calls in flight, also in the child of a fork."""
        self._lock = threading.Lock()
        # For each node, and for renewals and ends apart: the number of calls at each slot that have
        # it or wait for it.
        self._slots: dict[object, list[int]] = {}
        self._turns: weakref.WeakValueDictionary[object, Any] = weakref.WeakValueDictionary()

    def call(self, left_s: float | None = None) -> Call:
        """Returns a call with a full timeout, or with the rest of one."""
        call = Call(self._timeout_s if left_s is None else left_s)
        if self.dial_s:
            call.dial_s = self.dial_s
        return call

    def keep(
        self, args: Args, until: float, is_over: Callable[[], bool] | None = None
    ) -> Steps[Any]:
        """Sends a renewal or an end of a lease or an admission. Each has slots of its own.

        Waits for a slot at most until the instant ``until``. ``is_over`` is that of a renewal, and
        None for an end: a renewal is not sent if it is over by then.
        """
        node = self._find_node(args[1])
        most = END_SLOTS if is_over is None else RENEWAL_SLOTS
        with self._lock:
            slots = self._slots.setdefault((node, most), [0] * most)
            slot = slots.index(min(slots))
            slots[slot] += 1
        try:
            turn = yield Turn(("lease", node, most, slot), max(0.0, until - self.clock()))
            if turn is None:
                raise Unavailable("the ttl ended before the call was sent", "overloaded")
            try:
                if is_over is not None and is_over():
                    raise Unavailable("the work ended before the call was sent", "overloaded")
                call = self.call()
                call.is_kept = True
                return (yield from self.send(args, call))
            finally:
                turn.release()
        finally:
            with self._lock:
                slots[slot] -= 1

    def node_of(self, key: str) -> Any:
        """Returns the node that has a key now; None if it is not known."""
        # A call for the key raises the error.
        with contextlib.suppress(Exception):
            return self._find_node(key)
        return None

    def send(self, args: Args, call: Call) -> Steps[Any]:
        """Sends a command once, if the breaker of its node permits.

        Returns what ``call.read`` makes of the reply, or the known denial of the call.
        """
        if self.has_ended:
            raise LimiterClosed
        try:
            node = self._find_node(args[1])
        except Exception as error:
            judged = judge(error)
            if judged is error:
                raise
            raise judged from error
        breaker = self.breakers.of(node)
        try:
            self._enter(breaker, node, call)
            if call.left_s <= 0:
                raise counted("no time is left for the call", "overloaded")
            sent, tried = args, self.backend.found
            if tried.by != "module":
                if tried.by is None and args[0].startswith("RL."):
                    tried = yield from self.backend.find(node, args, tried, call)
                sent = self.backend.written(args, tried.by)
            try:
                reply = yield Send(node, sent, call)
            except ThrottleError:
                # No error reply.
                raise
            except Exception as error:
                if not unexecuted(error, sent):
                    raise
                reply = yield from self.backend.again(node, args, tried, error, call)
        except Exception as error:
            judged = self._failed(breaker, error)
            if judged is error:
                raise
            raise judged from error
        finally:
            # The call of a cancelled probe drains, and is no probe any more.
            breaker.leave(call)
        if isinstance(reply, Decision):
            return reply
        breaker.succeeded()
        # The function refers to the call: without this the two would be garbage that Python seeks.
        read, call.read = call.read, None
        if read is None:
            return reply
        return read(reply) if call.result is None else call.result

    def _enter(self, breaker: Breaker, node: Any, call: Call) -> None:
        """Raises if the breaker of the node refuses the call."""
        call.node, call.late = node, self._late
        if call.is_kept and self._is_up(node):
            # It passes an open breaker.
            call.is_probe = False
            return
        try:
            call.is_probe = breaker.enter(call)
        except Unavailable:
            # A reply that has arrived for a caller that has gone closes the breaker.
            self._catch_up(node)
            call.is_probe = breaker.enter(call)

    def _failed(self, breaker: Breaker, error: Exception) -> ThrottleError:
        """Notes the error of a call, and returns it as one of this package."""
        self.backend.lost(error.__cause__ or error)
        judged = judge(error)
        self._note(breaker, judged)
        if isinstance(judged, CommandRejected) and not isinstance(judged, TooManyReservations):
            self._rejected()
        return judged

    def _note(self, breaker: Breaker, error: ThrottleError) -> None:
        """Notes the error of a call in the breaker, unless the transport has done so."""
        if isinstance(error, CommandRejected):
            breaker.succeeded()
        elif isinstance(error, Unavailable) and error.is_failure:
            breaker.failed()

    def _end_late(self, call: Call, outcome: Any) -> None:
        """Takes the outcome of a command whose caller has gone."""
        breaker = self.breakers.of(call.node)
        if isinstance(outcome, Exception):
            self._note(breaker, judge(outcome))
        else:
            breaker.succeeded()
        if call.then is not None:
            call.then(outcome)

    def turn(self, key: object, make: Callable[[], Any]) -> Any:
        """Returns the lock of a key. The lock exists while a caller has it or waits for it."""
        with self._lock:
            return self._turns.setdefault(key, make())
