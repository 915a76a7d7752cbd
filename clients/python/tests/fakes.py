"""Fake servers that grant what they do not compute, and those of them that reply late."""

from __future__ import annotations

import asyncio
import itertools
import selectors
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from redis_throttle_client import AsyncLimiter, Limiter, Unavailable
from redis_throttle_client._wire.call import Call
from redis_throttle_client.testing import FakeServer

_ORDER_S = 1e-12
PATIENT: Any = {"timeout_ms": 60_000}


class Granting(FakeServer):
    """Grants leases, reservations, quotas and policies, unless their replies are scripted."""

    def __init__(self) -> None:
        super().__init__()
        # The keys and the ids of the leases that are not released.
        self.held: set[tuple[str, ...]] = set()

    def _next_scripted(self, command: str) -> Any:
        if self._scripted:
            return super()._next_scripted(command)
        call = self.calls[-1]
        if command == "RL.LEASE":
            self.held.add(call[1:3])
        if command in ("RL.RENEW", "RL.RELEASE"):
            self.held -= {call[1:3]} if command == "RL.RELEASE" else set()
            return 1
        if command in ("RL.ALL", "RL.PEEKALL"):
            rows = [granted(row.split(" ")[0]) for row in call[2::2]]
            return [1, 9, 4, 0, 6000, 1, *rows]
        return granted(command.removeprefix("RL."))


def granted(word: str) -> list[int]:
    """Returns the reply to a rule with this first word."""
    return [1, 9, 4, 0, 6000, *([1, 0] if word == "USE" else [])]


class Held(Granting):
    """Decides at once. On hold, it delays the replies, except those to ``passing`` commands."""

    def __init__(self, *passing: str) -> None:
        super().__init__()
        self._passing = passing
        self._lock = threading.RLock()
        self._go = threading.Event()
        self._go.set()
        self.waits_s: list[float] = []

    def hold(self) -> None:
        self._go = threading.Event()

    def let_go(self) -> None:
        self._go.set()

    def node(self, key: str) -> Any:
        return None

    def call(self, node: Any, args: tuple[str, ...], call: Call) -> Any:
        with self._lock:
            self.waits_s.append(call.left_s)
            reply = self.reply(args)
        if args[0] not in self._passing:
            assert self._go.wait(60)
        return reply

    def close(self) -> None:
        pass

    def threads(self, **options: Any) -> Limiter:
        return Limiter(self, clock=self.now, **PATIENT, **options)


def look_again(limiter: Limiter) -> None:
    """Wakes the threads that tend holds, after their clock was moved."""
    for crew in (limiter._renewer._renewals, limiter._renewer._ends):
        with crew.changed:
            crew.changed.notify_all()


def begun(work: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def ended(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer when all tasks are waiting."""

    def __init__(self) -> None:
        selector = selectors.DefaultSelector()
        super().__init__(selector)
        self._now_s, self._look = 0.0, selector.select
        self._timers = itertools.count()
        selector.select = self._jump  # type: ignore[method-assign]

    def _jump(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "all wait, and nothing comes"
        found = self._look(0)
        if not found:
            self._now_s += timeout
        return found

    def time(self) -> float:
        return self._now_s

    def pause(self, seconds: float) -> None:
        """Lets time pass in which the process does not run."""
        self._now_s += seconds

    def call_at(  # type: ignore[override]
        self, when: float, *args: Any, **options: Any
    ) -> asyncio.TimerHandle:
        # Timers of one instant run in the order in which they were set.
        return super().call_at(when + next(self._timers) * _ORDER_S, *args, **options)


class Far(Granting):
    """A fake server for asyncio with a round trip of ``ms``."""

    def __init__(self, ms: float) -> None:
        super().__init__()
        self._s = ms / 1000
        self.in_flight = self.most = 0

    def node(self, key: str) -> None:
        return None

    async def call(self, node: None, args: tuple[str, ...], call: Call) -> Any:
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            async with asyncio.timeout(call.left_s):
                await asyncio.sleep(self._s / 2)
                reply = self.reply(args)
                await asyncio.sleep(self._s / 2)
                return reply
        except TimeoutError as error:
            raise Unavailable("no reply in time") from error
        finally:
            self.in_flight -= 1

    async def close(self) -> None:
        pass

    def limiter(self, **options: Any) -> Any:
        return AsyncLimiter(self, clock=asyncio.get_running_loop().time, **options)


async def settled() -> None:
    """Runs more turns of the loop than any test here needs."""
    for _ in range(1000):
        await asyncio.sleep(0)


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(work)
