"""Tests each driver on a real server and on a cluster, in its lowest and its highest version.

These tests use only what every supported version has. With ``RL_DRIVERS``, the name of a file of
requirements, the installed versions must be those of that file.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio

from redis_throttle_client import AsyncLimiter, CommandRejected, Limiter, fixed, gcra, lease

from .conftest import CLUSTER, CLUSTER_SLOTS, Server, own, until
from .either import PACKAGES, client_of, kinds, limiter_over

API = gcra("api", 6, 10, "60s")
DAY = fixed("day", 100, "1d")
JOBS = lease("jobs", 1, "60s")
on_module = pytest.mark.parametrize("cluster", ["module"], indirect=True)


@pytest.fixture(params=PACKAGES)
def driver(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_the_drivers_have_the_versions_of_the_requirements(driver: str) -> None:
    named = os.environ.get("RL_DRIVERS", "requirements-test.txt")
    requirements = (Path(__file__).parents[1] / named).read_text()
    found = re.search(rf"^{driver}==(\S+)$", requirements, re.MULTILINE)
    assert found is not None
    assert PACKAGES[driver].__version__ == found[1]


@pytest.mark.live
@kinds
@pytest.mark.parametrize("protocol", [2, 3])
def test_a_driver_decides(shared_server: Server, driver: str, protocol: int, kind: Any) -> None:
    client = client_of(kind, driver, port=shared_server.port, protocol=protocol)
    with limiter_over(client, kind) as limiter:
        assert limiter.ready() == "module"
        assert [limiter.check(API, "42").remaining for _ in range(2)] == [5, 4]
        assert limiter.check_all(API.of("42"), DAY.of("42").cost(2)).rows[1].remaining == 98
        with limiter.lease(JOBS, "42") as held:
            assert held.renew()
        shared_server.command("SET", "rl:api:text", "text")
        with pytest.raises(CommandRejected, match="WRONGTYPE"):
            limiter.check(API, "text")


@pytest.mark.live
@on_module
@kinds
def test_a_cluster_driver_decides_and_follows_a_slot(
    cluster: list[Server], driver: str, kind: Any
) -> None:
    for node in cluster:
        node.flush()
    client = client_of(kind, driver, "Cluster", host="127.0.0.1", port=cluster[0].port)
    with limiter_over(client, kind) as limiter:
        assert {limiter.check(API, str(at)).remaining for at in range(20)} == {5}
        slot = client.keyslot("rl:api:moves")
        home = slot * 3 // CLUSTER_SLOTS
        own(cluster, "rl:api:moves", cluster[(home + 1) % 3])
        assert limiter.check(API, "moves").remaining == 5
        limiter.forget(API, "moves")
        own(cluster, "rl:api:moves", cluster[home])
        assert limiter.check(API, "moves").source == "server"


@pytest.fixture
def replica(cluster: list[Server]) -> Iterator[Server]:
    """Returns a replica of the first node."""
    with contextlib.closing(Server(*CLUSTER)) as joined:
        joined.command("CLUSTER", "MEET", "127.0.0.1", cluster[0].port)
        identity = cluster[0].command("CLUSTER", "MYID")
        until(lambda: identity in joined.command("CLUSTER", "NODES"))
        joined.command("CLUSTER", "REPLICATE", identity)
        until(lambda: joined.command("INFO", "replication")["master_link_status"] == "up")
        until(lambda: all(one.command("CLUSTER", "NODES").count(b"slave") for one in cluster))
        yield joined


@pytest.mark.live
@pytest.mark.anyio
@on_module
async def test_a_cluster_driver_decides_after_its_primary_froze(
    cluster: list[Server], replica: Server
) -> None:
    """Must be the last test, because the replica takes over. A frozen node accepts connections."""
    at: dict[str, Any] = {"host": "127.0.0.1", "port": cluster[0].port}
    options: dict[str, Any] = {"timeout_ms": 500, "breaker_pause_ms": 50}
    clients: list[Any] = [redis.RedisCluster(**at), valkey.ValkeyCluster(**at)]
    async_clients: list[Any] = [
        redis.asyncio.RedisCluster(**at), valkey.asyncio.ValkeyCluster(**at),
    ]  # fmt: skip
    limiters = [Limiter(client, **options) for client in clients]
    waiting = [AsyncLimiter(client, **options) for client in async_clients]
    subject = next(
        one for one in map(str, range(99))
        if clients[0].keyslot(f"rl:api:{one}") * 3 < CLUSTER_SLOTS
    )  # fmt: skip
    maps = [client.nodes_manager.slots_cache for client in clients]
    ends = time.monotonic() + 120
    try:
        for is_frozen in (False, True):
            for limiter in limiters:
                while limiter.check(API, subject).source != "server":
                    assert time.monotonic() < ends
            for async_limiter in waiting:
                while (await async_limiter.check(API, subject)).source != "server":
                    assert time.monotonic() < ends
            if not is_frozen:
                cluster[0].pause()
        # The map and the connections of the application's clients stay as they were.
        for client, before in zip(clients, maps, strict=True):
            assert client.nodes_manager.slots_cache is before
        for limiter in limiters:
            limiter.close()
        for async_limiter in waiting:
            await async_limiter.close()
    finally:
        cluster[0].resume()
        for client in clients:
            client.close()
        for async_client in async_clients:
            await getattr(async_client, "aclose", async_client.close)()


@pytest.mark.live
@kinds
def test_ready_has_more_time_to_connect_than_a_call(
    shared_server: Server, driver: str, kind: Any
) -> None:
    package = PACKAGES[driver].asyncio if kind is AsyncLimiter else PACKAGES[driver]
    limits_s: list[float] = []

    class Noting(package.Connection):  # type: ignore[misc, name-defined]
        def _connect(self) -> Any:
            limits_s.append(self.socket_connect_timeout)
            return super()._connect()

    pool = package.ConnectionPool(connection_class=Noting, port=shared_server.port)
    client = client_of(kind, driver, connection_pool=pool)
    with limiter_over(client, kind, timeout_ms=3000) as limiter:
        limiter.ready()
    assert limits_s == [5]
