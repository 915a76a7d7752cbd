"""Tests the limits and denials of applications that are mounted in another one."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from redis_throttle_client import fixed, lease
from redis_throttle_client.fastapi import RateLimited, RateLimits
from redis_throttle_client.testing import FakeServer

from .test_middleware import get

pytestmark = pytest.mark.anyio
ONE = fixed("one", 1, "1h")
JOBS = lease("jobs", 1, "60s")
# The replies to a lease, another one, and the release of the first.
ONE_JOB = ([1, 1, 0, 0, 60_000], [0, 1, 0, 60_000, 60_000], 1)


def mounted(sub: Any, nesting: str) -> FastAPI:
    """Returns an application in which another one is mounted at ``/sub``."""
    app, outer = FastAPI(), FastAPI()
    if nesting == "app":
        app.mount("/sub", sub)
    elif nesting == "router":
        router = APIRouter(routes=[Mount("/", sub)])
        app.mount("/sub", router)
    else:
        outer.mount("/sub", sub)
        app.mount("/", outer)
    return app


@pytest.mark.parametrize("nesting", ["app", "router", "twice"])
async def test_a_mounted_application_responds_to_denials_as_the_outer_one(nesting: str) -> None:
    server = FakeServer()
    server.script(*ONE_JOB)
    sub, limiter = FastAPI(), server.async_limiter()
    limits = RateLimits(limiter)
    sub.get("/rows", dependencies=[Depends(limits.limit(ONE))])(lambda: None)

    @sub.get("/job")
    async def job() -> None:
        async with limiter.lease(JOBS, "all"), limiter.lease(JOBS, "all"):
            pass

    app = mounted(sub, nesting)
    limits.install(app)
    responses = [await get(app, f"/sub/{path}") for path in ("rows", "rows", "job")]
    assert [one.status_code for one in responses] == [200, 429, 429]
    for denied in responses[1:]:
        assert denied.headers["content-type"] == "application/problem+json"
        assert denied.json()["title"] == "Too Many Requests"


async def test_a_mounted_application_keeps_its_own_handlers() -> None:
    limits, sub = RateLimits(FakeServer().async_limiter()), FastAPI()
    sub.get("/", dependencies=[Depends(limits.limit(ONE))])(lambda: None)

    @sub.exception_handler(RateLimited)
    async def handle(request: Request, error: RateLimited) -> JSONResponse:
        return JSONResponse("denied", 420)

    app = mounted(sub, "app")
    limits.install(app)
    assert [(await get(app, "/sub/")).status_code for _ in range(2)] == [200, 420]


async def test_a_denial_in_a_mounted_application_of_starlette() -> None:
    server = FakeServer()
    server.script(*ONE_JOB)
    limiter = server.async_limiter()

    async def job(request: Any) -> None:
        async with limiter.lease(JOBS, "all"), limiter.lease(JOBS, "all"):
            pass

    app = mounted(Starlette(routes=[Route("/", job)]), "app")
    RateLimits(limiter).install(app)
    assert (await get(app, "/sub/")).status_code == 429
