"""Logs decisions as lines of JSON."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection
from typing import TextIO

from .._net.fork import forgets
from .._rules.errors import InvalidArgument
from .._rules.event import DecisionEvent, Field, OnDecision, fields_of

_COUNTED = ("check", "lease")


def json_log(
    stream: TextIO, *, audit: Collection[str] = (), lines_per_second: int = 100,
    clock: Callable[[], float] = time.monotonic,
) -> OnDecision:  # fmt: skip
    """Returns a hook for ``on_decision`` that writes one line of JSON for each decision that
    matters: denials, degraded decisions and rejected calls.

    At most ``lines_per_second`` are written, at least 1; the next line has the number of those
    ``dropped``. For the rules named in ``audit`` every event is logged, without a bound, also
    charges, refunds and peeks. No line has a key or a subject.
    """
    if not callable(getattr(stream, "write", None)):
        raise InvalidArgument("stream: expected a stream of text")
    if isinstance(audit, str) or not isinstance(audit, Collection):
        raise InvalidArgument("audit: expected a list of rule names")
    is_number = isinstance(lines_per_second, int) and not isinstance(lines_per_second, bool)
    if not is_number or lines_per_second < 1:
        raise InvalidArgument("lines_per_second: expected an integer of at least 1")
    return _JsonLog(stream, frozenset(audit), lines_per_second, clock)


class _JsonLog:
    def __init__(
        self, stream: TextIO, audit: frozenset[str], lines_max: int, clock: Callable[[], float]
    ) -> None:
        self._stream, self._audit, self._lines_max, self._clock = stream, audit, lines_max, clock
        forgets(self)

    def begin(self) -> None:
        """Starts a second. In the child of a fork, a thread of the parent may have the lock."""
        self._began, self._lines, self._dropped = self._clock(), 0, 0
        self._lock = threading.Lock()

    def __call__(self, event: DecisionEvent) -> None:
        audited = self._is_audited(event)
        if not audited and not _matters(event):
            return
        with self._lock:
            if not audited and not self._has_room():
                self._dropped += 1
                return
            fields: dict[str, Field | float]
            fields = {"time_ms": time.time_ns() // 1_000_000, **fields_of(event)}
            fields["latency_ms"] = round(event.latency_ms, 3)
            if self._dropped:
                fields["dropped"] = self._dropped
            self._stream.write(json.dumps(fields, separators=(",", ":")) + "\n")
            self._stream.flush()
            self._dropped = 0

    def _is_audited(self, event: DecisionEvent) -> bool:
        rows = event.decision.rows if event.decision is not None else ()
        return not self._audit.isdisjoint([event.rule.name, *(row.rule for row in rows)])

    def _has_room(self) -> bool:
        now = self._clock()
        if now - self._began >= 1:
            self._began, self._lines = now, 0
        self._lines += 1
        return self._lines <= self._lines_max


def _matters(event: DecisionEvent) -> bool:
    if event.decision is None:
        return True
    return event.kind in _COUNTED and (event.degraded or not event.decision.allowed)
