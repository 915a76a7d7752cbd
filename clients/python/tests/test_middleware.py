"""Tests the middlewares over applications in this process, with the fake server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from redis_throttle_client import InvalidArgument, fixed, gcra, lease
from redis_throttle_client._web import request
from redis_throttle_client._web.counting import Once
from redis_throttle_client._web.http import Request
from redis_throttle_client.asgi import RateLimitMiddleware
from redis_throttle_client.testing import FakeServer
from redis_throttle_client.wsgi import RateLimitMiddleware as WsgiMiddleware

from .conftest import until
from .fakes import Granting, settled

API = gcra("api", 6, 10, "60s")
JOBS = lease("jobs", 1, "60s")
PEER = ("192.0.2.7", 4711)


@pytest.fixture
def server() -> Granting:
    return Granting()


async def home(request: StarletteRequest) -> JSONResponse:
    decision = request.state.rate_limit
    return JSONResponse(
        {
            "remaining": decision.remaining if decision else None,
            "degraded": request.headers.get("x-degraded"),
        }
    )


async def parts(request: StarletteRequest) -> StreamingResponse:
    async def body() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    return StreamingResponse(body())


async def fails(request: StarletteRequest) -> JSONResponse:
    raise ZeroDivisionError


async def socket(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text("hello")
    await websocket.close()


def app(server: FakeServer, rules: Any = API, **options: Any) -> Starlette:
    routes = [
        Route("/", home), Route("/parts", parts), Route("/fails", fails),
        WebSocketRoute("/socket", socket),
    ]  # fmt: skip
    limited = Starlette(routes=routes)
    limiter_options = options.pop("limiter_options", {})
    limiter = server.async_limiter(**limiter_options)
    limited.add_middleware(RateLimitMiddleware, limiter=limiter, rules=rules, **options)
    return limited


async def get(app: Any, path: str = "/", *, peer: Any = PEER, **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(app, client=peer, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await client.get(path, headers=named)


@pytest.mark.anyio
async def test_a_middleware_that_skips_a_request_keeps_the_decision_of_an_outer_one(
    server: FakeServer,
) -> None:
    """A regression: the inner middleware set the decision to None and removed the header."""
    inner = app(server, skip=lambda request: True, degraded_header="X-Degraded")
    limited = RateLimitMiddleware(
        inner, limiter=server.async_limiter(), rules=API, degraded_header="X-Degraded"
    )
    assert (await get(limited)).json()["remaining"] == 5
    server.fail()
    assert (await get(limited, x_degraded="no")).json()["degraded"] == "1"


@pytest.mark.anyio
async def test_a_key_function_that_fails_on_a_missing_header_is_a_400_and_logged_once(
    server: FakeServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "_warned", Once())
    limited = app(server, key=lambda request: request.header("x-user").lower())
    assert [(await get(limited)).status_code for _ in range(2)] == [400, 400]
    assert caplog.text.count("<lambda> failed") == 1

    def refused(request: Request) -> str:
        raise PermissionError

    assert (await get(app(server, key=refused))).status_code == 500


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/parts", "/fails", "/"])
async def test_a_lease_ends_with_the_response(server: FakeServer, path: str) -> None:
    limited = app(server, [JOBS, API])
    await get(limited, path)
    await settled()
    assert [call[0] for call in server.calls] == ["RL.ALL", "RL.RELEASE"]
    assert (await get(limited)).status_code == 200


@pytest.mark.anyio
@pytest.mark.parametrize("sends", [False, True])
async def test_application_headers_may_be_missing_or_an_iterator(
    server: FakeServer, sends: bool
) -> None:
    async def bare(scope: Any, receive: Any, send: Any) -> None:
        theirs = {"headers": iter([(b"x-once", b"1")])} if sends else {}
        await send({"type": "http.response.start", "status": 200, **theirs})
        await send({"type": "http.response.body", "body": b"bare"})

    limited = RateLimitMiddleware(bare, limiter=server.async_limiter(), rules=API)
    response = await get(limited)
    assert response.headers["ratelimit"] == '"api";r=5;t=6'
    assert ("x-once" in response.headers) == sends


@pytest.mark.anyio
async def test_a_lease_ends_when_the_client_disconnects(server: FakeServer) -> None:
    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            raise OSError("the client has gone")

    scope = {
        "type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b"",
        "headers": [], "client": PEER, "server": ("t", 80), "scheme": "http",
        "http_version": "1.1", "root_path": "",
    }  # fmt: skip
    with pytest.raises(OSError, match="gone"):
        await RateLimitMiddleware(
            app(server), limiter=server.async_limiter(), rules=JOBS
        )(scope, receive, send)  # fmt: skip
    await settled()
    assert server.calls[-1][0] == "RL.RELEASE"


@pytest.mark.anyio
@pytest.mark.parametrize("extended", [False, True])
async def test_websockets_are_limited_too(server: FakeServer, extended: bool) -> None:
    limited = RateLimitMiddleware(
        app(server), limiter=server.async_limiter(), rules=fixed("one", 1, "1h")
    )

    async def talk() -> list[Any]:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            sent.append(message)

        extensions: dict[str, Any] = {"websocket.http.response": {}} if extended else {}
        scope = {
            "type": "websocket", "path": "/socket", "headers": [], "client": PEER,
            "query_string": b"", "root_path": "", "subprotocols": [], "extensions": extensions,
        }  # fmt: skip
        await limited(scope, receive, send)
        return sent

    assert [one["type"] for one in await talk()][:2] == ["websocket.accept", "websocket.send"]
    denied = await talk()
    if extended:
        assert denied[0]["status"] == 429
        assert denied[1]["type"] == "websocket.http.response.body"
    else:
        assert denied == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize(
    "options",
    [{"rules": []}, {"rules": [API, API]}, {"headers": ["x"]}, {"headers": "draft-11"},
     {"trusted_proxies": ["x"]}, {"trusted_proxies": "10.0.0.0/8"}, {"rules": JOBS, "cost": 2},
     {"degraded_header": ""}, {"degraded_header": "X Degraded"}, {"degraded_header": "X-Ü"},
     {"degraded_header": "X-A\r\nX-B"}],
)  # fmt: skip
def test_invalid_options_are_rejected_at_setup(server: FakeServer, options: dict[str, Any]) -> None:
    kinds: list[tuple[Any, Any]] = [
        (RateLimitMiddleware, server.async_limiter()),
        (WsgiMiddleware, server.limiter()),
    ]
    for kind, limiter in kinds:
        with pytest.raises(InvalidArgument):
            kind(None, **({"limiter": limiter, "rules": API} | options))
        with pytest.raises(InvalidArgument, match="limiter"):
            kind(None, limiter=object(), rules=API)


# -- WSGI ---------------------------------------------------------------------------------------


class Parts:
    """A body that records that it was closed."""

    closed = False

    def __iter__(self) -> Iterator[bytes]:
        yield b"one"
        yield b"two"

    def close(self) -> None:
        self.closed = True


def wsgi_get(app: Any, **environ: str) -> tuple[str, dict[str, str], bytes]:
    found: list[Any] = []

    def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        found[:] = [status, {name.lower(): value for name, value in headers}]
        return lambda data: None

    given: dict[str, Any] = {"QUERY_STRING": "", "REMOTE_ADDR": "192.0.2.7", **environ}
    setup_testing_defaults(given)
    body = validator(app)(given, start)
    data = b"".join(body)
    body.close()  # type: ignore[attr-defined]
    return found[0], found[1], data


def wsgi_app(environ: dict[str, Any], start: Any) -> Any:
    start("200 OK", [("Content-Type", "text/plain")])
    decision = environ["redis_throttle_client.decision"]
    return [f"{decision and decision.remaining} {environ.get('HTTP_X_DEGRADED')}".encode()]


def test_wsgi_releases_the_lease_when_the_body_is_closed(server: FakeServer) -> None:
    parts = Parts()

    def streams(environ: dict[str, Any], start: Any) -> Any:
        start("200 OK", [("Content-Type", "text/plain")])
        return parts

    limited = WsgiMiddleware(streams, limiter=server.limiter(), rules=JOBS)
    body: Any = limited({"REQUEST_METHOD": "GET", "REMOTE_ADDR": "192.0.2.7"}, lambda *args: None)
    next(iter(body))
    assert [call[0] for call in server.calls] == ["RL.LEASE"]
    body.close()
    assert parts.closed
    until(lambda: [call[0] for call in server.calls] == ["RL.LEASE", "RL.RELEASE"])


def test_wsgi_releases_the_lease_when_the_application_fails(server: FakeServer) -> None:
    def fails(environ: dict[str, Any], start: Any) -> Any:
        raise ZeroDivisionError

    limited = WsgiMiddleware(fails, limiter=server.limiter(), rules=JOBS)
    with pytest.raises(ZeroDivisionError):
        limited({"REQUEST_METHOD": "GET", "REMOTE_ADDR": "192.0.2.7"}, lambda *args: None)
    until(lambda: server.calls[-1][0] == "RL.RELEASE")
