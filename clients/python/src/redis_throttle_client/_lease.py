"""Leases: held during work, renewed after each third of their ttl, released at its end.

A process decides by its own clock whether it still holds a permit: for one ttl from the instant
before the last successful request.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from . import _protocol
from ._decision import Decision, Denied
from ._dial import LEASE_SLOTS
from ._errors import ThrottleError, Unavailable
from ._fork import forgets
from ._protocol import Args
from ._rules import Rule

# The pauses between attempts to release: from the first, doubling, to the last.
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.1, 5.0
# The reasons for which a call was not sent, or surely did not run.
_UNSENT = ("server", "overloaded", "circuit")


class _Held:
    """The common part of both leases: the holder, and the end of the permit."""

    def __init__(
        self, clock: Callable[[], float], rule: Rule, key: str, id: str, asked: float,
        decision: Decision | None,
    ) -> None:  # fmt: skip
        """``decision`` is None for a lease that was requested but not received."""
        self.rule, self.key, self.id = rule, key, id
        self._decision = decision
        self._clock = clock
        self._ttl_s = rule.period_us / 1_000_000
        # The end by this process's clock, and the latest end that the server may have.
        self._until = self._ends = asked + self._ttl_s
        # The instant before the last LEASE or RENEW was sent.
        self._sent = asked
        self._process = os.getpid()
        self.released = False

    @property
    def decision(self) -> Decision:
        """The decision that granted the lease."""
        if self._decision is None:
            raise Unavailable("the lease was not received")
        return self._decision

    @property
    def held(self) -> bool:
        """True while this process holds the permit. A degraded lease is held until released."""
        ours = not self.released and not self._is_parents
        return ours and (self._is_degraded or self._clock() < self._until)

    @property
    def _is_degraded(self) -> bool:
        return self._decision is not None and self._decision.degraded

    @property
    def _is_parents(self) -> bool:
        """True in a forked child, which must leave its parent's lease alone."""
        return os.getpid() != self._process

    @property
    def _is_releasable(self) -> bool:
        """True if the server may have the lease. Of a degraded one, the answer may be lost."""
        unsent = self._decision is not None and self._decision.reason in _UNSENT
        return not self._is_parents and not unsent

    @property
    def _is_renewable(self) -> bool:
        """True if a renewal may be sent. A lease whose ttl is over stays lost."""
        return self.held and not self._is_degraded

    def _renewal(self) -> tuple[Args, float]:
        """Begins a renewal. Returns its call, and the instant until which it may wait."""
        self._sent = self._clock()
        self._ends = max(self._ends, self._sent + self._ttl_s)
        return _protocol.renew(self.rule, self.key, self.id), self._until

    def _next_renewal_s(self) -> float:
        """Returns the time until the next renewal: two may fail before the lease is lost."""
        return max(0.0, self._sent + self._ttl_s / 3 - self._clock())

    def _renewed(self, asked: float, kept: bool) -> bool:
        # An answer of 0 loses the lease, also if another renewal is answered later.
        if not kept:
            self._until = float("-inf")
        elif self._until > float("-inf"):
            self._until = max(self._until, asked + self._ttl_s)
        return self.held

    def _next_release_s(self, pause_s: float) -> float | None:
        """Returns the pause before the next attempt to release; None if the ttl is over then."""
        return pause_s if self._clock() + pause_s < self._ends else None


class Lease(_Held):
    """A permit that a thread holds."""

    def __init__(self, keep: Callable[[Args, float], Any], renewer: Renewer, *args: Any) -> None:
        """``keep`` sends one command and returns its reply."""
        super().__init__(*args)
        self._keep, self._renewer = keep, renewer
        # The number of times that the limiter was closed before.
        self.closes = renewer.closes
        self._pause_s = _FIRST_PAUSE_S

    def renew(self) -> bool:
        """Renews the permit for another ttl. Returns False if it is lost: stop the work then."""
        if not self._is_renewable:
            return self.held
        asked = self._clock()
        reply = self._keep(*self._renewal())
        return self._renewed(asked, _protocol.held(reply))

    def release(self) -> None:
        """Releases the permit. Without an answer, repeats that in the background."""
        if self.released:
            return
        self.released = True
        if self._is_releasable and not self._sends_release():
            self._renewer.add(self)

    def abandon(self) -> None:
        """Releases the permit in the background."""
        self.released = True
        self._pause_s = 0
        self._renewer.add(self)

    def _sends_release(self) -> bool:
        """Returns False if the release must be repeated."""
        try:
            self._keep(_protocol.release(self.key, self.id), self._ends)
        except Unavailable:
            return False
        except ThrottleError:
            return True
        return True

    def next_s(self) -> float | None:
        """Returns the time until the next renewal or release; None if there is none."""
        if not self.released:
            return self._next_renewal_s()
        pause_s = self._pause_s
        self._pause_s = min(max(_FIRST_PAUSE_S, 2 * pause_s), _LAST_PAUSE_S)
        return self._next_release_s(pause_s)

    def tend(self) -> bool:
        """Renews the permit or repeats its release. Returns True if it needs more of that."""
        if self.released:
            return not self._sends_release()
        with contextlib.suppress(ThrottleError):
            return self.renew() and not self.released
        return not self.released


