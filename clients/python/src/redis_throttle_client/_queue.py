"""The calls that wait for a connection to a node, and the bounds for opening more."""

from __future__ import annotations

import random
from collections import deque
from typing import Generic, TypeVar

from ._dial import LEASE_SLOTS, MOST_DIALS, MOST_SOCKETS
from ._errors import Undialled

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
    """The generation of a node's connections, and the pause after a failed attempt to open one."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self.generation = 1
        self._dial_at = float("-inf")

    def retire(self, generation: int) -> bool:
        """Begins the next generation. Returns False if another call already did."""
        if generation != self.generation:
            return False
        self.generation += 1
        self._dial_at = float("-inf")
        return True

    def failed(self, began: float) -> None:
        """Notes an attempt, begun at ``began``, that was refused or timed out."""
        self._dial_at = began + self._pause_s * random.uniform(0.8, 1.2)  # noqa: S311

    def may_dial(self, now: float) -> bool:
        """Returns True if no attempt failed within the last pause."""
        return now >= self._dial_at

    @staticmethod
    def refused() -> Undialled:
        """Returns the error of a call that may not open a connection yet."""
        return Undialled("the node refused a connection a short time ago")


def dials(waiting: int, dialling: int, more: int) -> int:
    """Returns how many attempts may be under way for the waiting calls."""
    return min(max(waiting, dialling + more), MOST_DIALS)
