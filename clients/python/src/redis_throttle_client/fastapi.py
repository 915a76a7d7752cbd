"""Limits of FastAPI routes, as dependencies.

    limits = RateLimits(limiter)
    limits.install(app)

    @app.get("/", dependencies=[Depends(limits.limit(gcra("api", 10, 10, "1m")))])

Needs the extra ``fastapi``. The middleware of :mod:`.asgi` limits a whole application instead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Never

from fastapi import FastAPI, HTTPException, Request, Response, WebSocket, routing
from fastapi.requests import HTTPConnection
from fastapi.websockets import WebSocketState
from starlette.applications import Starlette

from ._limiter_async import AsyncLimiter
from ._rules.decision import Decision, Denied
from ._rules.errors import InvalidArgument
from ._rules.headers import HeaderStyle
from ._rules.problem import TITLES
from ._rules.rule import Rule
from ._web.counting import RequestItems
from ._web.exchange import App, Exchange, Receive, Scope, Send
from ._web.http import denial, problem
from ._web.request import Plan, resolved_async
from ._web.stacked import following, groups, once, parts

__all__ = [
    "CostFunction",
    "KeyFunction",
    "RateLimited",
    "RateLimits",
    "RuleFunction",
    "RulesArgument",
    "SkipFunction",
]

Subject = str | int | None
KeyFunction = Callable[[Request], Subject | Awaitable[Subject]]
SkipFunction = Callable[[Request], bool | Awaitable[bool]]
CostFunction = Callable[[Request], int | Awaitable[int]]
RuleFunction = Callable[[Request], Rule | Awaitable[Rule | None] | None]
"""Returns the rule of a request, or None to leave this rule out."""

RulesArgument = (
    Rule | RuleFunction | Sequence[Rule | RuleFunction | tuple[Rule | RuleFunction, KeyFunction]]
)
_SCHEMA = "RateLimitProblem"
# The status for a client that has gone, which never receives it.
_GONE = 499


class RateLimited(HTTPException):
    """Denies the request: 403, 413, 429 or 503; or 400, if it has no subject.

    ``decision`` is the denial, None without a subject. The response is a problem (RFC 9457), unless
    the application has an exception handler of its own for this class.
    """

    def __init__(self, decision: Decision | None, styles: Sequence[HeaderStyle]) -> None:
        body = problem(decision)
        fields = {} if decision is None else decision.headers(styles)
        super().__init__(body["status"], body["detail"], fields)
        self.decision = decision
        self._response = denial(decision, styles)


class RateLimits:
    """The limits of the routes of an application.

    ``headers`` are the styles of the header fields. ``trusted_proxies`` are addresses, networks or
    ``unix``, whose ``X-Forwarded-For`` gives the client's address. Without them the first such
    header is logged; an empty list says that there is no proxy.
    """

    def __init__(
        self, limiter: AsyncLimiter, *, headers: Sequence[HeaderStyle] = ("draft-11",),
        trusted_proxies: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(limiter, AsyncLimiter):
            raise InvalidArgument("limiter: expected an AsyncLimiter")
        self._limiter, self._styles, self._proxies = limiter, headers, trusted_proxies
        self._plans: dict[Callable[..., Any], Plan] = {}
        self._name = f"redis_throttle_client.limits.{id(self)}"

    def install(self, app: FastAPI) -> None:
        """Adds the header fields, the responses to denials and their documentation to ``app``.

        A :class:`Denied` of a lease or an admission in a handler is a denial too. Applications that
        are mounted in ``app`` have the fields and the responses too.
        """
        app.add_middleware(_Middleware, limits=self, outer=app)
        app.add_exception_handler(RateLimited, self._respond)
        # An application may have its own handler already.
        app.exception_handlers.setdefault(Denied, self._respond)
        openapi = app.openapi

        def documented() -> dict[str, Any]:
            schema = openapi()
            self._document(app, schema)
            return schema

        app.openapi = documented  # type: ignore[method-assign]

    def limit(
        self, rules: RulesArgument, *more: Never, key: KeyFunction | None = None,
        cost: int | CostFunction = 1, skip: SkipFunction | None = None,
        anonymous: Rule | None = None, tag: KeyFunction | None = None,
    ) -> Callable[[HTTPConnection], Awaitable[Decision | None]]:  # fmt: skip
        """Returns a dependency that checks all rules in one call.

        Its value is the decision; None if ``skip`` or the rules leave the request out. It raises
        :class:`RateLimited`. The options are those of
        :class:`redis_throttle_client.asgi.RateLimitMiddleware`; the functions take FastAPI's
        request, or the websocket of a route for these.

        Dependencies that follow one another, also of an application, a router and a route, are one
        call, which takes from all or from none. Another dependency between them, as one that
        authenticates, divides the calls; so do different hash tags, and in a cluster slots. Their
        functions run before the call; if one refuses the request, the limits before it count it. A
        rule that stands there twice with the same subject counts once, with the higher cost.

        A handler may also call the dependency with its request or websocket, for example for each
        message. Each such call checks this limit alone.
        """
        if more:
            raise InvalidArgument("rules: expected one list, such as limit([first, second])")
        plan = Plan.of(
            self._limiter, rules, key=key, cost=cost, skip=skip, anonymous=anonymous, tag=tag,
            headers=self._styles, trusted_proxies=self._proxies,
        )  # fmt: skip

        async def limited(
            connection: HTTPConnection,
            response: Response = None,  # type: ignore[assignment]
        ) -> Decision | None:
            # Only FastAPI passes a response, when it solves the dependencies.
            is_dependency = response is not None
            return await self._check(limited, connection, is_dependency=is_dependency)

        self._plans[limited] = plan
        return limited

    async def _check(
        self, limited: Callable[..., Any], connection: HTTPConnection, *, is_dependency: bool
    ) -> Decision | None:
        """Returns the decision of a limit. A dependency also decides those that follow it."""
        exchange = connection.scope.get(self._name)
        if exchange is None:
            raise InvalidArgument("app: RateLimits.install(app) was not called")
        decided: dict[Callable[..., Any], Decision | None] = exchange.decided
        stacked = [limited]
        if is_dependency:
            if limited in decided:
                return decided.pop(limited)
            if limited not in exchange.seen:
                stacked = following(limited, connection.scope, self._plans)
                stacked = [one for one in stacked if one not in exchange.seen]
                exchange.seen.update(stacked)
        requested, failure = list[RequestItems](), None
        for one in stacked:
            try:
                requested.append(await self._items(self._plans[one], connection))
            except Exception as error:
                # The limits before this one count its failures, such as guesses of a key.
                failure = error
                break
        decisions = await self._decide(exchange, requested)
        if failure is not None:
            raise failure
        decided.update(zip(stacked[1:], decisions[1:], strict=True))
        return decisions[0]

    async def _decide(
        self, exchange: Exchange, requested: Sequence[RequestItems]
    ) -> list[Decision | None]:  # fmt: skip
        """Returns the decisions of limits that follow one another. Raises for a denial."""
        requested, places = once(requested)
        decisions = list[Decision]()
        for group in groups(self._limiter, requested):
            items = [item for at in group for item in requested[at].items]
            try:
                taken = await exchange.take(RequestItems(items, requested[group[0]].tag))
            except TimeoutError:
                raise HTTPException(_GONE) from None
            if not taken.decision.allowed:
                raise RateLimited(taken.decision, self._styles)
            decisions.append(taken.decision)
        return parts(decisions, places)

    async def _items(self, plan: Plan, connection: HTTPConnection) -> RequestItems:
        peer = connection.client.host if connection.client else None
        forwarded = connection.headers.getlist("x-forwarded-for")
        address = plan.client(peer, forwarded)
        requested = await resolved_async(plan.items(connection, address, forwarded))
        if requested is None:
            raise RateLimited(None, plan.styles)
        return requested

    async def _respond(self, connection: Any, error: Exception) -> Any:
        """Responds to a denial. Closes a websocket that cannot have a response any more."""
        if isinstance(error, RateLimited):
            denied = error._response
        elif isinstance(error, Denied):
            denied = denial(error.decision, self._styles)
        else:
            raise error
        response = Response(denied.body, denied.status, dict(denied.headers))
        if not isinstance(connection, WebSocket):
            return response
        is_new = connection.application_state is WebSocketState.CONNECTING
        if is_new and "websocket.http.response" in (connection.scope.get("extensions") or {}):
            # Older versions of Starlette ignore the response that is returned.
            await connection.send_denial_response(response)
        else:
            await connection.close(1008)
        return None

    def _document(self, app: FastAPI, schema: dict[str, Any]) -> None:
        """Adds the responses to denials to the operations that have a limit."""
        # Newer versions of FastAPI keep the routes of included routers in a tree.
        routes: Iterable[Any] = getattr(routing, "iter_route_contexts", list)(app.routes)
        for route in routes:
            tree = getattr(route, "dependant", None)
            if tree is None or self._plans.keys().isdisjoint(_calls(tree)):
                continue
            components = schema.setdefault("components", {})
            components.setdefault("schemas", {}).setdefault(_SCHEMA, _PROBLEM)
            operations = schema.get("paths", {}).get(route.path_format, {})
            for method in getattr(route, "methods", None) or ():
                responses = operations.get(method.lower(), {}).get("responses", {})
                for status, response in _RESPONSES.items():
                    responses.setdefault(status, response)


class _Exchange(Exchange):
    """An exchange, with the decisions of limits whose dependencies are not called yet.

    ``seen`` are the limits that were checked as dependencies.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.decided: dict[Callable[..., Any], Decision | None] = {}
        self.seen: set[Callable[..., Any]] = set()


