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

from .._calls.running import Tasks
from .._net.dial import END_SLOTS, RENEWAL_SLOTS
from .._net.fork import forgets
from .._rules.errors import ThrottleError
from .hold import Hold

Run = Callable[[Any], Any]
# The fewest holds among which a crew seeks those that need it no more.
_LEAST_SOUGHT = 64


class _Queue:
    """The holds of one node."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.due: list[tuple[float, int, Hold]] = []
        # The number of holds that are being tended.
        self.tended = 0


class _Crew:
    """Threads that renew or end holds at their due times, started on demand.

    As many may tend the holds of each node as that has slots, so that none waits for a slow node
    while a hold of another is due.
    """

    def __init__(
        self, most: int, tend: Callable[[Hold], None], clock: Callable[[], float],
        lock: threading.RLock, is_over: Callable[[Hold], bool] = lambda hold: False,
    ) -> None:  # fmt: skip
        """A hold that ``is_over`` is not tended any more."""
        self._most, self._tend, self._clock, self._is_over = most, tend, clock, is_over
        # The number of due holds at which those that are over are dropped.
        self._most_due = _LEAST_SOUGHT
        self.changed = threading.Condition(lock)
        # For each node with holds.
        self.queues: dict[Any, _Queue] = {}
        self._threads = 0
        self._count = itertools.count()
        self._is_closed = False

    @property
    def due(self) -> list[Hold]:
        """The holds that are not being tended, in no order."""
        return [hold for queue in self.queues.values() for _, _, hold in queue.due]

    def add(self, hold: Hold, after_s: float) -> None:
        """Tends a hold after a number of seconds."""
        node = hold.node
        with self.changed:
            if sum(len(queue.due) for queue in self.queues.values()) >= self._most_due:
                # Else a hold of a long ttl would take memory for a third of that.
                self._keep(lambda hold: not self._is_over(hold))
                self._most_due = max(_LEAST_SOUGHT, 2 * len(self.due))
            queue = self.queues.setdefault(node, _Queue(node))
            heapq.heappush(queue.due, (self._clock() + after_s, next(self._count), hold))
            if self._threads < sum(
                min(self._most, len(queue.due) + queue.tended) for queue in self.queues.values()
            ):
                # If no thread can start, one that runs or that of the next hold tends this one.
                with contextlib.suppress(RuntimeError):
                    threading.Thread(target=self._work, daemon=True).start()
                    self._threads += 1
            # After the close, its thread waits too.
            self.changed.notify(self._threads + 1 if self._is_closed else 1)

    def close(self, *, keeps: Callable[[Hold], bool]) -> list[Hold]:
        """Removes and returns the holds that ``keeps`` rejects.

        The threads end after the last hold. A hold that is added later starts one if needed.
        """
        with self.changed:
            self._is_closed = True
            dropped = [hold for hold in self.due if not keeps(hold)]
            self._keep(keeps)
            self.changed.notify_all()
        return dropped

    def take(self) -> list[Hold]:
        """Removes and returns the holds that no thread tends, because none could start."""
        with self.changed:
            return [] if self._threads else self.close(keeps=lambda hold: False)

    def _keep(self, keeps: Callable[[Hold], bool]) -> None:
        for queue in list(self.queues.values()):
            queue.due = [due for due in queue.due if keeps(due[2])]
            heapq.heapify(queue.due)
            self._forget_empty(queue)

    def _forget_empty(self, queue: _Queue) -> None:
        """Forgets a node without holds, which may have left the cluster."""
        if not queue.due and not queue.tended:
            self.queues.pop(queue.node, None)

    def join(self, timeout_s: float) -> None:
        """Waits until all holds are tended, at most ``timeout_s``."""
        with self.changed:
            self.changed.wait_for(lambda: not self.queues, timeout_s)

    def _work(self) -> None:
        while (found := self._next()) is not None:
            queue, hold = found
            try:
                self._tend(hold)
            except BaseException:
                self._tended(queue, ends=True)
                raise
            self._tended(queue)

    def _tended(self, queue: _Queue, *, ends: bool = False) -> None:
        """Notes that a hold was tended, and whether this ``ends`` the thread."""
        with self.changed:
            queue.tended -= 1
            self._threads -= ends
            self._forget_empty(queue)
            if ends or self._is_closed:
                self.changed.notify_all()

    def _next(self) -> tuple[_Queue, Hold] | None:
        """Waits for a hold that is due, of a node that has a free slot.

        Returns None at the end of the thread.
        """
        with self.changed:
            while self._is_needed():
                free = [one for one in self.queues.values() if one.due and one.tended < self._most]
                queue = min(free, key=lambda one: one.due[0], default=None)
                wait: float | None = None
                if queue is not None:
                    wait = queue.due[0][0] - self._clock()
                    if wait <= 0:
                        queue.tended += 1
                        return queue, heapq.heappop(queue.due)[2]
                self.changed.wait(wait)
            # A hold that is added from now on has a new thread.
            self._threads -= 1
            # Another thread may be one too many as well.
            self.changed.notify()
            return None

    def _is_needed(self) -> bool:
        """Returns False if a thread must end: after the close, or if nodes left the cluster."""
        if self._is_closed and not self.queues:
            return False
        return self._threads <= self._most * max(1, len(self.queues))


class Renewer:
    """Renews the holds of a limiter, and repeats their ends, in threads.

    Renewals and ends have threads of their own, so that neither wait for the others. A fork forgets
    the holds of the parent.
    """

    def __init__(self, run: Run, clock: Callable[[], float]) -> None:
        """``run`` runs the steps of a call and returns its result."""
        self.run, self._clock = run, clock
        forgets(self)

    def begin(self) -> None:
        """Resets to no holds and no threads, also in the child of a fork."""
        self._held: weakref.WeakSet[Hold] = weakref.WeakSet()
        # The holds whose end has begun and has no reply, in any thread.
        self._ending: set[Hold] = set()
        self._lock = lock = threading.RLock()
        self._renewals = _Crew(
            RENEWAL_SLOTS, self._renew, self._clock, lock, lambda hold: hold.is_ended
        )
        self._ends = _Crew(END_SLOTS, self._end, self._clock, lock)
        self._is_closed = False

    def keep(self, holds: Sequence[Hold]) -> None:
        """Renews holds in the background until they are ended or lost.

        After :meth:`close`, which did not see them, it ends them.
        """
        with self._lock:
            self._held.update(holds)
            for hold in holds:
                self._renew_later(hold)
            is_closed = self._is_closed
        if is_closed:
            self.abandon(holds)

    def end(self, holds: Sequence[Hold]) -> None:
        """Ends holds, one after the other. Ends without a reply are repeated later."""
        left = self._begun(holds)
        try:
            while left:
                self._end(left[0])
                left.pop(0)
        finally:
            # The thread was interrupted.
            for hold in left:
                self._end_later(hold)

    def abandon(self, holds: Sequence[Hold]) -> None:
        """Ends holds in the background."""
        for hold in self._begun(holds):
            self._end_later(hold)

    def _begun(self, holds: Sequence[Hold]) -> list[Hold]:
        """Begins the ends, and returns the holds whose ends must be sent."""
        begun = [hold for hold in holds if hold.begins_end()]
        self._ending.update(begun)
        return begun

    def close(self) -> None:
        """Ends the renewals, and begins to end all holds, with one try each."""
        with self._lock:
            self._is_closed = True
            self._renewals.close(keeps=lambda hold: False)
            repeated = self._ends.close(keeps=lambda hold: not hold.was_tried)
            held = list(self._held)
        for hold in repeated:
            self._give_up(hold)
        self.abandon(held)

    def join(self, timeout_s: float) -> None:
        """Waits until the holds are ended, at most ``timeout_s``."""
        ends_at = self._clock() + timeout_s
        for hold in self._ends.take():
            if self._clock() < ends_at:
                self._end(hold)
            else:
                self._give_up(hold)
        self._ends.join(max(0.0, ends_at - self._clock()))

    def give_up(self) -> None:
        """Gives up the ends without a reply, also those that other threads wait for."""
        for hold in list(self._ending):
            self._give_up(hold)

    def _give_up(self, hold: Hold) -> None:
        self._ending.discard(hold)
        hold.give_up()

    def _renew_later(self, hold: Hold) -> None:
        with self._lock:
            if hold.is_renewable and not self._is_closed:
                self._renewals.add(hold, hold.next_renewal_s())

    def _renew(self, hold: Hold) -> None:
        if not hold.is_ended:
            with contextlib.suppress(ThrottleError):
                self.run(hold.renew())
            self._renew_later(hold)

    def _end_later(self, hold: Hold) -> None:
        after_s = hold.next_end_s()
        if after_s is None or (hold.was_tried and self._is_closed):
            self._give_up(hold)
        else:
            self._ends.add(hold, after_s)

    def _end(self, hold: Hold) -> None:
        if self.run(hold.end()):
            self._ending.discard(hold)
        else:
            self._end_later(hold)


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

        Ends without a reply are repeated in the background.
        """
        await asyncio.shield(self.end_soon(holds))

    async def _end(self, hold: Hold) -> None:
        try:
            if await self.run(hold.end()):
                return
        except asyncio.CancelledError:
            # The limiter or the event loop closes.
            hold.give_up()
            raise
        if hold.next_end_s() is None:
            hold.give_up()
        else:
            self._tasks.start(self._end_again(hold), repeats=True)

    async def _end_again(self, hold: Hold) -> None:
        has_ended = False
        try:
            while not has_ended and (pause_s := hold.next_end_s()) is not None:
                await self._sleep(pause_s)
                has_ended = await self.run(hold.end())
        finally:
            if not has_ended:
                hold.give_up()


def _stops_itself() -> None:
    """Stops nothing: the renewals of an ended hold end by themselves."""
