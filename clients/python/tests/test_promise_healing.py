"""Tests that a limiter decides by the server again, behind a proxy on real servers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio

from redis_throttle_client import AsyncLimiter, Decision, Limiter, gcra

from .conftest import Server, free_port, until
from .proxy import Proxy

pytestmark = pytest.mark.live
API = gcra("api", 1000, 1000, "60s")
MANY = 12
# The time within which every client decides by the server again. The breaker's pause is 1.2 s at
# most; on a busy machine a reply may be late, which costs one more pause. The timelines have the
# exact times.
HEALED_S = 6
SYNC: dict[str, Any] = {"redis": redis.Redis, "valkey": valkey.Valkey}
ASYNC: dict[str, Any] = {"redis": redis.asyncio.Redis, "valkey": valkey.asyncio.Valkey}


@pytest.fixture
def proxy(shared_server: Server) -> Iterator[Proxy]:
    opened = Proxy(shared_server.port)
    yield opened
    opened.close()


@pytest.fixture
def demoted() -> Iterator[Server]:
    """Returns a primary that becomes a replica of a server that is not there."""
    server = Server()
    yield server
    server.close()


def many(limiter: Limiter) -> list[Decision]:
    """Returns the decisions of many threads at once."""
    found: list[Decision] = []
    threads = [
        threading.Thread(target=lambda: found.append(limiter.check(API, "42"))) for _ in range(MANY)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def healed_s(limiter: Limiter) -> float:
    """Returns the seconds until the server decides. No connection is being opened then."""
    began = time.monotonic()
    while limiter.check(API, "42").source != "server":
        assert time.monotonic() - began < 60
        time.sleep(0.02)
    took_s = time.monotonic() - began
    pool: Any = limiter._transport._sockets.pool  # type: ignore[attr-defined]
    until(lambda: not pool.dials)
    return took_s


async def healed_in_loop_s(limiter: AsyncLimiter) -> float:
    began = time.monotonic()
    while (await limiter.check(API, "42")).source != "server":
        assert time.monotonic() - began < 60
        await asyncio.sleep(0.02)
    return time.monotonic() - began


async def warm(limiter: AsyncLimiter) -> None:
    """Opens many connections."""
    for _ in range(3):
        await asyncio.gather(*(limiter.check(API, "42") for _ in range(MANY)))
    await healed_in_loop_s(limiter)
    pool: Any = limiter._transport._sockets.pool  # type: ignore[attr-defined]
    await asyncio.to_thread(until, lambda: not pool.dials)


# -- connections that fall silent ----------------------------------------------------------------


# -- a demoted primary, and a node that is down ----------------------------------------------------


def to_replica(server: Server) -> None:
    server.command("REPLICAOF", "127.0.0.1", str(free_port()))


@pytest.mark.anyio
@pytest.mark.parametrize("driver", SYNC)
async def test_the_server_decides_soon_after_silence_and_a_demotion(
    shared_server: Server, demoted: Server, driver: str
) -> None:
    proxy = Proxy(shared_server.port)
    with contextlib.closing(proxy), Limiter(SYNC[driver](port=proxy.port)) as limiter:
        async with AsyncLimiter(ASYNC[driver](port=proxy.port)) as waiting:
            many(limiter)
            await warm(waiting)
            proxy.silence()
            for _ in range(7):
                limiter.check(API, "42")
                await waiting.check(API, "42")
            to_replica(demoted)
            proxy.lead_to(demoted.port)
            for _ in range(7):
                limiter.check(API, "42")
                await waiting.check(API, "42")
            proxy.lead_to(shared_server.port)
            assert healed_s(limiter) < HEALED_S
            assert await healed_in_loop_s(waiting) < HEALED_S


# -- a program that is busy for longer than a call -------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("blocks_after", ["connect", "_connect"])
async def test_a_busy_program_with_a_cold_pool_degrades_no_call(
    shared_server: Server, blocks_after: str
) -> None:
    async with AsyncLimiter(redis.asyncio.Redis(port=shared_server.port)) as limiter:
        pool: Any = limiter._transport._sockets.pool  # type: ignore[attr-defined]
        make, blocks = pool._make, iter([True])

        def make_blocking() -> Any:
            connection = make()
            act = getattr(connection, blocks_after)

            async def then_blocks(*args: Any, **options: Any) -> Any:
                result = await act(*args, **options)
                if next(blocks, False):
                    time.sleep(0.5)  # noqa: ASYNC251
                return result

            setattr(connection, blocks_after, then_blocks)
            return connection

        pool._make = make_blocking
        found = await asyncio.gather(*(limiter.check(API, "42") for _ in range(MANY)))
        assert {one.source for one in found} == {"server"}
        assert not next(blocks, False)


# -- replies in pieces -----------------------------------------------------------------------------


@pytest.mark.parametrize("driver", SYNC)
@pytest.mark.parametrize("protocol", [2, 3])
def test_a_reply_that_arrives_byte_by_byte_ends_at_the_timeout(
    proxy: Proxy, driver: str, protocol: int
) -> None:
    client = SYNC[driver](port=proxy.port, protocol=protocol)
    with Limiter(client, timeout_ms=200) as limiter:
        healed_s(limiter)
        proxy.byte_s = 1
        began = time.monotonic()
        assert limiter.check(API, "42").reason == "timeout"
        # The reply has about 20 bytes: 20 s.
        assert time.monotonic() - began < 10
        proxy.byte_s = 0
        healed_s(limiter)
