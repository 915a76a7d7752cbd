"""The limiter for asyncio, with the same methods as the one for threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self, Unpack

from ._calls.running import AsyncRunning, Tasks
from ._calls.steps import Calls, item_of
from ._holds.admission import (
    AsyncAdmission,
    AsyncAdmissionContext,
    allowed,
    check_admission,
    lease_item,
    new_id,
    take,
)
from ._holds.ending import Keeper
from ._holds.hold import Entry, Hold, holds_of
from ._holds.lease import AsyncLease, AsyncLeaseContext
from ._holds.reservation import AsyncReservation
from ._net.breaker import Breakers
from ._net.fork import forgets
from ._net.transport import is_up_of, transport
from ._net.url import client_of
from ._rules.decision import Decision
from ._rules.durations import Duration
from ._rules.errors import Unavailable
from ._rules.event import Counters, OnDecision
from ._rules.options import Backend, Bounds, LimiterOptions, Options, checked_function
from ._rules.rule import Item, Rule


class _Closing:
    """The close of a limiter, for which later ones wait."""

    def __init__(self) -> None:
        self.ended: concurrent.futures.Future[None] | None = None
        forgets(self)

    def begin(self) -> None:
        """Forgets a close under way, which does not end in a forked child."""
        if self.ended is not None and not self.ended.done():
            self.ended = None


class AsyncLimiter:
    """The same as :class:`Limiter`, over a client of asyncio.

    >>> async def remaining() -> int:
    ...     async with AsyncLimiter(client) as limiter:
    ...         api = gcra("api", burst=10, rate="10/minute")
    ...         return (await limiter.check(api, "42")).remaining
    >>> asyncio.run(remaining())
    9
    """

    def __init__(
        self, client: Any, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        **options: Unpack[LimiterOptions],
    ) -> None:  # fmt: skip
        checked = Options.of(**options)
        checked_function(sleep, "sleep")
        self._breakers = breakers = Breakers(checked)
        self._transport = transport(client, Bounds.of(checked), breakers, wait=True)
        self._calls = Calls(
            checked, breakers, self._transport.node, here=asyncio.get_running_loop,
            event=asyncio.Event, is_up=is_up_of(self._transport),
        )  # fmt: skip
        self._tasks = Tasks()
        self._run = AsyncRunning(self._transport, self._calls.sender, sleep, self._tasks).run
        self._keeper = Keeper(self._run, sleep, self._tasks)
        self._closing = _Closing()

    @classmethod
    def from_url(
        cls, url: str, *, cluster: bool = False,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        **options: Unpack[LimiterOptions],
    ) -> Self:  # fmt: skip
        """The same as :meth:`Limiter.from_url`. The first call reads the map of a cluster."""
        dial_s = Bounds.of(Options.of(**options)).dial_s
        client = client_of(url, cluster=cluster, is_async=True, dial_s=dial_s)
        return cls(client, sleep=sleep, **options)

    async def check(
        self, rule: Rule, subject: str | int, cost: int = 1, *, leave: int | str | None = None,
        partial: bool = False, tag: str | None = None,
    ) -> Decision:  # fmt: skip
        """The same as :meth:`Limiter.check`."""
        if cost == 1 and type(cost) is int and leave is None and not partial:
            spent = self._calls.spend(rule, subject, tag)
            if spent is not None:
                return spent
        item = item_of(rule, subject, cost, leave)
        return await self._run(self._calls.check(item, tag, partial=partial))

    async def peek(
        self, rule: Rule, subject: str | int, cost: int = 1, *, leave: int | str | None = None,
        tag: str | None = None,
    ) -> Decision:  # fmt: skip
        """The same as :meth:`Limiter.peek`."""
        return await self._run(self._calls.peek(item_of(rule, subject, cost, leave), tag))

    async def refund(
        self, rule: Rule, subject: str | int, cost: int = 1, *, tag: str | None = None
    ) -> Decision:
        """The same as :meth:`Limiter.refund`."""
        return await self._run(self._calls.settle("refund", rule, subject, cost, tag))

    async def charge(
        self, rule: Rule, subject: str | int, cost: int = 1, *, tag: str | None = None
    ) -> Decision:
        """The same as :meth:`Limiter.charge`."""
        return await self._run(self._calls.settle("charge", rule, subject, cost, tag))

    async def forget(self, rule: Rule, subject: str | int, *, tag: str | None = None) -> None:
        """The same as :meth:`Limiter.forget`."""
        await self._run(self._calls.forget(rule, subject, tag))

    async def block(
        self, rule: Rule, subject: str | int, duration: Duration, *, tag: str | None = None
    ) -> None:  # fmt: skip
        """The same as :meth:`Limiter.block`."""
        await self._run(self._calls.block(rule, subject, duration, tag))

    async def check_all(
        self, *items: Item, tag: str | None = None, id: str | None = None
    ) -> Decision:  # fmt: skip
        """The same as :meth:`Limiter.check_all`."""
        return await self._run(self._calls.check_all(items, tag, id))

    async def peek_all(
        self, *items: Item, tag: str | None = None, id: str | None = None
    ) -> Decision:  # fmt: skip
        """The same as :meth:`Limiter.peek_all`."""
        return await self._run(self._calls.peek_all(items, tag, id))

    async def check_each(self, *items: Item) -> Decision:
        """The same as :meth:`Limiter.check_each`."""
        return await self._run(self._calls.check_each(items))

    async def wait(
        self, rule: Rule, subject: str | int, max_wait_ms: int, cost: int = 1, *,
        tag: str | None = None,
    ) -> Decision:  # fmt: skip
        """The same as :meth:`Limiter.wait`."""
        return await self._run(self._calls.wait(rule, subject, max_wait_ms, cost, tag))

    def lease(
        self, rule: Rule, subject: str | int, id: str | None = None, *, tag: str | None = None
    ) -> AsyncLeaseContext:
        """Takes a permit for an ``async with`` block, renews it, and releases it at the end."""
        name = new_id(id)
        item = lease_item(self._calls, rule, subject, name, tag)
        return AsyncLeaseContext(lambda: self._admit([item], tag, name))

    def admit(
        self, *items: Item, tag: str | None = None, id: str | None = None
    ) -> AsyncAdmissionContext[AsyncAdmission]:
        """The same as :meth:`Limiter.admit`, for an ``async with`` block or an ``await``.

        >>> async def remaining() -> int:
        ...     items = [gcra("api", burst=10, rate="10/minute").of("42")]
        ...     async with limiter.admit(*items) as admitted:
        ...         return admitted.decision.remaining
        >>> asyncio.run(remaining())
        9
        """
        name = new_id(id)
        check_admission(self._calls, items, tag, name)

        async def enter() -> AsyncAdmission:
            taken = await self._admitted(items, tag, name)
            return AsyncAdmission(taken, self._held(taken), self._keeper)

        return AsyncAdmissionContext(enter)

    def reserve(
        self, rule: Rule, subject: str | int, cost: int, ttl: Duration = 30, *,
        tag: str | None = None, id: str | None = None,
    ) -> AsyncAdmissionContext[AsyncReservation]:  # fmt: skip
        """The same as :meth:`Limiter.reserve`, for an ``async with`` block or an ``await``."""
        items, name = [item_of(rule, subject, 1).reserve(cost, ttl)], new_id(id)
        check_admission(self._calls, items, tag, name)

        async def enter() -> AsyncReservation:
            taken = await self._admitted(items, tag, name)
            return AsyncReservation(taken, self._held(taken), self._keeper)

        return AsyncAdmissionContext(enter)

    @property
    def counters(self) -> Counters:
        """The same as :attr:`Limiter.counters`."""
        return self._calls.events.counters()

    @property
    def open_breakers(self) -> int:
        """The same as :attr:`Limiter.open_breakers`."""
        return self._breakers.count_open()

    def on_decision(self, hook: OnDecision) -> None:
        """The same as :meth:`Limiter.on_decision`."""
        self._calls.events.add(hook)

    async def ready(self) -> Backend:
        """The same as :meth:`Limiter.ready`."""
        return await self._run(self._calls.ready())

    async def close(self) -> None:
        """The same as :meth:`Limiter.close`."""
        if self._closing.ended is not None:
            # A cancelled wait must not cancel the end.
            await asyncio.shield(asyncio.wrap_future(self._closing.ended))
            return
        self._closing.ended = concurrent.futures.Future()
        calls = self._calls
        calls.is_closed = True
        ends_at = calls.clock() + calls.timeout_s
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(calls.timeout_s):
                    await self._end(ends_at)
        finally:
            await self._close()

    async def _close(self) -> None:
        """Closes the connections. Every step is taken, also if one fails or is cancelled."""
        calls, ended = self._calls, self._closing.ended
        try:
            await self._tasks.cancel()
        finally:
            calls.sender.has_ended = True
            try:
                await self._transport.close()
            finally:
                try:
                    # Ends without a reply are reported now.
                    await self._tasks.close()
                finally:
                    calls.events.close()
                    if ended is not None and not ended.done():
                        ended.set_result(None)

    async def _end(self, ends_at: float) -> None:
        """Ends what this limiter has, and waits for the calls in flight."""
        self._keeper.close()
        quiet = getattr(self._transport, "quiet", None)
        if quiet is not None:
            await quiet(self._calls.timeout_s)
        await self._run(self._calls.give_back(ends_at))
        await self._tasks.close()

    async def __aenter__(self) -> AsyncLimiter:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _admit(
        self, items: Sequence[Item], tag: str | None, id: str | None = None
    ) -> tuple[Decision, list[AsyncLease]]:
        """The same as :meth:`Limiter._admit`."""
        taken = await self._run(take(self._calls, items, tag, new_id(id), self._abandon))
        if taken.decision is None:
            raise Unavailable("there is no decision")
        if not taken.decision.allowed:
            return taken.decision, []
        holds = holds_of(self._calls, taken)
        self._keeper.keep(holds)
        return taken.decision, [AsyncLease(hold, self._keeper) for hold in holds]

    async def _admitted(self, items: Sequence[Item], tag: str | None, name: str) -> Entry:
        steps = take(self._calls, items, tag, name, self._abandon, is_admission=True)
        return allowed(await self._run(steps))

    def _held(self, taken: Entry) -> list[Hold]:
        holds = holds_of(self._calls, taken, estimates=True)
        self._keeper.keep(holds)
        return holds

    def _abandon(self, taken: Entry) -> None:
        self._keeper.end_soon(holds_of(self._calls, taken))
