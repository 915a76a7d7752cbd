"""The messages to an ASGI application, some of which are read before it asks for them.

Servers tell only by a message that a client has gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

_DISCONNECTS = ("http.disconnect", "websocket.disconnect")
# The most messages that are kept for the application. A part of a body is one.
_MOST_EARLY = 2


class Inbox:
    """Passes messages on, and notes that the client has gone."""

    def __init__(self, receive: Receive, scope: Scope, watch_after_s: float = 0.0) -> None:
        """A wait is watched after ``watch_after_s``, because a task costs as much as a check."""
        self._receive, self._scope, self._watch_after_s = receive, scope, watch_after_s
        self._early: deque[Message] = deque()
        self._reading: asyncio.Task[Message] | None = None
        # The number of reads of the application that wait without a task.
        self._waits = 0
        self.is_gone = False

    async def receive(self) -> Message:
        """Returns the next message, to the application."""
        while True:
            if self._early:
                return self._early.popleft()
            reading = self._reading
            if reading is None:
                break
            # If the caller is cancelled, the message is for the next one.
            await asyncio.wait([reading])
            if self._reading is reading:
                self._reading = None
                return reading.result()
        self._waits += 1
        try:
            return await self._read()
        finally:
            self._waits -= 1

    async def _read(self) -> Message:
        message = await self._receive()
        if message["type"] in _DISCONNECTS:
            self.is_gone = True
        return message

    def _begin(self) -> asyncio.Task[Message] | None:
        """Reads a message early. Returns None if that is of no use."""
        if self._reading is None and not self._waits and len(self._early) < _MOST_EARLY:
            # To read a message would ask a client with this header for its body.
            if any(name.lower() == b"expect" for name, _ in self._scope["headers"]):
                return None
            self._reading = asyncio.get_running_loop().create_task(self._read())
        return self._reading

    def _keep(self, reading: asyncio.Task[Message]) -> bool:
        """Keeps a message for the application. Returns True if another one may follow soon.

        The rest of a body that has begun stays where it is, so that it takes no memory.
        """
        if reading is not self._reading or reading.cancelled() or reading.exception() is not None:
            return False
        message, self._reading = reading.result(), None
        self._early.append(message)
        return not self.is_gone and not message.get("more_body")

    async def look(self) -> None:
        """Reads the messages that have arrived, and so learns that the client has gone."""
        while not self.is_gone and (reading := self._begin()) is not None:
            await asyncio.sleep(0)
            if not reading.done() or not self._keep(reading):
                return

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Ends a wait with a TimeoutError when the client leaves."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(None) as leaving:
            is_over = False

            def begin() -> None:
                if not is_over and (reading := self._begin()) is not None:
                    reading.add_done_callback(arrived)

            def arrived(reading: asyncio.Task[Message]) -> None:
                if is_over:
                    return
                if self._keep(reading):
                    begin()
                elif self.is_gone:
                    leaving.reschedule(loop.time())

            timer = loop.call_later(self._watch_after_s, begin)
            try:
                yield
            finally:
                is_over = True
                timer.cancel()

    def close(self) -> None:
        """Ends a read for which no caller waits."""
        reading, self._reading = self._reading, None
        if reading is not None and not reading.cancel() and not reading.cancelled():
            # Its error is not to be logged.
            reading.exception()
