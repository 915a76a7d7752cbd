"""One request to an ASGI application and its response.

Some messages are read before the application requests them: servers report only by a message that
a client has gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from .._holds.lease import AsyncLease, release_soon
from .._limiter_async import AsyncLimiter
from .._rules.headers import HeaderStyle
from .._rules.outcome import Outcome
from .counting import Decided, RequestItems, refund_soon, take_async
from .http import added

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
            # To read a message would request the body of a client with this header.
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


Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# The messages that begin a response, and the status of those that have none.
_HEADS = {
    "http.response.start": 0,
    "websocket.accept": 101,
    "websocket.close": 403,
    "websocket.http.response.start": 0,
}


class Exchange:
    """Adds the header fields of the decisions to the response, and ends what they took.

    Refunds in the background, at the head of the response, what does not count, and releases the
    leases at its end. Both also happen if the application fails. A request whose client leaves
    before the head counts: otherwise its handler could run again and again.
    """

    def __init__(
        self, limiter: AsyncLimiter, styles: Sequence[HeaderStyle], scope: Scope, receive: Receive,
        send: Send,
    ) -> None:  # fmt: skip
        self._limiter, self._styles = limiter, styles
        self._inbox, self._send = Inbox(receive, scope, limiter._calls.tick_s), send
        self._taken: list[Decided] = []
        self._has_begun = False
        self._leases: list[AsyncLease] = []

    async def take(self, requested: RequestItems) -> Decided:
        """Decides the request. Raises TimeoutError if its client leaves meanwhile."""
        try:
            async with self._inbox.watched():
                taken, leases = await take_async(self._limiter, requested)
        except BaseException:
            self._inbox.close()
            raise
        if taken.decision.allowed:
            # Later, as for each message of a websocket, no outcome is known, so that all counts.
            if not self._has_begun:
                self._taken.append(taken)
            self._leases += leases
        return taken

    async def run(self, app: App, scope: Scope) -> None:
        """Calls the application."""
        outcome = Outcome(None)
        try:
            await app(scope, self._inbox.receive, self._sending)
        except BaseException as error:
            outcome = Outcome(None, error)
            raise
        finally:
            self._inbox.close()
            self._refund(outcome)
            release_soon(self._leases)

    async def _sending(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            message = {**message, "headers": self._headers(message)}
        if kind in _HEADS and any(not one.requested.counts_all for one in self._taken):
            await self._inbox.look()
        try:
            await self._send(message)
        except OSError:
            # Newer servers raise it for a client that has gone.
            self._inbox.is_gone = True
            raise
        if kind in _HEADS:
            self._has_begun = True
            self._refund(Outcome(message.get("status", _HEADS[kind])))
        elif kind == "http.response.body" and not message.get("more_body"):
            release_soon(self._leases)

    def _headers(self, message: Message) -> list[tuple[bytes, bytes]]:
        # The application may leave headers out, or pass an iterator.
        headers = list(message.get("headers", ()))
        for taken in self._taken:
            present = {name.lower().decode("latin-1") for name, _ in headers}
            fields = taken.decision.headers(self._styles)
            headers += [(n.encode(), v.encode()) for n, v in added(present, fields)]
        return headers

    def _refund(self, outcome: Outcome) -> None:
        """Refunds what does not count. Later calls do nothing."""
        taken, self._taken = self._taken, []
        if self._inbox.is_gone:
            return
        for one in taken:
            if not one.requested.counts_all:
                refund_soon(self._limiter, one, outcome)
