"""Tests failures between a limiter and a server: calls count at most once, replies match."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import select
import shutil
import socket
import ssl
import subprocess
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import redis
import redis.asyncio
import redis.asyncio.retry
import redis.backoff
import redis.retry
import valkey
import valkey.asyncio

from redis_throttle_client import AsyncLimiter, Limiter, Rule, Unavailable, gcra
from redis_throttle_client._net.slots import Slots

from .conftest import Server, until
from .proxy import Proxy

pytestmark = pytest.mark.live
API = gcra("api", 6, 10, "60s")
NEVER_SHUT: Any = {"breaker_failures": 10_000}


def with_limit(limit: int) -> Rule:
    """Returns a rule whose limit identifies the replies to its calls."""
    return gcra(f"r{limit}", limit, limit, "60s")


# -- a reply that comes too late ---------------------------------------------------------------

SYNC: dict[str, Callable[..., Any]] = {
    "redis": lambda port, **options: redis.Redis(port=port, **options),
    "redis, RESP2": lambda port, **options: redis.Redis(port=port, protocol=2, **options),
    "redis, RESP3": lambda port, **options: redis.Redis(port=port, protocol=3, **options),
    "valkey": lambda port, **options: valkey.Valkey(port=port, **options),
    "valkey, RESP3": lambda port, **options: valkey.Valkey(port=port, protocol=3, **options),
}
ASYNC: dict[str, Callable[..., Any]] = {
    "redis": lambda port, **options: redis.asyncio.Redis(port=port, **options),
    "redis, RESP2": lambda port, **options: redis.asyncio.Redis(port=port, protocol=2, **options),
    "valkey": lambda port, **options: valkey.asyncio.Valkey(port=port, **options),
    "valkey, RESP3": lambda port, **options: valkey.asyncio.Valkey(
        port=port, protocol=3, **options
    ),
}


@pytest.mark.parametrize("name", SYNC)
@pytest.mark.parametrize("decode", [False, True])
def test_a_late_reply_is_not_returned_to_another_call(
    own_server: Server, name: str, decode: bool
) -> None:
    client = SYNC[name](own_server.port, decode_responses=decode)
    with Limiter(client, timeout_ms=30, **NEVER_SHUT) as limiter:
        until(lambda: limiter.check(API, "warm").source == "server")
        own_server.pause()
        late = [limiter.check(with_limit(limit), "x") for limit in range(1, 4)]
        assert {one.source for one in late} == {"error"}
        own_server.resume()
        until(lambda: limiter.check(API, "warm").source == "server")
    with Limiter(client, timeout_ms=60_000) as limiter:
        # Replies to the earlier calls would have the limits 1 to 3.
        assert [limiter.check(with_limit(limit), "y").limit for limit in range(11, 31)] == list(
            range(11, 31)
        )


@pytest.mark.anyio
@pytest.mark.parametrize("name", ASYNC)
@pytest.mark.parametrize("how", ["timed out", "cancelled"])
async def test_a_late_reply_is_not_returned_to_another_call_in_asyncio(
    own_server: Server, name: str, how: str
) -> None:
    timeout_ms = 100 if how == "timed out" else 60_000
    client = ASYNC[name](own_server.port, decode_responses=True)
    async with AsyncLimiter(client, timeout_ms=timeout_ms, **NEVER_SHUT) as limiter:
        for _ in range(100):
            if (await limiter.check(API, "warm")).source == "server":
                break
        own_server.pause()
        calls = [asyncio.create_task(limiter.check(with_limit(at), "x")) for at in range(1, 9)]
        if how == "cancelled":
            await anyio.wait_all_tasks_blocked()
            for task in calls:
                task.cancel()
        found = await asyncio.gather(*calls, return_exceptions=True)
        ends = {type(one) if isinstance(one, BaseException) else one.source for one in found}
        # Calls that wait for a connection longer than half of their time are overloaded.
        assert ends <= ({"error", "local"} if how == "timed out" else {asyncio.CancelledError})
        own_server.resume()
        limits = list(range(11, 31))
        right = 0
        for _ in range(100):
            decisions = await asyncio.gather(*(limiter.check(with_limit(at), "y") for at in limits))
            from_server = [
                (one.limit, at)
                for one, at in zip(decisions, limits, strict=True)
                if one.source == "server"
            ]
            assert all(limit == at for limit, at in from_server)
            right += len(from_server)
            if right >= 2 * len(limits):
                break
        assert right >= 2 * len(limits)
        # Neither cancelled calls nor others are in flight any more.
        assert not limiter._transport._sockets.pool.in_flight  # type: ignore[attr-defined]


@pytest.mark.anyio
@pytest.mark.parametrize("prefetch", [1, 10])
async def test_a_busy_program_reads_an_arrived_reply_after_the_deadline(
    server: Server, prefetch: int
) -> None:
    client = redis.asyncio.Redis(port=server.port)
    options: Any = {"timeout_ms": 100, "prefetch": prefetch} | NEVER_SHUT
    async with AsyncLimiter(client, **options) as limiter:
        for _ in range(100):
            if (await limiter.check(with_limit(1), "warm")).source == "server":
                break
        pool = limiter._transport._sockets.pool  # type: ignore[attr-defined]
        reply_of = pool.idle[-1]._writer.transport.get_extra_info("socket")
        call = asyncio.create_task(limiter.check(API, "42"))
        while pool.idle:
            await anyio.lowlevel.checkpoint()
        busy_until_all_is_over(reply_of)
        assert (await call).source == "server"


def busy_until_all_is_over(reply_of: Any) -> None:
    """Blocks the loop until the reply has arrived and the deadline has passed."""
    select.select([reply_of], [], [], 10)
    time.sleep(0.11)


# -- drivers that repeat -----------------------------------------------------------------------


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    opened = Proxy(server.port)
    yield opened
    opened.close()


def test_a_call_whose_reply_is_lost_is_counted_once(server: Server, proxy: Proxy) -> None:
    retry = redis.retry.Retry(redis.backoff.NoBackoff(), 10)
    client = redis.Redis(port=proxy.port, retry=retry, retry_on_error=[redis.ConnectionError])
    with Limiter(client, timeout_ms=60_000) as limiter:
        assert limiter.check(API, "42").source == "server"
        before, accepted, proxy.cuts = server.counted(), proxy.accepted, bool
        assert limiter.check(API, "42").source == "error"
        assert (server.counted() - before, proxy.accepted) == (1, accepted)
        proxy.cuts = lambda request: False
        assert limiter.check(API, "42").remaining == 3


@pytest.fixture
def encrypted(own_server: Server, tmp_path: Path) -> Iterator[Proxy]:
    """Returns a proxy that adds TLS in front of the server."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost",
         "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    opened = Proxy(own_server.port, tls=context)
    yield opened
    own_server.resume()
    opened.close()


