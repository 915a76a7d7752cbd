"""Tests requests whose client leaves: they count, and their calls are cancelled."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import redis
import redis.asyncio
from fastapi import Depends, FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from redis_throttle_client import AsyncLimiter, Limiter, Outcome, fixed
from redis_throttle_client._web.exchange import Inbox
from redis_throttle_client.asgi import RateLimitMiddleware
from redis_throttle_client.fastapi import RateLimits
from redis_throttle_client.wsgi import RateLimitMiddleware as WsgiMiddleware

from .conftest import Server, until
from .fakes import Far, run
from .proxy import Proxy
from .served import RESET, served

LIMIT = 5
PEER = "192.0.2.7"
BUSY: Any = {"silence_ms": 2000, "timeout_ms": 20_000}
seen: list[Outcome] = []


def is_served(outcome: Outcome) -> bool:
    seen.append(outcome)
    return outcome.status == 200


COUNTED = fixed("counted", LIMIT, "1h", count=is_served)
GET = {"type": "http", "method": "GET", "path": "/", "headers": [], "client": (PEER, 1)}
REQUEST = {"type": "http.request", "body": b"", "more_body": False}
GONE = {"type": "http.disconnect"}


@pytest.mark.live
@pytest.mark.parametrize("kind", ["middleware", "dependency"])
def test_a_client_that_resets_its_requests_is_limited(shared_server: Server, kind: str) -> None:
    begun: list[object] = []
    limiter = AsyncLimiter(redis.asyncio.Redis(port=shared_server.port), **BUSY)

    async def handler(request: Request) -> PlainTextResponse:
        begun.append(request)
        while (await request.receive())["type"] != "http.disconnect":
            pass
        return PlainTextResponse("served")

    app: Any = FastAPI()
    if kind == "dependency":
        limits = RateLimits(limiter)
        limits.install(app)
        app.get("/", dependencies=[Depends(limits.limit(COUNTED))])(handler)
    else:
        app.get("/")(handler)
        app = RateLimitMiddleware(app, limiter=limiter, rules=COUNTED)
    with served(app, limiter) as port:
        for number in range(LIMIT):
            with socket.create_connection(("127.0.0.1", port), 60) as sending:
                sending.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                sending.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                until(lambda number=number: len(begun) > number)
        for _ in range(3):
            assert httpx.get(f"http://127.0.0.1:{port}/", timeout=60).status_code == 429
    assert len(begun) == LIMIT


async def nothing(message: Any) -> None:
    """Drops a message."""


def one_unit_is_taken(server: Server) -> bool:
    with Limiter(server.client(), **BUSY) as limiter:
        return limiter.peek(COUNTED, PEER, 0).remaining == LIMIT - 1


@pytest.mark.live
@pytest.mark.anyio
@pytest.mark.parametrize("ends", ["head", "raises", "send", "cancelled"])
async def test_a_request_whose_client_has_gone_before_the_head_counts(
    shared_server: Server, ends: str
) -> None:
    seen.clear()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if ends == "cancelled":
            raise asyncio.CancelledError
        if ends == "raises":
            assert await receive() == GONE
            raise ZeroDivisionError
        # It reads no message.
        await send({"type": "http.response.start", "status": 500})

    async def receive() -> Any:
        if ends in ("head", "raises"):
            return GONE
        return await asyncio.Event().wait()

    async def broken(message: Any) -> None:
        raise OSError("the client has gone")

    async with AsyncLimiter(redis.asyncio.Redis(port=shared_server.port), **BUSY) as limiter:
        limited = RateLimitMiddleware(app, limiter=limiter, rules=COUNTED)
        try:
            await limited(GET, receive, broken if ends == "send" else nothing)
        except (ZeroDivisionError, OSError, asyncio.CancelledError):
            assert ends != "head"
    assert seen == []
    assert one_unit_is_taken(shared_server)


@pytest.mark.live
@pytest.mark.anyio
async def test_a_handler_that_fails_for_a_client_that_waits_is_a_failure(
    shared_server: Server,
) -> None:
    seen.clear()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise ZeroDivisionError

    async def receive() -> Any:
        return await asyncio.Event().wait()

    async with AsyncLimiter(redis.asyncio.Redis(port=shared_server.port), **BUSY) as limiter:
        limited = RateLimitMiddleware(app, limiter=limiter, rules=COUNTED)
        with pytest.raises(ZeroDivisionError):
            await limited(GET, receive, nothing)
    assert [type(one.error) for one in seen] == [ZeroDivisionError]
    assert not one_unit_is_taken(shared_server)


@pytest.mark.live
@pytest.mark.parametrize("way", ["unread", "killed"])
def test_a_request_that_a_wsgi_server_ends_before_the_head_counts(
    shared_server: Server, way: str
) -> None:
    class Killed(BaseException):
        """As gevent kills the greenlet of a request."""

    def app(environ: Any, start_response: Any) -> list[bytes]:
        if way == "killed":
            raise Killed
        start_response("500 Failed", [])
        return [b"failed"]

    seen.clear()
    with Limiter(shared_server.client(), **BUSY) as limiter:
        limited: Any = WsgiMiddleware(app, limiter=limiter, rules=COUNTED)
        try:
            limited({"REQUEST_METHOD": "GET", "REMOTE_ADDR": PEER}, lambda *_: None).close()
        except Killed:
            assert way == "killed"
    assert seen == []
    assert one_unit_is_taken(shared_server)


# -- cancellation ----------------------------------------------------------------------------------


def test_a_client_that_leaves_cancels_its_call_and_its_handler_does_not_run() -> None:
    async def request() -> None:
        messages, gone = deque([REQUEST]), asyncio.Event()

        async def receive() -> Any:
            if messages:
                return messages.popleft()
            await gone.wait()
            return GONE

        async def app(scope: Any, receive: Any, send: Any) -> None:
            raise AssertionError("it runs")

        server = Far(10**6)
        limiter = server.limiter(**BUSY)
        limited = RateLimitMiddleware(app, limiter=limiter, rules=fixed("any", 5, "1h"))
        loop = asyncio.get_running_loop()
        loop.call_later(1, gone.set)
        await limited(GET, receive, nothing)
        assert 1 <= loop.time() < 1.1
        assert server.in_flight == 0

    run(request())


@pytest.mark.live
@pytest.mark.parametrize("parts", [0, 1, 3])
def test_an_application_gets_the_messages_that_were_read_before_it(
    shared_server: Server, parts: int
) -> None:
    proxy = Proxy(shared_server.port)
    # Each check takes longer than the time after which the client is watched.
    proxy.reply_s = 0.05
    client = redis.asyncio.Redis(port=proxy.port)
    limiter = AsyncLimiter(client, silence_ms=100, timeout_ms=20_000)
    app = FastAPI()

    @app.post("/")
    async def echo(request: Request) -> PlainTextResponse:
        body = await request.body()
        assert not await request.is_disconnected()
        return PlainTextResponse(body)

    def body() -> Iterator[bytes]:
        for number in range(parts):
            yield b"%d" % number * 100_000

    limited = RateLimitMiddleware(app, limiter=limiter, rules=fixed("any", 100, "1h"))
    with served(limited, limiter) as port, httpx.Client(timeout=60) as sending:
        for _ in range(5):
            response = sending.post(f"http://127.0.0.1:{port}/", content=body())
            assert (response.status_code, response.content) == (200, b"".join(body()))
    proxy.close()


@pytest.mark.anyio
async def test_a_read_that_was_begun_early_goes_to_the_next_reader_that_is_not_cancelled() -> None:
    comes: asyncio.Queue[Any] = asyncio.Queue()
    inbox = Inbox(comes.get, GET)
    await inbox.look()
    first = asyncio.ensure_future(inbox.receive())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    others = [asyncio.ensure_future(inbox.receive()) for _ in range(2)]
    for message in (REQUEST, GONE):
        comes.put_nowait(message)
    assert sorted(map(str, await asyncio.gather(*others))) == sorted(map(str, [REQUEST, GONE]))
    assert inbox.is_gone
    inbox.close()


@pytest.mark.anyio
async def test_a_client_that_waits_for_a_request_of_its_body_is_not_watched() -> None:
    reads: list[str] = []

    async def receive() -> Any:
        reads.append("read")
        return REQUEST

    inbox = Inbox(receive, {**GET, "headers": [(b"expect", b"100-continue")]})
    await inbox.look()
    async with inbox.watched():
        await asyncio.sleep(0.01)
    assert reads == []
    assert await inbox.receive() == REQUEST
