"""Denials that this process repeats: cached ones until their retry time, and the known denials, the
server's last one of each key, for calls that the server does not decide.

The caller passes the instants, in seconds of a monotonic clock. All changes are made under a lock.
What is only read needs none: an entry is immutable, and a dictionary returns it or not.
"""

from __future__ import annotations

import heapq
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from .._rules.decision import FOREVER_MS, Decision
from .._rules.errors import Reason
from .._rules.rule import Item, Rule, limit_of
from .._wire.words import Keyed
from .local import Limits, LocalLimiter

# The number of counters that show whether a key of a call was forgotten since the call was sent.
_SLOTS = 1024
# How long a denial counts without the server.
_MOST_S = 3600.0


class DenialCache:
    """Caches denials: the same call is denied until its retry time, at most for ``max_ms``.

    An entry is for one call with all its words, so also for its cost.
    """

    def __init__(self, size: int, max_ms: int) -> None:
        self._size, self._max_ms = size, max_ms
        self._denials: OrderedDict[tuple[str, ...], tuple[Decision, float]] = OrderedDict()
        # The cached calls of each key, so that a key is forgotten without a search.
        self._calls: dict[str, set[tuple[str, ...]]] = {}
        self._drops = [0] * _SLOTS
        self._lock = threading.Lock()

    @property
    def is_used(self) -> bool:
        """True if the cache holds entries at all."""
        return self._size > 0

    def get(self, args: tuple[str, ...], now: float) -> Decision | None:
        """Returns the cached denial of this call, with the time that is left."""
        entry = self._denials.get(args)
        if entry is None:
            return None
        denial, began = entry
        passed_ms = math.floor((now - began) * 1000)
        if passed_ms >= min(denial.retry_after_ms, self._max_ms):
            with self._lock:
                # Another thread may have replaced the entry.
                if self._denials.get(args) is entry:
                    self._remove(args)
            return None
        return aged(denial, passed_ms)

    def drops(self, args: tuple[str, ...]) -> int:
        """Returns a number that changes if a key of the call is forgotten, and rarely otherwise."""
        return sum(self._drops[hash(key) % _SLOTS] for key in _keys(args)) if self._size else 0

    def put(self, args: tuple[str, ...], decision: Decision, began: float, drops: int) -> None:
        """Caches a denial, unless a key of the call was forgotten since the call was sent.

        ``began`` is the instant before the call. ``drops`` is the number that :meth:`drops`
        returned then.
        """
        if not self._size or decision.allowed or decision.retry_after_ms <= 0:
            return
        with self._lock:
            if drops != self.drops(args):
                return
            self._denials[args] = decision, began
            self._denials.move_to_end(args)
            for key in _keys(args):
                self._calls.setdefault(key, set()).add(args)
            while len(self._denials) > self._size:
                self._remove(next(iter(self._denials)))

    def drop(self, key: str) -> None:
        """Removes the denials of a changed key. Denials of pending calls are not cached."""
        with self._lock:
            self._drops[hash(key) % _SLOTS] += 1
            for args in list(self._calls.get(key, ())):
                self._remove(args)

    def _remove(self, args: tuple[str, ...]) -> None:
        del self._denials[args]
        for key in _keys(args):
            calls = self._calls[key]
            calls.discard(args)
            if not calls:
                del self._calls[key]


