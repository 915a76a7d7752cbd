"""Prefetched permits: one call fetches several for a key, and this process uses them."""

from __future__ import annotations

import contextlib
import math
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from .._rules.decision import Decision
from .._rules.errors import ThrottleError, Unavailable, counted
from .._rules.options import MOST_DIAL_S
from .._rules.rule import MAX_PREFETCH, Item, Rule, checked_rule
from .._wire import replies, words
from .._wire.call import Call, Start, Steps, Wait
from .._wire.words import Keyed
from .deciding import Deciding


@dataclass(slots=True)
class Grant:
    """The prefetched permits of one key. They expire at the reset time of their grant."""

    rule: Rule
    decision: Decision
    permits: int
    expires_at: float


@dataclass(slots=True, eq=False)
class Fetch:
    """One call for several permits, and its waiters, all in one event loop.

    ``ended`` is set when the fetch ends. ``wanted`` is the number of permits that it requests, 0
    until it is sent. ``left`` is the number of permits that arrived and are reserved for waiters.
    If ``keeps`` is false, permits without a waiter are dropped. ``short`` is the number of waiters
    without a permit, and ``again`` their second fetch, which they share.
    """

    rule: Rule
    here: object
    until: float
    ended: Any
    waiting: int = 1
    wanted: int = 0
    keeps: bool = True
    decision: Decision | None = None
    error: Exception | None = None
    left: int = 0
    expires_at: float = 0
    least: int = 0
    short: int = 0
    again: Fetch | None = None
    _has_served: bool = False

    @property
    def has_ended(self) -> bool:
        """True if the fetch has a decision or an error."""
        return self.decision is not None or self.error is not None

    def serves(self, other: Fetch, now: float) -> bool:
        """Returns True if a caller may wait for this fetch: not all its permits are promised."""
        room = self.waiting < (self.wanted or MAX_PREFETCH)
        # A fetch whose loop ended before the fetch was sent never ends.
        return room and self.here is other.here and now < self.until and self.rule == other.rule

    def serves_first(self) -> bool:
        """Returns True for the first waiter that receives the decision."""
        first, self._has_served = not self._has_served, True
        return first


class Turnstile:
    """A ``threading.Event`` that is set once. Each waiter wakes the next one.

    If all waiters woke at once, they would compete for the interpreter and take twice as long.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Releases all waiters, present and future."""
        self._lock.release()

    def wait(self, timeout_s: float) -> bool:
        """Returns True if the event is set within ``timeout_s``."""
        passes = self._lock.acquire(timeout=timeout_s)
        if passes:
            self._lock.release()
        return passes


