"""Admissions: several rules taken at once by one call, and settled at the end of the work."""

from __future__ import annotations

import asyncio
import os
import threading
import uuid
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Generic, Self, TypeVar

from .._calls.steps import Calls, item_of
from .._rules.decision import Decision, Denied
from .._rules.errors import InvalidArgument, LimiterClosed, ThrottleError, Unavailable
from .._rules.rule import Item, Rule, checked_cost, checked_rule
from .._wire import words
from .._wire.call import Steps
from .ending import Keeper, Renewer
from .hold import Entry, Hold, Settled


def lease_item(calls: Calls, rule: Rule, subject: str | int, id: str, tag: str | None) -> Item:
    """Returns the item of a lease. Raises if the call would be invalid."""
    item = item_of(rule, subject, 1)
    words.lease(item, calls.key(rule, subject, tag), id)
    return item


def new_id(id: str | None) -> str:
    """Returns the name of a holder: the given one or a random one."""
    return uuid.uuid4().hex if id is None else id


def check_admission(calls: Calls, items: Sequence[Item], tag: str | None, id: str) -> None:
    """Raises if the items cannot be admitted."""
    words.check_all(calls.keyed(items, tag), id=words.checked_admission_id(id))


def take(
    calls: Calls, items: Sequence[Item], tag: str | None, id: str,
    abandon: Callable[[Entry], None], *, is_admission: bool = False,
) -> Steps[Entry]:  # fmt: skip
    """Sends one call for all items.

    ``abandon`` gives back leases and reservations that the server may have granted, but the caller
    does not have: the reply did not come, the caller was cancelled, or the limiter was closed.
    """
    began, keyed, call = calls.clock(), calls.keyed(items, tag), calls.sender.call()
    without = Entry(keyed, id, began, None, is_admission)
    call.gives_back = any(item.is_held for item, _ in keyed)

    def give_back() -> None:
        # A call that was sent before it, and arrives after it, would take all again.
        if call.drains:
            call.then = lambda outcome: abandon(without) if _has_taken(outcome) else None
        elif call.may_have_run:
            abandon(without)

    try:
        if is_admission or len(items) != 1:
            decision = yield from calls.check_all(
                items, tag, id, caches=not is_admission, call=call
            )
        elif items[0].is_held:
            decision = yield from calls.lease(items[0], id, tag, call)
        else:
            decision = yield from calls.check(items[0], tag, call=call)
    except BaseException as error:
        is_closed = isinstance(error, LimiterClosed)
        if is_closed or not isinstance(error, ThrottleError | GeneratorExit):
            give_back()
        raise
    may_have_run = call.may_have_run or not decision.degraded
    taken = Entry(keyed, id, began, decision, is_admission, may_have_run)
    if calls.is_closed and call.gives_back:
        call.may_have_run = may_have_run
        give_back()
        raise LimiterClosed
    if not decision.allowed and decision.degraded:
        give_back()
    return taken


def _has_taken(outcome: object) -> bool:
    """Returns True if a late outcome may have taken leases or reservations."""
    return bool(outcome.allowed if isinstance(outcome, Decision) else outcome)


G = TypeVar("G", bound="AsyncAdmission")


class _Admitted:
    """The common part of both admissions."""

    def __init__(self, taken: Entry, holds: Sequence[Hold]) -> None:
        self._taken, self._holds = taken, holds
        self._is_over = False

    def __del__(self) -> None:
        # No caller can end it any more, and its renewals would hold it for ever.
        for hold in self._holds:
            hold.let_expire()

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

        >>> tokens = gcra("tokens", burst=9000, rate="9000/minute")
        >>> with limiter.admit(tokens.of("42").cost(500)) as admitted:
        ...     admitted.settle(tokens, 420)
        >>> limiter.peek(tokens, "42", cost=0).remaining
        8580
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
        reported to ``on_decision``. Ends without a reply are repeated in the background, except
        charges and refunds.
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
