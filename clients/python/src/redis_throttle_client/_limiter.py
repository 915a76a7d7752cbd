"""The two limiters: the same words, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Literal, TypedDict, Unpack

from . import _protocol
from ._core import Call, Core, OnDecision, Options, each, wait_ms
from ._decision import Decision
from ._errors import ThrottleError, Unavailable
from ._lease import AsyncLease, AsyncLeaseContext, Lease, LeaseContext, Renewer
from ._rules import Rule
from ._sockets import async_transport, transport


class LimiterOptions(TypedDict, total=False):
    """The options of both limiters; :class:`Options` has their defaults."""

    timeout_ms: int
    max_in_flight: int
    breaker_failures: int
    breaker_pause_ms: int
    denial_cache: int
    prefetch: int
    prefix: str
    hash_tag: Literal["none", "subject"]
    hmac_secret: bytes | str | None
    on_decision: OnDecision | None
    clock: Callable[[], float]


_READY = ("GCRA", "1", "1", "1", "COST", "0")


def _ready_args(core: Core) -> tuple[str, ...]:
    return ("RL.PEEK", core.keys.key("ready", "ready"), *_READY)


class Limiter:
    """Asks the server over connections made as those of ``client`` (redis-py, valkey-py).

    ``client`` may be a ``Redis``, one of Sentinel, or a ``RedisCluster``. Each call is sent once
    and ends within ``timeout_ms``. Thread-safe.
    """

    def __init__(
        self, client: Any, *, sleep: Callable[[float], None] = time.sleep,
        **options: Unpack[LimiterOptions],
    ) -> None:  # fmt: skip
        self._core = Core(Options(**options))
        self._transport = transport(client, self._core.timeout_s, self._core.options.max_in_flight)
        self._sleep = sleep
        self._fetching: weakref.WeakValueDictionary[str, _Turn] = weakref.WeakValueDictionary()
        self._turns = threading.Lock()
        self._renewer = Renewer(self._core.clock)

    def check(self, rule: Rule, subject: str, cost: int = 1, *, tag: str | None = None) -> Decision:
        """Decides, and takes ``cost`` when it is allowed."""
        core, began = self._core, self._core.clock()
        key = core.keys.key(rule.name, subject, tag)
        if core.prefetches(rule, cost):
            decision = self._prefetched(rule, key, began)
        else:
            args = _protocol.check(rule, key, cost)
            decision = self._decide(
                args, [(rule, key, cost)], lambda reply: _protocol.decision(rule, reply, cost)
            )
        return core.told(decision, rule, subject, began)

    def peek(self, rule: Rule, subject: str, cost: int = 1, *, tag: str | None = None) -> Decision:
        """What :meth:`check` would answer, taking nothing. Cost 0 asks for the status."""
        key = self._core.keys.key(rule.name, subject, tag)
        args = _protocol.named("PEEK", rule, key, cost)
        return self._decide(
            args, [(rule, key, cost)], lambda reply: _protocol.decision(rule, reply, cost),
            peek=True,
        )  # fmt: skip

    def refund(
        self, rule: Rule, subject: str, cost: int = 1, *, tag: str | None = None
    ) -> Decision:
        """Gives back, never past the full allowance. Not to be repeated: it gives twice."""
        key = self._core.keys.key(rule.name, subject, tag)
        self._core.denials.drop(key)
        return _protocol.settled(self._ask(_protocol.named("REFUND", rule, key, cost)), rule)

    def charge(
        self, rule: Rule, subject: str, cost: int = 1, *, tag: str | None = None
    ) -> Decision:
        """Takes whether or not it is there: what a call cost beyond its estimate."""
        key = self._core.keys.key(rule.name, subject, tag)
        return _protocol.settled(self._ask(_protocol.named("CHARGE", rule, key, cost)), rule)

    def forget(self, rule: Rule, subject: str, *, tag: str | None = None) -> None:
        """The subject starts anew under this rule."""
        key = self._core.keys.key(rule.name, subject, tag)
        self._core.denials.drop(key)
        self._core.grants.drop(key)
        self._core.local.forget(key)
        self._ask(_protocol.forget(key))

    def check_all(
        self,
        calls: Sequence[Call],
        *,
        tag: str | None = None,
        id: str | None = None,
    ) -> Decision:
        """Several rules at once: takes from all or from none. ``rows`` has each rule's decision.

        In a cluster all keys need one hash tag: ``tag``. Leases among the rules need an ``id``,
        and are given back by whoever took them.
        """
        began = self._core.clock()
        made = self._core.calls(calls, tag)
        args = _protocol.check_all(made, id=id)
        rules = [rule for rule, _, _ in made]
        decision = self._decide(args, made, lambda reply: _protocol.decision_all(rules, reply))
        at = _deciding(decision, calls)
        return self._core.told(decision, calls[at][0], calls[at][1], began)

    def check_each(self, calls: Sequence[Call]) -> Decision:
        """One after the other, for keys of different slots.

        What was taken is refunded when a later rule denies. Between the two it is missing for
        others, and stays so when the refund is not answered: it errs to the strict side, by at
        most one cost for each call that is denied.
        """
        rows: list[Decision] = []
        for at, (rule, key, cost) in enumerate(self._core.calls(calls, None)):
            _protocol.check(rule, key, cost)
            rows.append(self.check(rule, calls[at][1], cost))
            if not rows[-1].allowed:
                self._undo(calls, rows)
                break
        return each(rows)

    def _undo(self, calls: Sequence[Call], rows: Sequence[Decision]) -> None:
        for call, row in zip(calls, rows, strict=False):
            if row.allowed and not row.degraded:
                with contextlib.suppress(ThrottleError):
                    self.refund(*call)

    def wait(
        self, rule: Rule, subject: str, max_wait_ms: int, cost: int = 1, *, tag: str | None = None
    ) -> Decision:
        """Sleeps as long as it is told, then acts; a denial when that is beyond ``max_wait_ms``."""
        began = self._core.clock()
        while True:
            decision = self.check(rule, subject, cost, tag=tag)
            spent_ms = (self._core.clock() - began) * 1000
            sleep_ms = wait_ms(decision, spent_ms, max_wait_ms)
            if sleep_ms is None:
                if decision.allowed and decision.retry_after_ms:
                    return self._too_late(decision, rule, subject, cost, tag)
                return decision
            self._sleep(sleep_ms / 1000)
            if decision.allowed:
                return decision

    def _too_late(
        self, decision: Decision, rule: Rule, subject: str, cost: int, tag: str | None
    ) -> Decision:
        """A place in the queue that comes too late is given back."""
        if not decision.degraded:
            self.refund(rule, subject, cost, tag=tag)
        return _denied(decision)

    def lease(
        self,
        rule: Rule,
        subject: str,
        id: str | None = None,
        *,
        tag: str | None = None,
    ) -> LeaseContext:
        """A permit for a ``with`` block: renewed meanwhile, given back at its end."""
        name = _protocol.checked_id(uuid.uuid4().hex if id is None else id)
        key = self._core.keys.key(rule.name, subject, tag)
        _protocol.lease(rule, key, name)
        return LeaseContext(lambda: self._admit([(rule, subject)], tag, name))

    def _admit(
        self,
        calls: Sequence[Call],
        tag: str | None,
        id: str | None = None,
    ) -> tuple[Decision, list[Lease]]:
        """One call for all rules, leases among them; the leases are renewed until released."""
        id = id or uuid.uuid4().hex  # noqa: A001
        asked = self._core.clock()
        if len(calls) > 1:
            decision = self.check_all(calls, tag=tag, id=id)
        elif calls[0][0].kind == "lease":
            rule, key, _ = self._core.calls(calls, tag)[0]
            args = _protocol.lease(rule, key, id)
            decision = self._decide(
                args, [(rule, key, 1)], lambda reply: _protocol.decision(rule, reply)
            )
            self._core.told(decision, rule, calls[0][1], asked)
        else:
            decision = self.check(*calls[0], tag=tag)
        leases = [
            Lease(self, rule, key, id, asked, decision)
            for rule, key, _ in self._core.calls(calls, tag)
            if rule.kind == "lease" and decision.allowed
        ]
        for lease in leases:
            if not decision.degraded:
                self._renewer.add(lease)
        return decision, leases

    def ready(self) -> None:
        """Returns when the server is there and has the module; raises what is wrong otherwise."""
        self._ask(_ready_args(self._core))

    def close(self) -> None:
        """Gives back what was fetched in advance and not spent, and closes the sockets."""
        for key, rule, permits in self._core.grants.drain(self._core.clock()):
            with contextlib.suppress(ThrottleError):
                self._ask(_protocol.named("REFUND", rule, key, permits))
        self._renewer.close()
        self._transport.close()

    def __enter__(self) -> Limiter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _decide(
        self, args: tuple[str, ...], calls: Sequence[tuple[Rule, str, int]],
        read: Callable[[object], Decision], *, peek: bool = False,
    ) -> Decision:  # fmt: skip
        core, asked = self._core, self._core.clock()
        cached = core.denials.get(args, asked)
        if cached is not None:
            return cached
        try:
            decision = read(self._ask(args))
        except Unavailable:
            return core.fallback(calls, peek=peek)
        if not peek and not any(rule.kind == "lease" for rule, _, _ in calls):
            core.denials.put(args, decision, asked)
        return decision

    def _prefetched(self, rule: Rule, key: str, began: float) -> Decision:
        core = self._core
        spent = core.grants.spend(key, began)
        if spent is not None:
            return spent
        with self._turns:
            turn = self._fetching.setdefault(key, _Turn())
        if not turn.lock.acquire(timeout=core.timeout_s):
            return core.fallback([(rule, key, 1)])
        try:
            now = core.clock()
            spent = core.grants.spend(key, now)
            if spent is not None:
                return spent
            wanted = core.options.prefetch
            args = _protocol.check(rule, key, wanted, partial=True)
            decision = self._decide(
                args, [(rule, key, 1)],
                lambda reply: _protocol.decision(rule, reply, wanted, partial=True),
            )  # fmt: skip
            return core.grants.put(key, rule, decision, now)
        finally:
            turn.lock.release()

    def _ask(self, args: tuple[str, ...]) -> object:
        core = self._core
        try:
            node = self._transport.node(args[1])
        except Exception as error:
            raise core.judged(error) from error
        gate = core.gate(node)
        probe = gate.enter(core.clock())
        answered: bool | None = None
        try:
            reply: object = self._transport.call(node, args, core.timeout_s)
            answered = True
        except Exception as error:
            judged = core.judged(error)
            answered = not isinstance(judged, Unavailable)
            raise judged from error
        finally:
            gate.leave(core.clock(), probe, answered)
        return reply


class _Turn:
    """Whose turn it is to fetch permits of a key."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class _AsyncTurn:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()