async def both_decided(limiter: Limiter, waiting: AsyncLimiter) -> None:
    """Repeats calls until the server decides those of both limiters."""
    until(lambda: limiter.check(API, "warm").source == "server")
    for _ in range(6000):
        if (await waiting.check(API, "warm")).source == "server":
            return
        await asyncio.sleep(0.01)
    pytest.fail("the server does not decide")


@pytest.mark.anyio
async def test_deadlines_hold_and_replies_match_through_tls(
    own_server: Server, encrypted: Proxy
) -> None:
    options: Any = {"port": encrypted.port, "ssl": True, "ssl_cert_reqs": "none"}
    options["ssl_check_hostname"] = False
    limiter = Limiter(redis.Redis(**options), timeout_ms=1000, **NEVER_SHUT)
    waiting = AsyncLimiter(redis.asyncio.Redis(**options), timeout_ms=1000, **NEVER_SHUT)
    await both_decided(limiter, waiting)
    own_server.pause()
    # Both calls end before the server replies again. On a busy machine they may be overloaded.
    ends = limiter.check(with_limit(1), "x"), await waiting.check(with_limit(2), "x")
    assert {one.source for one in ends} <= {"error", "local"}
    own_server.resume()
    await both_decided(limiter, waiting)
    found = [limiter.check(with_limit(at), "y") for at in range(11, 21)]
    found += [await waiting.check(with_limit(at), "y") for at in range(21, 31)]
    decided = [
        (one.limit, at)
        for one, at in zip(found, range(11, 31), strict=True)
        if one.source == "server"
    ]
    assert len(decided) > 10
    assert all(limit == at for limit, at in decided)
    pool = waiting._transport._sockets.pool  # type: ignore[attr-defined]
    sockets = [one._writer.transport.get_extra_info("socket") for one in pool.idle]
    await waiting.close()
    # Wait one turn of the loop, but not for TLS's closing handshake.
    await asyncio.sleep(0)
    assert sockets
    assert all(one.fileno() == -1 for one in sockets)
    limiter.close()


