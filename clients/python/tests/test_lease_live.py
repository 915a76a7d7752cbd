"""Reproduces incidents with leases on a real server: permits that stayed taken, or were lost."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import anyio
import httpx
import pytest
import redis
import redis.asyncio
from fastapi import FastAPI

from redis_throttle_client import AsyncLimiter, Limiter, Rule, gcra, lease
from redis_throttle_client.asgi import RateLimitMiddleware

from .conftest import Server, until
from .proxy import Proxy
from .test_promise_counted_once import in_child

pytestmark = pytest.mark.live
API = gcra("api", 1000, 1000, "60s")
CALLS = 300
# A slow machine may need a long time for this many calls.
PATIENT: Any = {"timeout_ms": 60_000}


@pytest.fixture
def lively(shared_server: Server) -> Iterator[Server]:
    """Returns a server whose clock runs."""
    shared_server.command("RL.DEBUG", "CLOCK", "RESUME")
    yield shared_server
    shared_server.freeze()


def free(server: Server, rule: Rule, subject: str) -> int:
    """Returns how many permits of a lease are free."""
    ttl, key = f"{rule.period_us // 1000}ms", f"rl:{rule.name}:{subject}"
    allowed, _, others, *_ = server.command("RL.PEEK", key, "LEASE", "other", rule.limit, ttl)
    return int(allowed + others)


@pytest.mark.anyio
async def test_a_cancelled_request_releases_both_leases_and_renews_none(lively: Server) -> None:
    rules = [lease(name, 1, "3s") for name in ("first", "second")]
    app = FastAPI()

    @app.get("/")
    async def slow() -> None:
        await asyncio.sleep(60)

    driver = redis.asyncio.Redis(port=lively.port)
    async with AsyncLimiter(driver, **PATIENT) as limiter:
        limited = RateLimitMiddleware(
            app, limiter=limiter, rules=[(rule, lambda _: "x") for rule in rules]
        )
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(limited), base_url="http://t"
        ) as client:
            renewals = lively.calls("rl.renew")
            async with anyio.create_task_group() as group:
                group.start_soon(client.get, "/")
                await asyncio.to_thread(until, lambda: lively.calls("rl.renew") > renewals)
                # This scope cancels every wait in it, also those of the clean-up.
                group.cancel_scope.cancel()
        await asyncio.to_thread(until, lambda: all(free(lively, rule, "x") for rule in rules))
        renewals = lively.calls("rl.renew")
        # Longer than the time between two renewals.
        await asyncio.sleep(1.5)
        assert lively.calls("rl.renew") == renewals


def test_a_forked_child_renews_no_lease_of_its_parent(lively: Server) -> None:
    parents, of_child = lease("parents", 1, "3s"), lease("of_child", 1, "3s")

    def work() -> str:
        limiter = Limiter(lively.client(), **PATIENT)
        limiter.lease(parents, "x").__enter__()
        if os.fork():
            # The parent ends without a release.
            os._exit(0)
        with limiter.lease(of_child, "x") as held:
            until(lambda: free(lively, parents, "x") == 1)
            return f"{held.held} {free(lively, of_child, 'x')}"

    assert in_child(work) == "True 0"


def test_400_leases_at_a_distance_of_20_ms_are_all_renewed_in_time(lively: Server) -> None:
    proxy, jobs = Proxy(lively.port), lease("jobs", 400, "6s")
    proxy.reply_s = 0.02
    with Limiter(redis.Redis(port=proxy.port), **PATIENT) as limiter:
        held: list[Any] = []

        def take() -> None:
            for _ in range(25):
                held.append(limiter.lease(jobs, "x").__enter__())

        threads = [threading.Thread(target=take) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        renewals = lively.calls("rl.renew")
        ends = time.monotonic() + 7
        until(lambda: time.monotonic() > ends or not all(one.held for one in held))
        assert sum(one.held for one in held) == 400
        assert lively.calls("rl.renew") - renewals >= 2 * 400
        assert free(lively, jobs, "x") == 0
        limiter._renewer.close()
    proxy.close()
