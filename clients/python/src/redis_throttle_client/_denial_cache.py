"""Denials that are remembered until their retry.

The caller gives the instants, in seconds of a monotonic clock.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from dataclasses import replace

from ._decision import Decision

# Counters that show whether one of a call's keys was forgotten since the call was sent.
_SLOTS = 1024


class DenialCache:
    """Remembers denials: the same call is denied until the instant that the server named."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._denials: OrderedDict[tuple[str, ...], tuple[Decision, float]] = OrderedDict()
        self._drops = [0] * _SLOTS
        self._lock = threading.Lock()

    def get(self, args: tuple[str, ...], now: float) -> Decision | None:
        """Returns the denial of this call, with the time left."""
        entry = self._denials.get(args)
        if entry is None:
            return None
        denial, asked = entry
        passed_ms = math.floor((now - asked) * 1000)
        if passed_ms >= denial.retry_after_ms:
            with self._lock:
                self._denials.pop(args, None)
            return None
        return _aged(denial, passed_ms)

    def drops(self, args: tuple[str, ...]) -> int:
        """Returns a number that changes if a call's key is forgotten, and rarely otherwise."""
        # With one key the words of its rule are counted too, which does no harm.
        return sum(self._drops[hash(key) % _SLOTS] for key in args[1::2]) if self._size else 0

    def put(self, args: tuple[str, ...], decision: Decision, asked: float, drops: int) -> None:
        """Remembers a denial, unless one of its keys was forgotten since the call was sent.

        ``asked`` is the instant before the call, ``drops`` the number from :meth:`drops` then.
        """
        if not self._size or decision.allowed or decision.retry_after_ms <= 0:
            return
        with self._lock:
            if drops != self.drops(args):
                return
            self._denials[args] = decision, asked
            self._denials.move_to_end(args)
            while len(self._denials) > self._size:
                self._denials.popitem(last=False)

    def drop(self, key: str) -> None:
        """Forgets the denials of a changed key, also those that calls under way will bring."""
        with self._lock:
            self._drops[hash(key) % _SLOTS] += 1
            for args in [args for args in self._denials if key in args]:
                del self._denials[args]


def _aged(denial: Decision, passed_ms: int) -> Decision:
    return replace(
        denial,
        source="local",
        retry_after_ms=max(0, denial.retry_after_ms - passed_ms),
        reset_after_ms=max(0, denial.reset_after_ms - passed_ms),
        would_retry_after_ms=max(0, denial.would_retry_after_ms - passed_ms),
        rows=tuple(
            _aged(row, passed_ms) if row.retry_after_ms > 0 else replace(row, source="local")
            for row in denial.rows
        ),
    )
