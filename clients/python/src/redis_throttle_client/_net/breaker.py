"""The circuit breakers, one per node."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from .._rules.errors import Unavailable
from .._rules.options import Options
from .fork import forgets


class Breaker:
    """Counts the failures of a node, and refuses calls to a failing node.

    After ``failures`` failures in a row it refuses calls for ``pause_s``. Then one call probes the
    node.
    """

    def __init__(self, failures: int, pause_s: float, clock: Callable[[], float]) -> None:
        self._failures, self._pause_s, self._clock = failures, pause_s, clock
        self._failed = 0
        self._shut_until: float | None = None
        self._probed_at: float | None = None
        # Refers to the call that probes the node. One that was interrupted while it ended is gone.
        self._prober: Callable[[], object] = lambda: None
        self._lock = threading.Lock()

    def is_open(self) -> bool:
        """Returns True if a call would be refused, except a probe that is due."""
        until = self._shut_until
        is_probed = self._probed_at is not None and self._prober() is not None
        return until is not None and (is_probed or self._clock() < until)

    def enter(self, call: object) -> bool:
        """Begins a call. Returns True if it is the probe. The caller must call :meth:`leave`."""
        if self._shut_until is None:
            return False
        with self._lock:
            if self._shut_until is None:
                return False
            if self.is_open():
                raise Unavailable("the circuit is open: the node did not reply", "circuit")
            self._prober, self._probed_at = weakref.ref(call), self._clock()
            return True

    def leave(self, call: object) -> None:
        """Ends the probe, if it is this call."""
        if self._probed_at is not None and self._prober() is call:
            self._probed_at = None

    def succeeded(self) -> None:
        """Notes a decision or a rejection, which closes the breaker."""
        if self._failed or self._shut_until is not None:
            with self._lock:
                self._failed, self._shut_until = 0, None

    def failed(self, due_s: float = 0.0) -> None:
        """Notes a failure. The next dial is due in ``due_s``."""
        with self._lock:
            self._failed += 1
            now = self._clock()
            if self._probed_at is not None:
                self._shut_until = max(self._probed_at + self._pause_s, now + due_s)
            elif self._shut_until is None and self._failed >= self._failures:
                self._shut_until = now + self._pause_s


class Breakers:
    """The breakers of a limiter. Each node has one, so a dead node blocks no other."""

    def __init__(self, options: Options) -> None:
        self._options = options
        forgets(self)

    def begin(self) -> None:
        """Forgets all failures, also in the child of a fork."""
        self._of_node: dict[object, Breaker] = {}

    def of(self, node: object) -> Breaker:
        """Returns the breaker of a node."""
        breaker = self._of_node.get(node)
        if breaker is None:
            options = self._options
            new = Breaker(options.breaker_failures, options.breaker_pause_ms / 1000, options.clock)
            breaker = self._of_node.setdefault(node, new)
        return breaker

    def count_open(self) -> int:
        """Returns the number of nodes whose breaker is open."""
        return sum(breaker.is_open() for breaker in list(self._of_node.values()))
