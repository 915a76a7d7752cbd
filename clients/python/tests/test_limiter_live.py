"""Tests on real servers, with the module and without, of behavior that a fake cannot show."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import anyio
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
    Unavailable,
    fixed,
    gcra,
    leaky_bucket,
    lease,
    policy,
    token_bucket,
)

from .conftest import CLUSTER, Server, free_port, has, own, until

pytestmark = pytest.mark.live
API = gcra("api", 6, 10, "60s")
JOBS = lease("jobs", 1, "60s")
# Far more than an answer takes, and far less than a driver's retries. It bounds the quickest of
# several rounds, because a machine may be busy. The tests of the example check 150 ms over HTTP.
MARGIN_S = 2.0
# The driver may leak connections while it reads the map of a changing cluster.
LEAKING = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
ROUNDS = 3


def sync_clients(server: Server) -> dict[str, Any]:
    pool: Any = redis.BlockingConnectionPool
    return {
        "redis": redis.Redis(port=server.port),
        "redis, RESP2": redis.Redis(port=server.port, protocol=2),
        "redis, unix": redis.Redis(unix_socket_path=server.path, decode_responses=True),
        "redis, blocking": redis.Redis(connection_pool=pool(port=server.port)),
        "valkey": valkey.Valkey(port=server.port),
    }


def async_clients(server: Server) -> dict[str, Any]:
    return {
        "redis": redis.asyncio.Redis(port=server.port),
        "redis, RESP2": redis.asyncio.Redis(port=server.port, protocol=2),
        "redis, unix": redis.asyncio.Redis(unix_socket_path=server.path),
        "valkey": valkey.asyncio.Valkey(port=server.port),
    }


@pytest.mark.parametrize(
    "name", ["redis", "redis, RESP2", "redis, unix", "redis, blocking", "valkey"]
)
def test_a_burst_is_allowed_and_then_denied(server: Server, name: str) -> None:
    with Limiter(sync_clients(server)[name], timeout_ms=60_000) as limiter:
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


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["redis", "redis, RESP2", "redis, unix", "valkey"])
async def test_a_burst_is_allowed_and_then_denied_in_asyncio(server: Server, name: str) -> None:
    async with AsyncLimiter(async_clients(server)[name], timeout_ms=60_000) as limiter:
        await limiter.ready()
        remaining = [(await limiter.check(API, "42")).remaining for _ in range(6)]
        denied = await limiter.check(API, "42")
        assert remaining == [5, 4, 3, 2, 1, 0]
        assert (denied.allowed, denied.retry_after_ms) == (False, 6000)
        assert (await limiter.refund(API, "42", 2)).remaining == 2
        await limiter.forget(API, "42")
        assert (await limiter.check(API, "42")).remaining == 5


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


def test_prefetched_permits_are_refunded_on_close(server: Server) -> None:
    hot = gcra("hot", 1000, 1000, "1h")
    before = server.counted()
    with Limiter(server.client(), prefetch=100, timeout_ms=60_000) as limiter:
        found = [limiter.check(hot, "x") for _ in range(150)]
        assert all(found)
        assert [one.remaining for one in found] == list(range(999, 849, -1))
        assert server.counted() - before == 2
    with Limiter(server.client(), timeout_ms=60_000) as limiter:
        assert limiter.peek(hot, "x", 0).remaining == 850


@pytest.mark.anyio
async def test_a_burst_larger_than_prefetch_is_decided_by_the_server(server: Server) -> None:
    hot = fixed("hot", 95, "1h", prefetch=10)
    async with AsyncLimiter(redis.asyncio.Redis(port=server.port), timeout_ms=60_000) as limiter:
        found = await asyncio.gather(*(limiter.check(hot, "x") for _ in range(200)))
        assert sum(one.allowed for one in found) == 95
        assert not any(one.degraded for one in found)
        await limiter.forget(hot, "x")
        assert (await limiter.check(hot, "x")).remaining == 94


def test_a_rejected_command_is_raised_under_on_error_allow(server: Server) -> None:
    with Limiter(server.client(), timeout_ms=60_000) as limiter:
        server.command("SET", "rl:api:42", "something")
        for rule in (API, gcra("api", 6, 10, "60s", on_error="deny")):
            with pytest.raises(CommandRejected):
                limiter.check(rule, "42")


def test_a_server_out_of_memory_counts_as_unavailable(own_server: Server) -> None:
    own_server.command("CONFIG", "SET", "maxmemory", "1")
    with Limiter(own_server.client(), timeout_ms=60_000) as limiter:
        assert limiter.check(API, "42").source == "error"


@pytest.fixture
def hung(own_server: Server) -> Iterator[Server]:
    yield own_server
    own_server.answer_again()


ONCE: Any = {"breaker_failures": 1, "breaker_pause_ms": 60_000}


def connected_limiter(server: Server) -> Limiter:
    """Returns a limiter with an open connection and no failure; a busy machine may need retries."""
    while True:
        limiter = Limiter(server.client(), **ONCE)
        if limiter.check(API, "warm").source == "server":
            return limiter
        limiter.close()


async def connected_async_limiter(server: Server) -> AsyncLimiter:
    while True:
        limiter = AsyncLimiter(redis.asyncio.Redis(port=server.port), **ONCE)
        if (await limiter.check(API, "warm")).source == "server":
            return limiter
        await limiter.close()


@pytest.mark.parametrize("connected", [False, True])
def test_a_hung_server_costs_one_timeout_and_counts_once(hung: Server, connected: bool) -> None:
    took_s: list[float] = []
    for _ in range(ROUNDS):
        made = connected_limiter(hung) if connected else Limiter(hung.client(), **ONCE)
        with made as limiter:
            before = hung.counted()
            hung.stop_answering()
            began = time.monotonic()
            first = limiter.check(API, "42")
            took_s.append(time.monotonic() - began)
            assert limiter.check(API, "42").source == "error"
            with pytest.raises(Unavailable, match="circuit"):
                limiter.ready()
            hung.answer_again()
            assert (first.allowed, first.source, first.degraded) == (True, "error", True)
            assert hung.counted() - before <= 1
    assert 0.09 < min(took_s) < 0.1 + MARGIN_S


@pytest.mark.anyio
@pytest.mark.parametrize("connected", [False, True])
async def test_a_hung_server_costs_one_timeout_and_counts_once_in_asyncio(
    hung: Server, connected: bool
) -> None:
    took_s: list[float] = []
    for _ in range(ROUNDS):
        made = AsyncLimiter(redis.asyncio.Redis(port=hung.port), **ONCE)
        async with await connected_async_limiter(hung) if connected else made as limiter:
            before = hung.counted()
            hung.stop_answering()
            began = time.monotonic()
            first = await limiter.check(gcra("api", 6, 10, "60s", on_error="deny"), "42")
            took_s.append(time.monotonic() - began)
            hung.answer_again()
            assert (first.allowed, first.source) == (False, "error")
            assert hung.counted() - before <= 1
    assert 0.09 < min(took_s) < 0.1 + MARGIN_S


def test_a_server_that_comes_back_is_called_again(own_server: Server) -> None:
    with Limiter(own_server.client(), breaker_pause_ms=10) as limiter:
        until(lambda: limiter.check(API, "42").source == "server")
        own_server.end()
        assert limiter.check(API, "42").source == "error"
        own_server.start()
        until(lambda: limiter.check(API, "42").source == "server")


def test_a_missing_server_is_unavailable() -> None:
    client = redis.Redis(port=free_port())
    took_s: list[float] = []
    for _ in range(ROUNDS):
        with Limiter(client) as limiter:
            began = time.monotonic()
            assert limiter.check(API, "42").source == "error"
            took_s.append(time.monotonic() - began)
            with pytest.raises(Unavailable):
                limiter.ready()
    assert min(took_s) < 0.1 + MARGIN_S


def test_a_stale_connection_is_not_used(server: Server) -> None:
    with Limiter(server.client(), timeout_ms=60_000) as limiter:
        assert limiter.check(API, "42").source == "server"
        server.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert limiter.check(API, "42").source == "server"


def test_wait_follows_a_leaky_bucket(server: Server) -> None:
    queue = leaky_bucket("queue", 4, 2, "1s")
    slept: list[float] = []
    with Limiter(server.client(), timeout_ms=60_000, sleep=slept.append) as limiter:
        assert [limiter.wait(queue, "x", 1200).allowed for _ in range(4)] == [
            True, True, True, False,
        ]  # fmt: skip
        assert slept == [0.5, 1.0]
        assert limiter.peek(queue, "x", 0).remaining == 1


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
async def test_an_asyncio_cluster_follows_a_slot_that_moves(
    cluster: list[Server], async_cluster: Any
) -> None:
    to = next(node for node in cluster if not has(node, "rl:api:moves"))
    before = calls_and_errors(cluster)
    async with AsyncLimiter(async_cluster, timeout_ms=60_000) as limiter:
        for at in range(60):
            assert (await limiter.check(API, f"a{at}")).source == "server"
        assert calls_and_errors(cluster)[1] == before[1]
        own(cluster, "rl:api:moves", to)
        before = calls_and_errors(cluster)
        for _ in range(5):
            assert (await limiter.check(API, "moves")).source == "server"
        assert calls_and_errors(cluster)[1] == before[1] + 1


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


@pytest.mark.filterwarnings(*LEAKING)
@pytest.mark.anyio
async def test_a_key_in_a_moving_slot_is_called_on_the_target_node(
    cluster: list[Server], async_cluster: Any
) -> None:
    """``ASK`` redirects one call only. The cluster's map does not change."""
    client = redis.RedisCluster(host="127.0.0.1", port=cluster[0].port)
    slot = client.keyslot("rl:api:asked")
    source = next(node for node in cluster if has(node, "rl:api:asked"))
    target = next(node for node in cluster if node is not source)
    names = {node: node.command("CLUSTER", "MYID").decode() for node in (source, target)}
    with Limiter(client, timeout_ms=60_000) as limiter:
        assert limiter.check(API, "asked").remaining == 5
        limiter.forget(API, "asked")
        target.flush()
        async with AsyncLimiter(async_cluster, timeout_ms=60_000) as waiting:
            target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", names[source])
            source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", names[target])
            before = target.counted()
            assert limiter.check(API, "asked").remaining == 5
            assert (await waiting.check(API, "asked")).remaining == 4
            assert target.counted() - before == 2
            for node in (source, target):
                node.command("CLUSTER", "SETSLOT", slot, "STABLE")
            before = source.counted()
            assert limiter.check(API, "asked").remaining == 5
            assert source.counted() - before == 1
    client.close()


