"""What stands between a caller and a server that is slow, away or flooded.

All of it runs on instants that the caller gives, in seconds of a monotonic clock.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from dataclasses import replace

from ._decision import Decision
from ._errors import Unavailable

# By which a cache tells that something of a call's keys was forgotten since it was sent.
_SLOTS = 1024


class Gate:
    """Counts the calls in flight and the failures: whether the server is to be asked at all.

    After ``failures`` in a row it stays shut for ``pause_s``; then one call is the probe.
    """

    def __init__(self, max_in_flight: int, failures: int, pause_s: float) -> None:
        self._most, self._failures, self._pause_s = max_in_flight, failures, pause_s
        self._in_flight = 0
        self.answers = 0
        self._failed = 0
        self._shut_until: float | None = None
        self._probing = False
        self._lock = threading.Lock()

    def enter(self, now: float) -> bool:
        """Begins a call; true when it is the probe. Each is ended by :meth:`leave`."""
        with self._lock:
            if self._shut_until is not None and (self._probing or now < self._shut_until):
                raise Unavailable("the server did not answer lately, it is not asked for a while")
            if self._in_flight >= self._most:
                raise Unavailable(f"{self._most} calls wait for the server already")
            self._in_flight += 1
            probe = self._shut_until is not None
            # An older call may have been answered while a probe is under way: that one stays one.
            self._probing = self._probing or probe
            return probe

    def leave(self, now: float, probe: bool, answered: bool | None) -> None:
        """Ends a call. ``answered`` is None when it was given up by its caller."""
        with self._lock:
            self._in_flight -= 1
            if probe:
                self._probing = False
            if answered:
                self.answers += 1
                self._failed, self._shut_until = 0, None
            elif answered is False:
                self._failed += 1
                if probe or self._failed >= self._failures:
                    self._shut_until = now + self._pause_s


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
