"""Tests that a lease or admission denied in a handler gets the response of the middleware."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi import FastAPI, Request, WebSocket
from flask import Flask
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute

from redis_throttle_client import Denied, fixed, gcra, lease
from redis_throttle_client._web.http import Response
from redis_throttle_client.asgi import RateLimitMiddleware
from redis_throttle_client.fastapi import RateLimits
from redis_throttle_client.testing import FakeServer
from redis_throttle_client.wsgi import RateLimitMiddleware as WsgiMiddleware
from redis_throttle_client.wsgi import denied_response

from .fakes import settled
from .test_middleware import get, wsgi_get
from .test_rest_framework import APIView, rest_framework
from .test_stacked import talk

# Django needs its settings first.
from django.http import HttpResponse  # isort: skip
from django.test import RequestFactory  # isort: skip
from rest_framework.response import Response as ViewResponse  # isort: skip
from redis_throttle_client.django import DeniedMiddleware

API = gcra("api", 6, 10, "60s", count=lambda outcome: outcome.status != 429)
JOBS = lease("jobs", 1, "60s", on_error="deny")
DAY = fixed("day", 5, "1d")
# The status and the title of what each path does.
DENIALS = {
    "/busy": (429, "Too Many Requests"),
    "/dear": (413, "Content Too Large"),
    "/closed": (503, "Service Unavailable"),
}


class Full(FakeServer):
    """A server on which the only job is taken, and 6 units of a day are too many."""

    def _next_scripted(self, command: str) -> Any:
        if command == "RL.LEASE":
            return [0, 1, 0, 60_000, 60_000]
        return [0, 5, 5, -1, 0, 1, [0, 5, 5, -1, 0]]


@pytest.fixture
def server() -> FakeServer:
    return Full()


class Handlers:
    """Handlers that take a lease or an admission, and are denied."""

    def __init__(self, server: FakeServer) -> None:
        self.server, self.limiter = server, server.limiter()
        self.async_limiter = server.async_limiter()

    def work(self, path: str) -> str:
        if path == "/busy":
            with self.limiter.lease(JOBS, "all"):
                return "worked"
        if path == "/closed":
            self.server.fail()
        dear = path == "/dear"
        rule = JOBS if path == "/closed" else DAY
        with self.limiter.admit(rule.of(path[1:]).cost(6) if dear else rule.of(path[1:])):
            return "worked"

    async def async_work(self, path: str) -> str:
        if path == "/busy":
            async with self.async_limiter.lease(JOBS, "all"):
                return "worked"
        if path == "/dear":
            async with self.async_limiter.reserve(DAY, "dear", 6):
                return "worked"
        return self.work(path)


def check(path: str, status: int, headers: Any, body: Any) -> None:
    """Checks that a response is that of the middleware."""
    assert (status, body["title"]) == DENIALS[path]
    assert headers["content-type"] == "application/problem+json"
    assert headers["cache-control"] == "no-store"
    assert ("retry-after" in headers) == (status in (429, 503))


@pytest.mark.anyio
@pytest.mark.parametrize("path", DENIALS)
async def test_a_denial_in_a_starlette_handler(server: FakeServer, path: str) -> None:
    handlers = Handlers(server)

    async def handle(request: Any) -> JSONResponse:
        return JSONResponse(await handlers.async_work(request.url.path))

    skips: list[Any] = [{}, {"skip": lambda request: True}]
    for options in skips:
        server.recover()
        app: Any = Starlette(routes=[Route(path, handle)])
        app.add_middleware(
            RateLimitMiddleware, limiter=server.async_limiter(), rules=API, **options
        )
        denied = await get(app, path)
        check(path, denied.status_code, denied.headers, denied.json())
        policies = denied.headers.get("ratelimit-policy", "")
        assert ('"api";q=6' in policies) == (not options)


@pytest.mark.anyio
@pytest.mark.parametrize("path", DENIALS)
async def test_a_denial_in_a_fastapi_handler(server: FakeServer, path: str) -> None:
    app, handlers = FastAPI(), Handlers(server)
    RateLimits(server.async_limiter(), headers=["draft-11", "x-ratelimit"]).install(app)
    app.get(path)(lambda: handlers.work(path))
    denied = await get(app, path)
    check(path, denied.status_code, denied.headers, denied.json())
    assert ("x-ratelimit-limit" in denied.headers) == (path != "/closed")


@pytest.mark.anyio
async def test_an_application_may_handle_denied_itself(server: FakeServer) -> None:
    for is_first in (True, False):
        app, limits = FastAPI(), RateLimits(server.async_limiter())
        if not is_first:
            limits.install(app)

        @app.exception_handler(Denied)
        async def handle(request: Request, error: Denied) -> JSONResponse:
            return JSONResponse({"rule": error.decision.rule}, 420)

        if is_first:
            limits.install(app)
        app.get("/")(lambda: Handlers(server).work("/busy"))
        assert (await get(app)).json() == {"rule": "jobs"}


@pytest.mark.anyio
async def test_on_denied_replaces_the_response_and_the_request_ends(server: FakeServer) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await Handlers(server).async_work("/busy")

    def on_denied(request: Any, decision: Any, response: Response) -> Response:
        return Response(420, {"X-Rule": decision.rule}, b"")

    limiter = server.async_limiter()
    replacing = RateLimitMiddleware(app, limiter=limiter, rules=API, on_denied=on_denied)
    denied = await get(replacing)
    assert (denied.status_code, denied.headers["x-rule"]) == (420, "jobs")
    # By ``count`` of the rule, the response counts by its status.
    counted = RateLimitMiddleware(app, limiter=limiter, rules=API)
    server.calls.clear()
    assert (await get(counted)).status_code == 429
    await settled()
    assert [call[0] for call in server.calls] == ["RL.GCRA", "RL.LEASE", "RL.REFUND"]


@pytest.mark.anyio
async def test_a_response_that_has_begun_is_not_replaced(server: FakeServer) -> None:
    async def handle(request: Any) -> StreamingResponse:
        async def rows() -> AsyncIterator[str]:
            yield "row"
            await Handlers(server).async_work("/busy")

        return StreamingResponse(rows())

    app: Any = Starlette(routes=[Route("/", handle)])
    app.add_middleware(RateLimitMiddleware, limiter=server.async_limiter(), rules=API)
    response = await get(app)
    assert (response.status_code, response.text) == (200, "row")


@pytest.mark.anyio
@pytest.mark.parametrize("extended", [True, False])
@pytest.mark.parametrize("accepts", [True, False])
@pytest.mark.parametrize("framework", ["starlette", "fastapi"])
async def test_a_denial_in_a_websocket(
    server: FakeServer, extended: bool, accepts: bool, framework: str
) -> None:
    async def socket(websocket: WebSocket) -> None:
        if accepts:
            await websocket.accept()
        await Handlers(server).async_work("/busy")

    if framework == "fastapi":
        app: Any = FastAPI()
        RateLimits(server.async_limiter()).install(app)
        app.websocket("/socket")(socket)
    else:
        app = Starlette(routes=[WebSocketRoute("/socket", socket)])
        app.add_middleware(RateLimitMiddleware, limiter=server.async_limiter(), rules=API)
    messages = await talk(app, extended=extended)
    if accepts:
        assert [one["type"] for one in messages] == ["websocket.accept", "websocket.close"]
        assert messages[-1]["code"] == 1008
    elif extended:
        assert messages[0]["status"] == 429
        assert json.loads(messages[1]["body"])["violated-policies"] == ["jobs"]
    else:
        assert [(one["type"], one["code"]) for one in messages] == [("websocket.close", 1008)]


@pytest.mark.parametrize("path", DENIALS)
@pytest.mark.parametrize("starts", [True, False])
def test_a_denial_in_a_wsgi_application(server: FakeServer, path: str, starts: bool) -> None:
    def app(environ: Any, start_response: Any) -> Any:
        if starts:
            start_response("200 OK", [("Content-Type", "text/plain")])
        return [Handlers(server).work(path).encode()]

    skips: list[Any] = [{}, {"skip": lambda request: True}]
    for options in skips:
        server.recover()
        limited: Any = WsgiMiddleware(app, limiter=server.limiter(), rules=API, **options)
        status, headers, body = wsgi_get(limited)
        check(path, int(status[:3]), headers, json.loads(body))


@pytest.mark.parametrize("path", DENIALS)
def test_a_denial_in_a_flask_view(server: FakeServer, path: str) -> None:
    app = Flask(__name__)
    app.register_error_handler(Denied, denied_response)
    app.add_url_rule(path, "work", lambda: Handlers(server).work(path))
    app.wsgi_app = WsgiMiddleware(  # type: ignore[method-assign]
        app.wsgi_app, limiter=server.limiter(), rules=API
    )
    denied = app.test_client().get(path)
    check(path, denied.status_code, denied.headers, json.loads(denied.data))
    # The client for tests raises an error that is passed to the server.
    plain = Flask(__name__)
    plain.testing = True
    plain.add_url_rule(path, "work", lambda: Handlers(server).work(path))
    skips: list[Any] = [{}, {"skip": lambda request: True}]
    for options in skips:
        server.recover()
        plain.wsgi_app = WsgiMiddleware(  # type: ignore[method-assign]
            Flask.wsgi_app.__get__(plain), limiter=server.limiter(), rules=API, **options
        )
        raised = plain.test_client().get(path)
        check(path, raised.status_code, raised.headers, json.loads(raised.data))
    assert '"api";q=6;w=36' in denied.headers.getlist("ratelimit-policy")


@pytest.mark.anyio
@pytest.mark.parametrize("path", DENIALS)
async def test_a_denial_in_a_django_view(server: FakeServer, path: str) -> None:
    from django.core.handlers.base import BaseHandler

    handlers = Handlers(server)

    def view(request: Any) -> HttpResponse:
        return HttpResponse(handlers.work(path) if request.path == path else b"home")

    async def async_view(request: Any) -> HttpResponse:
        return HttpResponse(await handlers.async_work(path))

    from django.test import override_settings
    from django.urls import path as route

    class Urls:
        urlpatterns = (route("async" + path, async_view), route("home", view),
                       route(path[1:], view))  # fmt: skip

    middleware = [f"{DeniedMiddleware.__module__}.{DeniedMiddleware.__name__}"]
    with override_settings(ROOT_URLCONF=Urls, MIDDLEWARE=middleware):
        handler: Any = BaseHandler()
        handler.load_middleware()
        assert handler.get_response(RequestFactory().get("/home")).content == b"home"
        denied = handler.get_response(RequestFactory().get(path))
        check(path, denied.status_code, denied.headers, json.loads(denied.content))
        server.recover()
        handler.load_middleware(is_async=True)
        denied = await handler.get_response_async(RequestFactory().get(f"/async{path}"))
        check(path, denied.status_code, denied.headers, json.loads(denied.content))


def test_django_handles_other_errors_itself() -> None:
    request = RequestFactory().get("/")
    assert DeniedMiddleware(lambda request: None).process_exception(request, ValueError()) is None


@pytest.mark.parametrize("path", DENIALS)
def test_a_denial_in_a_view_of_rest_framework(server: FakeServer, path: str) -> None:
    class Throttle(rest_framework.RateLimitThrottle):
        limiter = server.limiter()
        rules = API

    class Skips(Throttle):
        def skip(self, request: Any) -> bool:
            return True

    class View(APIView):
        throttle_classes = (Throttle,)

        def get(self, request: Any) -> Any:
            return ViewResponse(Handlers(server).work(path))

    for throttle in (Throttle, Skips):
        server.recover()
        View.throttle_classes = (throttle,)
        denied = View.as_view()(RequestFactory().get(path))
        assert denied.status_code == DENIALS[path][0]
        assert ("Retry-After" in denied.headers) == (denied.status_code in (429, 503))
        assert denied.headers["Cache-Control"] == "no-store"
        if path == "/busy":
            assert '"jobs";q=1' in denied.headers["RateLimit-Policy"]
            assert denied.data["detail"].code == "throttled"
