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
# The times of calls through a proxy in this process, on a busy machine. Each such test waits for a
# silence once.
BUSY: Any = {"silence_ms": 1000, "timeout_ms": 5000}
# The time within which every client decides by the server again. The breaker's pause is 1.2 s at
# most; on a busy machine an answer may be late, which costs one more pause. The timelines have the
# exact times.
HEALED_S = 6
SYNC: dict[str, Any] = {"redis": redis.Redis, "valkey": valkey.Valkey}
ASYNC: dict[str, Any] = {"redis": redis.asyncio.Redis, "valkey": valkey.asyncio.Valkey}


@pytest.fixture
def proxy(shared_server: Server) -> Iterator[Proxy]:
    made = Proxy(shared_server.port)
    yield made
    made.close()


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


@pytest.mark.parametrize("driver", SYNC)
def test_the_first_timeout_retires_all_silent_connections(
    shared_server: Server, proxy: Proxy, driver: str
) -> None:
    with Limiter(SYNC[driver](port=proxy.port), **BUSY) as limiter:
        for _ in range(3):
            many(limiter)
        healed_s(limiter)
        proxy.silence()
        proxy.lead_to(shared_server.port)
        lost = limiter.check(API, "42")
        assert (lost.source, lost.reason) == ("error", "timeout")
        # All other connections were silent too, and are gone.
        assert limiter.check(API, "42").source == "server"


@pytest.mark.anyio
@pytest.mark.parametrize("driver", ASYNC)
async def test_the_first_timeout_retires_all_silent_connections_in_asyncio(
    shared_server: Server, proxy: Proxy, driver: str
) -> None:
    async with AsyncLimiter(ASYNC[driver](port=proxy.port), **BUSY) as limiter:
        await warm(limiter)
        proxy.silence()
        proxy.lead_to(shared_server.port)
        lost = await limiter.check(API, "42")
        assert (lost.source, lost.reason) == ("error", "timeout")
        assert (await limiter.check(API, "42")).source == "server"


# -- a demoted primary, and a node that is away ----------------------------------------------------


def to_replica(server: Server) -> None:
    server.command("REPLICAOF", "127.0.0.1", str(free_port()))


def test_a_demoted_primary_retires_all_its_connections(
    shared_server: Server, demoted: Server
) -> None:
    proxy = Proxy(demoted.port)
    with (
        contextlib.closing(proxy),
        Limiter(redis.Redis(port=proxy.port), timeout_ms=60_000) as limiter,
    ):
        many(limiter)
        healed_s(limiter)
        to_replica(demoted)
        proxy.lead_to(shared_server.port)
        lost = limiter.check(API, "42")
        assert (lost.source, lost.reason) == ("error", "server")
        assert [one.source for one in many(limiter)] == ["server"] * MANY


@pytest.mark.anyio
async def test_a_demoted_primary_retires_all_its_connections_in_asyncio(
    shared_server: Server, demoted: Server
) -> None:
    proxy = Proxy(demoted.port)
    with contextlib.closing(proxy):
        client = redis.asyncio.Redis(port=proxy.port)
        async with AsyncLimiter(client, timeout_ms=60_000) as limiter:
            await warm(limiter)
            to_replica(demoted)
            proxy.lead_to(shared_server.port)
            lost = await limiter.check(API, "42")
            assert (lost.source, lost.reason) == ("error", "server")
            found = await asyncio.gather(*(limiter.check(API, "42") for _ in range(MANY)))
            assert [one.source for one in found] == ["server"] * MANY


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


@pytest.mark.anyio
async def test_a_server_that_loads_keeps_its_connections(shared_server: Server) -> None:
    """The error of a server that loads is the driver's own type, a lost connection."""
    loading = redis.exceptions.BusyLoadingError("Redis is loading the dataset in memory")
    with Limiter(shared_server.client(), timeout_ms=2000) as limiter:
        limiter.check(API, "42")
        pool: Any = limiter._transport._sockets.pool  # type: ignore[attr-defined]
        (link,) = pool.idle
        exchange = link.exchange

        def busy(*args: Any, **options: Any) -> Any:
            raise loading

        link.exchange = busy
        assert limiter.check(API, "42").source == "error"
        assert (pool.idle, pool.generation) == ([link], 1)
        link.exchange = exchange
        assert limiter.check(API, "42").source == "server"


# -- a program that is busy for longer than a call -------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("blocks_after", ["connect", "_connect"])
async def test_a_busy_program_with_a_cold_pool_degrades_no_call(
    shared_server: Server, blocks_after: str
) -> None:
    async with AsyncLimiter(redis.asyncio.Redis(port=shared_server.port)) as limiter:
        pool: Any = limiter._transport._sockets.pool  # type: ignore[attr-defined]
        make, blocks = pool._make, iter([True])

        def made() -> Any:
            connection = make()
            act = getattr(connection, blocks_after)

            async def then_blocks(*args: Any, **options: Any) -> Any:
                result = await act(*args, **options)
                if next(blocks, False):
                    time.sleep(0.5)  # noqa: ASYNC251
                return result

            setattr(connection, blocks_after, then_blocks)
            return connection

        pool._make = made
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