def _keys(args: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the keys of a call."""
    return args[1::2] if args[0] == "RL.ALL" else args[1:2]


def aged(denial: Decision, passed_ms: int) -> Decision:
    """Returns a denial of the server after some time, as a decision of this process."""
    return replace(
        denial,
        source="local",
        retry_after_ms=_left(denial.retry_after_ms, passed_ms),
        reset_after_ms=max(0, denial.reset_after_ms - passed_ms),
        would_retry_after_ms=_left(denial.would_retry_after_ms, passed_ms),
        rows=tuple(
            aged(row, passed_ms) if row.retry_after_ms > 0 else replace(row, source="local")
            for row in denial.rows
        ),
    )


def _left(ms: int, passed_ms: int) -> int:
    return ms if ms >= FOREVER_MS else max(0, ms - passed_ms)


class _Entry(NamedTuple):
    """A denial, the cost that was denied, and the instant at which it was read."""

    item: Item
    cost: int
    denial: Decision
    read_at: float

    def is_of(self, item: Item) -> bool:
        """Returns True if a call has the same words, apart from its cost."""
        own, rule = self.item.rule, item.rule
        same = own is rule or (own.words == rule.words and own.options == rule.options)
        return same and self.item.leaves == item.leaves

    def denies(self, item: Item, *, partial: bool) -> bool:
        """Returns True for a call of the same words with this cost or a larger one."""
        return self.cost <= (1 if partial else item.units) and self.is_of(item)

    @property
    def retry_at(self) -> float:
        """The instant at which the call may be allowed."""
        ms = self.denial.retry_after_ms
        return math.inf if ms >= FOREVER_MS else self.read_at + ms / 1000

    @property
    def ends_at(self) -> float:
        """The instant until which the denial counts without the server."""
        return min(self.retry_at, self.read_at + _MOST_S)


class KnownDenials:
    """The last denials of at most ``size`` keys."""

    def __init__(self, size: int, young_ms: int, lock: threading.Lock | None = None) -> None:
        """``young_ms`` is the age up to which a denial counts under pressure.

        The caller holds the ``lock`` while it decides by a limiter of :meth:`kept_locally`.
        """
        self._size, self._young_s = size, young_ms / 1000
        self._entries: dict[str, _Entry] = {}
        # The number of keys that were forgotten, and what it was at the last one of a slot.
        self.forgotten = 0
        self._forgotten_at = [0] * _SLOTS
        # The limits that are kept in this process, and the keys of those whose denial is over.
        self._local, self._are_local = LocalLimiter(), set[str]()
        self._lock = lock or threading.Lock()
        # True if denials are remembered at all.
        self.is_used = size > 0

    def learn(
        self, items: Sequence[Keyed], decision: Decision, clock: Callable[[], float],
        forgotten: int, *,
        partial: bool = False,
    ) -> Decision:  # fmt: skip
        """Remembers what the server denied, and drops what it allowed. Returns the decision.

        ``forgotten`` is the number of keys that were forgotten when the call began.
        """
        if decision.rows:
            for keyed, row in zip(items, decision.rows, strict=True):
                self._learn(keyed, row, clock, forgotten, partial)
        elif self._entries or not decision.allowed:
            self._learn(items[0], decision, clock, forgotten, partial)
        return decision

    def _learn(
        self, keyed: Keyed, row: Decision, clock: Callable[[], float], forgotten: int, partial: bool
    ) -> None:
        item, key = keyed
        if row.allowed:
            cost = row.granted if partial else item.units
            if _is_at_most(self._entries.get(key), cost, item):
                with self._lock:
                    # Another thread may have replaced it.
                    if _is_at_most(self._entries.get(key), cost, item):
                        self._evict(key)
            return
        if row.retry_after_ms <= 0:
            return
        cost, read_at = 1 if partial else item.units, clock()
        with self._lock:
            # A key that was forgotten since then may have units again.
            if self._forgotten_at[hash(key) % _SLOTS] > forgotten:
                return
            old = self._entries.get(key)
            if old is not None and _is_at_most(old, cost - 1, item) and read_at < old.retry_at:
                # That of a smaller cost denies this one too.
                return
            if old is None or self._are_local:
                self._make_room(key)
            self._entries[key] = _Entry(item, cost, row, read_at)

    def _make_room(self, key: str) -> None:
        self._evict(key)
        if len(self._entries) >= self._size:
            self._evict_some()

    def _evict_some(self) -> None:
        """Evicts a tenth at once, so that a new key costs constant time on average."""
        known = self._entries
        for key in heapq.nsmallest(
            -(-self._size // 10), known, key=lambda key: known[key].retry_at
        ):
            self._evict(key)

    def _evict(self, key: str) -> None:
        # The limit that this process keeps stays: no reply may give a key a second allowance.
        self._entries.pop(key, None)
        self._are_local.discard(key)

    def forget(self, key: str) -> None:
        """Drops the denial of a changed key. Denials of pending calls are not remembered."""
        with self._lock:
            self.forgotten += 1
            self._forgotten_at[hash(key) % _SLOTS] = self.forgotten
            self._evict(key)

    # -- decisions -----------------------------------------------------------------------------

    def under_pressure(
        self, items: Sequence[Keyed], now: float, *, partial: bool = False
    ) -> Decision | None:
        """Returns the denial of a call that is not sent, because a known one is young."""
        if not self._entries:
            return None
        rows: dict[int, Decision] = {}
        for at, (item, key) in enumerate(items):
            entry = self._entries.get(key)
            if entry is None or not entry.denies(item, partial=partial):
                continue
            if now < entry.retry_at and now - entry.read_at < self._young_s:
                rows[at] = aged(entry.denial, _passed_ms(entry, now))
        return _denied(items, rows) if rows else None

    def without_server(
        self, items: Sequence[Keyed], now: float, reason: Reason, *, partial: bool = False
    ) -> Decision | None:
        """Returns the denial of a call that the server did not decide."""
        rows: dict[int, Decision] = {}
        for at, (item, key) in enumerate(items):
            entry = self._entries.get(key)
            if entry is None or not entry.denies(item, partial=partial) or now >= entry.ends_at:
                continue
            left = aged(entry.denial, _passed_ms(entry, now))
            rows[at] = replace(left, degraded=True, reason=reason)
        return _denied(items, rows, reason) if rows else None

    def kept_locally(self, keyed: Keyed, now: float, reason: Reason) -> LocalLimiter | None:
        """Returns the limiter of a key that is not allowed without a limit; None for others.

        This is a key whose denial is over. If too many calls wait, it is every key, because the
        server replies to others. The caller has the lock.
        """
        item, key = keyed
        if not item.rule.keeps_locally:
            return None
        entry = self._entries.get(key)
        if entry is None or now < entry.ends_at or not entry.is_of(item):
            return self._local if reason == "overloaded" else None
        if key not in self._are_local:
            self._are_local.add(key)
            full_s = entry.read_at + entry.denial.reset_after_ms / 1000
            self._local.fill_by(
                Limits.of(item.rule), key, int(full_s * 1_000_000), int(now * 1_000_000)
            )
        return self._local

    def give_back(self, rule: Rule, key: str, units: int, now: float) -> None:
        """Gives back units that this process granted."""
        with self._lock:
            self._local.settle(Limits.of(rule), key, -units, int(now * 1_000_000))


def _is_at_most(entry: _Entry | None, cost: int, item: Item) -> bool:
    """Returns True for a denial of the same words with this cost or a smaller one."""
    return entry is not None and entry.cost <= cost and entry.is_of(item)


def _passed_ms(entry: _Entry, now: float) -> int:
    # Instants are sums of times, which floats cannot represent exactly.
    return math.floor((now - entry.read_at) * 1000 + 0.001)


def _denied(
    items: Sequence[Keyed], rows: dict[int, Decision], reason: Reason | None = None
) -> Decision:
    """Returns the denial of a call, of which some rows deny."""
    at = max(rows, key=lambda at: (rows[at].never, rows[at].retry_after_ms))
    if len(items) == 1:
        return rows[at]
    all_rows = tuple(
        rows[other] if other in rows else _allowed(item.rule, reason)
        for other, (item, _) in enumerate(items)
    )
    return replace(rows[at], rows=all_rows, deciding=at)


def _allowed(rule: Rule, reason: Reason | None) -> Decision:
    return Decision(
        True, limit_of(rule), 0, 0, 0, rule.name, "local", reason is not None,
        window_us=rule.window_us, reason=reason,
    )  # fmt: skip
