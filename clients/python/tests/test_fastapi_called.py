"""Tests limits of FastAPI that handlers call themselves."""

import asyncio
import contextlib
from typing import Annotated, Any

import pytest
from fastapi import BackgroundTasks, Depends, FastAPI, HTTPException, Request, WebSocket

from redis_throttle_client import fixed
from redis_throttle_client.fastapi import RateLimited, RateLimits
from redis_throttle_client.testing import FakeServer

from .test_middleware import get
from .test_stacked import sent, talk

pytestmark = pytest.mark.anyio
ONE = fixed("one", 1, "1h")
TWO = fixed("two", 2, "1h")
MANY = fixed("many", 10**6, "1h")


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def limits(server: FakeServer) -> RateLimits:
    return RateLimits(server.async_limiter())


async def passes(limit: Any, connection: Any) -> bool:
    """Calls a limit, and returns whether it allows."""
    with contextlib.suppress(RateLimited):
        return (await limit(connection)).allowed is True
    return False


async def test_a_limit_that_denied_denies_the_next_call_too(
    server: FakeServer, limits: RateLimits
) -> None:
    app, one, two = FastAPI(), limits.limit(ONE), limits.limit(TWO)
    limits.install(app)
    later: list[bool] = []

    async def task(request: Request) -> None:
        later.append(await passes(one, request))

    @app.get("/", dependencies=[Depends(two)])
    async def home(request: Request, tasks: BackgroundTasks) -> list[bool]:
        for _ in range(2):
            tasks.add_task(task, request)
        return [await passes(limit, request) for limit in (one, one, one, two, two, two)]

    assert (await get(app)).json() == [True, False, False, True, False, False]
    assert later == [False, False]


async def test_concurrent_calls_after_a_cancelled_one_are_limited(limits: RateLimits) -> None:
    app, two = FastAPI(), limits.limit(TWO)
    limits.install(app)

    @app.get("/")
    async def home(request: Request) -> int:
        cancelled = asyncio.ensure_future(two(request))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        return sum(await asyncio.gather(*(passes(two, request) for _ in range(20))))

    # The cancelled call may have reached the server.
    assert (await get(app)).json() in (1, 2)


async def test_a_call_takes_from_its_own_limit_only(server: FakeServer, limits: RateLimits) -> None:
    app, one, two = FastAPI(), limits.limit(ONE), limits.limit(TWO)
    many = limits.limit(MANY, key=lambda request: request.state.user)
    limits.install(app)

    async def user(request: Request) -> None:
        await two(request)
        request.state.user = "a"

    @app.get("/", dependencies=[Depends(each) for each in (user, two, many, one)])
    async def home(request: Request, again: Annotated[Any, Depends(many, use_cache=False)]) -> None:
        await many(request)

    assert (await get(app)).status_code == 200
    assert sent(server) == [["two"], ["two", "many", "one"], ["many"], ["many"]]


async def test_a_handler_of_errors_takes_from_the_limit_that_it_calls(
    server: FakeServer, limits: RateLimits
) -> None:
    app, one, two = FastAPI(), limits.limit(ONE), limits.limit(TWO)
    limits.install(app)

    async def refuse() -> None:
        raise LookupError

    @app.exception_handler(LookupError)
    async def handle(request: Request, error: Exception) -> Any:
        await two(request)
        raise HTTPException(401)

    app.get("/", dependencies=[Depends(each) for each in (refuse, two, one)])(lambda: None)
    with contextlib.suppress(HTTPException):
        await get(app)
    assert sent(server) == [["two"]]


async def test_messages_of_a_websocket_are_limited_and_take_no_memory(
    server: FakeServer, limits: RateLimits
) -> None:
    app, two, many = FastAPI(), limits.limit(TWO), limits.limit(MANY)
    limits.install(app)
    failures = limits.limit(fixed("failures", 3, "1h", count="failures"))
    kept: list[int] = []

    @app.websocket("/socket")
    async def socket(websocket: WebSocket) -> None:
        await websocket.accept()
        for limit in (two, failures):
            found = [await passes(limit, websocket) for _ in range(5)]
            await websocket.send_json(found)
        exchange = websocket.scope[limits._name]
        for _ in range(3):
            await many(websocket)
            kept.append(len(exchange._taken))
        await websocket.close()

    messages = await talk(app)
    texts = [one["text"] for one in messages if one["type"] == "websocket.send"]
    assert texts == ["[true,true,false,false,false]", "[true,true,true,false,false]"]
    assert kept == [0, 0, 0]