class _Middleware:
    """Gives each request its exchange, to which the limits of its route add what they took."""

    def __init__(self, app: App, limits: RateLimits, outer: FastAPI) -> None:
        self._app, self._limits = app, limits
        # At the first request all applications are mounted, and their own stacks not built.
        for mounted in _mounted(outer.routes):
            for error in (RateLimited, Denied):
                mounted.exception_handlers.setdefault(error, limits._respond)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limits = self._limits
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(limits._limiter, limits._styles, scope, receive, send)
        scope[limits._name] = exchange
        await exchange.run(self._app, scope)


def _mounted(routes: Iterable[Any]) -> Iterator[Starlette]:
    """Yields the applications that are mounted at routes, also those that are mounted in these."""
    for route in routes:
        app = getattr(route, "app", None)
        if isinstance(app, Starlette):
            yield app
        # The routes of a mount are those of what is mounted.
        yield from _mounted(getattr(route, "routes", None) or ())


def _calls(tree: Any) -> Iterable[Any]:
    """Returns the functions of the dependencies of a route, and of those that these have."""
    for one in tree.dependencies:
        yield one.call
        yield from _calls(one)


_PROBLEM = {
    "title": "Problem",
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "violated-policies": {"type": "array", "items": {"type": "string"}},
    },
}
_CONTENT = {"application/problem+json": {"schema": {"$ref": f"#/components/schemas/{_SCHEMA}"}}}
_RETRY = {"Retry-After": {"description": "Seconds", "schema": {"type": "integer"}}}
_RESPONSES = {
    str(status): {"description": title, "content": _CONTENT}
    | ({"headers": _RETRY} if status in (429, 503) else {})
    for status, title in TITLES.items()
}
