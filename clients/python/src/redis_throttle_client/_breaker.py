"""The circuit breaker of a node, which also limits the calls in flight.

The caller passes the instants, in seconds of a monotonic clock.
"""

from __future__ import annotations

import threading

from ._errors import Unavailable


class Breaker:
    """Counts the calls in flight and the failures of a node, and refuses calls to a failing node.

    After ``failures`` failures in a row it refuses calls for ``pause_s``. Then one call probes the
    node.
    """

    def __init__(self, max_in_flight: int, failures: int, pause_s: float) -> None:
        self._most, self._failures, self._pause_s = max_in_flight, failures, pause_s
        self._in_flight = 0
        self.answers = self.failures = 0
        self._failed = 0
        self._shut_until: float | None = None
        self._probing = False
        self._lock = threading.Lock()

    def is_open(self, now: float) -> bool:
        """Returns True if a call would be refused, except a probe that is due."""
        until = self._shut_until
        return until is not None and (self._probing or now < until)

    def enter(self, now: float, *, lease: bool = False, is_up: bool = False) -> bool:
        """Begins a call, which :meth:`leave` must end. Returns True if the call is the probe.

        A renewal or a release, ``lease``, does not count as in flight. If a connection ``is_up``,
        it passes an open circuit.
        """
        with self._lock:
            if lease and is_up:
                return False
            if self.is_open(now):
                raise Unavailable("the circuit is open: the node gave no answer", "circuit")
            if not lease and self._in_flight >= self._most:
                raise Unavailable(f"{self._most} calls wait for the server already", "overloaded")
            self._in_flight += not lease
            probe = self._shut_until is not None
            # An older call may be answered during a probe. That probe then stays in flight.
            self._probing = self._probing or probe
            return probe

    def leave(self, now: float, probe: bool, answered: bool | None, *, lease: bool = False) -> None:
        """Ends a call. ``answered`` is None if its caller gave up."""
        with self._lock:
            self._in_flight -= not lease
            if probe:
                self._probing = False
            if answered:
                self.answers += 1
                self._failed, self._shut_until = 0, None
            elif answered is False:
                self.failures += 1
                self._failed += 1
                if probe or self._failed >= self._failures:
                    self._shut_until = now + self._pause_s
