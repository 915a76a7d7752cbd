"""The steps of each call, without any waiting: the same for threads and for asyncio.

A call is a generator. It yields what it waits for (a :class:`Send`, a :class:`Sleep` or another of
:mod:`.._wire.call`), receives the outcome or the error, and returns the result. So the two limiters
differ only in how they wait.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from .._rules.decision import Decision
from .._rules.durations import Duration
from .._rules.errors import (
    CommandRejected,
    InvalidArgument,
    ThrottleError,
    TooManyReservations,
    Unavailable,
)
from .._rules.options import Backend
from .._rules.rule import Item, Rule, checked_rule
from .._wire import replies, words
from .._wire.call import Call, Sleep, Start, Steps, Wait
from .._wire.words import Args, Keyed
from .prefetch import Prefetching

# The time of :meth:`Calls.ready`, unless ``timeout_ms`` is longer.
READY_S = 5.0


class Calls(Prefetching):
    """The calls of a limiter."""

    def check(
        self, item: Item, tag: str | None, *, partial: bool = False, call: Call | None = None
    ) -> Steps[Decision]:  # fmt: skip
        """Decides a call, and takes the cost if the call is allowed."""
        if partial is not True and partial is not False:
            raise InvalidArgument("partial: expected True or False")
        call = call or self.sender.call()
        began, rule, subject = self.clock(), item.rule, item.subject
        keyed = Keyed(item, self.key(rule, subject, tag))
        try:
            if item.units == 1 and item.leaves is None and self._prefetch(rule) > 1:
                decision = self._grants.spend(keyed.key, rule, began)
                if decision is None:
                    decision = yield from self._fetched(keyed, began, call)
            else:
                decision = yield from self._decide(
                    words.check(*keyed, partial=partial), [keyed],
                    lambda reply: replies.decision(item, reply, partial=partial), call,
                    partial=partial,
                )  # fmt: skip
        except CommandRejected as error:
            self.events.report("rejected", None, rule, subject, began, error)
            raise
        return self.events.decided("check", decision, rule, subject, began)

    def peek(self, item: Item, tag: str | None) -> Steps[Decision]:
        """Returns the decision that a check would make. Takes nothing."""
        rule, subject = item.rule, item.subject
        keyed = Keyed(item, self.key(rule, subject, tag))
        args = words.named("PEEK", *keyed)
        began = self.clock()
        with self.events.rejections(rule, subject, began):
            decision = yield from self._peek(
                args, [keyed], lambda reply: replies.decision(item, reply)
            )
        return self.events.reported("peek", decision, rule, subject, began)

    def settle(
        self, kind: Literal["refund", "charge"], rule: Rule, subject: str | int, cost: int,
        tag: str | None, call: Call | None = None,
    ) -> Steps[Decision]:  # fmt: skip
        """Refunds or charges, without a check of the units left."""
        keyed = Keyed(item_of(rule, subject, cost), self.key(rule, subject, tag))
        args = words.named(kind.upper(), *keyed)
        return self.settled(kind, args, keyed, lambda args: self.send(args, call))

    def settled(
        self, kind: words.Settling, args: Args, keyed: Keyed,
        send: Callable[[Args], Steps[Any]],
    ) -> Steps[Decision]:  # fmt: skip
        """Sends a call that changes what a key has used. Its cached denials are dropped."""
        began, (item, key) = self.clock(), keyed
        self._drop(key, kind)
        try:
            with self.events.rejections(item.rule, item.subject, began):
                settled = replies.settled(item, (yield from send(args)))
            return self.events.reported(kind, settled, item.rule, item.subject, began)
        finally:
            # Also drop denials that arrived in the meantime and may be older than the change.
            self._drop(key, kind)

    def forget(self, rule: Rule, subject: str | int, tag: str | None) -> Steps[None]:
        """Resets the subject under this rule, on the server and in this process."""
        began, key = self.clock(), self.key(checked_rule(rule), subject, tag)
        with self.events.rejections(rule, subject, began):
            yield from self.forget_key(key)

    def forget_key(self, key: str) -> Steps[int]:
        """Resets a key and drops permits of pending fetches. Returns the number of deleted keys."""
        with self._lock:
            self._local.forget(key)
        deleted: int = yield from self._replace(words.forget(key))
        return deleted

    def block(
        self, rule: Rule, subject: str | int, duration: Duration, tag: str | None
    ) -> Steps[None]:  # fmt: skip
        """Bans the subject under this rule."""
        began, key = self.clock(), self.key(checked_rule(rule), subject, tag)
        args = words.block(key, duration)
        with self.events.rejections(rule, subject, began):
            yield from self._replace(args)

    def _replace(self, args: Args) -> Steps[Any]:
        """Sends a call that replaces the state of a key. Drops what this process has of it."""
        key = args[1]
        self._drop(key)
        try:
            with self._grants.forgotten(key):
                return (yield from self.send(args))
        finally:
            self._drop(key)

    def check_all(
        self, items: Sequence[Item], tag: str | None, id: str | None, *, caches: bool = True,
        call: Call | None = None,
    ) -> Steps[Decision]:  # fmt: skip
        """Checks several rules at once. Without ``caches`` the call is always sent."""
        call = call or self.sender.call()
        began = self.clock()
        keyed = self.keyed(items, tag)
        args = words.check_all(keyed, id=id)
        with self.events.rejections(items[0].rule, items[0].subject, began):
            try:
                decision = yield from self._decide(
                    args, keyed, lambda reply: replies.decision_all(keyed, reply), call,
                    caches=caches,
                )  # fmt: skip
            except TooManyReservations:
                decision = replies.too_many(keyed)
        deciding = items[decision.deciding]
        return self.events.decided("check", decision, deciding.rule, deciding.subject, began)

    def peek_all(
        self, items: Sequence[Item], tag: str | None, id: str | None
    ) -> Steps[Decision]:  # fmt: skip
        """Returns the decision that :meth:`check_all` would make. Takes nothing."""
        began = self.clock()
        keyed = self.keyed(items, tag)
        args = words.check_all(keyed, peek=True, id=id)
        try:
            with self.events.rejections(items[0].rule, items[0].subject, began):
                decision = yield from self._peek(
                    args, keyed, lambda reply: replies.decision_all(keyed, reply)
                )
        except TooManyReservations:
            decision = replies.too_many(keyed)
        deciding = items[decision.deciding]
        return self.events.reported("peek", decision, deciding.rule, deciding.subject, began)

    def lease(self, item: Item, id: str, tag: str | None, call: Call) -> Steps[Decision]:
        """Takes a permit."""
        began, rule, subject = self.clock(), item.rule, item.subject
        keyed = Keyed(item, self.key(rule, subject, tag))
        with self.events.rejections(rule, subject, began):
            decision = yield from self._decide(
                words.lease(*keyed, id), [keyed],
                lambda reply: replies.decision(item, reply), call, caches=False,
            )  # fmt: skip
        return self.events.decided("lease", decision, rule, subject, began)

    def check_each(self, items: Sequence[Item]) -> Steps[Decision]:
        """Checks one rule after the other. If one denies or fails, refunds the earlier costs."""
        # Validate all items before the first one takes anything.
        if not items:
            raise InvalidArgument("items: expected at least 1")
        for item, key in self.keyed(items, None):
            if item.rule.kind == "backoff" or item.ttl_us is not None:
                raise InvalidArgument(f"items: {item.rule.name} cannot be refunded")
            words.check(item, key)
        rows: list[Decision] = []
        call = self.sender.call()
        try:
            for item in items:
                call = self.sender.call(call.left_s)
                rows.append((yield from self.check(item, None, call=call)))
                if not rows[-1].allowed:
                    break
        except GeneratorExit:
            raise
        except BaseException as error:
            # A caller that gives up cannot wait for the refunds.
            left_s = call.left_s if isinstance(error, ThrottleError) else 0.0
            yield from self._undo(items, rows, left_s)
            raise
        if not rows[-1].allowed:
            # There is neither time nor a place for a refund if too many calls wait.
            if rows[-1].reason != "overloaded":
                yield from self._undo(items, rows, call.left_s)
            at = len(rows) - 1
        else:
            at = min(range(len(rows)), key=lambda row: _calls_left(rows[row], items[row].units))
        return replace(rows[at], rows=tuple(rows), deciding=at)

    def _undo(
        self, items: Sequence[Item], rows: Sequence[Decision], wait_s: float
    ) -> Steps[None]:  # fmt: skip
        """Refunds what the items took, even if the caller is cancelled meanwhile.

        The caller waits for that no longer than ``wait_s``.
        """
        # A degraded call may not have counted, so do not refund it: that keeps the limit. A call
        # that only the shadow mode of its policy allowed took nothing.
        taken = [
            item for item, row in zip(items, rows, strict=False)
            if row.allowed and row.would_allow and not row.degraded
        ]  # fmt: skip
        if not taken:
            return
        ended = self._event()
        yield Start(self._refund_all(taken), ended)
        if wait_s > 0:
            yield Wait(ended, wait_s, is_timed=True)

    def _refund_all(self, taken: Sequence[Item]) -> Steps[None]:
        call = self.sender.call()
        for item in taken:
            call = self.sender.call(call.left_s)
            yield from self.refund_quietly(item, None, call)

    def refund_quietly(
        self, item: Item, tag: str | None, call: Call | None = None
    ) -> Steps[None]:  # fmt: skip
        """Refunds a cost, also while the limiter is being closed. One without a reply is lost."""
        keyed = Keyed(item, self.keys.key(item.rule.name, item.subject, tag))
        args, call = words.named("REFUND", *keyed), call or self.sender.call()
        with contextlib.suppress(ThrottleError):
            yield from self.settled(
                "refund", args, keyed, lambda args: self.sender.send(args, call)
            )

    def wait(
        self, rule: Rule, subject: str | int, max_wait_ms: int, cost: int, tag: str | None
    ) -> Steps[Decision]:
        """After a denial, sleeps and checks again. If allowed, sleeps until the call may act."""
        is_number = isinstance(max_wait_ms, int | float) and not isinstance(max_wait_ms, bool)
        if not is_number or math.isnan(max_wait_ms):
            raise InvalidArgument("max_wait_ms: expected a number")
        began, call, denial = self.clock(), self.sender.call(), None
        while True:
            call = self.sender.call(call.left_s)
            decision = yield from self.check(item_of(rule, subject, cost), tag, call=call)
            if denial is not None and decision.reason == "overloaded":
                # The time for waiting is over.
                return denial
            pause_ms = decision.retry_after_ms
            if decision.source == "error" or decision.never or (decision and not pause_ms):
                return decision
            if (self.clock() - began) * 1000 + pause_ms > max_wait_ms:
                if not decision.allowed:
                    return decision
                # Give back the place in the leaky bucket, because its turn comes too late. Without
                # a reply the place stays taken.
                if not decision.degraded:
                    with contextlib.suppress(Unavailable):
                        call = self.sender.call(call.left_s)
                        yield from self.settle("refund", rule, subject, cost, tag, call)
                return replace(decision, allowed=False, granted=0)
            try:
                yield Sleep(pause_ms / 1000)
            except GeneratorExit:
                raise
            except BaseException:
                if decision.allowed and not decision.degraded:
                    # The caller gives up. It cannot wait for the refund of its place.
                    refund = self.refund_quietly(item_of(rule, subject, cost), tag)
                    yield Start(refund, self._event())
                raise
            if decision.allowed:
                return decision
            denial = decision

    def ready(self) -> Steps[Backend]:
        """Sends a call that takes nothing, and returns the back end that replied."""
        call = self.sender.call(max(READY_S, self.timeout_s))
        call.is_patient, call.dial_s = True, call.left_s
        try:
            yield from self.send(words.probe(self.keys.key("ready", "ready")), call)
        except Unavailable as error:
            if not error.stage:
                raise
            stage = error.stage + (" to RL.PEEK" if error.stage.endswith("reply") else "")
            raise Unavailable(f"{stage}: {error}", error.reason) from error
        return self.sender.backend.found.by or "module"


def _calls_left(row: Decision, cost: int) -> tuple[float, int]:
    """Returns the number of further calls of this cost that a row allows, and its units left."""
    return row.remaining // cost if cost else math.inf, row.remaining


def item_of(
    rule: Rule, subject: str | int, cost: int, leave: int | str | None = None
) -> Item:  # fmt: skip
    """Returns the item of a call of one rule."""
    try:
        item = rule.of(subject)
    except AttributeError:
        checked_rule(rule)
        raise
    # True equals 1, but is no cost.
    if cost != 1 or type(cost) is not int:
        item = item.cost(cost)
    return item if leave is None else item.leave(leave)
