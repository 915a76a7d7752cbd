"""Holds: what a call took, and its caller must end. The steps to renew and to end them.

A process decides by its own clock whether it still has a hold: for one ttl from the instant before
the last successful request.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from .._calls.steps import Calls
from .._rules.decision import Decision
from .._rules.errors import CommandRejected, LimiterClosed, ThrottleError, Unavailable
from .._rules.event import DecisionKind
from .._rules.rule import Item
from .._wire import replies, words
from .._wire.call import Steps, Turn
from .._wire.words import Args, Keyed, Settling


@dataclass(frozen=True, slots=True)
class Entry:
    """A call, the instant before it was sent, its decision, and the name of its holder.

    There is no decision if the caller does not have what the call took. ``may_have_run`` is true if
    the server may have what the call took.
    """

    items: Sequence[Keyed]
    id: str
    began: float
    decision: Decision | None
    is_admission: bool
    may_have_run: bool = True

    def row(self, at: int) -> Decision | None:
        """Returns the decision on the item at this index."""
        return None if self.decision is None else (self.decision.rows or (self.decision,))[at]


# The pauses between attempts to end a hold: from the first, doubling, to the last.
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.1, 5.0
# How long a charge or a refund, which has no ttl, waits for a slot.
_CHARGE_WAITS_S = 30.0


class Hold:
    """A permit, a reservation or an estimate, until it is ended."""

    kind: DecisionKind = "lease"
    # True if the hold expires unless it is renewed.
    expires: ClassVar[bool] = True
    # True if a renewal that was sent must end before the hold is ended.
    waits_for_renewal: ClassVar[bool] = False
    # True if an end without a reply may be sent again.
    _repeats: ClassVar[bool] = True

    def __init__(self, calls: Calls, keyed: Keyed, at: int, taken: Entry, ttl_us: int) -> None:
        """``at`` is the index of the item in the call that took it."""
        (self.item, self.key), self.taken = keyed, taken
        self._calls, self._ttl_s = calls, ttl_us / 1_000_000
        # The end by this process's clock, and the latest end that the server may have.
        self._until = self._ends = taken.began + self._ttl_s
        # The instant before the last call to take or to renew it was sent.
        self._sent = taken.began
        self._process = os.getpid()
        self._row = taken.row(at)
        is_local = self._row is not None and self._row.source == "local"
        self._is_on_server = taken.may_have_run and not is_local
        self._tries, self._failure = 0, Unavailable("the limiter was closed")
        self._ended_at = 0.0
        self.is_ended = False
        # Counts the reports of an end that failed. Only the first is made.
        self._reports = itertools.count()
        # Ends the renewals in the background.
        self.stop: Callable[[], Any] = lambda: None

    @property
    def held(self) -> bool:
        """True while this process has the hold. A degraded one is held until it is ended."""
        is_own = not self.is_ended and not self._is_parents
        lasts = self._is_degraded or not self.expires
        return is_own and (lasts or self._calls.clock() < self._until)

    @property
    def _is_degraded(self) -> bool:
        return self.taken.decision is not None and self.taken.decision.degraded

    @property
    def _is_parents(self) -> bool:
        """True in a forked child, which must leave its parent's holds alone."""
        return os.getpid() != self._process

    @property
    def is_renewable(self) -> bool:
        """True if a renewal may be sent. A hold whose ttl is over stays lost."""
        return self.expires and self.held and not self._is_degraded

    @property
    def node(self) -> Any:
        """The node that has the key now; None if it is not known."""
        return self._calls.sender.node_of(self.key)

    # -- renewals -----------------------------------------------------------------------------

    def renew(self) -> Steps[bool]:
        """Renews the hold for another ttl. Returns False if it is lost."""
        if not self.is_renewable:
            return self.held
        self._sent = began = self._calls.clock()
        rule, subject = self.item.rule, self.item.subject
        with self._calls.events.rejections(rule, subject, began):
            reply = yield from self._calls.keep(self._renewal(), self._until, lambda: self.is_ended)
        if not self._is_kept(reply):
            # It stays lost, also if another renewal gets its reply later.
            self._until = float("-inf")
        elif self._until > float("-inf"):
            self._until = max(self._until, began + self._ttl_s)
            self._ends = max(self._ends, self._until)
        return self.held

    def _renewal(self) -> Args:
        raise NotImplementedError

    def _is_kept(self, reply: object) -> bool:
        raise NotImplementedError

    def next_renewal_s(self) -> float:
        """Returns the time until the next renewal: two may fail before the hold is lost."""
        return max(0.0, self._sent + self._ttl_s / 3 - self._calls.clock())

    def let_expire(self) -> None:
        """Ends the renewals of a hold that no caller can end any more: it expires by itself."""
        self._until = float("-inf")

    # -- the end ------------------------------------------------------------------------------

    def begins_end(self) -> bool:
        """Ends the renewals. Returns True if an end must be sent, and was not sent before."""
        if self.is_ended:
            return False
        self.is_ended, self._ended_at = True, self._calls.clock()
        self.stop()
        return self._is_on_server and not self._is_parents and self._has_end()

    def _has_end(self) -> bool:
        return True

    def end(self) -> Steps[bool]:
        """Sends the end once. Returns False if that may be repeated."""
        self._tries += 1
        try:
            yield from self._end()
        except LimiterClosed:
            return False
        except Unavailable as error:
            self._failure = error
            return False
        except ThrottleError as error:
            self._fail(error)
        return True

    def _end(self) -> Steps[None]:
        raise NotImplementedError

    @property
    def was_tried(self) -> bool:
        """True if the end was sent, or is about to be."""
        return self._tries > 0

    def next_end_s(self) -> float | None:
        """Returns the pause before the next try to end it; None if there is none."""
        if not self._tries:
            return 0.0
        pause_s = min(_FIRST_PAUSE_S * 2.0 ** min(self._tries - 1, 9), _LAST_PAUSE_S)
        again = self._repeats and not self._calls.is_closed
        again = again and self._calls.clock() + pause_s < self._ends
        return pause_s if again and not self._is_parents else None

    def give_up(self) -> None:
        """Notes that the end got no reply and is not repeated."""
        if not self._is_parents and (self.taken.is_admission or self._calls.is_closed):
            self._report(self._failure)

    def _fail(self, error: ThrottleError) -> None:
        if self.taken.is_admission:
            self._report(error)

    def _report(self, error: ThrottleError) -> None:
        if next(self._reports):
            # The close gave it up, and its reply came later.
            return
        rule, subject = self.item.rule, self.item.subject
        self._calls.events.unsettled(self.kind, rule, subject, self._ended_at, error)

    def _send(self, args: Args, until: float) -> Steps[Any]:
        """Sends an end, which may wait for a slot at least as long as for its reply."""
        until = max(until, self._calls.clock() + self._calls.timeout_s)
        return self._calls.keep(args, until)

    def _settle(self, kind: Settling, args: Args, units: int, until: float) -> Steps[Decision]:
        keyed = Keyed(Item(self.item.rule, self.item.subject, units), self.key)
        return self._calls.settled(kind, args, keyed, lambda args: self._send(args, until))

    def _charge(self, kind: Settling, units: int) -> Steps[Decision]:
        item = Item(self.item.rule, self.item.subject, units)
        until = self._calls.clock() + _CHARGE_WAITS_S
        args = words.named(kind.upper(), item, self.key)
        return self._settle(kind, args, units, until)


