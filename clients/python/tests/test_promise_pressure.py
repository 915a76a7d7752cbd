"""Tests that the limit holds under pressure, on a real server: herds, stalls, pauses and aborts."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import redis
import redis.asyncio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from redis_throttle_client import AsyncLimiter, Decision, Limiter, fixed
from redis_throttle_client.asgi import RateLimitMiddleware
from redis_throttle_client.wsgi import RateLimitMiddleware as WsgiMiddleware

from .conftest import Server, until
from .proxy import Proxy
from .served import RESET, served, served_wsgi

pytestmark = pytest.mark.live
LIMIT, HERD = 1000, 10_000
DAY = fixed("day", LIMIT, "1h")
# On a busy machine a herd takes longer than half of the default time, and a stall than it should.
BUSY: Any = {"silence_ms": 2000, "timeout_ms": 20_000}
# Ample, so that on_error may decide only a call without a reply.
FREE = fixed("free", 10**9, "1h")


@pytest.fixture
def alone() -> Iterator[Server]:
    """Returns a server that a test may stop."""
    server = Server()
    yield server
    server.close()


def assert_held(found: list[Decision]) -> None:
    """Checks that a herd got its limit, and was decided by the server or by its last denial."""
    assert len(found) == HERD
    assert LIMIT <= sum(one.allowed for one in found) <= LIMIT + 10
    assert sum(one.degraded for one in found) <= HERD // 100


@pytest.mark.anyio
async def test_a_cold_herd_of_10_000_calls_gets_the_limit_in_asyncio(
    shared_server: Server,
) -> None:
    async with AsyncLimiter(redis.asyncio.Redis(port=shared_server.port), **BUSY) as limiter:
        assert_held(await asyncio.gather(*(limiter.check(DAY, "42") for _ in range(HERD))))


def test_a_cold_herd_of_64_threads_gets_the_limit(shared_server: Server) -> None:
    with Limiter(shared_server.client(), **BUSY) as limiter, ThreadPoolExecutor(64) as pool:
        assert_held(list(pool.map(lambda _: limiter.check(DAY, "42"), range(HERD))))


def test_writes_that_are_paused_end_alone_while_peeks_get_replies(alone: Server) -> None:
    with Limiter(alone.client(), timeout_ms=600, silence_ms=200) as limiter:
        limiter.ready()
        alone.command("CLIENT", "PAUSE", "2000", "WRITE")
        is_over = threading.Event()

        def peek() -> Counter[str | None]:
            seen: Counter[str | None] = Counter()
            while not is_over.wait(0.02):
                seen[limiter.peek(FREE, "42").reason] += 1
            return seen

        with ThreadPoolExecutor(2) as pool:
            peeks = pool.submit(peek)
            reasons = [limiter.check(FREE, str(at)).reason for at in range(3)]
            is_over.set()
        # The writes are late, or their connection is silent alone. The node is not.
        assert set(reasons) <= {"overloaded", "timeout"}
        assert peeks.result()[None] > 10
        assert limiter.open_breakers == 0
        until(lambda: limiter.check(FREE, "42").source == "server")


# -- aborted requests ----------------------------------------------------------------------------

RULE = fixed("user", 20, "1h")


def user(request: Any) -> str | None:
    found: str | None = request.header("x-user")
    return found


@contextmanager
def asgi(port: int, limiter: AsyncLimiter) -> Iterator[int]:
    """Serves an application behind the middleware for ASGI. Returns its port."""

    async def respond(request: Request) -> PlainTextResponse:
        return PlainTextResponse("served")

    site = Starlette(routes=[Route("/", respond)])
    app = RateLimitMiddleware(site, limiter=limiter, rules=RULE, key=user)
    with served(app, limiter) as listening:
        yield listening


@contextmanager
def wsgi(port: int, limiter: Limiter) -> Iterator[int]:
    """Serves an application behind the middleware for WSGI. Returns its port."""

    def respond(environ: Any, start_response: Callable[..., Any]) -> list[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"served"]

    with served_wsgi(WsgiMiddleware(respond, limiter=limiter, rules=RULE, key=user)) as listening:
        yield listening


def storm(port: int, is_over: threading.Event) -> int:
    """Sends requests and resets their connections, as fast as it can. Returns their number."""
    request = b"GET / HTTP/1.1\r\nHost: a\r\nX-User: storm\r\n\r\n"
    for count in range(2000):
        if is_over.is_set():
            return count
        try:
            with socket.create_connection(("127.0.0.1", port), 10) as sending:
                sending.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                sending.sendall(request)
        except OSError:
            time.sleep(0.001)
    return 2000


@pytest.mark.parametrize("serve", [asgi, wsgi])
def test_aborted_requests_degrade_no_call_of_another_client(
    shared_server: Server, serve: Any
) -> None:
    proxy = Proxy(shared_server.port)
    proxy.reply_s = 0.02
    limiter: Any
    if serve is asgi:
        limiter = AsyncLimiter(redis.asyncio.Redis(port=proxy.port), **BUSY)
    else:
        limiter = Limiter(redis.Redis(port=proxy.port), **BUSY)
    is_over = threading.Event()
    with serve(proxy.port, limiter) as port, ThreadPoolExecutor(1) as pool:
        aborted = pool.submit(storm, port, is_over)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            found = [client.get("/", headers={"X-User": "good"}) for _ in range(30)]
        is_over.set()
        assert aborted.result() > 10
        statuses = [one.status_code for one in found]
        assert statuses == [200] * 20 + [429] * 10
        assert limiter.counters.degraded == 0
    if serve is wsgi:
        limiter.close()
    proxy.close()