def answers(limiter: Limiter, subject: str) -> bool:
    return limiter.check(API, subject).source == "server"


async def answered(limiter: AsyncLimiter, subject: str) -> None:
    """Repeats a call until the server decides it."""
    for _ in range(600):
        if (await limiter.check(API, subject)).source == "server":
            return
        await anyio.sleep(0.05)
    pytest.fail("the server does not decide")


@pytest.mark.filterwarnings(*LEAKING)
@pytest.mark.anyio
async def test_a_cluster_decides_again_after_a_failover(cluster: list[Server]) -> None:
    """Must be the last test, because it stops one of the nodes."""
    owner = next(node for node in cluster if has(node, "rl:api:f"))
    with contextlib.closing(Server(*CLUSTER, backend=owner.backend)) as replica:
        replica.command("CLUSTER", "MEET", "127.0.0.1", cluster[0].port)
        identity = owner.command("CLUSTER", "MYID").decode()
        until(lambda: identity.encode() in replica.command("CLUSTER", "NODES"))
        replica.command("CLUSTER", "REPLICATE", identity)
        until(lambda: replica.command("INFO", "replication")["master_link_status"] == "up")
        seen = next(node for node in cluster if node is not owner)
        until(lambda: seen.command("CLUSTER", "NODES").count(b"slave") == 1)
        at: dict[str, Any] = {"host": "127.0.0.1", "port": seen.port}
        clients: list[Any] = [redis.RedisCluster(**at), valkey.ValkeyCluster(**at)]
        async_clients: list[Any] = [
            redis.asyncio.RedisCluster(**at), valkey.asyncio.ValkeyCluster(**at),
        ]  # fmt: skip
        options: dict[str, Any] = {"timeout_ms": 5000, "breaker_pause_ms": 50}
        limiters = [Limiter(client, **options) for client in clients]
        waiting = [AsyncLimiter(client, **options) for client in async_clients]
        # The first call of a client also reads the map of the cluster.
        for limiter in limiters:
            until(partial(answers, limiter, "f"))
        for async_limiter in waiting:
            await answered(async_limiter, "f")
        owner.end()
        other = next(k for k in map(str, range(99)) if has(seen, f"rl:api:{k}"))
        for limiter in limiters:
            assert limiter.check(API, "f").source == "error"
            assert limiter.check(API, other).source == "server"
        for limiter in limiters:
            until(partial(answers, limiter, "f"))
        for async_limiter in waiting:
            await answered(async_limiter, "f")
        moved = calls_and_errors([seen, replica])[1]
        for limiter, async_limiter in zip(limiters, waiting, strict=True):
            assert limiter.check(API, "f").source == "server"
            assert (await async_limiter.check(API, "f")).source == "server"
        assert calls_and_errors([seen, replica])[1] == moved
        for limiter, client in zip(limiters, clients, strict=True):
            limiter.close()
            client.close()
        for async_limiter, async_client in zip(waiting, async_clients, strict=True):
            await async_limiter.close()
            await async_client.aclose()