# -- pools, forks, loops -----------------------------------------------------------------------


def test_a_limiter_decides_while_the_application_has_exhausted_its_pool(server: Server) -> None:
    pool = redis.BlockingConnectionPool(port=server.port, max_connections=1, timeout=60)
    taken = pool.get_connection()
    with Limiter(redis.Redis(connection_pool=pool), timeout_ms=60_000) as limiter:
        found: list[str] = []
        threads = [
            threading.Thread(
                target=lambda: found.append(limiter.check(with_limit(1000), "42").source)
            )
            for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == ["server"] * 20
    pool.release(taken)


def in_child(work: Callable[[], str]) -> str:
    """Runs the work in a forked child and returns its result."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        result = "no result"
        try:
            result = work()
        finally:
            os.write(writing, result.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        result = pipe.read()
    os.waitpid(child, 0)
    return result


def test_a_forked_child_starts_with_its_own_state(server: Server) -> None:
    hot = gcra("hot", 100, 100, "60s")
    options: Any = {"timeout_ms": 60_000, "prefetch": 10, "breaker_failures": 1}
    with Limiter(server.client(), **options) as limiter:
        assert limiter.check(hot, "x").remaining == 99
        limiter._breakers.of(None).failed()
        # The permits and the failures belong to the parent only.
        child = in_child(lambda: f"{limiter.check(hot, 'x').source} {limiter.counters.allowed}")
        assert child == "server 1"
        limiter._breakers.of(None).succeeded()
        assert limiter.check(hot, "x").source == "local"
    with Limiter(server.client(), timeout_ms=60_000) as limiter:
        # The parent refunded 8 of its 10 permits. The child ended with 9, which stay taken.
        assert limiter.peek(hot, "x", 0).remaining == 100 - 2 - 10


def check_in_loops(server: Server) -> list[str]:
    limiter = AsyncLimiter(redis.asyncio.Redis(port=server.port), timeout_ms=60_000)
    found: list[str] = []

    async def check() -> None:
        for _ in range(20):
            found.append((await limiter.check(gcra("l", 1000, 1, 1), "42")).source)

    asyncio.run(check())
    asyncio.run(check())
    threads = [threading.Thread(target=lambda: asyncio.run(check())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(limiter.close())
    assert not limiter._transport._sockets._of_loop  # type: ignore[attr-defined]
    return found


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_event_loops_in_sequence_and_in_parallel_get_decisions(server: Server) -> None:
    """Each event loop has its own sockets. They are garbage-collected after the loop closes."""
    assert check_in_loops(server) == ["server"] * 120
    gc.collect()


@pytest.mark.anyio
async def test_a_cluster_that_is_down_at_the_start_opens_the_circuit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = redis.asyncio.RedisCluster(host="127.0.0.1", port=silent.getsockname()[1])
        async with AsyncLimiter(client, timeout_ms=100, breaker_failures=2) as limiter:
            for _ in range(600):
                decision = await limiter.check(API, "42")
                assert decision.source == "error"
                if decision.reason == "circuit":
                    break
                await asyncio.sleep(0.05)
            with pytest.raises(Unavailable, match="circuit"):
                await limiter.ready()
        with contextlib.suppress(Exception):
            await client.aclose()


def test_a_redirection_without_a_host_leads_to_the_same_host() -> None:
    moved = types.SimpleNamespace(host="", port="7001", slot_id="3")
    named = types.SimpleNamespace(host="10.0.0.2", port=7002, slot_id="4")
    manager = types.SimpleNamespace(startup_nodes={})
    plain: Any = types.SimpleNamespace(nodes_manager=manager)
    assert Slots(plain).move(moved, ("10.0.0.1", 7000)) == ("10.0.0.1", 7001)
    assert Slots(plain).move(named, ("10.0.0.1", 7000)) == ("10.0.0.2", 7002)
    manager.remap_host_port = lambda host, port: ("outside", port)
    assert Slots(plain).move(named, None) == ("outside", 7002)
