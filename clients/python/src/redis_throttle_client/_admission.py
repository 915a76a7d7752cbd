"""Admissions: several rules taken at once, and settled at the end of the work."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Generic, Self, TypeVar

from ._decision import Decision, Denied
from ._entry import Entry
from ._errors import InvalidArgument, Unavailable
from ._hold import Hold, Settled
from ._keeping import Keeper, Renewer
from ._rules import Item, Rule, checked_cost, checked_rule

G = TypeVar("G", bound="AsyncAdmission")


class _Admitted:
    """The common part of both admissions."""

    def __init__(self, taken: Entry, holds: Sequence[Hold]) -> None:
        self._taken, self._holds = taken, holds
        self._is_over = False

    def __del__(self) -> None:
        # Nobody can end it any more, and its renewals would hold it for ever.
        for hold in self._holds:
            hold.lapse()

    @property
    def id(self) -> str:
        """The name of the holder of its leases and reservations."""
        return self._taken.id

    @property
    def decision(self) -> Decision:
        """The decision that admitted the work."""
        if self._taken.decision is None:
            raise Unavailable("the admission was not received")
        return self._taken.decision

    @property
    def held(self) -> bool:
        """True until the end, unless a lease or a reservation was lost: stop the work then."""
        return not self._is_over and all(hold.held for hold in self._holds)

    def settle(self, rule: Rule | Item, actual: int) -> None:
        """Notes the units that the work took, 0 to 10^12. They are sent at the end.

        The last call wins. If two items have the same rule, pass the item. Raises InvalidArgument
        for a lease or a backoff, and after the end.
        """
        units = checked_cost(actual, "actual")
        of = rule.rule if isinstance(rule, Item) else checked_rule(rule)
        if self._is_over:
            raise InvalidArgument(f"rule: the admission of {of.name} has ended")
        found = [hold for hold in self._holds if hold.item.rule == of]
        if isinstance(rule, Item):
            found = [hold for hold in found if hold.item.subject == rule.subject]
        if len(found) > 1:
            raise InvalidArgument(f"rule: two items have the rule {of.name}; pass the item")
        hold = found[0] if found else None
        if not isinstance(hold, Settled) or of.kind == "backoff":
            raise InvalidArgument(f"rule: no item that can be settled has the rule {of.name}")
        hold.units = units

    def _unsettle(self) -> None:
        """Drops the noted units, so that the end cancels a reservation."""
        for hold in self._holds:
            if isinstance(hold, Settled):
                hold.units = None


class Admission(_Admitted):
    """The admitted work of a thread. A context: its end is that of the work."""

    def __init__(self, taken: Entry, holds: Sequence[Hold], renewer: Renewer) -> None:
        super().__init__(taken, holds)
        self._renewer, self._ending = renewer, threading.RLock()
        self._process = os.getpid()

    def finish(self) -> None:
        """Ends the work: sends what was settled, and gives back leases and the rest.

        A second call waits for the first. Errors are not raised, but counted as ``unsettled`` and
        told to ``on_decision``. What has no answer is repeated in the background, except charges
        and refunds.
        """
        if os.getpid() != self._process:
            # The parent ends it. A thread of the parent may have had the lock at the fork.
            self._is_over = True
            return
        with self._ending:
            self._is_over = True
            self._renewer.end(self._holds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.finish()


class Reservation(Admission):
    """A reservation of a thread. Without a commit, the end cancels it."""

    def commit(self, actual: int) -> None:
        """Settles the units that the work took, and ends the reservation."""
        self.settle(self._holds[0].item, actual)
        self.finish()

    def cancel(self) -> None:
        """Ends the reservation. It used nothing."""
        self._unsettle()
        self.finish()


class AsyncAdmission(_Admitted):
    """The admitted work of a task."""

    def __init__(self, taken: Entry, holds: Sequence[Hold], keeper: Keeper) -> None:
        super().__init__(taken, holds)
        self._keeper = keeper
        self._ending: asyncio.Future[Any] | None = None

    async def finish(self) -> None:
        """The same as :meth:`Admission.finish`, even if the task is cancelled meanwhile."""
        if self._ending is None:
            self._is_over = True
            self._ending = self._keeper.end_soon(self._holds)
        await asyncio.shield(self._ending)


class AsyncReservation(AsyncAdmission):
    """A reservation of a task. Without a commit, the end cancels it."""

    async def commit(self, actual: int) -> None:
        """The same as :meth:`Reservation.commit`."""
        self.settle(self._holds[0].item, actual)
        await self.finish()

    async def cancel(self) -> None:
        """The same as :meth:`Reservation.cancel`."""
        self._unsettle()
        await self.finish()


class AsyncAdmissionContext(Generic[G]):
    """The context of ``async with limiter.admit(...) as admitted``.

    ``await limiter.admit(...)`` returns the same without a block; call ``finish()`` at the end of
    the work. Both raise Denied.
    """

    def __init__(self, take: Callable[[], Awaitable[G]]) -> None:
        self._take = take
        self._admitted: G | None = None

    def __await__(self) -> Generator[Any, None, G]:
        return self._take().__await__()

    async def __aenter__(self) -> G:
        self._admitted = await self._take()
        return self._admitted

    async def __aexit__(self, *exc: object) -> None:
        if self._admitted is not None:
            await self._admitted.finish()


def allowed(taken: Entry) -> Entry:
    """Returns a call that was allowed; raises Denied."""
    if taken.decision is None:
        raise Unavailable("there is no decision")
    if not taken.decision.allowed:
        raise Denied(taken.decision)
    return taken
