"""Runs the steps of calls: in the thread of the caller, or in its task."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ._asking import Asking
from ._deadline import Deadline, instant
from ._steps import Send, Sleep, Start, Step, Steps, Turn, Wait
from ._tasks import Tasks
from ._transport import AsyncTransport, Transport

T = TypeVar("T")


class Running:
    """Runs steps in threads."""

    def __init__(
        self, transport: Transport, asking: Asking, sleep: Callable[[float], None]
    ) -> None:  # fmt: skip
        self._transport, self._asking, self._sleep = transport, asking, sleep

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
            lock = self._asking.turn(step.key, threading.Lock)
            return lock if lock.acquire(timeout=step.timeout_s) else None
        return self._sleep(step.seconds)


class AsyncRunning:
    """Runs steps in tasks."""

    def __init__(
        self, transport: AsyncTransport, asking: Asking,
        sleep: Callable[[float], Awaitable[None]], tasks: Tasks,
    ) -> None:  # fmt: skip
        self._transport, self._asking, self._sleep = transport, asking, sleep
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
            lock = self._asking.turn(of_this_loop, asyncio.Lock)
            try:
                async with Deadline(instant(step.timeout_s)):
                    await lock.acquire()
            except TimeoutError:
                return None
            return lock
        return await self._sleep(step.seconds)