def _deciding(decision: Decision, calls: Sequence[Call]) -> int:
    """Which of the calls the decision names."""
    return next((at for at, call in enumerate(calls) if call[0].name == decision.rule), 0)


def _denied(decision: Decision) -> Decision:
    return replace(decision, allowed=False, granted=0)


class AsyncLimiter:
    """As :class:`Limiter`, over a client of asyncio."""

    def __init__(
        self, client: Any, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        **options: Unpack[LimiterOptions],
    ) -> None:  # fmt: skip
        self._core = Core(Options(**options))
        self._transport = async_transport(
            client, self._core.timeout_s, self._core.options.max_in_flight
        )
        self._sleep = sleep
        self._fetching: weakref.WeakValueDictionary[str, _AsyncTurn] = weakref.WeakValueDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def check(
        self, rule: Rule, subject: str, cost: int = 1, *, tag: str | None = None
    ) -> Decision:
        """Decides, and takes ``cost`` when it is allowed."""
        core, began = self._core, self._core.clock()
        key = core.keys.key(rule.name, subject, tag)
        if core.prefetches(rule, cost):
            decision = await self._prefetched(rule, key, began)
        else:
            args = _protocol.check(rule, key, cost)
            decision = await self._decide(
                args, [(rule, key, cost)], lambda reply: _protocol.decision(rule, reply, cost)
            )
        return core.told(decision, rule, subject, began)

    async def peek(
        self, rule: Rule, subject: str, cost: int = 1, *, tag: str | None = None
    ) -> Decision:
        """What :meth:`check` would answer, taking nothing. Cost 0 asks for the status."""
        key = self._core.keys.key(rule.name, subject, tag)
        args = _protocol.named("PEEK", rule, key, cost)
        return await self._decide(
            args, [(rule, key, cost)], lambda reply: _protocol.decision(rule, reply, cost),
            peek=True,
        )  # fmt: skip

    async def refund(
        self, rule: Rule, subject: str, cost: int = 1, *, tag: str | None = None
    ) -> Decision:
        """Gives back, never past the full allowance. Not to be repeated: it gives twice."""
        key = self._core.keys.key(rule.name, subject, tag)
        self._core.denials.drop(key)
        reply = await self._ask(_protocol.named("REFUND", rule, key, cost))
        return _protocol.settled(reply, rule)

    async def charge(
        self, rule: Rule, subject: str, cost: int = 1, *, tag: str | None = None
    ) -> Decision:
        """Takes whether or not it is there: what a call cost beyond its estimate."""
        key = self._core.keys.key(rule.name, subject, tag)
        reply = await self._ask(_protocol.named("CHARGE", rule, key, cost))
        return _protocol.settled(reply, rule)

    async def forget(self, rule: Rule, subject: str, *, tag: str | None = None) -> None:
        """The subject starts anew under this rule."""
        key = self._core.keys.key(rule.name, subject, tag)
        self._core.denials.drop(key)
        self._core.grants.drop(key)
        self._core.local.forget(key)
        await self._ask(_protocol.forget(key))

    async def check_all(
        self,
        calls: Sequence[Call],
        *,
        tag: str | None = None,
        id: str | None = None,
    ) -> Decision:
        """Several rules at once: takes from all or from none. ``rows`` has each rule's decision.

        In a cluster all keys need one hash tag: ``tag``. Leases among the rules need an ``id``,
        and are given back by whoever took them.
        """
        began = self._core.clock()
        made = self._core.calls(calls, tag)
        args = _protocol.check_all(made, id=id)
        rules = [rule for rule, _, _ in made]
        decision = await self._decide(
            args, made, lambda reply: _protocol.decision_all(rules, reply)
        )
        at = _deciding(decision, calls)
        return self._core.told(decision, calls[at][0], calls[at][1], began)

    async def check_each(self, calls: Sequence[Call]) -> Decision:
        """One after the other, for keys of different slots.

        What was taken is refunded when a later rule denies. Between the two it is missing for
        others, and stays so when the refund is not answered: it errs to the strict side, by at
        most one cost for each call that is denied.
        """
        rows: list[Decision] = []
        for at, (rule, key, cost) in enumerate(self._core.calls(calls, None)):
            _protocol.check(rule, key, cost)
            rows.append(await self.check(rule, calls[at][1], cost))
            if not rows[-1].allowed:
                await self._undo(calls, rows)
                break
        return each(rows)

    async def _undo(self, calls: Sequence[Call], rows: Sequence[Decision]) -> None:
        for call, row in zip(calls, rows, strict=False):
            if row.allowed and not row.degraded:
                with contextlib.suppress(ThrottleError):
                    await self.refund(*call)

    async def wait(
        self, rule: Rule, subject: str, max_wait_ms: int, cost: int = 1, *, tag: str | None = None
    ) -> Decision:
        """Sleeps as long as it is told, then acts; a denial when that is beyond ``max_wait_ms``."""
        began = self._core.clock()
        while True:
            decision = await self.check(rule, subject, cost, tag=tag)
            spent_ms = (self._core.clock() - began) * 1000
            sleep_ms = wait_ms(decision, spent_ms, max_wait_ms)
            if sleep_ms is None:
                if decision.allowed and decision.retry_after_ms:
                    return await self._too_late(decision, rule, subject, cost, tag)
                return decision
            await self._sleep(sleep_ms / 1000)
            if decision.allowed:
                return decision

    async def _too_late(
        self, decision: Decision, rule: Rule, subject: str, cost: int, tag: str | None
    ) -> Decision:
        """A place in the queue that comes too late is given back."""
        if not decision.degraded:
            await self.refund(rule, subject, cost, tag=tag)
        return _denied(decision)

    def lease(
        self,
        rule: Rule,
        subject: str,
        id: str | None = None,
        *,
        tag: str | None = None,
    ) -> AsyncLeaseContext:
        """A permit for an ``async with`` block: renewed meanwhile, given back at its end."""
        name = _protocol.checked_id(uuid.uuid4().hex if id is None else id)
        key = self._core.keys.key(rule.name, subject, tag)
        _protocol.lease(rule, key, name)
        return AsyncLeaseContext(lambda: self._admit([(rule, subject)], tag, name))

    async def _admit(
        self,
        calls: Sequence[Call],
        tag: str | None,
        id: str | None = None,
    ) -> tuple[Decision, list[AsyncLease]]:
        """One call for all rules, leases among them; the leases are renewed until released."""
        id = id or uuid.uuid4().hex  # noqa: A001
        asked = self._core.clock()
        if len(calls) > 1:
            decision = await self.check_all(calls, tag=tag, id=id)
        elif calls[0][0].kind == "lease":
            rule, key, _ = self._core.calls(calls, tag)[0]
            args = _protocol.lease(rule, key, id)
            decision = await self._decide(
                args, [(rule, key, 1)], lambda reply: _protocol.decision(rule, reply)
            )
            self._core.told(decision, rule, calls[0][1], asked)
        else:
            decision = await self.check(*calls[0], tag=tag)
        leases = [
            AsyncLease(self, rule, key, id, asked, decision)
            for rule, key, _ in self._core.calls(calls, tag)
            if rule.kind == "lease" and decision.allowed
        ]
        for lease in leases:
            lease.keep()
        return decision, leases

    async def ready(self) -> None:
        """Returns when the server is there and has the module; raises what is wrong otherwise."""
        await self._ask(_ready_args(self._core))

    async def close(self) -> None:
        """Gives back what was fetched in advance and not spent, and closes the sockets."""
        for key, rule, permits in self._core.grants.drain(self._core.clock()):
            with contextlib.suppress(ThrottleError):
                await self._ask(_protocol.named("REFUND", rule, key, permits))
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._transport.close()

    async def __aenter__(self) -> AsyncLimiter:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def _background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that outlives the one that asked for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _decide(
        self, args: tuple[str, ...], calls: Sequence[tuple[Rule, str, int]],
        read: Callable[[object], Decision], *, peek: bool = False,
    ) -> Decision:  # fmt: skip
        core, asked = self._core, self._core.clock()
        cached = core.denials.get(args, asked)
        if cached is not None:
            return cached
        try:
            decision = read(await self._ask(args))
        except Unavailable:
            return core.fallback(calls, peek=peek)
        if not peek and not any(rule.kind == "lease" for rule, _, _ in calls):
            core.denials.put(args, decision, asked)
        return decision

    async def _prefetched(self, rule: Rule, key: str, began: float) -> Decision:
        core = self._core
        spent = core.grants.spend(key, began)
        if spent is not None:
            return spent
        turn = self._fetching.setdefault(key, _AsyncTurn())
        try:
            async with asyncio.timeout(core.timeout_s):
                await turn.lock.acquire()
        except TimeoutError:
            return core.fallback([(rule, key, 1)])
        try:
            now = core.clock()
            spent = core.grants.spend(key, now)
            if spent is not None:
                return spent
            wanted = core.options.prefetch
            args = _protocol.check(rule, key, wanted, partial=True)
            decision = await self._decide(
                args, [(rule, key, 1)],
                lambda reply: _protocol.decision(rule, reply, wanted, partial=True),
            )  # fmt: skip
            return core.grants.put(key, rule, decision, now)
        finally:
            turn.lock.release()

    async def _ask(self, args: tuple[str, ...]) -> object:
        core = self._core
        try:
            node = await self._transport.node(args[1])
        except Exception as error:
            raise core.judged(error) from error
        gate = core.gate(node)
        probe = gate.enter(core.clock())
        answered: bool | None = None
        try:
            reply: object = await self._transport.call(node, args, core.timeout_s)
            answered = True
        except Exception as error:
            judged = core.judged(error)
            answered = not isinstance(judged, Unavailable)
            raise judged from error
        finally:
            gate.leave(core.clock(), probe, answered)
        return reply
