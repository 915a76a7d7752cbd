"""The steps of each call, without any waiting: the same for threads and for asyncio.

A call is a generator. It yields what it waits for (a :class:`Send`, a :class:`Sleep` or another of
:mod:`._steps`), receives the outcome or the error, and returns the result. So the two limiters
differ only in how they wait.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from . import _protocol
from ._asking import Asking
from ._backends import Backend
from ._decision import Decision
from ._denial_cache import DenialCache
from ._durations import Duration
from ._errors import InvalidArgument, ThrottleError, TooManyReservations, Unavailable
from ._fork import forgets
from ._keys import Keys
from ._local import LocalLimiter
from ._on_error import without_answer
from ._options import Options
from ._prefetch import Fetch, Grants, none_left
from ._protocol import Args, Keyed
from ._rules import Item, Rule, checked_on_error
from ._steps import Sleep, Start, Steps, Wait
from ._telling import Teller


class Calls:
    """The calls of a limiter: its keys, caches and circuit breakers, and the handling of errors."""

    def __init__(
        self, options: Options, find_node: Callable[[str], Any], *,
        here: Callable[[], object], event: Callable[[], Any],
        is_up: Callable[[Any], bool] = lambda node: True,
    ) -> None:  # fmt: skip
        """``here`` returns the running loop. ``event`` creates an event for that loop. ``is_up``
        returns True if a connection to a node is open.
        """
        self.options, self._here, self._event = options, here, event
        self.keys = Keys(
            prefix=options.prefix, hash_tag=options.hash_tag, hmac_secret=options.hmac_secret
        )
        self.clock = options.clock
        self.timeout_s = options.timeout_ms / 1000
        self.teller = Teller(options, self.keys.key_hash)
        self.asking = Asking(options, find_node, is_up, lambda: self.teller.count("rejected"))
        forgets(self)

    def begin(self) -> None:
        """Resets the state of the limiter, at its creation and in the child of a fork.

        The parent's calls do not end in the child, and its permits must not be used twice.
        """
        self.asking.begin()
        self.teller.begin()
        self._denials = DenialCache(self.options.denial_cache, self.options.denial_cache_max_ms)
        self._grants = Grants()
        self._local = LocalLimiter()
        self._lock = threading.Lock()

    def spend(self, rule: Rule, subject: str, tag: str | None) -> Decision | None:
        """Spends a prefetched permit without any step: this is the most frequent call."""
        if self._prefetch(rule) == 1:
            return None
        began = self.clock()
        spent = self._grants.spend(self.key(rule, subject, tag), rule, began)
        return None if spent is None else self.teller.decided("check", spent, rule, subject, began)

    # -- the calls ----------------------------------------------------------------------------

    def check(self, item: Item, tag: str | None, *, partial: bool = False) -> Steps[Decision]:
        """Decides a call, and takes the cost if the call is allowed."""
        began, rule, subject = self.clock(), item.rule, item.subject
        keyed = Keyed(item, self.key(rule, subject, tag))
        with self.teller.rejections(rule, subject, began):
            if item.units == 1 and item.leaves is None and self._prefetch(rule) > 1:
                decision = self._grants.spend(keyed.key, rule, began)
                if decision is None:
                    decision = yield from self._fetched(keyed, began)
            else:
                decision = yield from self._decide(
                    _protocol.check(*keyed, partial=partial), [keyed],
                    lambda reply: _protocol.decision(item, reply, partial=partial),
                    partial=partial,
                )  # fmt: skip
        return self.teller.decided("check", decision, rule, subject, began)

    def peek(self, item: Item, tag: str | None) -> Steps[Decision]:
        """Returns the decision that a check would make. Takes nothing."""
        rule, subject = item.rule, item.subject
        keyed = Keyed(item, self.key(rule, subject, tag))
        args = _protocol.named("PEEK", *keyed)
        began = self.clock()
        try:
            with self.teller.rejections(rule, subject, began):
                decision = _protocol.decision(item, (yield from self.ask(args)))
        except Unavailable as error:
            decision = self._fallback([keyed], error, peek=True)
        return self.teller.told("peek", decision, rule, subject, began)

    def settle(
        self, kind: Literal["refund", "charge"], rule: Rule, subject: str, cost: int,
        tag: str | None,
    ) -> Steps[Decision]:  # fmt: skip
        """Refunds or charges, without a check of the units left."""
        keyed = Keyed(item_of(rule, subject, cost), self.key(rule, subject, tag))
        args = _protocol.named(kind.upper(), *keyed)
        return self.settled(kind, args, keyed, self.ask)

    def settled(
        self, kind: _protocol.Settling, args: Args, keyed: Keyed,
        send: Callable[[Args], Steps[Any]],
    ) -> Steps[Decision]:  # fmt: skip
        """Sends a call that changes what a key has used. Its cached denials are dropped."""
        began, (item, key) = self.clock(), keyed
        self._denials.drop(key)
        try:
            with self.teller.rejections(item.rule, item.subject, began):
                settled = _protocol.settled(item, (yield from send(args)))
            return self.teller.told(kind, settled, item.rule, item.subject, began)
        finally:
            # Also drop denials that arrived in the meantime and may be older than the change.
            self._denials.drop(key)

    def forget(self, rule: Rule, subject: str, tag: str | None) -> Steps[None]:
        """Resets the subject under this rule, on the server and in this process."""
        began, key = self.clock(), self.key(rule, subject, tag)
        with self.teller.rejections(rule, subject, began):
            yield from self.forget_key(key)

    def forget_key(self, key: str) -> Steps[int]:
        """Resets a key and drops permits of pending fetches. Returns the number of deleted keys."""
        self._local.forget(key)
        deleted: int = yield from self._replace(_protocol.forget(key))
        return deleted

    def block(
        self, rule: Rule, subject: str, duration: Duration, tag: str | None
    ) -> Steps[None]:  # fmt: skip
        """Bans the subject under this rule."""
        began, key = self.clock(), self.key(rule, subject, tag)
        args = _protocol.block(key, duration)
        with self.teller.rejections(rule, subject, began):
            yield from self._replace(args)

    def _replace(self, args: Args) -> Steps[Any]:
        """Sends a call that replaces the state of a key. Drops what this process has of it."""
        key = args[1]
        self._denials.drop(key)
        try:
            with self._grants.forgotten(key):
                return (yield from self.ask(args))
        finally:
            self._denials.drop(key)

    def check_all(
        self, items: Sequence[Item], tag: str | None, id: str | None, *, caches: bool = True
    ) -> Steps[Decision]:  # fmt: skip
        """Checks several rules at once. Without ``caches`` the server is asked in any case."""
        began = self.clock()
        keyed = self.keyed(items, tag)
        args = _protocol.check_all(keyed, id=id)
        with self.teller.rejections(items[0].rule, items[0].subject, began):
            try:
                decision = yield from self._decide(
                    args, keyed, lambda reply: _protocol.decision_all(keyed, reply), caches=caches
                )
            except TooManyReservations:
                decision = _protocol.too_many(keyed)
        deciding = items[decision.deciding]
        return self.teller.decided("check", decision, deciding.rule, deciding.subject, began)

    def peek_all(
        self, items: Sequence[Item], tag: str | None, id: str | None
    ) -> Steps[Decision]:  # fmt: skip
        """Returns the decision that :meth:`check_all` would make. Takes nothing."""
        began = self.clock()
        keyed = self.keyed(items, tag)
        args = _protocol.check_all(keyed, peek=True, id=id)
        try:
            with self.teller.rejections(items[0].rule, items[0].subject, began):
                decision = _protocol.decision_all(keyed, (yield from self.ask(args)))
        except TooManyReservations:
            decision = _protocol.too_many(keyed)
        except Unavailable as error:
            decision = self._fallback(keyed, error, peek=True)
        deciding = items[decision.deciding]
        return self.teller.told("peek", decision, deciding.rule, deciding.subject, began)

    def lease(self, item: Item, id: str, tag: str | None) -> Steps[Decision]:
        """Takes a permit."""
        began, rule, subject = self.clock(), item.rule, item.subject
        keyed = Keyed(item, self.key(rule, subject, tag))
        with self.teller.rejections(rule, subject, began):
            decision = yield from self._decide(
                _protocol.lease(*keyed, id), [keyed],
                lambda reply: _protocol.decision(item, reply), caches=False,
            )  # fmt: skip
        return self.teller.decided("lease", decision, rule, subject, began)

    def check_each(self, items: Sequence[Item]) -> Steps[Decision]:
        """Checks one rule after the other. If one denies or fails, refunds the earlier costs."""
        # Validate all items before the first one takes anything.
        if not items:
            raise InvalidArgument("items: expected at least 1")
        for item, key in self.keyed(items, None):
            if item.rule.kind == "backoff" or item.ttl_us is not None:
                raise InvalidArgument(f"items: {item.rule.name} cannot be refunded")
            _protocol.check(item, key)
        rows: list[Decision] = []
        try:
            for item in items:
                rows.append((yield from self.check(item, None)))
                if not rows[-1].allowed:
                    break
        except GeneratorExit:
            raise
        except BaseException as error:
            # A caller that gives up cannot wait for the refunds.
            yield from self._undo(items, rows, waits=isinstance(error, ThrottleError))
            raise
        if not rows[-1].allowed:
            yield from self._undo(items, rows, waits=True)
            at = len(rows) - 1
        else:
            at = min(range(len(rows)), key=lambda row: _calls_left(rows[row], items[row].units))
        return replace(rows[at], rows=tuple(rows), deciding=at)

    def _undo(
        self, items: Sequence[Item], rows: Sequence[Decision], *, waits: bool
    ) -> Steps[None]:  # fmt: skip
        """Refunds what the items took, even if the caller is cancelled meanwhile."""
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
        if waits:
            yield Wait(ended, len(taken) * self.timeout_s)

    def _refund_all(self, taken: Sequence[Item]) -> Steps[None]:
        for item in taken:
            yield from self._refund_quietly(item.rule, item.subject, item.units, None)

    def _refund_quietly(self, rule: Rule, subject: str, cost: int, tag: str | None) -> Steps[None]:
        """Refunds a cost. A refund without an answer is dropped."""
        with contextlib.suppress(ThrottleError):
            yield from self.settle("refund", rule, subject, cost, tag)

    def wait(
        self, rule: Rule, subject: str, max_wait_ms: int, cost: int, tag: str | None
    ) -> Steps[Decision]:
        """After a denial, sleeps and checks again. If allowed, sleeps until the call may act."""
        began = self.clock()
        while True:
            decision = yield from self.check(item_of(rule, subject, cost), tag)
            pause_ms = decision.retry_after_ms
            if decision.source == "error" or decision.never or (decision and not pause_ms):
                return decision
            if (self.clock() - began) * 1000 + pause_ms > max_wait_ms:
                if not decision.allowed:
                    return decision
                # Give back the place in the leaky bucket, because its turn comes too late. Without
                # an answer the place stays taken.
                if not decision.degraded:
                    with contextlib.suppress(Unavailable):
                        yield from self.settle("refund", rule, subject, cost, tag)
                return replace(decision, allowed=False, granted=0)
            try:
                yield Sleep(pause_ms / 1000)
            except GeneratorExit:
                raise
            except BaseException:
                if decision.allowed and not decision.degraded:
                    # The caller gives up. It cannot wait for the refund of its place.
                    refund = self._refund_quietly(rule, subject, cost, tag)
                    yield Start(refund, self._event())
                raise
            if decision.allowed:
                return decision

    def ready(self) -> Steps[Backend]:
        """Sends a call that takes nothing, and returns the back end that answered."""
        yield from self.ask(_protocol.probe(self.keys.key("ready", "ready")))
        return self.asking.backend.found.by or "module"

    def give_back(self) -> Steps[None]:
        """Refunds prefetched permits that were not used, also those of pending calls."""
        for fetch in self._grants.close(self._here()):
            yield Wait(fetch.ended, self.timeout_s)
        for key, rule, permits in self._grants.drain(self.clock()):
            with contextlib.suppress(ThrottleError):
                unused = Item(rule, "unused", permits)
                yield from self.ask(_protocol.named("REFUND", unused, key))

    # -- helpers ------------------------------------------------------------------------------

    def keep(self, args: Args, until: float, is_over: Callable[[], bool]) -> Steps[Any]:
        """Sends a renewal or an end, which may wait until the instant ``until``."""
        return self.asking.keep(args, until, is_over)

    def ask(self, args: Args) -> Steps[Any]:
        """Sends a call once, if the circuit breaker of its node permits, and returns the reply."""
        return self.asking.ask(args)

    def _decide(
        self, args: Args, items: Sequence[Keyed], read: Callable[[object], Decision], *,
        partial: bool = False, caches: bool = True,
    ) -> Steps[Decision]:  # fmt: skip
        # A decision on a lease or a reservation belongs to its holder.
        caches = caches and self._denials.is_used and not any(item.is_held for item, _ in items)
        asked, drops = 0.0, 0
        if caches:
            asked, drops = self.clock(), self._denials.drops(args)
            cached = self._denials.get(args, asked)
            if cached is not None:
                return cached
        try:
            decision = read((yield from self.asking.ask(args)))
        except Unavailable as error:
            return self._fallback(items, error, partial=partial)
        if caches:
            self._denials.put(args, decision, asked, drops)
        return decision

    def _fetched(self, keyed: Keyed, began: float) -> Steps[Decision]:
        """Waits for a permit from a fetch that serves several callers."""
        (item, key), rule = keyed, keyed.item.rule
        denied = self._denials.get(_protocol.check(item, key), began)
        if denied is not None:
            return denied
        until, smaller = began + self.timeout_s, None
        new = self._new_fetch(rule, began)
        came = self._grants.join(key, new, began)
        while isinstance(came, Fetch):
            fetch, begins = came, came is new
            try:
                if begins:
                    yield Start(self._fetch(keyed, fetch), fetch.ended)
                # The first fetch has a timer of its own.
                timeout_s = max(0.0, until - self.clock())
                yield Wait(fetch.ended, timeout_s, is_timed=smaller is not None)
            except BaseException:
                self._grants.leave(key, fetch)
                raise
            now, error = self.clock(), fetch.error or Unavailable("no answer in time", "timeout")
            if not isinstance(error, Unavailable):
                if not begins:
                    self.teller.count("rejected")
                raise error
            new = self._new_fetch(rule, now)
            repeats = smaller is None and now < until
            share = self._grants.share(key, fetch, now, new if repeats else None)
            if share is None:
                if smaller is not None and not fetch.has_ended:
                    return none_left(rule, smaller)
                return self._fallback([keyed], error)
            came, smaller = share, fetch.decision
        return came

    def _new_fetch(self, rule: Rule, now: float) -> Fetch:
        return Fetch(rule, self._here(), now + self.timeout_s, self._event())

    def _fetch(self, keyed: Keyed, fetch: Fetch) -> Steps[None]:
        """Fetches the permits of all waiters, or more, within a full timeout."""
        asked, (item, key) = self.clock(), keyed
        # If the fetch is denied, cache that denial for single calls, which would be denied too.
        one = _protocol.check(item, key)
        drops = self._denials.drops(one)
        came: Decision | Exception = Unavailable("the program is ending")
        try:
            many = item.cost(self._grants.send(key, fetch, self._prefetch(item.rule)))
            args = _protocol.check(many, key, partial=True)
            came = _protocol.decision(many, (yield from self.ask(args)), partial=True)
            self._denials.put(one, came, asked, drops)
        except Exception as error:
            came = error
        finally:
            self._grants.end(key, fetch, asked, came)

    def key(self, rule: Rule, subject: str, tag: str | None) -> str:
        """Returns the key. Raises if the ``on_error`` of the rule cannot decide its calls."""
        if rule.on_error is None and self.options.on_error != "allow":
            checked_on_error(self.options.on_error, local=rule.keeps_locally)
        return self.keys.key(rule.name, subject, tag)

    def _prefetch(self, rule: Rule) -> int:
        """Returns the number of permits that one call fetches under this rule."""
        if not rule.takes_prefetch:
            return 1
        return rule.prefetch or self.options.prefetch

    def keyed(self, items: Sequence[Item], tag: str | None) -> list[Keyed]:
        """Returns the items with their keys."""
        if not all(isinstance(item, Item) for item in items):
            raise InvalidArgument("items: expected rule.of(subject) for each")
        return [Keyed(item, self.key(item.rule, item.subject, tag)) for item in items]

    def _fallback(
        self, items: Sequence[Keyed], error: Unavailable, *, peek: bool = False,
        partial: bool = False,
    ) -> Decision:  # fmt: skip
        """Decides by ``on_error``, because the server gave no answer."""
        on_errors = [item.rule.on_error or self.options.on_error for item, _ in items]
        now_us = int(self.clock() * 1_000_000)
        with self._lock:
            return without_answer(
                items, on_errors, error.reason, self.options.breaker_pause_ms, self._local, now_us,
                peek=peek, partial=partial,
            )  # fmt: skip


def _calls_left(row: Decision, cost: int) -> tuple[float, int]:
    """Returns the number of further calls of this cost that a row allows, and its units left."""
    return row.remaining // cost if cost else math.inf, row.remaining


def item_of(
    rule: Rule, subject: str, cost: int, leave: int | str | None = None
) -> Item:  # fmt: skip
    """Returns the item of a call of one rule."""
    item = rule.of(subject)
    if cost != 1:
        item = item.cost(cost)
    return item if leave is None else item.leave(leave)