class Permit(Hold):
    """A permit of a lease."""

    def __init__(self, calls: Calls, keyed: Keyed, at: int, taken: Entry) -> None:
        super().__init__(calls, keyed, at, taken, keyed.item.rule.period_us)

    def _renewal(self) -> Args:
        # The server may receive it, even if the reply is lost.
        self._ends = max(self._ends, self._sent + self._ttl_s)
        return words.renew(self.item.rule, self.key, self.taken.id)

    def _is_kept(self, reply: object) -> bool:
        return replies.held(reply)

    def _end(self) -> Steps[None]:
        rule, subject = self.item.rule, self.item.subject
        with self._calls.events.rejections(rule, subject, self._ended_at):
            yield from self._send(words.release(self.key, self.taken.id), self._ends)


class Settled(Hold):
    """A hold whose caller may report the units that the work took."""

    units: int | None = None


class Reserved(Settled):
    """A reservation."""

    waits_for_renewal = True

    def __init__(self, calls: Calls, keyed: Keyed, at: int, taken: Entry) -> None:
        super().__init__(calls, keyed, at, taken, keyed.item.ttl_us or 0)
        # A commit without a reply may have run; a charge must not be sent again.
        self._may_be_committed = self._charges = False

    def renew(self) -> Steps[bool]:
        """The same as :meth:`Hold.renew`. After a rejection it is not renewed again."""
        turn = yield Turn(("hold", self), self._ttl_s)
        if turn is None:
            return self.held
        try:
            return (yield from super().renew())
        except CommandRejected:
            self._until = float("-inf")
            raise
        finally:
            turn.release()

    def _renewal(self) -> Args:
        return words.reserve(self.item, self.key, self.taken.id)

    def _is_kept(self, reply: object) -> bool:
        return replies.decision(self.item, reply).allowed

    def _end(self) -> Steps[None]:
        # A renewal that arrives after the cancellation would reserve again.
        turn = yield Turn(("hold", self), self._calls.timeout_s)
        try:
            if self.units is None:
                self.kind = "cancel"
                args = words.cancel(self.item, self.key, self.taken.id)
                yield from self._settle("cancel", args, 0, self._ends)
            else:
                yield from self._commit(self.units)
        finally:
            if turn is not None:
                turn.release()

    def _commit(self, units: int) -> Steps[None]:
        self.kind = "commit"
        args = words.commit(self.item, self.key, self.taken.id, units)
        try:
            known = yield from self._settle("commit", args, units, self._ends)
        except Unavailable as error:
            self._may_be_committed |= error.may_have_run
            raise
        except BaseException:
            self._may_be_committed = True
            raise
        if known.allowed or self._may_be_committed or self._is_degraded or not units:
            return
        self.kind, self._charges = "charge", True
        yield from self._charge("charge", units)

    def next_end_s(self) -> float | None:
        """The same as :meth:`Hold.next_end_s`."""
        return None if self._charges else super().next_end_s()


