"""One request to an ASGI application and its response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from ._async_limiter import AsyncLimiter
from ._counting import Decided, RequestItems, refund_soon, take_async
from ._decision import HeaderStyle
from ._http import added
from ._inbox import Inbox, Message, Receive, Scope
from ._lease import AsyncLease, release_soon
from ._outcome import Outcome

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

    async def take(self, asked: RequestItems) -> Decided:
        """Decides the request. Raises TimeoutError if its client leaves meanwhile."""
        try:
            async with self._inbox.watched():
                taken, leases = await take_async(self._limiter, asked)
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
        if kind in _HEADS and any(not one.asked.counts_all for one in self._taken):
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
            if not one.asked.counts_all:
                refund_soon(self._limiter, one, outcome)