class AsyncLease(_Held):
    """A permit that a task holds."""

    def __init__(
        self, keep: Callable[[Args, float], Awaitable[Any]],
        sleep: Callable[[float], Awaitable[None]],
        background: Callable[..., asyncio.Task[Any]], *args: Any,
    ) -> None:  # fmt: skip
        """``keep`` sends one command; ``background`` starts a task that outlives its caller."""
        super().__init__(*args)
        self._keep, self._sleep, self._background = keep, sleep, background
        self._task: asyncio.Task[None] | None = None

    async def renew(self) -> bool:
        """Renews the permit for another ttl. Returns False if it is lost: stop the work then."""
        if not self._is_renewable:
            return self.held
        asked = self._clock()
        reply = await self._keep(*self._renewal())
        return self._renewed(asked, _protocol.held(reply))

    def keep(self) -> None:
        """Renews the permit in the background until it is released."""
        if not self._is_degraded:
            self._task = asyncio.get_running_loop().create_task(self._renew_again())

    async def _renew_again(self) -> None:
        while not self.released and not self._is_parents:
            await self._sleep(self._next_renewal_s())
            with contextlib.suppress(ThrottleError):
                if not await self.renew():
                    return

    async def release(self) -> None:
        """Releases the permit, even if its task is cancelled in the meantime.

        Without an answer, repeats that in the background.
        """
        await release_all([self])

    def release_soon(self) -> asyncio.Task[None] | None:
        """Starts the release. Returns the task of its first attempt."""
        if self.released:
            return None
        self.released = True
        if self._task is not None:
            self._task.cancel()
        return self._background(self._release()) if self._is_releasable else None

    async def _release(self) -> None:
        if not await self._sends_release():
            self._background(self._release_again(), repeats=True)

    async def _sends_release(self) -> bool:
        """Returns False if the release must be repeated."""
        try:
            await self._keep(_protocol.release(self.key, self.id), self._ends)
        except Unavailable:
            return False
        except ThrottleError:
            return True
        return True

    async def _release_again(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while self._next_release_s(pause_s) is not None:
            await self._sleep(pause_s)
            if await self._sends_release():
                return
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)


async def release_all(leases: Sequence[AsyncLease]) -> None:
    """Releases leases together. All are released even if the caller is cancelled meanwhile."""
    first = [task for lease in leases if (task := lease.release_soon()) is not None]
    if first:
        await asyncio.shield(asyncio.gather(*first, return_exceptions=True))


class Renewer:
    """Renews the leases of a limiter, and repeats their releases, in a few threads.

    The threads start with the first leases. A fork forgets the leases of the parent.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        forgets(self)

    def begin(self) -> None:
        """Resets to no leases and no threads, also in the child of a fork."""
        self._due: list[tuple[float, int, bool, Lease]] = []
        self._count = itertools.count()
        self._changed = threading.Condition()
        self._threads = self._tended = self.closes = 0

    def add(self, lease: Lease) -> None:
        """Renews the lease until it is released or lost; if it is released, repeats that."""
        with self._changed:
            if not self._push(lease):
                return
            if self._threads < min(LEASE_SLOTS, len(self._due) + self._tended):
                threading.Thread(target=self._run, args=(self.closes,), daemon=True).start()
                self._threads += 1
            self._changed.notify()

    def _push(self, lease: Lease) -> bool:
        after_s = lease.next_s() if lease.closes == self.closes else None
        if after_s is None:
            return False
        at = self._clock() + after_s
        heapq.heappush(self._due, (at, next(self._count), lease.released, lease))
        return True

    def close(self) -> None:
        """Ends the threads and the renewals. The next lease starts threads again."""
        with self._changed:
            self.closes += 1
            self._threads = self._tended = 0
            self._due.clear()
            self._changed.notify_all()

    def _run(self, closes: int) -> None:
        while (lease := self._next(closes)) is not None:
            needs_more = lease.tend()
            with self._changed:
                if self.closes != closes:
                    return
                self._tended -= 1
                if needs_more:
                    self._push(lease)
                    self._changed.notify()

    def _next(self, closes: int) -> Lease | None:
        with self._changed:
            while self.closes == closes:
                # A renewal ends when its lease is released.
                while self._due and self._due[0][3].released != self._due[0][2]:
                    heapq.heappop(self._due)
                wait = self._due[0][0] - self._clock() if self._due else None
                if wait is not None and wait <= 0:
                    self._tended += 1
                    return heapq.heappop(self._due)[3]
                self._changed.wait(wait)
            return None


class LeaseContext:
    """The context of ``with limiter.lease(rule, subject) as lease``. Raises Denied."""

    def __init__(self, take: Callable[[], tuple[Decision, list[Lease]]]) -> None:
        self._take = take
        self._lease: Lease | None = None

    def __enter__(self) -> Lease:
        decision, leases = self._take()
        if not decision.allowed:
            raise Denied(decision)
        self._lease = leases[0]
        return leases[0]

    def __exit__(self, *exc: object) -> None:
        if self._lease is not None:
            self._lease.release()


class AsyncLeaseContext:
    """The context of ``async with limiter.lease(rule, subject) as lease``. Raises Denied."""

    def __init__(self, take: Callable[[], Any]) -> None:
        self._take = take
        self._lease: AsyncLease | None = None

    async def __aenter__(self) -> AsyncLease:
        decision, leases = await self._take()
        if not decision.allowed:
            raise Denied(decision)
        self._lease = leases[0]
        return self._lease

    async def __aexit__(self, *exc: object) -> None:
        if self._lease is not None:
            await self._lease.release()