class Estimate(Settled):
    """The units of a rule without reservation, which are taken already."""

    expires = _repeats = False

    def __init__(self, calls: Calls, keyed: Keyed, at: int, taken: Entry) -> None:
        super().__init__(calls, keyed, at, taken, 0)

    def _has_end(self) -> bool:
        if self._is_degraded or self.units in (None, self.item.units):
            return False
        # A policy in shadow mode allows a call that does not fit, and takes nothing.
        return self._row is not None and self._row.would_allow

    def _end(self) -> Steps[None]:
        more = (self.units or 0) - self.item.units
        kind: Settling = "charge" if more > 0 else "refund"
        self.kind = kind
        yield from self._charge(kind, abs(more))


def hold_of(calls: Calls, taken: Entry, at: int) -> Hold:
    """Returns what the call took by the item at this index."""
    keyed = taken.items[at]
    if keyed.item.rule.kind == "lease":
        return Permit(calls, keyed, at, taken)
    if keyed.item.ttl_us is not None:
        return Reserved(calls, keyed, at, taken)
    return Estimate(calls, keyed, at, taken)


def holds_of(calls: Calls, taken: Entry, *, estimates: bool = False) -> list[Hold]:
    """Returns the leases and reservations of a call, and with ``estimates`` its other items."""
    at = [at for at, (item, _) in enumerate(taken.items) if estimates or item.is_held]
    return [hold_of(calls, taken, one) for one in at]
