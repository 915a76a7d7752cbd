"""The calls that wait for a connection to a node, and the rules for opening more."""

from __future__ import annotations

import random
from collections import deque
from typing import Generic, TypeVar

from ._dial import LEASE_SLOTS, MOST_DIALS, MOST_SOCKETS, Dial
from ._errors import Retired, Undialled, is_rejection, is_reply

T = TypeVar("T")


class Queue(Generic[T]):
    """Waiting calls. Renewals and releases of leases come first."""

    def __init__(self) -> None:
        self._leases: deque[T] = deque()
        self._others: deque[T] = deque()

    def __len__(self) -> int:
        return len(self._leases) + len(self._others)

    def append(self, waiter: T, *, lease: bool) -> None:
        """Adds a call, behind all others of its kind."""
        (self._leases if lease else self._others).append(waiter)

    def popleft(self) -> T:
        """Removes and returns the call whose turn it is."""
        return (self._leases or self._others).popleft()

    def discard(self, waiter: T) -> None:
        """Removes a call that gave up."""
        for one in (self._leases, self._others):
            if waiter in one:
                one.remove(waiter)

    def most(self, most: int) -> int:
        """Returns the maximum number of connections; leases may open a few more."""
        return min(most, MOST_SOCKETS) + (LEASE_SLOTS if self._leases else 0)


class Pace:
    """The generation of a node's connections, and when to open more of them."""

    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self.generation = 1
        self._dial_at = self._last_dial = float("-inf")
        # The error of the last attempt, if the server has rejected the caller.
        self._rejection: Exception | None = None

    def pauses(self, now: float) -> bool:
        """Returns True if no attempt to open a connection begins yet."""
        return now < self._dial_at

    def retire(self, generation: int) -> bool:
        """Begins the next generation. Returns False if another call already did."""
        if generation != self.generation:
            return False
        self.generation += 1
        self._dial_at = self._last_dial = float("-inf")
        return True

    def begins_dial(
        self, now: float, waiting: int, opened: int, dialling: int, *, begins: bool
    ) -> bool:  # fmt: skip
        """Returns True if one more attempt to open a connection begins now, and notes it.

        ``opened`` and ``dialling`` are the numbers of connections and of attempts under way.
        ``begins`` is true for a call that begins to wait, which needs one more.
        """
        if now < self._dial_at or dialling >= MOST_DIALS:
            return False
        wanted = begins or dialling < waiting
        if wanted and not opened:
            # The first connection shows if the node answers, and all calls wait for it. If it takes
            # longer than a call, the path to the node may have changed in the meantime.
            wanted = not dialling or now - self._last_dial >= self._dial.timeout_s
        if wanted:
            self._last_dial = now
        return wanted

    def failed(self, began: float, error: Exception) -> None:
        """Notes an attempt, begun at ``began``, that was refused or timed out."""
        pause_s = self._dial.pause_s * random.uniform(0.8, 1.2)  # noqa: S311
        self._dial_at, self._rejection = began + pause_s, error if is_rejection(error) else None

    def refused(self) -> Exception:
        """Returns the error of a call for which no connection can be opened yet.

        A rejection, for example of a password, is an answer for all calls. Anything else is one
        failure, of the call that gets the error of the attempt.
        """
        if self._rejection is not None:
            return self._rejection.with_traceback(None)
        return Undialled("the node refused a connection a short time ago")

    @staticmethod
    def ended(error: BaseException, *, late: bool) -> Retired | None:
        """Returns the error of a call whose generation another call has retired.

        It is no failure of its own. Returns None if the server has rejected the call.
        """
        if not isinstance(error, Exception) or (is_reply(error) and is_rejection(error)):
            return None
        if is_reply(error):
            return Retired("the node cannot decide now", "server")
        return Retired("the connection was closed: it is dead", "timeout" if late else "connection")
