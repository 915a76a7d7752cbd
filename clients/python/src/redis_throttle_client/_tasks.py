"""The tasks that a limiter for asyncio runs in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from ._fork import forgets


class Tasks:
    """Tasks that continue without their callers."""

    def __init__(self) -> None:
        forgets(self)

    def begin(self) -> None:
        """Resets to no tasks, also in the child of a fork."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._repeating: set[asyncio.Task[Any]] = set()

    def start(
        self, work: Coroutine[Any, Any, None], *, repeats: bool = False
    ) -> asyncio.Task[None]:
        """Starts a task. ``repeats`` marks one that only repeats a failed call."""
        task = asyncio.get_running_loop().create_task(work)
        tasks = self._repeating if repeats else self._tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    async def close(self) -> None:
        """Waits for the tasks, and cancels those that only repeat a call."""
        while self._tasks or self._repeating:
            for task in self._repeating:
                task.cancel()
            await asyncio.gather(*self._tasks, *self._repeating, return_exceptions=True)
