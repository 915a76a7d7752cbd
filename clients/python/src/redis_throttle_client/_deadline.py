"""Deadlines for asyncio."""

from __future__ import annotations

import asyncio
from types import TracebackType

# The turns of the loop that it takes to read a reply, to parse it, and to wake the caller.
_TURNS = 4


class Deadline:
    """A timeout like ``asyncio.timeout_at`` that first reads what has arrived by the deadline.

    If the program was busy past the deadline, the reply may have arrived in the meantime. Such a
    call must not count as unanswered.
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
