"""The denial cache: denials that are repeated without a call until their retry time.

The caller passes the instants, in seconds of a monotonic clock.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from dataclasses import replace

from ._decision import FOREVER_MS, Decision

# The number of counters that show whether a key of a call was forgotten since the call was sent.
_SLOTS = 1024


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
        denial, asked = entry
        passed_ms = math.floor((now - asked) * 1000)
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

    def put(self, args: tuple[str, ...], decision: Decision, asked: float, drops: int) -> None:
        """Caches a denial, unless a key of the call was forgotten since the call was sent.

        ``asked`` is the instant before the call. ``drops`` is the number that :meth:`drops`
        returned then.
        """
        if not self._size or decision.allowed or decision.retry_after_ms <= 0:
            return
        with self._lock:
            if drops != self.drops(args):
                return
            self._denials[args] = decision, asked
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
