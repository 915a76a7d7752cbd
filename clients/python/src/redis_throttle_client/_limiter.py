"""The two limiters, for threads and for asyncio, with the same methods."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, Unpack

from ._backends import Backend
from ._calls import Admission, Call, Calls
from ._deadline import Deadline, instant
from ._decision import Decision
from ._errors import Unavailable
from ._lease import AsyncLease, AsyncLeaseContext, Lease, LeaseContext, Renewer
from ._options import Counters, LimiterOptions, Options
from ._prefetch import Turnstile
from ._protocol import Args
from ._rules import Rule
from ._steps import Send, Start, Step, Steps, Turn, Wait
from ._tasks import Tasks
from ._transport import async_transport, is_up_of, transport

T = TypeVar("T")


class Limiter:
    """A limiter with its own connections, opened with the settings of ``client``.

    ``client`` is a ``Redis``, also one from Sentinel, or a ``RedisCluster``, of redis-py or
    valkey-py. Each call is sent once and ends within ``timeout_ms``. Thread-safe.
    """

    def __init__(
        self, client: Any, *, sleep: Callable[[float], None] = time.sleep,
        **options: Unpack[LimiterOptions],
    ) -> None:  # fmt: skip
        checked = Options(**options)
        self._transport = transport(
            client, checked.timeout_ms / 1000, checked.max_in_flight,
            checked.breaker_pause_ms / 1000,
        )  # fmt: skip
        self._calls = Calls(
            checked, self._transport.node, here=lambda: None, event=Turnstile,
            is_up=is_up_of(self._transport),
        )  # fmt: skip
        self._sleep = sleep
        self._renewer = Renewer(checked.clock)

    def check(self, rule: Rule, subject: str, cost: int = 1, *, tag: str | None = None) -> Decision:
        """Decides a call, and takes ``cost`` if the call is allowed."""
        spent = self._calls.spend(rule, subject, cost, tag)
        if spent is not None:
            return spent
        return self._run(self._calls.check(rule, subject, cost, tag))

    def peek(self, rule: Rule, subject: str, cost: int = 1, *, tag: str | None = None) -> Decision:
        """Returns what :meth:`check` would decide. Takes nothing. Cost 0 reads the status."""
        return self._run(self._calls.peek(rule, subject, cost, tag))

    def refund(
        self, rule: Rule, subject: str, cost: int = 1, *, tag: str | None = None
    ) -> Decision:
        """Gives units back, up to the full allowance. Do not repeat: each call gives units back."""
        return self._run(self._calls.settle("refund", rule, subject, cost, tag))

    def charge(
        self, rule: Rule, subject: str, cost: int = 1, *, tag: str | None = None
    ) -> Decision:
        """Takes units even if that many are not left, for work that cost more than estimated."""
        return self._run(self._calls.settle("charge", rule, subject, cost, tag))

    def forget(self, rule: Rule, subject: str, *, tag: str | None = None) -> None:
        """Resets the subject's allowance under this rule."""
        self._run(self._calls.forget(rule, subject, tag))

    def check_all(
        self, calls: Sequence[Call], *, tag: str | None = None, id: str | None = None
    ) -> Decision:
        """Checks several rules at once. Takes from all or from none.

        ``rows`` of the decision has the decision of each rule. In a cluster all keys need one hash
        tag: ``tag``. Leases among the rules need an ``id``, and the caller must release them.
        """
        return self._run(self._calls.check_all(calls, tag, id))

    def check_each(self, calls: Sequence[Call]) -> Decision:
        """Checks one rule after the other, for keys in different slots.

        If a later rule denies, its call fails, or the caller is cancelled, the earlier costs are
        refunded. If all allow, the rule with the fewest calls left decides. Leases and backoffs
        are an :class:`InvalidArgument`. Until a refund, other callers cannot use its units. If it
        gets no answer, its cost stays taken, which only makes the limit stricter.
        """
        return self._run(self._calls.check_each(calls))

    def wait(
        self, rule: Rule, subject: str, max_wait_ms: int, cost: int = 1, *, tag: str | None = None
    ) -> Decision:
        """Sleeps until the call may act. Denies it if that takes longer than ``max_wait_ms``."""
        return self._run(self._calls.wait(rule, subject, max_wait_ms, cost, tag))

    def lease(
        self, rule: Rule, subject: str, id: str | None = None, *, tag: str | None = None
    ) -> LeaseContext:
        """Takes a permit for a ``with`` block, renews it, and releases it at the end."""
        name = self._calls.lease_call(rule, subject, id, tag)
        return LeaseContext(lambda: self._admit([(rule, subject)], tag, name))

    @property
    def counters(self) -> Counters:
        """The counts of the decisions since the limiter was created."""
        return self._calls.teller.counters()

    def ready(self) -> Backend:
        """Returns the back end in use: ``module``, ``functions`` or ``script``.

        Raises if the server gives no answer or does not have the selected back end.
        """
        return self._run(self._calls.ready())

    def close(self) -> None:
        """Refunds prefetched permits that were not used, and closes the sockets.

        The permits of pending calls are refunded too. Later calls prefetch nothing.
        """
        self._run(self._calls.give_back())
        self._renewer.close()
        self._transport.close()

    def __enter__(self) -> Limiter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _admit(
        self, calls: Sequence[Call], tag: str | None, id: str | None = None
    ) -> tuple[Decision, list[Lease]]:
        """Sends one call for all rules. The leases among them are renewed until released."""
        admitted = self._run(self._calls.admit(calls, tag, id, self._abandon))
        leases = self._leases(admitted)
        if admitted.decision is None:
            raise Unavailable("there is no decision")
        for lease in leases:
            if not admitted.decision.degraded:
                self._renewer.add(lease)
        return admitted.decision, leases

    def _leases(self, admitted: Admission) -> list[Lease]:
        given = self._keep, self._renewer, self._calls.clock
        held = admitted.id, admitted.asked, admitted.decision
        return [Lease(*given, rule, key, *held) for rule, key in admitted.leases]

    def _abandon(self, admitted: Admission) -> None:
        for lease in self._leases(admitted):
            lease.abandon()

    def _keep(self, args: Args, until: float) -> Any:
        return self._run(self._calls.keep(args, until))

    def _ask(self, args: Args) -> Any:
        return self._run(self._calls.ask(args))

    def _run(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                try:
                    came = self._do(step)
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(came)
        except StopIteration as end:
            result: T = end.value
            return result

    def _do(self, step: Step) -> Any:
        if isinstance(step, Send):
            return self._transport.call(step.node, step.args, step.timeout_s)
        if isinstance(step, Start):
            try:
                return self._run(step.steps)
            finally:
                step.ended.set()
        if isinstance(step, Wait):
            return step.ended.wait(step.timeout_s)
        if isinstance(step, Turn):
            lock = self._calls.asking.turn(step.key, threading.Lock)
            return lock if lock.acquire(timeout=step.timeout_s) else None
        return self._sleep(step.seconds)


class AsyncLimiter:
    """The same as :class:`Limiter`, over a client of asyncio."""

    def __init__(
        self, client: Any, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        **options: Unpack[LimiterOptions],
    ) -> None:  # fmt: skip
        checked = Options(**options)
        self._transport = async_transport(
            client, checked.timeout_ms / 1000, checked.max_in_flight,
            checked.breaker_pause_ms / 1000,
        )  # fmt: skip
        self._calls = Calls(
            checked, self._transport.node, here=asyncio.get_running_loop, event=asyncio.Event,
            is_up=is_up_of(self._transport),
        )  # fmt: skip
        self._sleep = sleep
        self._tasks = Tasks()

    async def check(
        self, rule: Rule, subject: str, cost: int = 1, *, tag: str | None = None
    ) -> Decision:
        """The same as :meth:`Limiter.check`."""
        spent = self._calls.spend(rule, subject, cost, tag)
        if spent is not None:
            return spent
        return await self._run(self._calls.check(rule, subject, cost, tag))

    async def peek(
        self, rule: Rule, subject: str, cost: int = 1, *, tag: str | None = None
    ) -> Decision:
        """The same as :meth:`Limiter.peek`."""
        return await self._run(self._calls.peek(rule, subject, cost, tag))

    async def refund(
        self, rule: Rule, subject: str, cost: int = 1, *, tag: str | None = None
    ) -> Decision:
        """The same as :meth:`Limiter.refund`."""
        return await self._run(self._calls.settle("refund", rule, subject, cost, tag))

    async def charge(
        self, rule: Rule, subject: str, cost: int = 1, *, tag: str | None = None
    ) -> Decision:
        """The same as :meth:`Limiter.charge`."""
        return await self._run(self._calls.settle("charge", rule, subject, cost, tag))

    async def forget(self, rule: Rule, subject: str, *, tag: str | None = None) -> None:
        """The same as :meth:`Limiter.forget`."""
        await self._run(self._calls.forget(rule, subject, tag))

    async def check_all(
        self, calls: Sequence[Call], *, tag: str | None = None, id: str | None = None
    ) -> Decision:
        """The same as :meth:`Limiter.check_all`."""
        return await self._run(self._calls.check_all(calls, tag, id))

    async def check_each(self, calls: Sequence[Call]) -> Decision:
        """The same as :meth:`Limiter.check_each`."""
        return await self._run(self._calls.check_each(calls))

    async def wait(
        self, rule: Rule, subject: str, max_wait_ms: int, cost: int = 1, *, tag: str | None = None
    ) -> Decision:
        """The same as :meth:`Limiter.wait`."""
        return await self._run(self._calls.wait(rule, subject, max_wait_ms, cost, tag))

    def lease(
        self, rule: Rule, subject: str, id: str | None = None, *, tag: str | None = None
    ) -> AsyncLeaseContext:
        """Takes a permit for an ``async with`` block, renews it, and releases it at the end."""
        name = self._calls.lease_call(rule, subject, id, tag)
        return AsyncLeaseContext(lambda: self._admit([(rule, subject)], tag, name))

    @property
    def counters(self) -> Counters:
        """The same as :attr:`Limiter.counters`."""
        return self._calls.teller.counters()

    async def ready(self) -> Backend:
        """The same as :meth:`Limiter.ready`."""
        return await self._run(self._calls.ready())

    async def close(self) -> None:
        """The same as :meth:`Limiter.close`. Also waits for pending releases."""
        await self._run(self._calls.give_back())
        await self._tasks.close()
        await self._transport.close()

    async def __aenter__(self) -> AsyncLimiter:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _admit(
        self, calls: Sequence[Call], tag: str | None, id: str | None = None
    ) -> tuple[Decision, list[AsyncLease]]:
        """Sends one call for all rules. The leases among them are renewed until released."""
        admitted = await self._run(self._calls.admit(calls, tag, id, self._abandon))
        leases = self._leases(admitted)
        if admitted.decision is None:
            raise Unavailable("there is no decision")
        for lease in leases:
            lease.keep()
        return admitted.decision, leases

    def _leases(self, admitted: Admission) -> list[AsyncLease]:
        given = self._keep, self._sleep, self._tasks.start, self._calls.clock
        held = admitted.id, admitted.asked, admitted.decision
        return [AsyncLease(*given, rule, key, *held) for rule, key in admitted.leases]

    def _abandon(self, admitted: Admission) -> None:
        for lease in self._leases(admitted):
            lease.release_soon()

    async def _keep(self, args: Args, until: float) -> Any:
        return await self._run(self._calls.keep(args, until))

    async def _ask(self, args: Args) -> Any:
        return await self._run(self._calls.ask(args))

    async def _run(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                try:
                    came = await self._do(step)
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(came)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _do(self, step: Step) -> Any:
        if isinstance(step, Send):
            return await self._transport.call(step.node, step.args, step.timeout_s)
        if isinstance(step, Start):
            task = self._tasks.start(self._run(step.steps))
            return task.add_done_callback(lambda _: step.ended.set())
        if isinstance(step, Wait):
            if not step.is_timed:
                return await step.ended.wait()
            with contextlib.suppress(TimeoutError):
                async with Deadline(instant(step.timeout_s)):
                    await step.ended.wait()
            return None
        if isinstance(step, Turn):
            of_this_loop = asyncio.get_running_loop(), step.key
            lock = self._calls.asking.turn(of_this_loop, asyncio.Lock)
            try:
                async with Deadline(instant(step.timeout_s)):
                    await lock.acquire()
            except TimeoutError:
                return None
            return lock
        return await self._sleep(step.seconds)
