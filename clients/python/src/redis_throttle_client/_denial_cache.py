"""Denials that are remembered until their retry.

Instants are given by the caller, in seconds of a monotonic clock.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from dataclasses import replace

from ._decision import Decision

# By which a cache tells that something of a call's keys was forgotten since it was sent.
_SLOTS = 1024


class DenialCache:
    """Denials that hold: the same call is denied until the instant that the server named."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._denials: OrderedDict[tuple[str, ...], tuple[Decision, float]] = OrderedDict()
        self._drops = [0] * _SLOTS
        self._lock = threading.Lock()

    def get(self, args: tuple[str, ...], now: float) -> Decision | None:
        """The denial of this very call, with the times as of now."""
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
        """Changes when something of a call's keys is forgotten, and seldom when of another one."""
        # Where there is but one key, words of its rule stand there too, which does no harm.
        return sum(self._drops[hash(key) % _SLOTS] for key in args[1::2]) if self._size else 0

    def put(self, args: tuple[str, ...], decision: Decision, asked: float, drops: int) -> None:
        """Remembers a denial, unless it is from before something was forgotten.

        ``asked`` is the instant before the call, ``drops`` what :meth:`drops` was then.
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
        """Forgets what is known of a key, or will be by calls under way: it was changed here."""
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
