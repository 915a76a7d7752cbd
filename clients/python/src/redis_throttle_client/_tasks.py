"""The tasks that a limiter for asyncio runs in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from ._fork import forgets


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
