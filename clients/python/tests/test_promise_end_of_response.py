"""Tests edge cases of the middlewares: the end of a response, and unusual requests."""

from __future__ import annotations

from typing import Any

import pytest

from redis_throttle_client import fixed, gcra, lease
from redis_throttle_client._web.http import Request, Response
from redis_throttle_client.asgi import RateLimitMiddleware
from redis_throttle_client.testing import FakeServer
from redis_throttle_client.wsgi import RateLimitMiddleware as WsgiMiddleware

from .conftest import until
from .fakes import Granting, settled
from .test_middleware import API, JOBS, PEER, get, wsgi_app, wsgi_get

ONE = fixed("one", 1, "1h")


@pytest.fixture
def server() -> Granting:
    return Granting()


def released(server: FakeServer) -> int:
    return [call[0] for call in server.calls].count("RL.RELEASE")


# -- ASGI -----------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_lease_is_held_until_the_last_part_of_the_body(server: FakeServer) -> None:
    found: list[int] = []

    async def streams(scope: Any, receive: Any, send: Any) -> None:
        found.append(released(server))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for more in (True, True, False):
            found.append(released(server))
            await send({"type": "http.response.body", "body": b"part", "more_body": more})
        # The application's work after the response does not delay the release.
        await settled()
        found.append(released(server))

    limited = RateLimitMiddleware(streams, limiter=server.async_limiter(), rules=JOBS)
    assert (await get(limited)).text == "part" * 3
    assert found == [0, 0, 0, 0, 1]
    assert released(server) == 1


@pytest.mark.anyio
async def test_a_lease_is_held_as_long_as_a_websocket(server: FakeServer) -> None:
    found: list[int] = []

    async def talks(scope: Any, receive: Any, send: Any) -> None:
        for kind in ("websocket.accept", "websocket.send", "websocket.close"):
            await send({"type": kind})
            found.append(released(server))

    async def nothing(*_: Any) -> Any:
        return {"type": "websocket.connect"}

    limited = RateLimitMiddleware(talks, limiter=server.async_limiter(), rules=JOBS)
    scope = {"type": "websocket", "path": "/", "headers": [], "client": PEER}
    await limited(scope, nothing, nothing)
    assert found == [0, 0, 0]
    await settled()
    assert released(server) == 1


@pytest.mark.anyio
async def test_the_lifespan_of_an_application_is_not_limited(server: FakeServer) -> None:
    seen: list[Any] = []

    async def lives(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)

    limited = RateLimitMiddleware(lives, limiter=server.async_limiter(), rules=ONE)
    scope = {"type": "lifespan", "state": {}}
    await limited(scope, None, None)  # type: ignore[arg-type]
    assert seen == [{"type": "lifespan", "state": {}}]
    assert server.calls == []


@pytest.mark.anyio
async def test_headers_of_the_application_are_kept_once(server: FakeServer) -> None:
    theirs = [(b"ratelimit-limit", b"7"), (b"ratelimit", b'"theirs";r=1;t=1')]

    async def responds(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": theirs})
        await send({"type": "http.response.body"})

    limited = RateLimitMiddleware(
        responds, limiter=server.async_limiter(), rules=ONE, headers=["draft-11", "draft-6"]
    )
    headers = (await get(limited)).headers
    assert headers.get_list("ratelimit-limit") == ["7"]
    assert headers.get_list("ratelimit") == ['"theirs";r=1;t=1', '"one";r=0;t=3600']
    assert headers["ratelimit-remaining"] == "0"


# -- WSGI -----------------------------------------------------------------------------------------


def test_wsgi_responds_to_head_without_a_body(server: FakeServer) -> None:
    limited = WsgiMiddleware(wsgi_app, limiter=server.limiter(), rules=ONE)
    wsgi_get(limited)
    denied = wsgi_get(limited)
    status, headers, body = wsgi_get(limited, REQUEST_METHOD="HEAD")
    assert (status, headers, body) == (*denied[:2], b"")
    assert int(headers["content-length"]) == len(denied[2])


def test_wsgi_has_the_options_of_asgi(server: FakeServer) -> None:
    def on_denied(request: Request, decision: Any, response: Response) -> Response:
        return Response(499, {**response.headers, "X-Path": request.path}, b"slower")

    limited = WsgiMiddleware(
        wsgi_app, limiter=server.limiter(), rules=[API, (fixed("day", 9, "1d"), lambda _: "acme")],
        cost=lambda request: int(request.header("x-cost") or 1), tag=lambda request: "t",
        skip=lambda request: request.path == "/health", headers=["draft-6", "x-ratelimit"],
        on_denied=on_denied, degraded_header="X-Degraded",
    )  # fmt: skip
    health = {"SCRIPT_NAME": "", "PATH_INFO": "/health"}
    assert wsgi_get(limited, **health, HTTP_X_DEGRADED="1")[2] == b"None None"
    assert server.calls == []
    _, headers, body = wsgi_get(limited, HTTP_X_COST="4", HTTP_X_DEGRADED="1")
    assert body == b"2 None"
    assert (headers["ratelimit-remaining"], headers["x-ratelimit-limit"]) == ("2", "6")
    assert "ratelimit" not in headers
    assert server.calls[0] == (
        "RL.ALL", "rl:{t}:api:192.0.2.7", "GCRA 6 10 60 COST 4",
        "rl:{t}:day:acme", "FIXED 9 86400 COST 4",
    )  # fmt: skip
    server.limiter().check(gcra("api", 6, 10, "60s"), "192.0.2.7", 6, tag="t")
    server.limiter().check(gcra("api", 6, 10, "60s"), "192.0.2.7", 2, tag="t")
    status, headers, body = wsgi_get(limited, SCRIPT_NAME="", PATH_INFO="/x")
    assert (status[:3], headers["x-path"], body) == ("499", "/x", b"slower")
    assert headers["ratelimit-remaining"] == "0"


@pytest.mark.parametrize("closes", [True, False])
def test_wsgi_releases_the_lease_even_if_closing_the_body_fails(
    server: FakeServer, closes: bool
) -> None:
    class Broken(list[bytes]):
        def close(self) -> None:
            raise OSError("the file is gone")

    def streams(environ: Any, start: Any) -> Any:
        start("200 OK", [("Content-Type", "text/plain")])
        return Broken([b"part"]) if closes else [b"part"]

    limited = WsgiMiddleware(streams, limiter=server.limiter(), rules=JOBS)
    body: Any = limited({"REQUEST_METHOD": "GET", "REMOTE_ADDR": "192.0.2.7"}, lambda *args: None)
    assert (list(body), released(server)) == ([b"part"], 0)
    if closes:
        with pytest.raises(OSError, match="gone"):
            body.close()
    else:
        body.close()
    until(lambda: released(server) == 1)


# -- a lease by itself ------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_lease_is_released_when_its_block_raises(server: FakeServer) -> None:
    with pytest.raises(ZeroDivisionError), server.limiter().lease(lease("a", 1, "60s"), "42"):
        raise ZeroDivisionError
    assert released(server) == 1
    with pytest.raises(ZeroDivisionError):
        async with server.async_limiter().lease(lease("b", 1, "60s"), "42"):
            raise ZeroDivisionError
    assert released(server) == 2
