"""Leases: held during work, renewed after each third of their ttl, released at its end.

A process decides by its own clock whether it still holds a permit: for one ttl from the instant
before the last successful request.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from . import _protocol
from ._decision import Decision
from ._errors import Denied, ThrottleError
from ._protocol import Args
from ._rules import Rule


class _Held:
    """The common part of both leases: the holder, and the end of the permit."""

    def __init__(
        self, clock: Callable[[], float], rule: Rule, key: str, id: str, asked: float,
        decision: Decision,
    ) -> None:  # fmt: skip
        self.rule, self.key, self.id, self.decision = rule, key, id, decision
        self._clock = clock
        self._ttl_s = rule.period_us / 1_000_000
        self._until = asked + self._ttl_s
        self.released = False

    @property
    def held(self) -> bool:
        """True while this process holds the permit. A degraded lease is held until released."""
        return not self.released and (self.decision.degraded or self._clock() < self._until)

    @property
    def renew_after_s(self) -> float:
        """The time between renewals: two may fail before the lease is lost."""
        return self._ttl_s / 3

    def _renewed(self, asked: float, kept: bool) -> bool:
        self._until = asked + self._ttl_s if kept else float("-inf")
        return kept


class Lease(_Held):
    """A permit that a thread holds."""

    def __init__(self, ask: Callable[[Args], Any], *args: Any) -> None:
        """``ask`` sends one command and returns its reply."""
        super().__init__(*args)
        self._ask = ask

    def renew(self) -> bool:
        """Renews the permit for another ttl. Returns False if it is lost: stop the work then."""
        if self.released or self.decision.degraded:
            return self.held
        asked = self._clock()
        reply = self._ask(_protocol.renew(self.rule, self.key, self.id))
        return self._renewed(asked, _protocol.held(reply))

    def release(self) -> None:
        """Releases the permit. Without an answer it expires by itself."""
        if self.released:
            return
        self.released = True
        if not self.decision.degraded:
            with contextlib.suppress(ThrottleError):
                self._ask(_protocol.release(self.key, self.id))


class AsyncLease(_Held):
    """A permit that a task holds."""

    def __init__(
        self, ask: Callable[[Args], Awaitable[Any]], sleep: Callable[[float], Awaitable[None]],
        background: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]], *args: Any,
    ) -> None:  # fmt: skip
        """``ask`` sends one command; ``background`` starts a task that outlives its caller."""
        super().__init__(*args)
        self._ask, self._sleep, self._background = ask, sleep, background
        self._task: asyncio.Task[None] | None = None

    async def renew(self) -> bool:
        """Renews the permit for another ttl. Returns False if it is lost: stop the work then."""
        if self.released or self.decision.degraded:
            return self.held
        asked = self._clock()
        reply = await self._ask(_protocol.renew(self.rule, self.key, self.id))
        return self._renewed(asked, _protocol.held(reply))

    def keep(self) -> None:
        """Renews the permit in the background until it is released."""
        if not self.decision.degraded:
            self._task = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        while not self.released:
            await self._sleep(self.renew_after_s)
            with contextlib.suppress(ThrottleError):
                if not await self.renew():
                    return

    async def release(self) -> None:
        """Releases the permit, even if its task is cancelled in the meantime."""
        if self.released:
            return
        self.released = True
        if self._task is not None:
            self._task.cancel()
        if not self.decision.degraded:
            await asyncio.shield(self._background(self._release()))

    async def _release(self) -> None:
        with contextlib.suppress(ThrottleError):
            await self._ask(_protocol.release(self.key, self.id))


class Renewer:
    """Renews all leases of a limiter in one thread, which starts with the first lease."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due: list[tuple[float, int, Lease]] = []
        self._count = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, lease: Lease) -> None:
        """Renews the lease until it is released or lost."""
        with self._changed:
            self._push(lease)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
            self._changed.notify()

    def _push(self, lease: Lease) -> None:
        at = self._clock() + lease.renew_after_s
        heapq.heappush(self._due, (at, next(self._count), lease))

    def close(self) -> None:
        """Ends the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while (lease := self._next()) is not None:
            kept = True
            with contextlib.suppress(ThrottleError):
                kept = lease.renew()
            if kept and not lease.released:
                with self._changed:
                    self._push(lease)

    def _next(self) -> Lease | None:
        with self._changed:
            while not self._closed:
                while self._due and self._due[0][2].released:
                    heapq.heappop(self._due)
                wait = self._due[0][0] - self._clock() if self._due else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._due)[2]
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
