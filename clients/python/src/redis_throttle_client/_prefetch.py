"""Permits of one key that are fetched in one call and spent here, one by one."""

from __future__ import annotations

import contextlib
import math
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ._decision import Decision
from ._rules import MAX_PREFETCH, Rule


@dataclass(slots=True)
class Grant:
    """Permits of one key that were taken in advance, and lapse with the reset of their grant."""

    rule: Rule
    decision: Decision
    permits: int
    lapses: float


@dataclass(slots=True, eq=False)
class Fetch:
    """One call for permits, and all who wait for it in one loop; ``ended`` is set at its end.

    ``wanted`` is how many it asks for, 0 until it is sent; ``left`` how many of those that came
    are there for who waits. ``keeps`` is false when what is over is not to be kept.
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
    lapses: float = 0
    _told: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether there is an answer, or none to wait for any more."""
        return self.decision is not None or self.error is not None

    def serves(self, other: Fetch, now: float) -> bool:
        """Whether who would begin another one may wait for this one: it has a permit for it."""
        room = self.waiting < (self.wanted or MAX_PREFETCH)
        # One whose loop has ended before it began never ends.
        return room and self.here is other.here and now < self.until and self.rule == other.rule

    def tell(self) -> bool:
        """True for the first who is told what came."""
        first, self._told = not self._told, True
        return first


class Turnstile:
    """As a ``threading.Event`` that is set once; who waited wakes the next one.

    All at once would fight for the interpreter, and take twice as long.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Lets pass who waits, and who comes later."""
        self._lock.release()

    def wait(self, timeout_s: float) -> bool:
        """Whether it is set in so many seconds."""
        passes = self._lock.acquire(timeout=timeout_s)
        if passes:
            self._lock.release()
        return passes


class Grants:
    """What was fetched, and the fetches under way. Thread-safe, bounded.

    Each who waits has a permit of a fetch that began before it came or with it. So nobody waits
    longer than for one call, and no fetch has less than the whole time.
    """

    def __init__(self, size: int = 10_000) -> None:
        self._size = size
        self._grants: OrderedDict[str, Grant] = OrderedDict()
        self._fetches: dict[str, list[Fetch]] = {}
        # How many calls are on their way that let a key start anew.
        self._forgetting: dict[str, int] = {}
        self._closed = False
        self._lock = threading.Lock()

    def spend(self, key: str, rule: Rule, now: float) -> Decision | None:
        """One permit, if there is one of this very rule that has not lapsed."""
        with self._lock:
            return self._spend(key, rule, now)

    def _spend(self, key: str, rule: Rule, now: float) -> Decision | None:
        grant = self._grants.get(key)
        if grant is None:
            return None
        same = grant.rule is rule or grant.rule == rule
        if not same or grant.permits < 1 or now >= grant.lapses:
            del self._grants[key]
            return None
        grant.permits -= 1
        return _permit(grant.decision, grant.permits, grant.lapses - now)

    def join(self, key: str, new: Fetch, now: float) -> Decision | Fetch:
        """A permit; or the fetch to wait for, ``new`` when it is to be begun."""
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
        """How many permits to ask for."""
        with self._lock:
            if key in self._forgetting or self._closed:
                # Nobody could tell whether they are those of before or after.
                fetch.keeps = False
            fetch.wanted = max(prefetch if fetch.keeps else 1, fetch.waiting)
            return fetch.wanted

    def end(self, key: str, fetch: Fetch, asked: float, came: Decision | Exception) -> None:
        """Puts aside what they get who wait, and keeps what is over."""
        with self._lock:
            fetches = self._fetches.get(key, [])
            if fetch in fetches:
                fetches.remove(fetch)
            if not fetches:
                self._fetches.pop(key, None)
            if isinstance(came, Exception):
                fetch.error = came
                return
            fetch.decision, fetch.lapses = came, asked + came.reset_after_ms / 1000
            fetch.left = min(came.granted, fetch.waiting)
            self._keep(key, fetch, came.granted - fetch.left)

    def _keep(self, key: str, fetch: Fetch, permits: int) -> None:
        if permits < 1 or not fetch.keeps or fetch.decision is None:
            return
        lapses, grant = fetch.lapses, self._grants.get(key)
        if grant is not None and grant.rule == fetch.rule:
            permits, lapses = permits + grant.permits, min(lapses, grant.lapses)
        self._grants[key] = Grant(fetch.rule, fetch.decision, permits, lapses)
        self._grants.move_to_end(key)
        while len(self._grants) > self._size:
            self._grants.popitem(last=False)

    def share(self, key: str, fetch: Fetch, now: float) -> Decision | None:
        """What one who waited gets; None when nothing came as long as it did."""
        with self._lock:
            answer = fetch.decision
            if answer is None:
                fetch.waiting -= 1
                return None
            first = fetch.tell()
            if not answer.allowed:
                return answer
            if not fetch.left:
                return self._spend(key, fetch.rule, now) or _none_left(fetch.rule, answer)
            fetch.left -= 1
            grant = self._grants.get(key)
            others = fetch.left + (0 if grant is None else grant.permits)
            if first:
                return replace(answer, granted=1, remaining=answer.remaining + others)
            return _permit(answer, others, fetch.lapses - now)

    def leave(self, key: str, fetch: Fetch) -> None:
        """Waits no more: what came for it is kept for others."""
        with self._lock:
            if not fetch.has_ended:
                fetch.waiting -= 1
            elif fetch.left:
                fetch.left -= 1
                self._keep(key, fetch, 1)

    @contextlib.contextmanager
    def forgotten(self, key: str) -> Iterator[None]:
        """While a key starts anew: nothing of it is kept that was asked for before the end."""
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
        """From now on nothing is taken in advance. What is under way here, to be waited for."""
        with self._lock:
            self._closed = True
            return [
                fetch
                for fetches in self._fetches.values()
                for fetch in fetches
                if fetch.here is here
            ]

    def drain(self, now: float) -> list[tuple[str, Rule, int]]:
        """What is left and has not lapsed, to be given back."""
        with self._lock:
            left = [
                (key, grant.rule, grant.permits)
                for key, grant in self._grants.items()
                if grant.permits > 0 and now < grant.lapses
            ]
            self._grants.clear()
        return left


def _permit(base: Decision, others: int, left_s: float) -> Decision:
    """A permit of a grant; ``others`` more of it are here."""
    left_ms = max(0, math.ceil(left_s * 1000))
    return Decision(
        True, base.limit, base.remaining + others, 0, left_ms, base.rule, "local",
        granted=1, window_us=base.window_us,
    )  # fmt: skip


def _none_left(rule: Rule, grant: Decision) -> Decision:
    """A denial of who waited for a grant that was smaller than asked for.

    There is no more, and a grant does not say until when. To ask again may last longer than the
    caller has. So it hears the latest instant: when all is there again, or of a bucket, which is
    below one unit, when it is but one unit above.
    """
    retry_ms = grant.reset_after_ms
    if rule.kind in ("gcra", "token_bucket") and rule.rate:
        all_but_one_us = (grant.limit - 1) * rule.period_us // rule.rate
        retry_ms = max(1, retry_ms - all_but_one_us // 1000)
    return replace(
        grant, allowed=False, remaining=0, retry_after_ms=retry_ms, source="local",
        would_allow=False, would_retry_after_ms=retry_ms, granted=0,
    )  # fmt: skip
