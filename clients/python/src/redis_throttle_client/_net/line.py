"""The line to one node: the calls that wait for a connection, and when each of them ends.

Instants named ``now`` are in run time, which counts the time in which the process runs; instants
named ``at`` are those of the clock.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from .._rules.errors import counted
from .._rules.options import Bounds
from .._wire.call import Call
from .connection import NEVER, SAME_S, L

W = TypeVar("W", bound="Waiter")
# A tick lasts at most so much longer than planned. The rest is time in which the process did not
# run.
LATE_S = 0.01


class Waiter:
    """A call in line."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.joined = self.ends = self.gives_up = 0.0
        # False for a call that lacks only a connection, and waits for a dial.
        self.is_in_line = True

    @property
    def has_left(self) -> bool:
        """True if the call was cancelled."""
        raise NotImplementedError

    def resolve(self, result: Any) -> None:
        """Ends the wait with a connection, a known denial or an error."""
        raise NotImplementedError


class Line(Generic[L, W]):
    """The calls in line, and the run time, in which they wait."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._run = self._looked_at = 0.0
        # The most run time between two looks.
        self._most_s = bounds.tick_s + LATE_S
        # The open connections, and when the last of them was lost.
        self.links: set[L] = set()
        self._lost = 0.0
        # False until a dial has ended.
        self._has_dialled = False
        # The calls with slots of their own, and the others.
        self._kept: deque[W] = deque()
        self._line: deque[W] = deque()
        # The earliest instant at which a call in line may end.
        self._line_due = NEVER
        # Until this instant calls have little patience in line.
        self._short_line_at = -NEVER

    def now(self, at: float) -> float:
        """Returns the run time at an instant. It stands still soon after a look that is due."""
        passed = at - self._looked_at
        return self._run + (passed if passed < self._most_s else self._most_s)

    def _advance(self, at: float) -> float:
        """Begins the time until the next look, and returns the run time."""
        self._run, self._looked_at = self.now(at), at
        return self._run

    @property
    def waiting(self) -> int:
        """The number of calls in line."""
        return len(self._line) + len(self._kept)

    def has_in_line(self, waiter: W) -> bool:
        """Returns True if a call is still in line."""
        return waiter in self._line or waiter in self._kept

    def _begin_wait(self, waiter: W, now: float, at: float) -> None:
        call, patience_s = waiter.call, waiter.call.left_s
        if not (call.is_kept or call.is_patient):
            patience_s /= 2
            if at < self._short_line_at:
                patience_s = min(patience_s, self.bounds.silence_s)
        waiter.joined, waiter.ends = now, now + call.left_s
        waiter.gives_up = now + patience_s
        # Set once for all waits of the call, that for the first dial apart.
        if not call.ends_at or not self._has_dialled:
            call.ends_at = at + 3 * call.left_s
        self._line_due = min(self._line_due, self._ends_of(waiter))

    def end_wait(self, waiter: W, at: float) -> None:
        """Takes the time that a call has waited in line from that which it has left."""
        waiter.call.left_s = waiter.ends - self.now(at)

    def leave(self, waiter: W) -> None:
        """Removes a cancelled call from the line."""
        with contextlib.suppress(ValueError):
            (self._kept if waiter.call.is_kept else self._line).remove(waiter)

    def end_line(self, error: Callable[[], Exception], *, kept: bool = True) -> None:
        """Ends all calls in line, and if ``kept`` those with slots of their own."""
        while (kept and self._kept) or self._line:
            waiter = (self._line or self._kept).popleft()
            if not waiter.has_left:
                waiter.resolve(error())

    def _ends_of(self, waiter: W) -> float:
        """Returns the instant at which a call in line ends."""
        if not self._has_dialled:
            return NEVER
        if self.links:
            return waiter.gives_up
        if waiter.call.is_patient:
            return waiter.ends
        return min(waiter.ends, max(waiter.joined, self._lost) + self.bounds.silence_s)

    def _look_at_line(self, now: float, at: float) -> None:
        self._line_due = NEVER
        for line in (self._kept, self._line):
            for waiter in list(line) if self._has_dialled else ():
                due = self._ends_of(waiter)
                if now < due - SAME_S and at < waiter.call.ends_at:
                    self._line_due = min(self._line_due, due)
                    continue
                line.remove(waiter)
                if not self.links:
                    waiter.resolve(counted("no connection in time", "connection"))
                    continue
                if not waiter.call.is_kept:
                    self._short_line_at = at + self.bounds.pause_s
                waiter.resolve(counted("no place in time", "overloaded"))
