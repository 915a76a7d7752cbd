"""Middleware for WSGI: Flask, Django and every other application.

    app.wsgi_app = RateLimitMiddleware(app.wsgi_app, limiter=limiter, rules=rule)

The decision is ``environ["redis_throttle_client.decision"]``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Any, Unpack

from ._holds.lease import Lease, release_soon
from ._limiter import Limiter
from ._rules.decision import Decision, Denied
from ._rules.errors import InvalidArgument
from ._rules.outcome import Outcome
from ._web.body_input import BodyInput
from ._web.counting import Decided, refund, take
from ._web.http import (
    DECISION,
    CostFunction,
    KeyFunction,
    MiddlewareOptions,
    OnDenied,
    Request,
    Response,
    RuleFunction,
    RulesArgument,
    SkipFunction,
    added,
    denial,
)
from ._web.request import Plan, resolved

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
    "RuleFunction",
    "RulesArgument",
    "SkipFunction",
    "StartResponse",
    "denied_response",
]

# The names of the request headers that this package controls; the client's values are removed.
_CLEANED = "redis_throttle_client.cleaned"


class RateLimitMiddleware:
    """Checks each request before the application. Has the options of the ASGI middleware.

    A :class:`Denied` that the application raises is a denial, as there. The functions must not be
    async.
    """

    def __init__(
        self, app: App, *, limiter: Limiter, rules: RulesArgument,
        **options: Unpack[MiddlewareOptions],
    ) -> None:  # fmt: skip
        if not isinstance(limiter, Limiter):
            raise InvalidArgument("limiter: expected a Limiter")
        self._app, self._limiter = app, limiter
        self._plan = Plan.of(limiter, rules, **options)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Calls the application, or returns the response to a denial."""
        plan, (request, forwarded) = self._plan, self._request(environ)
        requested = resolved(plan.items(request, request.client_address, forwarded))
        if requested is None:
            return _respond(request, plan.denial(request, None), start_response)
        if not requested.items:
            start = _Start(start_response)
            try:
                return self._app(self._with_decision(environ, None), start)
            except Denied as error:
                denied = plan.denial(request, error.decision)
                return _respond(request, denied, start, *start.replaced())
        taken, leases = take(self._limiter, requested)
        if not taken.decision.allowed:
            return _respond(request, plan.denial(request, taken.decision), start_response)
        fields = taken.decision.headers(plan.styles)
        ending = _Ending(self._limiter, taken, leases, environ)
        start = _Start(start_response)

        def starting(status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Any:
            ending.status = int(status[:3]) if status[:3].isdecimal() else None
            present = {name.lower() for name, _ in headers}
            return start(status, headers + added(present, fields), *exc_info)

        try:
            body = self._app(self._with_decision(environ, taken.decision), starting)
        except Denied as error:
            denied = plan.denial(request, error.decision)
            body = _respond(request, denied, starting, *start.replaced())
        except BaseException as error:
            ending.end(error)
            raise
        if ending.is_empty:
            return body
        # Servers need not read the body for HEAD.
        return _Body(body, ending, is_read=environ["REQUEST_METHOD"] != "HEAD")

    def _request(self, environ: Environ) -> tuple[Request, list[str]]:
        """Returns the request and its values of X-Forwarded-For."""

        def headers(name: str) -> list[str]:
            variable = name.upper().replace("-", "_")
            if variable not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
                variable = "HTTP_" + variable
            value = environ.get(variable)
            return [] if value is None else [value]

        peer = environ.get("REMOTE_ADDR") or None
        forwarded = headers("x-forwarded-for")
        address = self._plan.client(peer, forwarded)
        path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
        return Request(environ["REQUEST_METHOD"], path, environ, address, headers), forwarded

    def _with_decision(self, environ: Environ, decision: Decision | None) -> Environ:
        if decision is not None:
            environ[DECISION] = decision
        else:
            # If this middleware skips the request, the decision of an outer one stays.
            environ.setdefault(DECISION, None)
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
        # A handler may respond with an unregistered status.
        phrase = "Denied"
    return f"{code} {phrase}"


def denied_response(error: Denied) -> tuple[bytes, int, dict[str, str]]:
    """Returns the body, the status and the header fields of a denied lease or admission.

    The middleware responds so to a Denied that reaches it. Flask itself handles the errors of its
    views, so it needs this function:

        app.register_error_handler(Denied, denied_response)
    """
    response = denial(error.decision, ("draft-11",))
    return response.body, response.status, dict(response.headers)


def _respond(
    request: Request, response: Response, start_response: StartResponse, *exc_info: Any
) -> Iterable[bytes]:  # fmt: skip
    start_response(_status(response.status), list(response.headers.items()), *exc_info)
    # Frameworks drop the body of a response to HEAD, but some servers do not.
    return [] if request.method == "HEAD" else [response.body]


class _Start:
    """The function of the server that begins a response."""

    def __init__(self, start_response: StartResponse) -> None:
        self._start, self._is_called = start_response, False

    def __call__(self, *given: Any) -> Any:
        self._is_called = True
        return self._start(*given)

    def replaced(self) -> tuple[Any, ...]:
        """Returns the error that is handled, if the application began a response before it.

        Without such a response, test clients would raise an error that is passed.
        """
        return (sys.exc_info(),) if self._is_called else ()


class _Ending:
    """The work at the end of a request: refunds and releases.

    ``status`` is that of the application, None until it begins its response.
    """

    def __init__(
        self, limiter: Limiter, taken: Decided, leases: list[Lease], environ: Environ
    ) -> None:  # fmt: skip
        self._limiter, self._leases = limiter, leases
        self._taken = None if taken.requested.counts_all else taken
        self.status: int | None = None
        if self._taken is not None:
            self._input = BodyInput(environ.get("wsgi.input"), environ.get("CONTENT_LENGTH"))
            environ["wsgi.input"] = self._input

    @property
    def is_empty(self) -> bool:
        return self._taken is None and not self._leases

    def refund(self, error: BaseException | None = None) -> None:
        """Refunds what does not count. Later calls do nothing.

        A request whose body its client cut counts, as one whose client has left.
        """
        taken, self._taken = self._taken, None
        if taken is not None and not self._input.is_cut:
            status = self.status if error is None else None
            refund(self._limiter, taken, Outcome(status, error))

    def count(self) -> None:
        """Refunds nothing, because the client has left before the head of the response."""
        self._taken = None

    def end(self, error: BaseException | None = None) -> None:
        """Releases the leases in the background, and refunds what does not count."""
        release_soon(self._leases)
        self.refund(error)


class _Body:
    """The body of the application. Servers close it at the end, also if the client disconnects.

    The server sends the head with the first part, so the status is final then. The refund comes
    first: the next request of a client that has the response has its units. A body that is closed
    before its first part, although the server would send it, has lost its client.
    """

    def __init__(self, body: Iterable[bytes], ending: _Ending, *, is_read: bool) -> None:
        self._body, self._ending = body, ending
        self._is_awaited = is_read

    def __iter__(self) -> Iterator[bytes]:
        parts = iter(self._body)
        while True:
            try:
                part = next(parts)
            except StopIteration:
                self._is_awaited = False
                return
            except BaseException as error:
                self._ending.refund(error)
                raise
            if part:
                self._is_awaited = False
                self._ending.refund()
            yield part

    def close(self) -> None:
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            if self._is_awaited:
                self._ending.count()
            self._ending.end()
