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
from ._breaker import Breakers
from ._decision import Decision
from ._denial_cache import DenialCache
from ._dial import MOST_DIAL_S
from ._durations import Duration
from ._errors import (
    CommandRejected,
    InvalidArgument,
    LimiterClosed,
    ThrottleError,
    TooManyReservations,
    Unavailable,
    counted,
)
from ._fork import forgets
from ._keys import Keys
from ._known_denials import KnownDenials
from ._local import Limits, LocalLimiter
from ._on_error import without_answer
from ._options import Options
from ._prefetch import Fetch, Grants, none_left
from ._protocol import Args, Keyed
from ._rules import Item, Rule, checked_on_error
from ._steps import Call, Sleep, Start, Steps, Wait
from ._telling import Teller

# The time of :meth:`Calls.ready`, unless ``timeout_ms`` is longer.
READY_S = 5.0


class Calls:
    """The calls of a limiter: its keys, caches and circuit breakers, and the handling of errors."""

    def __init__(
        self, options: Options, breakers: Breakers, find_node: Callable[[str], Any], *,
        here: Callable[[], object], event: Callable[[], Any],
        is_up: Callable[[Any], bool] = lambda node: True,
        catch_up: Callable[[Any], None] = lambda node: None,
    ) -> None:  # fmt: skip
        """``here`` returns the running loop. ``event`` creates an event for that loop. ``is_up``
        returns True if a connection to a node is open. ``catch_up`` reads what has arrived from a
        node.
        """
        self.options, self._here, self._event = options, here, event
        self.keys = Keys(
            prefix=options.prefix, hash_tag=options.hash_tag, hmac_secret=options.hmac_secret
        )
        self.clock = options.clock
        self.timeout_s = options.timeout_ms / 1000
        self.teller = Teller(options, self.keys.key_hash)
        self.asking = Asking(
            options, breakers, find_node, is_up, catch_up, lambda: self.teller.count("rejected")
        )
        # True after the limiter was closed.
        self.is_closed = False
        forgets(self)

    def begin(self) -> None:
        """Resets the state of the limiter, at its creation and in the child of a fork.

        The parent's calls do not end in the child, and its permits must not be used twice.
        """
        self.asking.begin()
        self.teller.begin()
        options = self.options
        self._denials = DenialCache(options.denial_cache, options.denial_cache_max_ms)
        self._known = KnownDenials(options.known_denials, options.denial_cache_max_ms)
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

    def check(
        self, item: Item, tag: str | None, *, partial: bool = False, call: Call | None = None
    ) -> Steps[Decision]:  # fmt: skip
        """Decides a call, and takes the cost if the call is allowed."""
        call = call or self.asking.call()
        began, rule, subject = self.clock(), item.rule, item.subject
        keyed = Keyed(item, self.key(rule, subject, tag))
        try:
            if item.units == 1 and item.leaves is None and self._prefetch(rule) > 1:
                decision = self._grants.spend(keyed.key, rule, began)
                if decision is None:
                    decision = yield from self._fetched(keyed, began, call)
            else:
                decision = yield from self._decide(
                    _protocol.check(*keyed, partial=partial), [keyed],
                    lambda reply: _protocol.decision(item, reply, partial=partial), call,
                    partial=partial,
                )  # fmt: skip
        except CommandRejected as error:
            self.teller.tell("rejected", None, rule, subject, began, error)
            raise
        return self.teller.decided("check", decision, rule, subject, began)

    def peek(self, item: Item, tag: str | None) -> Steps[Decision]:
        """Returns the decision that a check would make. Takes nothing."""
        rule, subject = item.rule, item.subject
        keyed = Keyed(item, self.key(rule, subject, tag))
        args = _protocol.named("PEEK", *keyed)
        began = self.clock()
        with self.teller.rejections(rule, subject, began):
            decision = yield from self._peek(
                args, [keyed], lambda reply: _protocol.decision(item, reply)
            )
        return self.teller.told("peek", decision, rule, subject, began)

    def _peek(
        self, args: Args, items: Sequence[Keyed], read: Callable[[object], Decision]
    ) -> Steps[Decision]:  # fmt: skip
        call, asked, known = self.asking.call(), self.clock(), self._known
        call.read = read
        if self._is_known(items):
            seen = known.drops(items)
            call.known = lambda: known.under_pressure(items, self.clock())
            call.read = lambda reply: known.learn(items, read(reply), asked, seen)
        try:
            decision: Decision = yield from self.ask(args, call)
        except Unavailable as error:
            return self._fallback(items, error, peek=True)
        return decision

    def settle(
        self, kind: Literal["refund", "charge"], rule: Rule, subject: str, cost: int,
        tag: str | None, call: Call | None = None,
    ) -> Steps[Decision]:  # fmt: skip
        """Refunds or charges, without a check of the units left."""
        keyed = Keyed(item_of(rule, subject, cost), self.key(rule, subject, tag))
        args = _protocol.named(kind.upper(), *keyed)
        return self.settled(kind, args, keyed, lambda args: self.ask(args, call))

    def settled(
        self, kind: _protocol.Settling, args: Args, keyed: Keyed,
        send: Callable[[Args], Steps[Any]],
    ) -> Steps[Decision]:  # fmt: skip
        """Sends a call that changes what a key has used. Its cached denials are dropped."""
        began, (item, key) = self.clock(), keyed
        self._drop(key, kind)
        try:
            with self.teller.rejections(item.rule, item.subject, began):
                settled = _protocol.settled(item, (yield from send(args)))
            return self.teller.told(kind, settled, item.rule, item.subject, began)
        finally:
            # Also drop denials that arrived in the meantime and may be older than the change.
            self._drop(key, kind)

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
        self._drop(key)
        try:
            with self._grants.forgotten(key):
                return (yield from self.ask(args))
        finally:
            self._drop(key)

    def _drop(self, key: str, kind: _protocol.Settling = "refund") -> None:
        """Drops the denials of a key that a call changes."""
        self._denials.drop(key)
        if kind == "refund":
            self._known.drop(key)

    def check_all(
        self, items: Sequence[Item], tag: str | None, id: str | None, *, caches: bool = True,
        call: Call | None = None,
    ) -> Steps[Decision]:  # fmt: skip
        """Checks several rules at once. Without ``caches`` the server is asked in any case."""
        call = call or self.asking.call()
        began = self.clock()
        keyed = self.keyed(items, tag)
        args = _protocol.check_all(keyed, id=id)
        with self.teller.rejections(items[0].rule, items[0].subject, began):
            try:
                decision = yield from self._decide(
                    args, keyed, lambda reply: _protocol.decision_all(keyed, reply), call,
                    caches=caches,
                )  # fmt: skip
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
                decision = yield from self._peek(
                    args, keyed, lambda reply: _protocol.decision_all(keyed, reply)
                )
        except TooManyReservations:
            decision = _protocol.too_many(keyed)
        deciding = items[decision.deciding]
        return self.teller.told("peek", decision, deciding.rule, deciding.subject, began)

    def lease(self, item: Item, id: str, tag: str | None, call: Call) -> Steps[Decision]:
        """Takes a permit."""
        began, rule, subject = self.clock(), item.rule, item.subject
        keyed = Keyed(item, self.key(rule, subject, tag))
        with self.teller.rejections(rule, subject, began):
            decision = yield from self._decide(
                _protocol.lease(*keyed, id), [keyed],
                lambda reply: _protocol.decision(item, reply), call, caches=False,
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
        call = self.asking.call()
        try:
            for item in items:
                call = self.asking.call(call.left_s)
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
        call = self.asking.call()
        for item in taken:
            call = self.asking.call(call.left_s)
            yield from self.refund_quietly(item, None, call)

    def refund_quietly(
        self, item: Item, tag: str | None, call: Call | None = None
    ) -> Steps[None]:  # fmt: skip
        """Refunds a cost, also while the limiter is being closed. One without an answer is lost."""
        keyed = Keyed(item, self.keys.key(item.rule.name, item.subject, tag))
        args, call = _protocol.named("REFUND", *keyed), call or self.asking.call()
        with contextlib.suppress(ThrottleError):
            yield from self.settled("refund", args, keyed, lambda args: self.asking.ask(args, call))

    def wait(
        self, rule: Rule, subject: str, max_wait_ms: int, cost: int, tag: str | None
    ) -> Steps[Decision]:
        """After a denial, sleeps and checks again. If allowed, sleeps until the call may act."""
        began, call, denial = self.clock(), self.asking.call(), None
        while True:
            call = self.asking.call(call.left_s)
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
                # an answer the place stays taken.
                if not decision.degraded:
                    with contextlib.suppress(Unavailable):
                        call = self.asking.call(call.left_s)
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
        """Sends a call that takes nothing, and returns the back end that answered."""
        call = self.asking.call(max(READY_S, self.timeout_s))
        call.is_patient, call.dial_s = True, call.left_s
        try:
            yield from self.ask(_protocol.probe(self.keys.key("ready", "ready")), call)
        except Unavailable as error:
            if not error.stage:
                raise
            stage = error.stage + (" to RL.PEEK" if error.stage.endswith("reply") else "")
            raise Unavailable(f"{stage}: {error}", error.reason) from error
        return self.asking.backend.found.by or "module"

    def give_back(self) -> Steps[None]:
        """Refunds prefetched permits that were not used, also those of pending calls."""
        for fetch in self._grants.close(self._here()):
            yield Wait(fetch.ended, self.timeout_s, is_timed=True)
        for key, rule, permits in self._grants.drain(self.clock()):
            with contextlib.suppress(ThrottleError):
                unused = Item(rule, "unused", permits)
                args = _protocol.named("REFUND", unused, key)
                yield from self.asking.ask(args, self.asking.call())

    # -- helpers ------------------------------------------------------------------------------

    def keep(self, args: Args, until: float, is_over: Callable[[], bool]) -> Steps[Any]:
        """Sends a renewal or an end, which may wait until the instant ``until``."""
        return self.asking.keep(args, until, is_over)

    def ask(self, args: Args, call: Call | None = None) -> Steps[Any]:
        """Sends a call once, if the circuit breaker of its node permits, and returns the reply."""
        if self.is_closed:
            raise LimiterClosed
        return self.asking.ask(args, call or self.asking.call())

    def _is_known(self, items: Sequence[Keyed]) -> bool:
        """Returns True if known denials decide a call without an answer."""
        return self._known.is_used and not _is_held(items)

    def _decide(
        self, args: Args, items: Sequence[Keyed], read: Callable[[object], Decision], call: Call,
        *, partial: bool = False, caches: bool = True,
    ) -> Steps[Decision]:  # fmt: skip
        # A decision on a lease or a reservation belongs to its holder.
        caches = caches and not _is_held(items)
        is_cached, drops = caches and self._denials.is_used, 0
        asked = self.clock()
        if is_cached:
            drops = self._denials.drops(args)
            cached = self._denials.get(args, asked)
            if cached is not None:
                return cached
        if caches and self._known.is_used:
            known, seen = self._known, self._known.drops(items)
            call.known = lambda: known.under_pressure(items, self.clock(), partial=partial)
            call.read = lambda reply: known.learn(
                items, read(reply), asked + call.waited_s, seen, partial=partial
            )
        else:
            call.read = read
        try:
            decision: Decision = yield from self.asking.ask(args, call)
        except Unavailable as error:
            call.may_have_run = error.may_have_run
            return self._fallback(items, error, partial=partial, knows=caches)
        if is_cached and decision.source == "server":
            self._denials.put(args, decision, asked, drops)
        return decision

    def _fetched(self, keyed: Keyed, began: float, call: Call) -> Steps[Decision]:
        """Waits for a permit from a fetch that serves several callers."""
        (item, key), rule = keyed, keyed.item.rule
        denied = self._denials.get(_protocol.check(item, key), began)
        if denied is not None:
            return denied
        until, smaller = began + call.left_s, None
        new = self._new_fetch(rule, began)
        came = self._grants.join(key, new, began)
        while isinstance(came, Fetch):
            fetch, begins = came, came is new
            try:
                if begins:
                    yield Start(self._fetch(keyed, fetch), fetch.ended)
                # The first fetch has a timer of its own, which a first dial prolongs.
                timeout_s = max(0.0, until - self.clock())
                if smaller is None:
                    timeout_s += max(MOST_DIAL_S, self.timeout_s)
                yield Wait(fetch.ended, timeout_s, is_timed=smaller is not None)
            except BaseException:
                self._grants.leave(key, fetch)
                raise
            now = self.clock()
            call.left_s = until - now
            error = fetch.error or counted("no permit in time", "overloaded")
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
        one, call = _protocol.check(item, key), self.asking.call()
        drops, known, seen = self._denials.drops(one), self._known, self._known.drops([keyed])
        came: Decision | Exception = Unavailable("the program is ending")
        try:
            many = item.cost(self._grants.send(key, fetch, self._prefetch(item.rule)))
            args = _protocol.check(many, key, partial=True)

            def read(reply: object) -> Decision:
                decision = _protocol.decision(many, reply, partial=True)
                if known.is_used:
                    known.learn([Keyed(many, key)], decision, asked, seen, partial=True)
                return decision

            call.read = read
            if known.is_used:
                call.known = lambda: known.under_pressure([keyed], self.clock())
            decision: Decision = yield from self.ask(args, call)
            came = decision
            if decision.source == "server":
                self._denials.put(one, decision, asked, drops)
        except Exception as error:
            came = error
        finally:
            self._grants.end(key, fetch, asked, came)

    def key(self, rule: Rule, subject: str, tag: str | None) -> str:
        """Returns the key. Raises if the ``on_error`` of the rule cannot decide its calls, or if
        the limiter is closed.
        """
        if rule.on_error is None and self.options.on_error != "allow":
            checked_on_error(self.options.on_error, local=rule.keeps_locally)
        key = self.keys.key(rule.name, subject, tag)
        if self.is_closed:
            raise LimiterClosed
        return key

    def _prefetch(self, rule: Rule) -> int:
        """Returns the number of permits that one call fetches under this rule."""
        many = rule.prefetch or self.options.prefetch
        return many if many > 1 and rule.takes_prefetch else 1

    def keyed(self, items: Sequence[Item], tag: str | None) -> list[Keyed]:
        """Returns the items with their keys."""
        if not all(isinstance(item, Item) for item in items):
            raise InvalidArgument("items: expected rule.of(subject) for each")
        return [Keyed(item, self.key(item.rule, item.subject, tag)) for item in items]

    def _fallback(
        self, items: Sequence[Keyed], error: Unavailable, *, peek: bool = False,
        partial: bool = False, knows: bool = True,
    ) -> Decision:  # fmt: skip
        """Decides by a known denial or by ``on_error``, because the server gave no answer."""
        now, locals_of = self.clock(), dict[int, tuple[LocalLimiter, float]]()
        on_errors = [item.rule.on_error or self.options.on_error for item, _ in items]
        with self._lock:
            if knows and not _is_held(items):
                denial = self._known.without_answer(items, now, error.reason, partial=partial)
                if denial is not None:
                    return denial
                for at, keyed in enumerate(items):
                    local = self._known.kept_locally(keyed, now, error.reason)
                    if local is not None and on_errors[at] == "allow":
                        on_errors[at], locals_of[at] = "local", (local, 1.0)
            return without_answer(
                items, on_errors, error.reason, self.options.breaker_pause_ms,
                lambda at: locals_of.get(at) or (self._local, items[at].item.rule.local_share),
                int(now * 1_000_000), peek=peek, partial=partial,
            )  # fmt: skip

    def give_back_local(self, rule: Rule, key: str, units: int) -> None:
        """Gives back units that this process granted without an answer."""
        now = self.clock()
        if (rule.on_error or self.options.on_error) == "allow":
            self._known.give_back(rule, key, units, now)
            return
        with self._lock:
            limits = Limits.of(rule, rule.local_share)
            self._local.settle(limits, key, -units, int(now * 1_000_000))


def _is_held(items: Sequence[Keyed]) -> bool:
    """Returns True if a lease or a reservation is among the items."""
    for item, _ in items:  # noqa: SIM110
        # A generator takes several times as long.
        if item.is_held:
            return True
    return False


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
