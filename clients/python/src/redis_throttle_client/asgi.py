"""Middleware for ASGI: Starlette, FastAPI and every other application.

    app.add_middleware(RateLimitMiddleware, limiter=limiter, rules=gcra("api", 10, 10, "1m"))

The decision is at ``request.state.rate_limit``.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Unpack

from ._decision import Decision
from ._errors import InvalidArgument
from ._http import (
    CostFunction,
    KeyFunction,
    MiddlewareOptions,
    OnDenied,
    Plan,
    Request,
    Response,
    RulesArgument,
    SkipFunction,
    added,
)
from ._lease import AsyncLease, release_all
from ._limiter import AsyncLimiter

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

__all__ = [
    "App",
    "CostFunction",
    "KeyFunction",
    "Message",
    "MiddlewareOptions",
    "OnDenied",
    "RateLimitMiddleware",
    "Receive",
    "Request",
    "Response",
    "RulesArgument",
    "Scope",
    "Send",
    "SkipFunction",
]

# The names of the request headers that this package controls; the client's values are removed.
_CLEANED = "redis_throttle_client.cleaned"


class RateLimitMiddleware:
    """Checks each request before the application, with all rules in one call.

    ``rules`` are rules, or pairs of a rule and its own key function. ``key`` is the key function of
    the other rules, by default the client's address. If a key function returns None or an empty
    text, the rule ``anonymous`` applies to the client's address; without that rule the answer is
    400. ``skip`` returns true for requests that are not limited. ``cost`` is the cost of a request.
    ``on_denied`` returns the response to a denial. ``tag`` returns the hash tag of the keys of a
    request, which a cluster needs for several rules. ``degraded_header`` is a request header that
    is ``1`` for the application when ``on_error`` decided; the client's own value is removed.
    """

    def __init__(
        self, app: App, *, limiter: AsyncLimiter, rules: RulesArgument,
        **options: Unpack[MiddlewareOptions],
    ) -> None:  # fmt: skip
        if not isinstance(limiter, AsyncLimiter):
            raise InvalidArgument("limiter: expected an AsyncLimiter")
        self._app, self._limiter = app, limiter
        self._plan = Plan.of(rules, **options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Calls the application, or sends the response to a denial."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        plan = self._plan
        request = self._request(scope)
        if plan.skip is not None and await _value(plan.skip(request)):
            await self._app(self._told(scope, None), receive, send)
            return
        decision, leases = await self._decide(request)
        if decision is None or not decision.allowed:
            await _answer(scope, receive, send, plan.denial(request, decision))
            return
        try:
            sending = self._sending(send, decision, leases)
            await self._app(self._told(scope, decision), receive, sending)
        finally:
            await release_all(leases)

    async def _decide(self, request: Request) -> tuple[Decision | None, list[AsyncLease]]:
        plan = self._plan
        subjects = [await _value(key(request)) for _, key in plan.rules]
        cost = await _value(plan.cost(request)) if callable(plan.cost) else plan.cost
        calls = plan.calls(subjects, cost, request.client_address)
        if calls is None:
            return None, []
        tag = None if plan.tag is None else await _value(plan.tag(request))
        return await self._limiter._admit(calls, tag)

    def _request(self, scope: Scope) -> Request:
        def headers(name: str) -> list[str]:
            wanted = name.encode("latin-1")
            return [
                value.decode("latin-1") for key, value in scope["headers"] if key.lower() == wanted
            ]

        client = scope.get("client")
        peer = client[0] if client else None
        address = self._plan.address.find(peer, headers("x-forwarded-for"))
        method = scope.get("method", "GET")
        return Request(method, scope.get("path", ""), scope, address, headers)

    def _told(self, scope: Scope, decision: Decision | None) -> Scope:
        """Returns the scope for the application, with the decision and the degraded header."""
        state = scope.setdefault("state", {})
        if decision is not None:
            state["rate_limit"] = decision
        else:
            # If this middleware skips the request, the decision of an outer one stays.
            state.setdefault("rate_limit", None)
        name = self._plan.degraded_header
        if name is None:
            return scope
        raw = name.lower().encode("latin-1")
        degraded = decision is not None and decision.degraded
        ours: frozenset[bytes] = scope.get(_CLEANED, frozenset())
        if raw in ours and not degraded:
            return scope
        headers = [item for item in scope["headers"] if item[0].lower() != raw]
        if degraded:
            headers.append((raw, b"1"))
        return {**scope, "headers": headers, _CLEANED: ours | {raw}}

    def _sending(self, send: Send, decision: Decision, leases: list[AsyncLease]) -> Send:
        fields = decision.headers(self._plan.styles)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                # The application may leave headers out, or pass an iterator.
                theirs = list(message.get("headers", ()))
                present = {name.lower().decode("latin-1") for name, _ in theirs}
                ours = [(n.encode(), v.encode()) for n, v in added(present, fields)]
                message = {**message, "headers": [*theirs, *ours]}
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                await release_all(leases)

        return sending


async def _value(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _answer(scope: Scope, receive: Receive, send: Send, response: Response) -> None:
    """Sends the complete response. Refuses a websocket before it is accepted."""
    prefix = "http"
    if scope["type"] == "websocket":
        await receive()
        if "websocket.http.response" not in (scope.get("extensions") or {}):
            await send({"type": "websocket.close", "code": 1008})
            return
        prefix = "websocket.http"
    headers = [(n.lower().encode("latin-1"), v.encode("latin-1"))
               for n, v in response.headers.items()]  # fmt: skip
    start = {"type": f"{prefix}.response.start", "status": response.status, "headers": headers}
    await send(start)
    await send({"type": f"{prefix}.response.body", "body": response.body})
