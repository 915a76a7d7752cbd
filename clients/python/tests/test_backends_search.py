"""Tests the search for a back end: concurrent calls, clusters, restarts and other clients."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
import redis.asyncio

from redis_throttle_client import AsyncLimiter, CommandRejected, Decision, Limiter, gcra
from redis_throttle_client._wire.call import Call
from redis_throttle_client._wire.library import (
    bundled_version,
    library,
    version,
)

from .conftest import Server, shared
from .proxy import Proxy
from .test_backends import (
    ALLOWED,
    CALL,
    CHECK,
    CURRENT,
    EVAL,
    EVALSHA,
    LOAD,
    NO_FUNCTION,
    NO_MODULE,
    NO_PROBE,
    NO_SCRIPT,
    NOPERM,
    PATIENT,
    PROBE,
    VERSION,
    Script,
    replaced,
)

API = gcra("api", 6, 10, "60s")
MANY = gcra("many", 1000, 1, "1h")
HERD = 48


@pytest.fixture
def bare(shared_servers: dict[str, Server]) -> Server:
    """Returns a server without the module and without the library."""
    return shared(shared_servers, "functions")


# -- many at once ------------------------------------------------------------------------------


def loads(server: Server) -> int:
    return server.calls("function|load") + server.calls("eval")


def together(limiter: Limiter, subjects: list[str]) -> list[Decision]:
    """Runs one thread per subject. All threads start together."""
    ready = threading.Barrier(len(subjects))

    def check(subject: str) -> Decision:
        ready.wait()
        return limiter.check(MANY, subject)

    with ThreadPoolExecutor(len(subjects)) as threads:
        return list(threads.map(check, subjects))


@pytest.mark.live
@pytest.mark.parametrize("wanted", ["auto", "functions", "script"])
def test_many_threads_share_one_search(bare: Server, wanted: Any) -> None:
    bare.command("CONFIG", "RESETSTAT")
    with Limiter(bare.client(), backend=wanted, **PATIENT) as limiter:
        found = together(limiter, ["42"] * HERD)
        assert {decision.source for decision in found} == {"server"}
        assert sorted(decision.remaining for decision in found) == list(range(1000 - HERD, 1000))
    assert loads(bare) == 1


@pytest.mark.live
@pytest.mark.anyio
@pytest.mark.parametrize("wanted", ["auto", "functions", "script"])
async def test_many_tasks_share_one_search(bare: Server, wanted: Any) -> None:
    bare.command("CONFIG", "RESETSTAT")
    async with AsyncLimiter(
        redis.asyncio.Redis(port=bare.port), backend=wanted, **PATIENT
    ) as limiter:
        found = await asyncio.gather(*(limiter.check(MANY, "42") for _ in range(HERD)))
        assert sorted(decision.remaining for decision in found) == list(range(1000 - HERD, 1000))
        assert limiter.counters.degraded == 0
    assert loads(bare) == 1


@pytest.mark.live
@pytest.mark.anyio
async def test_the_next_call_continues_an_abandoned_search(bare: Server) -> None:
    async with AsyncLimiter(redis.asyncio.Redis(port=bare.port), **PATIENT) as limiter:
        for turns in range(1, 30, 4):
            task = asyncio.ensure_future(limiter.check(MANY, "42"))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        assert (await limiter.check(MANY, "43")).remaining == 999


# The driver may leak connections while it reads the map of a cluster.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.live
@pytest.mark.anyio
async def test_concurrent_calls_to_all_nodes_of_a_cluster_find_the_back_end(
    cluster: list[Server],
) -> None:
    """A waiter may reuse a search although its own call was refused by another node."""
    wanted = cluster[0].backend
    subjects = [f"h{at}" for at in range(HERD)]
    client = redis.RedisCluster(host="127.0.0.1", port=cluster[0].port)
    waiting = redis.asyncio.RedisCluster(host="127.0.0.1", port=cluster[0].port)
    with Limiter(client, **PATIENT) as limiter:
        async with AsyncLimiter(waiting, **PATIENT) as async_limiter:
            for left in (999, 997, 995):
                for node in cluster:
                    node.command("SCRIPT", "FLUSH")
                    if wanted == "functions":
                        node.command("FUNCTION", "FLUSH")
                found = together(limiter, subjects)
                assert {(one.source, one.remaining) for one in found} == {("server", left)}
                for node in cluster:
                    node.command("SCRIPT", "FLUSH")
                    if wanted == "functions":
                        node.command("FUNCTION", "FLUSH")
                found = await asyncio.gather(*(async_limiter.check(MANY, at) for at in subjects))
                assert {(one.source, one.remaining) for one in found} == {("server", left - 1)}
            assert limiter.ready() == wanted
            assert async_limiter.counters.rejected == limiter.counters.rejected == 0
    await waiting.aclose()
    client.close()


# The driver may leak connections while it reads the map of a cluster.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.live
@pytest.mark.anyio
async def test_a_newer_library_on_another_node_is_kept(cluster: list[Server]) -> None:
    """The limiter does not know the key's node until the driver knows the cluster's map."""
    if cluster[0].backend != "functions":
        pytest.skip("only with functions")
    for subject in ("1", "2", "3", "4", "5"):
        client = redis.asyncio.RedisCluster(host="127.0.0.1", port=cluster[0].port)
        slot = client.keyslot(f"rl:api:{subject}")
        owner = cluster[slot * 3 // 16384]
        for node in cluster:
            node.flush()
            there = "0.0.1" if node is owner else "99.0.0"
            node.command("FUNCTION", "LOAD", replaced(library(), there))
        async with AsyncLimiter(client, backend="functions", **PATIENT) as limiter:
            assert (await limiter.check(API, subject)).remaining == 5
        for node in cluster:
            kept = version(node.command("FCALL", "rl_version", "0"))
            assert kept == (bundled_version() if node is owner else (99, 0, 0))
        await client.aclose()


# -- a proxy that breaks ----------------------------------------------------------------------


@pytest.mark.live
@pytest.mark.anyio
@pytest.mark.parametrize("wanted", ["auto", "script"])
async def test_a_call_with_a_lost_reply_is_not_repeated(bare: Server, wanted: Any) -> None:
    """Each call counts at most once, and the limiter finds the back end again each time."""
    options: Any = {"breaker_failures": 1_000_000, "backend": wanted, **PATIENT}
    chance = random.Random(7)

    def cuts(request: bytes) -> bool:
        return bool(re.search(b"FCALL|EVALSHA|LOAD", request)) and chance.random() < 0.15

    with contextlib.closing(Proxy(bare.port, cuts=cuts)) as way:
        limiter = Limiter(redis.Redis(port=way.port), **options)
        waiting = AsyncLimiter(redis.asyncio.Redis(port=way.port), **options)
        found, async_found = [], []
        for _ in range(8):
            found += together(limiter, ["sync"] * 12)
            async_found += await asyncio.gather(*(waiting.check(MANY, "async") for _ in range(12)))
            bare.command("FUNCTION", "FLUSH")
            bare.command("SCRIPT", "FLUSH")
        for one in (limiter, waiting):
            assert one.counters.rejected == 0
        await waiting.close()
        limiter.close()
    with Limiter(bare.client(), **PATIENT) as counting:
        for subject, decisions in (("sync", found), ("async", async_found)):
            taken = 1000 - counting.peek(MANY, subject, 0).remaining
            decided = sum(decision.source == "server" for decision in decisions)
            assert decided <= taken <= len(decisions)
            assert 0 < decided < len(decisions)


# -- a slow server ----------------------------------------------------------------------------


class Far(Script):
    """Replies late, within the 100 ms of a call. The calls still take effect."""

    def __init__(self, takes_s: float, *replies: Any) -> None:
        super().__init__(*replies)
        self.now, self._takes_s = 0.0, takes_s

    def call(self, node: None, args: tuple[str, ...], call: Call) -> Any:
        left_s = call.left_s
        self.now += min(self._takes_s, left_s)
        call.left_s -= self._takes_s
        try:
            return super().call(node, args, call)
        finally:
            if left_s < self._takes_s:
                raise redis.TimeoutError("late")


@pytest.mark.parametrize(
    ("takes_s", "replies", "sent"),
    [
        (
            0.06,
            [NO_MODULE, NO_FUNCTION, NO_FUNCTION, b"ok", CURRENT, ALLOWED, ALLOWED],
            [CHECK, VERSION, VERSION, LOAD, VERSION, CALL, CALL],
        ),
        (
            0.045,
            [
                NO_MODULE, NOPERM, NO_SCRIPT, NO_SCRIPT, NO_PROBE, NOPERM,
                NOPERM, NO_SCRIPT, CURRENT, ALLOWED,
            ],
            [CHECK, VERSION, EVALSHA, EVALSHA, PROBE, VERSION, VERSION, EVALSHA, EVAL, EVALSHA],
        ),
    ],
)  # fmt: skip
def test_a_search_continues_where_the_previous_one_stopped(
    takes_s: float, replies: list[Any], sent: list[str]
) -> None:
    far = Far(takes_s, *replies)
    limiter = Limiter(far, clock=lambda: far.now, timeout_ms=100)
    while far.replies:
        found = limiter.check(API, "42")
    assert far.sent == sent
    assert found.source == "server"


# -- other servers, and other clients ---------------------------------------------------------


OTHERS = {
    "a library of the same name": (
        "#!lua name=redis_throttle\nredis.register_function('other', function() end)"
    ),
    "a function of the same name": (
        "#!lua name=other\nredis.register_function('rl_gcra', function() end)"
    ),
}


@pytest.mark.live
@pytest.mark.parametrize("other", OTHERS)
def test_libraries_of_other_clients_are_kept(bare: Server, other: str) -> None:
    bare.command("FUNCTION", "LOAD", OTHERS[other])
    before = bare.command("FUNCTION", "LIST", "WITHCODE")
    with Limiter(bare.client(), **PATIENT) as limiter:
        assert limiter.ready() == "script"
        assert limiter.check(API, "42").remaining == 5
    with Limiter(bare.client(), backend="functions", **PATIENT) as limiter:
        for _ in range(2):
            with pytest.raises(CommandRejected, match="already exists"):
                limiter.check(API, "42")
    assert bare.command("FUNCTION", "LIST", "WITHCODE") == before
