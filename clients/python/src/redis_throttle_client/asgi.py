"""Middleware for ASGI: Starlette, FastAPI and every other application.

    app.add_middleware(RateLimitMiddleware, limiter=limiter, rules=gcra("api", 10, 10, "1m"))

The decision is at ``request.state.rate_limit``.
"""

from __future__ import annotations

from functools import partial
from typing import Unpack

from ._limiter_async import AsyncLimiter
from ._rules.decision import Decision, Denied
from ._rules.errors import InvalidArgument
from ._web.exchange import App, Exchange, Message, Receive, Scope, Send
from ._web.http import (
    CostFunction,
    KeyFunction,
    MiddlewareOptions,
    OnDenied,
    Request,
    Response,
    RuleFunction,
    RulesArgument,
    SkipFunction,
)
from ._web.request import Plan, resolved_async

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
    "RuleFunction",
    "RulesArgument",
    "Scope",
    "Send",
    "SkipFunction",
]

# The names of the request headers that this package controls; the client's values are removed.
_CLEANED = "redis_throttle_client.cleaned"


class RateLimitMiddleware:
    """Checks each request before the application, with all rules in one call.

    ``rules`` are rules, functions that return the rule of a request, or pairs of one of these and
    its own key function. A rule function that returns None leaves its rule out. ``key`` is the key
    function of the other rules, by default the client's address. If a key function returns None or
    an empty text or raises a LookupError, the rule ``anonymous`` applies to the client's address;
    without that rule the response is 400. ``skip`` returns true for requests that are not limited.
    ``cost`` is the cost of a request. ``tag`` returns the hash tag of the keys of a request, which
    a cluster needs for several rules. All these functions may be async. ``on_denied`` returns the
    response to a denial. ``degraded_header`` is a request header that is ``1`` for the application
    when ``on_error`` decided; the client's own value is removed.

    If the application raises :class:`Denied`, of a lease or an admission, before it responds, the
    response is that to a denial.
    """

    def __init__(
        self, app: App, *, limiter: AsyncLimiter, rules: RulesArgument,
        **options: Unpack[MiddlewareOptions],
    ) -> None:  # fmt: skip
        if not isinstance(limiter, AsyncLimiter):
            raise InvalidArgument("limiter: expected an AsyncLimiter")
        self._app, self._limiter = app, limiter
        self._plan = Plan.of(limiter, rules, **options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Calls the application, or sends the response to a denial."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        plan, (request, forwarded) = self._plan, self._request(scope)
        requested = await resolved_async(plan.items(request, request.client_address, forwarded))
        if requested is None:
            await _respond(plan.denial(request, None), scope, receive, send)
            return
        app = partial(self._run, request)
        if not requested.items:
            await app(self._with_decision(scope, None), receive, send)
            return
        exchange = Exchange(self._limiter, plan.styles, scope, receive, send)
        try:
            decision = (await exchange.take(requested)).decision
        except TimeoutError:
            # The client has gone.
            return
        if decision.allowed:
            await exchange.run(app, self._with_decision(scope, decision))
        else:
            await exchange.run(partial(_respond, plan.denial(request, decision)), scope)

    async def _run(self, request: Request, scope: Scope, receive: Receive, send: Send) -> None:
        """Calls the application. Responds in its place if it raises Denied before it does."""
        is_read = is_begun = is_closed = False

        async def reading() -> Message:
            nonlocal is_read
            is_read = True
            return await receive()

        async def sending(message: Message) -> None:
            nonlocal is_begun, is_closed
            is_begun, is_closed = True, message["type"] == "websocket.close"
            await send(message)

        try:
            await self._app(scope, reading, sending)
        except Denied as error:
            if not is_begun:
                response = self._plan.denial(request, error.decision)
                await _respond(response, scope, None if is_read else receive, send)
            elif scope["type"] == "websocket" and not is_closed:
                await _close(send)
            else:
                raise

    def _request(self, scope: Scope) -> tuple[Request, list[str]]:
        """Returns the request and its values of X-Forwarded-For."""

        def headers(name: str) -> list[str]:
            wanted = name.encode("latin-1")
            return [
                value.decode("latin-1") for key, value in scope["headers"] if key.lower() == wanted
            ]

        client = scope.get("client")
        peer = client[0] if client else None
        forwarded = headers("x-forwarded-for")
        address = self._plan.client(peer, forwarded)
        method = scope.get("method", "GET")
        return Request(method, scope.get("path", ""), scope, address, headers), forwarded

    def _with_decision(self, scope: Scope, decision: Decision | None) -> Scope:
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
        cleaned: frozenset[bytes] = scope.get(_CLEANED, frozenset())
        if raw in cleaned and not degraded:
            return scope
        headers = [item for item in scope["headers"] if item[0].lower() != raw]
        if degraded:
            headers.append((raw, b"1"))
        return {**scope, "headers": headers, _CLEANED: cleaned | {raw}}


async def _respond(response: Response, scope: Scope, receive: Receive | None, send: Send) -> None:
    """Sends the complete response. Refuses a websocket before it is accepted.

    ``receive`` is None if the application has received the first message.
    """
    prefix = "http"
    if scope["type"] == "websocket":
        if receive is not None:
            await receive()
        if "websocket.http.response" not in (scope.get("extensions") or {}):
            await _close(send)
            return
        prefix = "websocket.http"
    headers = [(n.lower().encode("latin-1"), v.encode("latin-1"))
               for n, v in response.headers.items()]  # fmt: skip
    start = {"type": f"{prefix}.response.start", "status": response.status, "headers": headers}
    await send(start)
    await send({"type": f"{prefix}.response.body", "body": response.body})


async def _close(send: Send) -> None:
    """Closes a websocket for the violation of a policy."""
    await send({"type": "websocket.close", "code": 1008})