class Grants:
    """The prefetched permits and the pending fetches. Thread-safe, with a bounded number of keys.

    A caller joins only a fetch that has not promised all its permits; otherwise it starts another
    one. So a caller waits for a second fetch only if the first one brought too few permits. Each
    fetch has the full timeout.
    """

    def __init__(self, size: int = 10_000) -> None:
        self._size = size
        self._grants: OrderedDict[str, Grant] = OrderedDict()
        self._fetches: dict[str, list[Fetch]] = {}
        # For each key, the number of pending calls that reset it.
        self._forgetting: dict[str, int] = {}
        self._closed = False
        self._lock = threading.Lock()

    def spend(self, key: str, rule: Rule, now: float) -> Decision | None:
        """Spends an unexpired permit of this rule, if there is one."""
        with self._lock:
            return self._spend(key, rule, now)

    def _spend(self, key: str, rule: Rule, now: float) -> Decision | None:
        grant = self._grants.get(key)
        if grant is None:
            return None
        same = grant.rule is rule or grant.rule == rule
        if not same or grant.permits < 1 or now >= grant.expires_at:
            del self._grants[key]
            return None
        grant.permits -= 1
        return _permit(grant.decision, grant.permits, grant.expires_at - now)

    def join(self, key: str, new: Fetch, now: float) -> Decision | Fetch:
        """Returns a permit, or the fetch to wait for. If that is ``new``, the caller starts it."""
        with self._lock:
            spent = self._spend(key, new.rule, now)
            if spent is not None:
                return spent
            fetches = self._fetches.setdefault(key, [])
            if fetches and fetches[-1].serves(new, now):
                fetches[-1].waiting += 1
                return fetches[-1]
            fetches[:] = [one for one in fetches if now < one.until] + [new]
            return new

    def send(self, key: str, fetch: Fetch, prefetch: int) -> int:
        """Returns the number of permits to request."""
        with self._lock:
            if key in self._forgetting or self._closed:
                # Permits that arrive now may be from before the reset or from after it.
                fetch.keeps = False
            fetch.wanted = max(prefetch if fetch.keeps else 1, fetch.waiting, fetch.least)
            return fetch.wanted

    def end(self, key: str, fetch: Fetch, began: float, came: Decision | Exception) -> None:
        """Ends a fetch: reserves permits for its waiters and stores the others."""
        with self._lock:
            fetches = self._fetches.get(key, [])
            if fetch in fetches:
                fetches.remove(fetch)
            if not fetches:
                self._fetches.pop(key, None)
            if isinstance(came, Exception):
                fetch.error = came
                return
            fetch.decision, fetch.expires_at = came, began + came.reset_after_ms / 1000
            fetch.left = min(came.granted, fetch.waiting)
            fetch.short = fetch.waiting - fetch.left
            self._keep(key, fetch, came.granted - fetch.left)

    def _keep(self, key: str, fetch: Fetch, permits: int) -> None:
        if permits > 0 and fetch.keeps and fetch.decision is not None:
            self._store(key, Grant(fetch.rule, fetch.decision, permits, fetch.expires_at))

    def _store(self, key: str, new: Grant) -> None:
        grant = self._grants.get(key)
        if grant is not None and grant.rule == new.rule:
            new.permits += grant.permits
            new.expires_at = min(new.expires_at, grant.expires_at)
        self._grants[key] = new
        self._grants.move_to_end(key)
        while len(self._grants) > self._size:
            self._grants.popitem(last=False)

    def put_back(
        self, key: str, rule: Rule, permit: Decision, expires_at: float, now: float
    ) -> None:  # fmt: skip
        """Stores a spent permit again, for another caller, unless it has expired."""
        with self._lock:
            if self._closed or now >= expires_at:
                return
            grant = self._grants.get(key)
            if grant is not None and grant.rule == rule and now < grant.expires_at:
                grant.permits += 1
                grant.expires_at = min(grant.expires_at, expires_at)
            else:
                self._grants.pop(key, None)
                self._store(key, Grant(rule, permit, 1, expires_at))

    def share(
        self, key: str, fetch: Fetch, now: float, new: Fetch | None
    ) -> Decision | Fetch | None:
        """Returns the decision of one waiter; None if the fetch failed.

        A waiter without a permit waits again, if it may, for the returned fetch. If that is
        ``new``, the waiter starts it.
        """
        with self._lock:
            decision = fetch.decision
            if decision is None:
                fetch.waiting -= 1
                return None
            first = fetch.serves_first()
            if not decision.allowed:
                return decision
            if not fetch.left:
                spent = self._spend(key, fetch.rule, now)
                if spent is None and new is not None:
                    return self._again(key, fetch, new)
                return spent or none_left(fetch.rule, decision)
            fetch.left -= 1
            grant = self._grants.get(key)
            others = fetch.left + (0 if grant is None else grant.permits)
            if first:
                return replace(decision, granted=1, remaining=decision.remaining + others)
            return _permit(decision, others, fetch.expires_at - now)

    def _again(self, key: str, fetch: Fetch, new: Fetch) -> Fetch:
        if fetch.again is None:
            fetch.again, new.least = new, fetch.short
            self._fetches.setdefault(key, []).append(new)
        else:
            fetch.again.waiting += 1
        return fetch.again

    def leave(self, key: str, fetch: Fetch) -> None:
        """Ends a wait. A permit that arrived for it is stored for other callers."""
        with self._lock:
            if not fetch.has_ended:
                fetch.waiting -= 1
            elif fetch.left:
                fetch.left -= 1
                self._keep(key, fetch, 1)

    @contextlib.contextmanager
    def forgotten(self, key: str) -> Iterator[None]:
        """Resets a key. Permits that were requested before the end of the block are dropped."""
        with self._lock:
            self._grants.pop(key, None)
            for fetch in self._fetches.pop(key, []):
                fetch.keeps = False
            self._forgetting[key] = self._forgetting.get(key, 0) + 1
        try:
            yield
        finally:
            with self._lock:
                self._forgetting[key] -= 1
                if not self._forgetting[key]:
                    del self._forgetting[key]

    def close(self, here: object) -> list[Fetch]:
        """Stops prefetching. Returns the pending fetches of the loop ``here``."""
        with self._lock:
            self._closed = True
            return [
                fetch
                for fetches in self._fetches.values()
                for fetch in fetches
                if fetch.here is here
            ]

    def drain(self, now: float) -> list[tuple[str, Rule, int]]:
        """Removes and returns all unused, unexpired permits, for a refund."""
        with self._lock:
            left = [
                (key, grant.rule, grant.permits)
                for key, grant in self._grants.items()
                if grant.permits > 0 and now < grant.expires_at
            ]
            self._grants.clear()
        return left


