"""Tests on real servers, with the module and without, of behavior that a fake cannot show."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio

from redis_throttle_client import (
    AsyncLimiter,
    CommandRejected,
    Denied,
    Limiter,
    fixed,
    gcra,
    lease,
    policy,
    token_bucket,
)

from .conftest import Server
from .either import PACKAGES, client_of, kinds, limiter_over

pytestmark = pytest.mark.live
API = gcra("api", 6, 10, "60s")
JOBS = lease("jobs", 1, "60s")


OPTIONS: dict[str, Any] = {
    "TCP": {}, "RESP2": {"protocol": 2}, "unix": {"decode_responses": True}, "blocking": {},
}  # fmt: skip


@kinds
@pytest.mark.parametrize("driver", PACKAGES)
@pytest.mark.parametrize("name", OPTIONS)
def test_a_burst_is_allowed_and_then_denied(
    server: Server, name: str, driver: str, kind: Any
) -> None:
    options = {"unix_socket_path": server.path} if name == "unix" else {"port": server.port}
    options |= OPTIONS[name]
    if name == "blocking":
        package = PACKAGES[driver].asyncio if kind is AsyncLimiter else PACKAGES[driver]
        options = {"connection_pool": package.BlockingConnectionPool(**options)}
    with limiter_over(client_of(kind, driver, **options), kind) as limiter:
        limiter.ready()
        remaining = [limiter.check(API, "42").remaining for _ in range(6)]
        denied = limiter.check(API, "42")
        assert remaining == [5, 4, 3, 2, 1, 0]
        assert (denied.allowed, denied.retry_after_ms, denied.source) == (False, 6000, "server")
        server.advance("6s")
        assert limiter.peek(API, "42")
        assert limiter.check(API, "42")
        assert limiter.refund(API, "42", 2).remaining == 2
        limiter.forget(API, "42")
        assert limiter.check(API, "42").remaining == 5
        assert limiter.charge(API, "42", 6).allowed is False


def test_several_rules_take_from_all_or_none_and_a_lease_excludes_others(server: Server) -> None:
    jobs = lease("jobs", 1, "60s")
    with Limiter(server.client(), timeout_ms=60_000) as limiter:
        both = limiter.check_all(API.of("42"), fixed("day", 3, "1d").of("acme").cost(3), tag="acme")
        assert both.allowed
        assert [row.remaining for row in both.rows] == [5, 0]
        again = limiter.check_all(
            API.of("42"), fixed("day", 3, "1d").of("acme").cost(3), tag="acme"
        )
        assert (again.allowed, again.rule, again.rows[0].remaining) == (False, "day", 5)
        with limiter.lease(jobs, "42") as held:
            assert held.held
            assert held.renew()
            with pytest.raises(Denied), limiter.lease(jobs, "42"):
                pass
        with limiter.lease(jobs, "42"):
            pass


def test_a_missing_policy_uses_its_default_or_raises(shared_server: Server) -> None:
    with Limiter(shared_server.client(), timeout_ms=60_000) as limiter:
        assert limiter.check(policy("search", default=API), "42").would_allow
        with pytest.raises(CommandRejected, match="policy"):
            limiter.check(policy("none"), "42")


@pytest.mark.anyio
async def test_a_burst_larger_than_prefetch_is_decided_by_the_server(server: Server) -> None:
    hot = fixed("hot", 95, "1h", prefetch=10)
    async with AsyncLimiter(redis.asyncio.Redis(port=server.port), timeout_ms=60_000) as limiter:
        found = await asyncio.gather(*(limiter.check(hot, "x") for _ in range(200)))
        assert sum(one.allowed for one in found) == 95
        assert not any(one.degraded for one in found)
        await limiter.forget(hot, "x")
        assert (await limiter.check(hot, "x")).remaining == 94


def test_a_stale_connection_is_not_used(server: Server) -> None:
    with Limiter(server.client(), timeout_ms=60_000) as limiter:
        assert limiter.check(API, "42").source == "server"
        server.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert limiter.check(API, "42").source == "server"


def calls_and_errors(nodes: list[Server]) -> tuple[int, int]:
    calls = errors = 0
    for node in nodes:
        calls += node.calls("rl.gcra")
        moved = node.command("INFO", "errorstats").get("errorstat_MOVED", {})
        errors += int(moved.get("count", 0))
    return calls, errors


@pytest.mark.parametrize("driver", [redis.RedisCluster, valkey.ValkeyCluster])
def test_a_cluster_redirects_no_call(cluster: list[Server], driver: Any) -> None:
    for node in cluster:
        node.command("FLUSHALL")
    before = calls_and_errors(cluster)
    client = driver(host="127.0.0.1", port=cluster[0].port)
    with Limiter(client, timeout_ms=60_000) as limiter:
        assert all(limiter.check(API, str(at)).source == "server" for at in range(60))
        both = limiter.check_all(API.of("1"), token_bucket("t", 9, 9, 9).of("2"), tag="acme")
        assert both.allowed
        with pytest.raises(CommandRejected):
            limiter.check_all(API.of("1"), token_bucket("t", 9, 9, 9).of("2"))
        each = limiter.check_each(API.of("e1"), fixed("none", 1, 9).of("e2").cost(2))
        assert not each
        assert limiter.peek(API, "e1", 0).remaining == 6
        slow = token_bucket("slow", 9, 9, "1h")
        with limiter.admit(slow.of("1").cost(4), JOBS.of("2"), tag="acme") as admitted:
            admitted.settle(slow, 1)
        assert limiter.peek(slow, "1", 0, tag="acme").remaining == 8
        assert limiter.peek_all(JOBS.of("2"), tag="acme", id="x").remaining == 0
        for subject in map(str, range(9)):
            with limiter.lease(JOBS, subject) as held:
                assert held.renew()
            limiter.forget(JOBS, subject)
    after = calls_and_errors(cluster)
    assert after[0] - before[0] == (61 if cluster[0].backend == "module" else 0)
    assert after[1] == before[1]
    client.close()


@pytest.fixture(params=[redis.asyncio.RedisCluster, valkey.asyncio.ValkeyCluster])
async def async_cluster(
    cluster: list[Server], request: pytest.FixtureRequest
) -> AsyncIterator[Any]:
    for node in cluster:
        node.command("FLUSHALL")
    client = request.param(host="127.0.0.1", port=cluster[0].port)
    yield client
    await client.aclose()


@pytest.mark.anyio
async def test_each_node_gets_a_missing_library(cluster: list[Server], async_cluster: Any) -> None:
    wanted: Any = cluster[0].backend
    for node in cluster:
        node.flush()
    options: Any = {"timeout_ms": 60_000, "backend": wanted}
    client = redis.RedisCluster(host="127.0.0.1", port=cluster[0].port)
    async with AsyncLimiter(async_cluster, **options) as waiting:
        for at in range(20):
            assert (await waiting.check(API, f"b{at}")).remaining == 5
        for node in cluster:
            node.flush()
        with Limiter(client, **options) as limiter:
            assert limiter.ready() == wanted
            assert {limiter.check(API, f"b{at}").remaining for at in range(20)} == {5}
    client.close()
