"""The steps of each call, without any waiting: the same for threads and for asyncio.

A call is a generator. It yields what it waits for (a :class:`Send`, a :class:`Sleep` or another of
:mod:`._steps`), receives the outcome or the error, and returns the result. So the two limiters
differ only in how they wait.
"""

from __future__ import annotations

import contextlib
import math
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from . import _protocol
from ._asking import Asking
from ._backends import Backend
from ._decision import Decision
from ._denial_cache import DenialCache
from ._errors import InvalidArgument, ThrottleError, Unavailable
from ._fork import forgets
from ._keys import Keys
from ._local import LocalLimiter
from ._on_error import Keyed, without_answer
from ._options import Options
from ._prefetch import Fetch, Grants, none_left
from ._protocol import Args
from ._rules import Rule, checked_cost, checked_on_error
from ._steps import Sleep, Start, Steps, Wait
from ._telling import Teller

Subject = str
Call = tuple[Rule, Subject] | tuple[Rule, Subject, int]


@dataclass(frozen=True, slots=True)
class Admission:
    """A decision and its leases: the rule and key of each, and their common holder name.

    There is no decision if the caller was cancelled.
    """

    decision: Decision | None
    id: str
    asked: float
    leases: Sequence[tuple[Rule, str]]


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
        self._timeout_s = options.timeout_ms / 1000
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

    def spend(self, rule: Rule, subject: str, cost: int, tag: str | None) -> Decision | None:
        """Spends a prefetched permit without any step: this is the most frequent call."""
        if cost != 1 or self._prefetch(rule) == 1:
            return None
        began = self.clock()
        spent = self._grants.spend(self._key(rule, subject, tag), rule, began)
        return None if spent is None else self.teller.decided("check", spent, rule, subject, began)

    # -- the calls ----------------------------------------------------------------------------

    def check(self, rule: Rule, subject: str, cost: int, tag: str | None) -> Steps[Decision]:
        """Decides a call, and takes the cost if the call is allowed."""
        began = self.clock()
        key = self._key(rule, subject, tag)
        with self.teller.rejections(rule, subject, began):
            if cost == 1 and self._prefetch(rule) > 1:
                decision = self._grants.spend(key, rule, began)
                if decision is None:
                    decision = yield from self._fetched(rule, key, began)
            else:
                args = _protocol.check(rule, key, cost)
                decision = yield from self._decide(args, [(rule, key, cost)], _reader(rule, cost))
        return self.teller.decided("check", decision, rule, subject, began)

    def peek(self, rule: Rule, subject: str, cost: int, tag: str | None) -> Steps[Decision]:
        """Returns the decision that a check would make. Takes nothing."""
        key = self._key(rule, subject, tag)
        args = _protocol.named("PEEK", rule, key, cost)
        began = self.clock()
        try:
            with self.teller.rejections(rule, subject, began):
                decision = _protocol.decision(rule, (yield from self.ask(args)), cost)
        except Unavailable as error:
            decision = self._fallback([(rule, key, cost)], error, peek=True)
        return self.teller.told("peek", decision, rule, subject, began)

    def settle(
        self, kind: Literal["refund", "charge"], rule: Rule, subject: str, cost: int,
        tag: str | None,
    ) -> Steps[Decision]:  # fmt: skip
        """Refunds or charges, without a check of the units left."""
        began, key = self.clock(), self._key(rule, subject, tag)
        args = _protocol.named(kind.upper(), rule, key, cost)
        self._denials.drop(key)
        try:
            with self.teller.rejections(rule, subject, began):
                settled = _protocol.settled((yield from self.ask(args)), rule, cost)
            return self.teller.told(kind, settled, rule, subject, began)
        finally:
            # Also drop denials that arrived in the meantime and may be older than the change.
            self._denials.drop(key)

    def forget(self, rule: Rule, subject: str, tag: str | None) -> Steps[None]:
        """Resets the subject under this rule, on the server and in this process."""
        began, key = self.clock(), self._key(rule, subject, tag)
        with self.teller.rejections(rule, subject, began):
            yield from self.forget_key(key)

    def forget_key(self, key: str) -> Steps[int]:
        """Resets a key and drops permits of pending fetches. Returns the number of deleted keys."""
        self._denials.drop(key)
        self._local.forget(key)
        try:
            with self._grants.forgotten(key):
                deleted: int = yield from self.ask(_protocol.forget(key))
                return deleted
        finally:
            self._denials.drop(key)

    def check_all(
        self, calls: Sequence[Call], tag: str | None, id: str | None
    ) -> Steps[Decision]:  # fmt: skip
        """Checks several rules at once."""
        began = self.clock()
        made = self._keyed(calls, tag)
        args = _protocol.check_all(made, id=id)
        costs = [(rule, cost) for rule, _, cost in made]
        with self.teller.rejections(calls[0][0], calls[0][1], began):
            decision = yield from self._decide(
                args, made, lambda reply: _protocol.decision_all(costs, reply)
            )
        deciding = calls[decision.deciding]
        return self.teller.decided("check", decision, deciding[0], deciding[1], began)

    def check_each(self, calls: Sequence[Call]) -> Steps[Decision]:
        """Checks one rule after the other. If one denies or fails, refunds the earlier costs."""
        # Validate all calls before the first one takes anything.
        made = self._keyed(calls, None)
        if not made:
            raise InvalidArgument("calls: expected at least 1")
        for rule, key, cost in made:
            if rule.kind == "backoff":
                raise InvalidArgument(f"calls: the backoff {rule.name} cannot be refunded")
            _protocol.check(rule, key, cost)
        rows: list[Decision] = []
        try:
            for call, (rule, _, cost) in zip(calls, made, strict=True):
                rows.append((yield from self.check(rule, call[1], cost, None)))
                if not rows[-1].allowed:
                    break
        except GeneratorExit:
            raise
        except BaseException as error:
            # A caller that gives up cannot wait for the refunds.
            yield from self._undo(made, calls, rows, waits=isinstance(error, ThrottleError))
            raise
        if not rows[-1].allowed:
            yield from self._undo(made, calls, rows, waits=True)
            at = len(rows) - 1
        else:
            at = min(range(len(rows)), key=lambda row: _calls_left(rows[row], made[row][2]))
        return replace(rows[at], rows=tuple(rows), deciding=at)

    def _undo(
        self, made: Sequence[Keyed], calls: Sequence[Call], rows: Sequence[Decision], *, waits: bool
    ) -> Steps[None]:
        """Refunds what the calls took, even if the caller is cancelled meanwhile."""
        # A degraded call may not have counted, so do not refund it: that keeps the limit.
        taken = [
            (rule, call[1], cost)
            for (rule, _, cost), call, row in zip(made, calls, rows, strict=False)
            if row.allowed and not row.degraded
        ]
        if not taken:
            return
        ended = self._event()
        yield Start(self._refund_all(taken), ended)
        if waits:
            yield Wait(ended, len(taken) * self._timeout_s)

    def _refund_all(self, taken: Sequence[tuple[Rule, str, int]]) -> Steps[None]:
        for rule, subject, cost in taken:
            yield from self._refund_quietly(rule, subject, cost, None)

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
            decision = yield from self.check(rule, subject, cost, tag)
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

    def lease_call(self, rule: Rule, subject: str, id: str | None, tag: str | None) -> str:
        """Returns the holder's name for a new lease. Raises if the call is invalid."""
        name = _protocol.checked_id(uuid.uuid4().hex if id is None else id)
        _protocol.lease(rule, self._key(rule, subject, tag), name)
        return name

    def admit(
        self, calls: Sequence[Call], tag: str | None, id: str | None,
        abandon: Callable[[Admission], None],
    ) -> Steps[Admission]:  # fmt: skip
        """Sends one call for all rules, which may include leases.

        ``abandon`` gives back leases that the server may have granted, but the caller does not
        have: the answer did not come, or the caller was cancelled.
        """
        name = id or uuid.uuid4().hex
        asked = self.clock()
        made = self._keyed(calls, tag)
        leases = [(rule, key) for rule, key, _ in made if rule.kind == "lease"]
        try:
            if len(calls) > 1:
                decision = yield from self.check_all(calls, tag, name)
            elif leases:
                rule, key = leases[0]
                args, subject = _protocol.lease(rule, key, name), calls[0][1]
                with self.teller.rejections(rule, subject, asked):
                    decision = yield from self._decide(args, made, _reader(rule, 1))
                self.teller.decided("lease", decision, rule, subject, asked)
            else:
                rule, _, cost = made[0]
                decision = yield from self.check(rule, calls[0][1], cost, tag)
        except BaseException as error:
            if leases and not isinstance(error, ThrottleError | GeneratorExit):
                abandon(Admission(None, name, asked, leases))
            raise
        if leases and not decision.allowed and decision.reason in ("timeout", "connection"):
            abandon(Admission(decision, name, asked, leases))
        return Admission(decision, name, asked, leases if decision.allowed else ())

    def ready(self) -> Steps[Backend]:
        """Sends a call that takes nothing, and returns the back end that answered."""
        yield from self.ask(_protocol.probe(self.keys.key("ready", "ready")))
        return self.asking.backend.found.by or "module"

    def give_back(self) -> Steps[None]:
        """Refunds prefetched permits that were not used, also those of pending calls."""
        for fetch in self._grants.close(self._here()):
            yield Wait(fetch.ended, self._timeout_s)
        for key, rule, permits in self._grants.drain(self.clock()):
            with contextlib.suppress(ThrottleError):
                yield from self.ask(_protocol.named("REFUND", rule, key, permits))

    # -- helpers ------------------------------------------------------------------------------

    def keep(self, args: Args, until: float) -> Steps[Any]:
        """Sends the renewal or the release of a lease that ends at ``until``."""
        return self.asking.keep(args, until)

    def ask(self, args: Args) -> Steps[Any]:
        """Sends a call once, if the circuit breaker of its node permits, and returns the reply."""
        return self.asking.ask(args)

    def _decide(
        self, args: Args, calls: Sequence[Keyed], read: Callable[[object], Decision]
    ) -> Steps[Decision]:
        asked = self.clock()
        cached = self._denials.get(args, asked)
        if cached is not None:
            return cached
        drops = self._denials.drops(args)
        try:
            decision = read((yield from self.ask(args)))
        except Unavailable as error:
            return self._fallback(calls, error)
        if not any(rule.kind == "lease" for rule, _, _ in calls):
            self._denials.put(args, decision, asked, drops)
        return decision

    def _fetched(self, rule: Rule, key: str, began: float) -> Steps[Decision]:
        """Waits for a permit from a fetch that serves several callers."""
        denied = self._denials.get(_protocol.check(rule, key), began)
        if denied is not None:
            return denied
        until, smaller = began + self._timeout_s, None
        new = self._new_fetch(rule, began)
        came = self._grants.join(key, new, began)
        while isinstance(came, Fetch):
            fetch, begins = came, came is new
            try:
                if begins:
                    yield Start(self._fetch(key, fetch), fetch.ended)
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
                return self._fallback([(rule, key, 1)], error)
            came, smaller = share, fetch.decision
        return came

    def _new_fetch(self, rule: Rule, now: float) -> Fetch:
        return Fetch(rule, self._here(), now + self._timeout_s, self._event())

    def _fetch(self, key: str, fetch: Fetch) -> Steps[None]:
        """Fetches the permits of all waiters, or more, within a full timeout."""
        asked, rule = self.clock(), fetch.rule
        # If the fetch is denied, cache that denial for single calls, which would be denied too.
        one = _protocol.check(rule, key)
        drops = self._denials.drops(one)
        came: Decision | Exception = Unavailable("the program is ending")
        try:
            wanted = self._grants.send(key, fetch, self._prefetch(rule))
            args = _protocol.check(rule, key, wanted, partial=True)
            came = _protocol.decision(rule, (yield from self.ask(args)), wanted, partial=True)
            self._denials.put(one, came, asked, drops)
        except Exception as error:
            came = error
        finally:
            self._grants.end(key, fetch, asked, came)

    def _key(self, rule: Rule, subject: str, tag: str | None) -> str:
        """Returns the key. Raises if the ``on_error`` of the rule cannot decide its calls."""
        if rule.on_error is None and self.options.on_error != "allow":
            checked_on_error(self.options.on_error, local=rule.keeps_locally)
        return self.keys.key(rule.name, subject, tag)

    def _prefetch(self, rule: Rule) -> int:
        """Returns the number of permits that one call fetches under this rule."""
        if not rule.takes_partial:
            return 1
        return rule.prefetch or self.options.prefetch

    def _keyed(self, calls: Sequence[Call], tag: str | None) -> list[Keyed]:
        made = []
        for call in calls:
            rule, subject, cost = call if len(call) == 3 else (*call, 1)
            made.append((rule, self._key(rule, subject, tag), checked_cost(cost)))
        return made

    def _fallback(
        self, calls: Sequence[Keyed], error: Unavailable, *, peek: bool = False
    ) -> Decision:
        """Decides by ``on_error``, because the server gave no answer."""
        on_errors = [rule.on_error or self.options.on_error for rule, _, _ in calls]
        now_us = int(self.clock() * 1_000_000)
        with self._lock:
            return without_answer(
                calls, on_errors, error.reason, self.options.breaker_pause_ms, self._local, now_us,
                peek=peek,
            )  # fmt: skip


def _calls_left(row: Decision, cost: int) -> tuple[float, int]:
    """Returns the number of further calls of this cost that a row allows, and its units left."""
    return row.remaining // cost if cost else math.inf, row.remaining


def _reader(rule: Rule, cost: int, *, partial: bool = False) -> Callable[[object], Decision]:
    return lambda reply: _protocol.decision(rule, reply, cost, partial=partial)
