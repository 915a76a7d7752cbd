"""One request to an ASGI application and its response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from ._async_limiter import AsyncLimiter
from ._counting import Decided, refund_soon
from ._decision import HeaderStyle
from ._http import added
from ._lease import AsyncLease, release_all
from ._outcome import Outcome

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
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

    At the head of the response, what does not count is refunded in the background. At its end the
    leases are released. Both also happen if the client is gone or the application fails.
    """

    def __init__(
        self, limiter: AsyncLimiter, styles: Sequence[HeaderStyle], receive: Receive, send: Send
    ) -> None:
        self._limiter, self._styles = limiter, styles
        self._receive, self._send = receive, send
        self._taken: list[Decided] = []
        self._leases: list[AsyncLease] = []
        self._is_gone = False

    def add(self, taken: Decided, leases: Sequence[AsyncLease]) -> None:
        """Adds the decision that admitted the request, and its leases."""
        self._taken.append(taken)
        self._leases += leases

    async def run(self, app: App, scope: Scope) -> None:
        """Calls the application."""
        outcome = Outcome(None)
        try:
            await app(scope, self._receiving, self._sending)
        except BaseException as error:
            outcome = Outcome(None, error)
            raise
        finally:
            self._refund(outcome)
            await release_all(self._leases)

    async def _receiving(self) -> Message:
        message = await self._receive()
        if message["type"] in ("http.disconnect", "websocket.disconnect"):
            self._is_gone = True
        return message

    async def _sending(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            message = {**message, "headers": self._headers(message)}
        await self._send(message)
        if kind in _HEADS:
            status = message.get("status", _HEADS[kind])
            self._refund(Outcome(None if self._is_gone else status))
        elif kind == "http.response.body" and not message.get("more_body"):
            await release_all(self._leases)

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
        for one in taken:
            if not one.asked.counts_all:
                refund_soon(self._limiter, one, outcome)
