"""Renews and ends holds: in a few threads, or in tasks."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import threading
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ._dial import LEASE_SLOTS
from ._errors import ThrottleError
from ._fork import forgets
from ._hold import Hold
from ._tasks import Tasks

Run = Callable[[Any], Any]


class Renewer:
    """Renews the holds of a limiter, and repeats their ends, in a few threads.

    The threads start with the first holds. A fork forgets the holds of the parent.
    """

    def __init__(self, run: Run, clock: Callable[[], float]) -> None:
        """``run`` runs the steps of a call and returns its result."""
        self.run, self._clock = run, clock
        forgets(self)

    def begin(self) -> None:
        """Resets to no holds and no threads, also in the child of a fork."""
        self._due: list[tuple[float, int, bool, Hold]] = []
        self._held: weakref.WeakSet[Hold] = weakref.WeakSet()
        self._count = itertools.count()
        self._changed = threading.Condition()
        self._threads = self._tended = self.closes = 0
        self._is_closed = False
        self._ending: list[threading.Thread] = []

    def keep(self, holds: Sequence[Hold]) -> None:
        """Renews holds in the background until they are ended or lost."""
        for hold in holds:
            hold.closes = self.closes
            self._held.add(hold)
            if hold.is_renewable:
                self.add(hold)

    def end(self, holds: Sequence[Hold]) -> None:
        """Ends holds, one after the other. Those without an answer are repeated later."""
        left = [hold for hold in holds if hold.begins_end()]
        try:
            while left:
                if not self.run(left[0].end()):
                    self.add(left[0])
                left.pop(0)
        finally:
            # The thread was interrupted.
            for hold in left:
                self.add(hold)

    def abandon(self, holds: Sequence[Hold]) -> None:
        """Ends holds in the background."""
        ended = []
        for hold in holds:
            hold.closes = self.closes
            if hold.begins_end():
                ended.append(hold)
        if self._is_closed:
            self._end_all(ended)
            return
        for hold in ended:
            self.add(hold)

    def _end_once(self, hold: Hold) -> None:
        if not self.run(hold.end()):
            hold.give_up()

    def add(self, hold: Hold) -> None:
        """Renews the hold until it is ended or lost; if it is ended, repeats that."""
        with self._changed:
            pushed = self._push(hold)
            if pushed:
                if self._threads < min(LEASE_SLOTS, len(self._due) + self._tended):
                    self._start()
                self._changed.notify()
        if not pushed and hold.is_ended:
            hold.give_up()

    def _start(self) -> None:
        threading.Thread(target=self._tend, args=(self.closes,), daemon=True).start()
        self._threads += 1

    def _push(self, hold: Hold) -> bool:
        if hold.closes != self.closes:
            return False
        after_s = hold.next_end_s() if hold.is_ended else hold.next_renewal_s()
        if after_s is None:
            return False
        at = self._clock() + after_s
        heapq.heappush(self._due, (at, next(self._count), hold.is_ended, hold))
        return True

    def close(self) -> None:
        """Ends the threads and the renewals, and begins to end all holds."""
        with self._changed:
            self.closes += 1
            self._is_closed = True
            self._threads = self._tended = 0
            repeated = [hold for _, _, is_end, hold in self._due if is_end]
            self._due.clear()
            self._changed.notify_all()
        for hold in repeated:
            hold.give_up()
        self._end_all([hold for hold in list(self._held) if hold.begins_end()])

    def _end_all(self, holds: Sequence[Hold]) -> None:
        """Ends holds in threads, with one try each."""
        left = list(holds)

        def work() -> None:
            while left:
                with contextlib.suppress(IndexError):
                    self._end_once(left.pop())

        for _ in range(min(LEASE_SLOTS, len(left))):
            ending = threading.Thread(target=work, daemon=True)
            self._ending.append(ending)
            ending.start()

    def join(self, timeout_s: float) -> None:
        """Waits for these threads, at most ``timeout_s``."""
        ends_at = self._clock() + timeout_s
        for ending in self._ending:
            ending.join(max(0.0, ends_at - self._clock()))

    def _tend(self, closes: int) -> None:
        while (hold := self._next(closes)) is not None:
            needs_more = self._tended_once(hold)
            with self._changed:
                is_closed = self.closes != closes
                self._tended -= not is_closed
            if needs_more:
                # After close this gives up an end without an answer.
                self.add(hold)
            if is_closed:
                return

    def _tended_once(self, hold: Hold) -> bool:
        """Renews a hold or ends it. Returns True if it needs more of that."""
        if hold.is_ended:
            return not self.run(hold.end())
        with contextlib.suppress(ThrottleError):
            return bool(self.run(hold.renew())) and not hold.is_ended
        return not hold.is_ended

    def _next(self, closes: int) -> Hold | None:
        with self._changed:
            while self.closes == closes:
                # A renewal ends when its hold is ended.
                while self._due and self._due[0][3].is_ended != self._due[0][2]:
                    heapq.heappop(self._due)
                wait = self._due[0][0] - self._clock() if self._due else None
                if wait is not None and wait <= 0:
                    self._tended += 1
                    return heapq.heappop(self._due)[3]
                self._changed.wait(wait)
            return None


class Keeper:
    """Renews and ends the holds of a limiter for asyncio, each in a task."""

    def __init__(
        self, run: Run, sleep: Callable[[float], Awaitable[None]], tasks: Tasks
    ) -> None:  # fmt: skip
        """``run`` runs the steps of a call; ``tasks`` outlive their callers."""
        self.run, self._sleep, self._tasks = run, sleep, tasks
        self._held: weakref.WeakSet[Hold] = weakref.WeakSet()

    def keep(self, holds: Sequence[Hold]) -> None:
        """The same as :meth:`Renewer.keep`."""
        for hold in holds:
            self._held.add(hold)
            if hold.is_renewable:
                # As in threads, the limiter's close ends the renewals.
                task = self._tasks.start(self._renews(hold), repeats=True)
                hold.stop = task.cancel

    async def _renews(self, hold: Hold) -> None:
        while hold.is_renewable:
            await self._sleep(hold.next_renewal_s())
            stop = hold.stop
            if hold.waits_for_renewal:
                hold.stop = _stops_itself
            await self._renew(hold)
            hold.stop = stop

    async def _renew(self, hold: Hold) -> None:
        with contextlib.suppress(ThrottleError):
            await self.run(hold.renew())

    def close(self) -> None:
        """Starts the ends of all holds."""
        self.end_soon(list(self._held))

    def end_soon(self, holds: Sequence[Hold]) -> asyncio.Future[Any]:
        """Starts the ends. Returns a future of the first tries, which continue by themselves."""
        first = [self._tasks.start(self._end(hold)) for hold in holds if hold.begins_end()]
        return asyncio.gather(*first, return_exceptions=True)

    async def end(self, holds: Sequence[Hold]) -> None:
        """Ends holds together, even if the caller is cancelled meanwhile.

        Those without an answer are repeated in the background.
        """
        await asyncio.shield(self.end_soon(holds))

    async def _end(self, hold: Hold) -> None:
        if await self.run(hold.end()):
            return
        if hold.next_end_s() is None:
            hold.give_up()
        else:
            self._tasks.start(self._end_again(hold), repeats=True)

    async def _end_again(self, hold: Hold) -> None:
        is_told = False
        try:
            while not is_told and (pause_s := hold.next_end_s()) is not None:
                await self._sleep(pause_s)
                is_told = await self.run(hold.end())
        finally:
            if not is_told:
                hold.give_up()


def _stops_itself() -> None:
    """Stops nothing: the renewals of an ended hold end by themselves."""
