"""Middleware for WSGI: Flask, Django and every other application.

    app.wsgi_app = RateLimitMiddleware(app.wsgi_app, limiter=limiter, rules=rule)

The decision is ``environ["redis_throttle_client.decision"]``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
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
from ._lease import Lease
from ._limiter import Limiter

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]

__all__ = [
    "App",
    "CostFunction",
    "Environ",
    "KeyFunction",
    "MiddlewareOptions",
    "OnDenied",
    "RateLimitMiddleware",
    "Request",
    "Response",
    "RulesArgument",
    "SkipFunction",
    "StartResponse",
]

_DECISION = "redis_throttle_client.decision"
# The names of the request headers that this package controls; the client's values are removed.
_CLEANED = "redis_throttle_client.cleaned"


class RateLimitMiddleware:
    """Checks each request before the application. Has the options of the ASGI middleware."""

    def __init__(
        self, app: App, *, limiter: Limiter, rules: RulesArgument,
        **options: Unpack[MiddlewareOptions],
    ) -> None:  # fmt: skip
        if not isinstance(limiter, Limiter):
            raise InvalidArgument("limiter: expected a Limiter")
        self._app, self._limiter = app, limiter
        self._plan = Plan.of(rules, **options)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Calls the application, or returns the response to a denial."""
        plan = self._plan
        request = self._request(environ)
        if plan.skip is not None and plan.skip(request):
            return self._app(self._told(environ, None), start_response)
        decision, leases = self._decide(request)
        if decision is None or not decision.allowed:
            answer = plan.denial(request, decision)
            start_response(_status(answer.status), list(answer.headers.items()))
            # Frameworks drop the body of an answer to HEAD, but some servers do not.
            return [] if request.method == "HEAD" else [answer.body]
        return self._serve(environ, start_response, decision, leases)

    def _decide(self, request: Request) -> tuple[Decision | None, list[Lease]]:
        plan: Any = self._plan
        subjects = [key(request) for _, key in plan.rules]
        cost = plan.cost(request) if callable(plan.cost) else plan.cost
        calls = plan.calls(subjects, cost, request.client_address)
        if calls is None:
            return None, []
        tag = None if plan.tag is None else plan.tag(request)
        return self._limiter._admit(calls, tag)

    def _serve(
        self, environ: Environ, start_response: StartResponse, decision: Decision,
        leases: list[Lease],
    ) -> Iterable[bytes]:  # fmt: skip
        fields = decision.headers(self._plan.styles)

        def starting(status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Any:
            present = {name.lower() for name, _ in headers}
            return start_response(status, headers + added(present, fields), *exc_info)

        try:
            body = self._app(self._told(environ, decision), starting)
        except BaseException:
            _release(leases)
            raise
        return _Body(body, leases) if leases else body

    def _request(self, environ: Environ) -> Request:
        def headers(name: str) -> list[str]:
            variable = name.upper().replace("-", "_")
            if variable not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
                variable = "HTTP_" + variable
            value = environ.get(variable)
            return [] if value is None else [value]

        peer = environ.get("REMOTE_ADDR") or None
        address = self._plan.address.find(peer, headers("x-forwarded-for"))
        path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
        return Request(environ["REQUEST_METHOD"], path, environ, address, headers)

    def _told(self, environ: Environ, decision: Decision | None) -> Environ:
        if decision is not None:
            environ[_DECISION] = decision
        else:
            # If this middleware skips the request, the decision of an outer one stays.
            environ.setdefault(_DECISION, None)
        name = self._plan.degraded_header
        if name is not None:
            variable = "HTTP_" + name.upper().replace("-", "_")
            cleaned = environ.setdefault(_CLEANED, set())
            if variable not in cleaned:
                environ.pop(variable, None)
                cleaned.add(variable)
            if decision is not None and decision.degraded:
                environ[variable] = "1"
        return environ


def _status(code: int) -> str:
    try:
        phrase = {413: "Content Too Large"}.get(code) or HTTPStatus(code).phrase
    except ValueError:
        # A handler may answer with an unregistered status.
        phrase = "Denied"
    return f"{code} {phrase}"


def _release(leases: Iterable[Lease]) -> None:
    with contextlib.ExitStack() as stack:
        # Release all of them, even if one raises.
        for lease in leases:
            stack.callback(lease.release)


class _Body:
    """The body of the application. Servers close it at the end, also if the client disconnects."""

    def __init__(self, body: Iterable[bytes], leases: list[Lease]) -> None:
        self._body, self._leases = body, leases

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            _release(self._leases)
