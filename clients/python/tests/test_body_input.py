"""Tests requests whose body their client cuts: they count, whatever the response."""

from __future__ import annotations

from typing import Any

import flask
import httpx
import pytest
import redis.asyncio
from fastapi import Depends, FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse

from redis_throttle_client import AsyncLimiter, Limiter, Outcome, fixed
from redis_throttle_client._web.body_input import BodyInput
from redis_throttle_client.asgi import RateLimitMiddleware
from redis_throttle_client.fastapi import RateLimits
from redis_throttle_client.wsgi import RateLimitMiddleware as WsgiMiddleware

from .conftest import Server, until
from .served import cut, served, served_wsgi

LIMIT = 2
BUSY: Any = {"silence_ms": 2000, "timeout_ms": 20_000}
seen: list[Outcome] = []


def is_served(outcome: Outcome) -> bool:
    seen.append(outcome)
    return outcome.status == 200


SERVED = fixed("served", LIMIT, "1h", count=is_served)


def cut_all(port: int, begun: list[Any], ended: list[Any], *, resets: bool) -> None:
    """Cuts as many requests as are allowed, and checks that they count and get a 400.

    Before them a complete request gets a 400, which does not count.
    """
    seen.clear()
    assert httpx.post(f"http://127.0.0.1:{port}/", content=b"bad", timeout=60).status_code == 400
    assert len(seen) == 1
    for _ in range(LIMIT):
        response = cut(port, begun, resets=resets)
        # A server for ASGI drops the response to a client that has gone.
        assert response.partition(b"\r\n")[0].endswith((b"400 Bad Request", b""))
    until(lambda: len(ended) == LIMIT + 1)
    assert len(seen) == 1
    assert httpx.post(f"http://127.0.0.1:{port}/", timeout=60).status_code == 429


def cut_all_of(app: Any, server: Server, begun: list[Any], *, resets: bool) -> None:
    """Cuts the requests of a WSGI application behind the middleware."""
    ended: list[Any] = []
    with Limiter(server.client(), **BUSY) as limiter:
        limited: Any = WsgiMiddleware(app, limiter=limiter, rules=SERVED)

        def noted(environ: Any, start_response: Any) -> list[bytes]:
            body = limited(environ, start_response)
            parts = list(body)
            getattr(body, "close", lambda: None)()
            ended.append(environ)
            return parts

        with served_wsgi(noted) as port:
            cut_all(port, begun, ended, resets=resets)


@pytest.mark.live
@pytest.mark.parametrize("resets", [True, False])
@pytest.mark.parametrize("reads", ["all", "parts", "lines"])
def test_a_cut_body_counts_in_wsgi(shared_server: Server, reads: str, resets: bool) -> None:
    begun: list[Any] = []

    def upload(environ: Any, start_response: Any) -> list[bytes]:
        body, length = environ["wsgi.input"], int(environ["CONTENT_LENGTH"])
        begun.append(body)
        try:
            if reads == "all":
                data = body.read(length)
            elif reads == "lines":
                data = b""
                while line := body.readline(length - len(data)):
                    data += line
            else:
                data = body.read(1)
                while part := body.read(min(4, length - len(data))):
                    data += part
            status = "200 OK" if data == b"good" else "400 Bad Request"
        except OSError:
            status = "400 Bad Request"
        start_response(status, [("Content-Type", "text/plain")])
        return [b"done"]

    cut_all_of(upload, shared_server, begun, resets=resets)


@pytest.mark.live
@pytest.mark.parametrize("resets", [True, False])
def test_a_cut_body_counts_in_flask(shared_server: Server, resets: bool) -> None:
    begun: list[Any] = []
    app = flask.Flask(__name__)

    @app.post("/")
    def upload() -> tuple[str, int]:
        begun.append(flask.request)
        # Reads into a buffer, and raises the 400 of a client that has gone.
        return "done", 200 if flask.request.get_data() == b"good" else 400

    cut_all_of(app.wsgi_app, shared_server, begun, resets=resets)


@pytest.mark.live
@pytest.mark.parametrize("resets", [True, False])
@pytest.mark.parametrize("kind", ["middleware", "dependency"])
def test_a_cut_body_counts_in_asgi(shared_server: Server, kind: str, resets: bool) -> None:
    begun: list[Any] = []
    ended: list[Any] = []
    limiter = AsyncLimiter(redis.asyncio.Redis(port=shared_server.port), **BUSY)

    async def upload(request: Request) -> PlainTextResponse:
        begun.append(request)
        data = await request.body()
        return PlainTextResponse("done", 200 if data == b"good" else 400)

    async def refuse(request: Request, error: Exception) -> PlainTextResponse:
        return PlainTextResponse("cut", 400)

    app: Any = FastAPI(exception_handlers={ClientDisconnect: refuse})
    if kind == "dependency":
        limits = RateLimits(limiter)
        limits.install(app)
        app.post("/", dependencies=[Depends(limits.limit(SERVED))])(upload)
    else:
        app.post("/")(upload)
        app = RateLimitMiddleware(app, limiter=limiter, rules=SERVED)

    async def noted(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)
        ended.append(scope)

    with served(noted, limiter) as port:
        cut_all(port, begun, ended, resets=resets)


class Input:
    """A body of which only these parts arrive."""

    closed = False

    def __init__(self, *parts: bytes) -> None:
        self._parts = list(parts)

    def read(self, size: int = -1) -> bytes:
        return self._parts.pop(0) if self._parts else b""

    readline = read

    def read1(self) -> bytes:
        return b"".join(self._parts)


def test_a_server_may_return_less_than_a_read_requests() -> None:
    body = BodyInput(Input(b"ab", b"c", b"", b"d"), "4")
    assert [body.read(4), body.is_cut] == [b"ab", True]
    assert [body.read(1), body.is_cut] == [b"c", False]
    assert [body.read(0), body.is_cut] == [b"", False]
    assert [body.read(), body.is_cut] == [b"d", False]
    assert [body.read(), body.is_cut] == [b"", False]


def test_a_body_without_a_length_ends_anywhere() -> None:
    for length in (None, "", "x", "9" * 5000):
        body = BodyInput(Input(b"a\n"), length)
        assert (body.readlines(), body.is_cut) == ([b"a\n"], False)


def test_a_body_that_is_read_in_another_way_is_not_counted() -> None:
    body = BodyInput(Input(b"a", b"b"), "3")
    assert (hasattr(body, "read1"), body.read(2), body.is_cut) == (True, b"a", True)
    body = BodyInput(Input(b"a", b"b"), "3")
    assert (body.closed, body.read1()) == (False, b"ab")
    body.read()
    assert not body.is_cut