def _permit(base: Decision, others: int, left_s: float) -> Decision:
    """Returns the decision for one permit of a grant, of which ``others`` stay unused."""
    left_ms = max(0, math.ceil(left_s * 1000))
    return Decision(
        True, base.limit, base.remaining + others, 0, left_ms, base.rule, "local",
        granted=1, window_us=base.window_us,
    )  # fmt: skip


def none_left(rule: Rule, grant: Decision) -> Decision:
    """Denies a waiter whose fetch brought too few permits.

    The caller may have no time for another call, so the retry time comes from the grant. It is the
    grant's reset time, when all units are back; in a bucket, which refills evenly, it is the
    earlier time when one unit is back. It may be too long: it counts from the grant, and in a
    window some units may be back before the reset.
    """
    retry_ms = grant.reset_after_ms
    if rule.kind in ("gcra", "token_bucket") and rule.rate:
        all_but_one_us = (grant.limit - 1) * rule.period_us // rule.rate
        retry_ms = max(1, retry_ms - all_but_one_us // 1000)
    return replace(
        grant, allowed=False, remaining=0, retry_after_ms=retry_ms, source="local",
        would_allow=False, would_retry_after_ms=retry_ms, granted=0,
    )  # fmt: skip


class Prefetching(Deciding):
    """The calls that spend prefetched permits, and those that fetch them."""

    def begin(self) -> None:
        """The same as :meth:`Deciding.begin`, without the permits of the parent."""
        super().begin()
        self._grants = Grants()

    def spend(self, rule: Rule, subject: str | int, tag: str | None) -> Decision | None:
        """Spends a prefetched permit without any step: this is the most frequent call."""
        try:
            if self._prefetch(rule) == 1:
                return None
        except AttributeError:
            # A check of the type before would take time of each call.
            checked_rule(rule)
            raise
        began = self.clock()
        spent = self._grants.spend(self.key(rule, subject, tag), rule, began)
        return None if spent is None else self.events.decided("check", spent, rule, subject, began)

    def give_back(self, ends_at: float) -> Steps[None]:
        """Refunds prefetched permits that were not used, also those of pending calls.

        Until the instant ``ends_at``: permits that are left then stay taken, until they expire.
        """
        for fetch in self._grants.close(self._here()):
            yield Wait(fetch.ended, max(0.0, ends_at - self.clock()), is_timed=True)
        for key, rule, permits in self._grants.drain(self.clock()):
            left_s = ends_at - self.clock()
            if left_s <= 0:
                return
            with contextlib.suppress(ThrottleError):
                unused = Item(rule, "unused", permits)
                args = words.named("REFUND", unused, key)
                yield from self.sender.send(args, self.sender.call(left_s))

    def _prefetch(self, rule: Rule) -> int:
        """Returns the number of permits that one call fetches under this rule."""
        many = rule.prefetch or self.options.prefetch
        return many if many > 1 and rule.takes_prefetch else 1

    def _fetched(self, keyed: Keyed, began: float, call: Call) -> Steps[Decision]:
        """Waits for a permit from a fetch that serves several callers."""
        (item, key), rule = keyed, keyed.item.rule
        denied = self._denials.get(words.check(item, key), began)
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
                    self.events.count("rejected")
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
        began, (item, key) = self.clock(), keyed
        # If the fetch is denied, cache that denial for single calls, which would be denied too.
        one, call = words.check(item, key), self.sender.call()
        drops, known, seen = self._denials.drops(one), self._known, self._known.forgotten
        came: Decision | Exception = Unavailable("the program is ending")
        try:
            many = item.cost(self._grants.send(key, fetch, self._prefetch(item.rule)))
            args = words.check(many, key, partial=True)

            def read(reply: object) -> Decision:
                decision = replies.decision(many, reply, partial=True)
                if known.is_used:
                    known.learn([Keyed(many, key)], decision, self.clock, seen, partial=True)
                return decision

            call.read = read
            if known.is_used:
                call.known = lambda: known.under_pressure([keyed], self.clock())
            decision: Decision = yield from self.send(args, call)
            came = decision
            if decision.source == "server":
                self._denials.put(one, decision, began, drops)
        except Exception as error:
            came = error
        finally:
            self._grants.end(key, fetch, began, came)
