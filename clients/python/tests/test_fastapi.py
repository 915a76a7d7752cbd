"""Tests the limits of FastAPI routes, under uvicorn and on a real server."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Annotated, Any

import httpx
import pytest
import redis.asyncio
import uvicorn
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, StreamingResponse

from redis_throttle_client import (
    AsyncLimiter,
    Decision,
    InvalidArgument,
    Rule,
    backoff,
    fixed,
    gcra,
    lease,
)
from redis_throttle_client.fastapi import RateLimited, RateLimits

from .conftest import Server

pytestmark = [pytest.mark.live, pytest.mark.anyio]
API = gcra("api", 6, 10, "60s")
DAY = fixed("day", 3, "1d")
LOGIN = backoff("login", 2, "1s", "15m", "1d", count="failures")
JOBS = lease("jobs", 1, "60s")


def user(request: Request) -> str:
    return request.headers["X-User"]


async def plan(request: Request) -> Rule | None:
    return DAY if request.headers.get("X-Plan") == "free" else None


def build_app(limiter: AsyncLimiter) -> FastAPI:
    """Returns an application with limits of every kind."""
    app, router = FastAPI(), APIRouter(prefix="/v1")
    limits = RateLimits(limiter, trusted_proxies=["127.0.0.1"])
    limits.install(app)
    api, by_user = limits.limit(API), limits.limit([plan, API], key=user)

    @app.get("/", dependencies=[Depends(api)])
    async def home() -> str:
        return "home"

    @router.get("/me", responses={429: {"description": "Later"}})
    async def me(decision: Annotated[Decision | None, Depends(by_user)]) -> int | None:
        return decision.remaining if decision else None

    @router.post("/login", dependencies=[Depends(limits.limit(LOGIN, key=user))])
    async def login(password: str) -> JSONResponse:
        if password == "raise":
            raise HTTPException(401)
        return JSONResponse({}, 200 if password == "right" else 403)

    @app.get("/jobs", dependencies=[Depends(limits.limit(JOBS))])
    async def jobs() -> StreamingResponse:
        async def rows() -> AsyncIterator[bytes]:
            yield b"one"
            # Another request is denied while this one is served.
            async with httpx.AsyncClient() as other:
                address = f"http://127.0.0.1:{app.state.port}/jobs"
                yield str((await other.get(address)).status_code).encode()

        return StreamingResponse(rows())

    @app.get("/fails", dependencies=[Depends(api)])
    async def fails() -> None:
        raise HTTPException(404)

    @app.get("/free")
    async def free() -> None: ...

    app.include_router(router)
    return app


@contextlib.asynccontextmanager
async def served(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Serves the application over HTTP."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        app.state.port = listening.getsockname()[1]
        config = uvicorn.Config(app, log_level="warning", proxy_headers=False, lifespan="off")
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve([listening]))
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{app.state.port}") as client:
                yield client
        finally:
            server.should_exit = True
            await task


@pytest.fixture
async def limiter(shared_server: Server) -> AsyncIterator[AsyncLimiter]:
    client = redis.asyncio.Redis(port=shared_server.port)
    async with AsyncLimiter(client, timeout_ms=60_000) as opened:
        yield opened


@pytest.fixture
async def client(limiter: AsyncLimiter) -> AsyncIterator[httpx.AsyncClient]:
    async with served(build_app(limiter)) as client:
        yield client


async def test_a_route_is_limited_with_headers_and_a_problem(client: httpx.AsyncClient) -> None:
    responses = [await client.get("/") for _ in range(7)]
    assert [one.status_code for one in responses] == [200] * 6 + [429]
    assert responses[0].headers["ratelimit"] == '"api";r=5;t=6'
    assert responses[-1].json()["violated-policies"] == ["api"]
    # The response of another route has no limit, and an address has one for all its routes.
    assert "ratelimit" not in (await client.get("/free")).headers
    forwarded = {"X-Forwarded-For": "192.0.2.7"}
    missing = await client.get("/fails", headers=forwarded)
    assert (missing.status_code, missing.headers["ratelimit"]) == (404, '"api";r=5;t=6')
    assert missing.headers.get_list("ratelimit") == ['"api";r=5;t=6']


async def test_a_dependency_has_functions_of_the_request_and_a_decision(
    client: httpx.AsyncClient,
) -> None:
    alice = {"X-User": "alice"}
    paid = await client.get("/v1/me", headers=alice)
    assert (paid.json(), paid.headers["ratelimit"]) == (5, '"api";r=5;t=6')
    free = [await client.get("/v1/me", headers=alice | {"X-Plan": "free"}) for _ in range(4)]
    assert free[0].headers["ratelimit"] == '"day";r=2;t=86400, "api";r=4;t=12'
    assert [one.status_code for one in free] == [200, 200, 200, 429]
    assert free[-1].json()["violated-policies"] == ["day"]
    missing = await client.get("/v1/me")
    assert (missing.status_code, missing.json()["title"]) == (400, "Bad Request")
    assert missing.headers["content-type"] == "application/problem+json"


async def test_a_login_limiter_counts_failed_logins(
    client: httpx.AsyncClient, limiter: AsyncLimiter
) -> None:
    alice = {"X-User": "alice"}

    async def log_in(password: str) -> int:
        url = f"/v1/login?password={password}"
        return (await client.post(url, headers=alice)).status_code

    async def counted(failures: int) -> None:
        for _ in range(1000):
            # A peek has the state after one more attempt.
            left = (await limiter.peek(LOGIN, "alice")).remaining
            if left == 1 - failures:
                return
            await asyncio.sleep(0.005)
        assert left == 1 - failures

    for _ in range(3):
        assert await log_in("right") == 200
        await counted(0)
    assert await log_in("raise") == 401
    await counted(1)
    assert [await log_in("wrong") for _ in range(2)] == [403, 429]


async def test_a_lease_is_held_until_the_end_of_the_response(client: httpx.AsyncClient) -> None:
    assert (await client.get("/jobs")).text == "one429"
    assert (await client.get("/jobs")).text == "one429"


async def test_the_denials_are_in_the_openapi_of_limited_routes(limiter: AsyncLimiter) -> None:
    app = build_app(limiter)
    for _ in range(2):
        paths = app.openapi()["paths"]
        assert set(paths["/free"]["get"]["responses"]) == {"200"}
        found = paths["/v1/me"]["get"]["responses"]
        assert set(found) == {"200", "400", "403", "413", "429", "503"}
        # The application's own description stays.
        assert found["429"]["description"] == "Later"
        assert "503" in paths["/"]["get"]["responses"]
        assert set(paths["/v1/login"]["post"]["responses"]) >= {"422", "429"}
    denied = paths["/"]["get"]["responses"]["429"]["content"]["application/problem+json"]
    assert denied["schema"] == {"$ref": "#/components/schemas/RateLimitProblem"}
    assert "RateLimitProblem" in app.openapi()["components"]["schemas"]


async def test_an_exception_handler_may_replace_the_response(limiter: AsyncLimiter) -> None:
    app = build_app(limiter)

    @app.exception_handler(RateLimited)
    async def respond(request: Request, error: RateLimited) -> JSONResponse:
        rule = None if error.decision is None else error.decision.rule
        return JSONResponse({"rule": rule}, 420, headers=error.headers)

    async with served(app) as client:
        for _ in range(6):
            await client.get("/")
        denied = await client.get("/")
    assert (denied.status_code, denied.json()) == (420, {"rule": "api"})
    assert denied.headers["retry-after"] == "6"


async def test_wrong_options_and_a_missing_install_are_reported(limiter: AsyncLimiter) -> None:
    wrong: list[dict[str, Any]] = [
        {"rules": []}, {"rules": JOBS, "cost": 2}, {"rules": [API, API]},
    ]  # fmt: skip
    for options in wrong:
        with pytest.raises(InvalidArgument):
            RateLimits(limiter).limit(**options)
    two: Any = (API, LOGIN)
    with pytest.raises(InvalidArgument, match=r"^rules: expected one list"):
        RateLimits(limiter).limit(*two)
    with pytest.raises(InvalidArgument, match=r"^trusted_proxies: "):
        RateLimits(limiter, trusted_proxies=["x"]).limit(API)
    with pytest.raises(InvalidArgument, match=r"^limiter: "):
        RateLimits(object())  # type: ignore[arg-type]
    local = AsyncLimiter(redis.asyncio.Redis(port=1), on_error="local")
    with pytest.raises(InvalidArgument, match=r"^on_error: "):
        RateLimits(local).limit(LOGIN)
    app = FastAPI()
    app.get("/", dependencies=[Depends(RateLimits(limiter).limit(API))])(lambda: None)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
        with pytest.raises(InvalidArgument, match=r"^app: "):
            await client.get("/")
