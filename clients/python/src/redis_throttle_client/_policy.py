"""What stands between a caller and a server that is slow, away or flooded.

All of it runs on instants that the caller gives, in seconds of a monotonic clock.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ._decision import Decision
from ._errors import Unavailable
from ._rules import OnError, Rule

_STRICTNESS: tuple[OnError, ...] = ("allow", "local", "deny")


def strictest(policies: Iterable[OnError]) -> OnError:
    """What several rules do together without an answer."""
    return max(policies, key=_STRICTNESS.index)


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
            self._probing = self._shut_until is not None
            return self._probing

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

    def put(self, args: tuple[str, ...], decision: Decision, asked: float) -> None:
        """Remembers a denial; ``asked`` is the instant before the call."""
        if not self._size or decision.allowed or decision.retry_after_ms <= 0:
            return
        with self._lock:
            self._denials[args] = decision, asked
            self._denials.move_to_end(args)
            while len(self._denials) > self._size:
                self._denials.popitem(last=False)

    def drop(self, key: str) -> None:
        """Forgets what is known of a key: it was refunded or deleted here."""
        with self._lock:
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


@dataclass(slots=True)
class Grant:
    """Permits of one key that were taken in advance, and lapse with the reset of their grant."""

    rule: Rule
    decision: Decision
    permits: int
    lapses: float


class Grants:
    """Permits fetched in advance, spent one by one without asking. Thread-safe, bounded."""

    def __init__(self, size: int = 10_000) -> None:
        self._size = size
        self._grants: OrderedDict[str, Grant] = OrderedDict()
        self._lock = threading.Lock()

    def spend(self, key: str, rule: Rule, now: float) -> Decision | None:
        """One permit, if there is one of this very rule that has not lapsed."""
        with self._lock:
            grant = self._grants.get(key)
            if grant is None:
                return None
            same = grant.rule is rule or grant.rule == rule
            if not same or grant.permits < 1 or now >= grant.lapses:
                del self._grants[key]
                return None
            grant.permits -= 1
            base, left = grant.decision, grant.permits
            left_ms = math.ceil((grant.lapses - now) * 1000)
        return Decision(
            True, base.limit, base.remaining + left, 0, left_ms, base.rule, "local",
            granted=1, window_us=base.window_us,
        )  # fmt: skip

    def put(self, key: str, rule: Rule, decision: Decision, asked: float) -> Decision:
        """Keeps all but one of the permits that were granted; answers for that one."""
        spare = decision.granted - 1
        if spare > 0:
            with self._lock:
                lapses = asked + decision.reset_after_ms / 1000
                self._grants[key] = Grant(rule, decision, spare, lapses)
                self._grants.move_to_end(key)
                while len(self._grants) > self._size:
                    self._grants.popitem(last=False)
        remaining = decision.remaining + max(0, spare)
        return replace(decision, granted=min(1, decision.granted), remaining=remaining)

    def drop(self, key: str) -> None:
        """Forgets the permits of a key that starts anew."""
        with self._lock:
            self._grants.pop(key, None)

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
