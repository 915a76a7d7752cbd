"""The call with which work begins: it takes leases, reservations and estimates."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import _protocol
from ._calls import Calls, item_of
from ._decision import Decision
from ._errors import LimiterClosed, ThrottleError
from ._protocol import Keyed
from ._rules import Item, Rule
from ._steps import Steps


@dataclass(frozen=True, slots=True)
class Entry:
    """A call, the instant before it was sent, its decision, and the name of its holder.

    There is no decision if the caller does not have what the call took. ``may_have_run`` is true if
    the server may have what the call took.
    """

    items: Sequence[Keyed]
    id: str
    asked: float
    decision: Decision | None
    is_admission: bool
    may_have_run: bool = True

    def row(self, at: int) -> Decision | None:
        """Returns the decision on the item at this index."""
        return None if self.decision is None else (self.decision.rows or (self.decision,))[at]


def lease_item(calls: Calls, rule: Rule, subject: str | int, id: str, tag: str | None) -> Item:
    """Returns the item of a lease. Raises if the call would be invalid."""
    item = item_of(rule, subject, 1)
    _protocol.lease(item, calls.key(rule, subject, tag), id)
    return item


def new_id(id: str | None) -> str:
    """Returns the name of a holder: the given one or a random one."""
    return uuid.uuid4().hex if id is None else id


def check_admission(calls: Calls, items: Sequence[Item], tag: str | None, id: str) -> None:
    """Raises if the items cannot be admitted."""
    _protocol.check_all(calls.keyed(items, tag), id=_protocol.checked_admission_id(id))


def take(
    calls: Calls, items: Sequence[Item], tag: str | None, id: str,
    abandon: Callable[[Entry], None], *, is_admission: bool = False,
) -> Steps[Entry]:  # fmt: skip
    """Sends one call for all items.

    ``abandon`` gives back leases and reservations that the server may have granted, but the caller
    does not have: the answer did not come, the caller was cancelled, or the limiter was closed.
    """
    asked, keyed, call = calls.clock(), calls.keyed(items, tag), calls.asking.call()
    without = Entry(keyed, id, asked, None, is_admission)
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
    taken = Entry(keyed, id, asked, decision, is_admission, may_have_run)
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
