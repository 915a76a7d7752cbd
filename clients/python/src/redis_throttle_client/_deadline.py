"""Deadlines for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import TypeVar

from ._errors import Unavailable

T = TypeVar("T")

# Of the loop: to read what has come, to understand it, and to hand it to who waits for it.
_TURNS = 4


class Deadline:
    """As ``asyncio.timeout_at``, but what has come by then is read first.

    A program that was busy for longer than the deadline finds both at once, the answer and that
    the time is over: it was not the server that was away.
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
    """When a call that begins now has to be answered, by the clock of its loop."""
    return asyncio.get_running_loop().time() + timeout_s


async def by(deadline: float, awaitable: Awaitable[T]) -> T:
    """The result, or Unavailable."""
    try:
        async with Deadline(deadline):
            return await awaitable
    except TimeoutError as error:
        raise Unavailable("no answer in time") from error
