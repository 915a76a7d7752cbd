"""Runs the steps of calls: in the thread of the caller, or in its task."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

from .._net.fork import forgets
from .._net.node import Sender
from .._net.transport import Transport
from .._wire.call import Send, Sleep, Start, Step, Steps, Turn, Wait

# The turns of the loop that it takes to read a reply, to parse it, and to wake the caller.
_TURNS = 4


class Deadline:
    """A timeout like ``asyncio.timeout_at`` that first reads what has arrived by the deadline.

    If the program was busy past the deadline, the reply may have arrived in the meantime. Such a
    call must not count as one without a reply.
    """

    def __init__(self, at: float) -> None:
        self._at = at

    async def __aenter__(self) -> None:
        self._loop, self._timeout = asyncio.get_running_loop(), asyncio.timeout(None)
        await self._timeout.__aenter__()
        self._timer: asyncio.Handle = self._loop.call_at(self._at, self._passed, _TURNS)

    def _passed(self, turns: int) -> None:
        if turns:
            self._timer = self._loop.call_soon(self._passed, turns - 1)
        else:
            self._timeout.reschedule(self._loop.time())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        self._timer.cancel()
        await self._timeout.__aexit__(kind, error, traceback)


def instant(timeout_s: float) -> float:
    """Returns the deadline of a call that begins now, on the clock of its loop."""
    return asyncio.get_running_loop().time() + timeout_s


class _Running:
    """The tasks of one event loop. The repeating ones only repeat a call."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[Any]] = set()
        self.repeating: set[asyncio.Task[Any]] = set()


class Tasks:
    """Tasks that continue without their callers."""

    def __init__(self) -> None:
        forgets(self)

    def begin(self) -> None:
        """Resets to no tasks, also in the child of a fork."""
        self._of_loop: dict[asyncio.AbstractEventLoop, _Running] = {}

    @property
    def _running(self) -> _Running:
        loop = asyncio.get_running_loop()
        running = self._of_loop.get(loop)
        if running is None:
            # The tasks of closed loops never end. Without a reference they give back what they
            # have, such as their place among the calls in flight.
            for closed in [known for known in list(self._of_loop) if known.is_closed()]:
                self._of_loop.pop(closed, None)
            running = self._of_loop.setdefault(loop, _Running())
        return running

    def start(
        self, work: Coroutine[Any, Any, None], *, repeats: bool = False
    ) -> asyncio.Task[None]:
        """Starts a task. ``repeats`` marks one that only repeats a call."""
        running, task = self._running, asyncio.get_running_loop().create_task(work)
        tasks = running.repeating if repeats else running.tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    async def close(self) -> None:
        """Cancels the tasks of this loop that only repeat a call, and waits for the others."""
        running = self._running
        while running.tasks or running.repeating:
            for task in running.repeating:
                task.cancel()
            await asyncio.gather(*running.tasks, *running.repeating, return_exceptions=True)

    async def cancel(self) -> None:
        """Cancels the tasks of this loop that are left."""
        for task in (*self._running.tasks, *self._running.repeating):
            task.cancel()
        await self.close()


T = TypeVar("T")


class Running:
    """Runs steps in threads."""

    def __init__(
        self, transport: Transport, sender: Sender, sleep: Callable[[float], None]
    ) -> None:  # fmt: skip
        self._transport, self._sender, self._sleep = transport, sender, sleep

    def run(self, steps: Steps[T]) -> T:
        """Returns the result of the steps."""
        try:
            step = next(steps)
            while True:
                try:
                    if isinstance(step, Send):
                        came = self._transport.call(step.node, step.args, step.call)
                    else:
                        came = self._do(step)
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(came)
        except StopIteration as end:
            result: T = end.value
            return result

    def _do(self, step: Start | Wait | Turn | Sleep) -> Any:
        if isinstance(step, Start):
            try:
                return self.run(step.steps)
            finally:
                step.ended.set()
        if isinstance(step, Wait):
            return step.ended.wait(step.timeout_s)
        if isinstance(step, Turn):
            lock = self._sender.turn(step.key, threading.Lock)
            return lock if lock.acquire(timeout=step.timeout_s) else None
        return self._sleep(step.seconds)


class AsyncRunning:
    """Runs steps in tasks."""

    def __init__(
        self, transport: Transport, sender: Sender,
        sleep: Callable[[float], Awaitable[None]], tasks: Tasks,
    ) -> None:  # fmt: skip
        self._transport, self._sender, self._sleep = transport, sender, sleep
        self._tasks = tasks

    async def run(self, steps: Steps[T]) -> T:
        """Returns the result of the steps."""
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
            return await self._transport.call(step.node, step.args, step.call)
        if isinstance(step, Start):
            task = self._tasks.start(self.run(step.steps))
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
            lock = self._sender.turn(of_this_loop, asyncio.Lock)
            try:
                async with Deadline(instant(step.timeout_s)):
                    await lock.acquire()
            except TimeoutError:
                return None
            return lock
        return await self._sleep(step.seconds)
