"""Tests when the transports of a cluster read its slot map, with scripted replies of its nodes."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.cluster
import valkey
import valkey.asyncio
import valkey.cluster
from redis._parsers.resp2 import _RESP2Parser

from redis_throttle_client import Unavailable
from redis_throttle_client._net.breaker import Breakers
from redis_throttle_client._net.cluster import AsyncClusterTransport, ClusterTransport
from redis_throttle_client._net.connection import SocketLink
from redis_throttle_client._net.dial import Dial
from redis_throttle_client._net.slots import Address
from redis_throttle_client._net.sockets import Sockets
from redis_throttle_client._rules.errors import lost
from redis_throttle_client._rules.options import Bounds, Options
from redis_throttle_client._wire.call import Call

from .conftest import Server
from .fakes import settled
from .nodes import DOWN, A, B, C, Nodes, map_of
from .test_sockets import Dials

OPTIONS = Options.of(timeout_ms=1000)
BOUNDS, BREAKERS = Bounds.of(OPTIONS), Breakers(OPTIONS)


class Clock:
    """The time of a test."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("redis_throttle_client._net.cluster.time", clock)
    return clock


def threads_over(nodes: Nodes) -> Any:
    """Returns a sync transport over the nodes."""
    transport: Any = ClusterTransport(nodes, BOUNDS, BREAKERS)
    transport._query = nodes.reply
    return transport


def loop_over(nodes: Nodes) -> Any:
    """Returns a transport for asyncio over the nodes."""
    transport: Any = AsyncClusterTransport(nodes, BOUNDS, BREAKERS)
    transport._query = nodes.reply_later
    return transport


def read(transport: Any) -> None:
    """Waits until the reading of the map ends."""
    transport._reader.join(60)
    assert not transport._reader.is_alive()


# -- when the map is read ------------------------------------------------------------------------


class Failing:
    """The connections to a node on which each call fails."""

    left = False

    def __init__(self, error: Exception) -> None:
        self._error = error

    def call(self, *_: Any, **__: Any) -> Any:
        raise self._error

    def leave(self) -> None:
        self.left = True


class FailingInLoop(Failing):
    async def call(self, *_: Any, **__: Any) -> Any:
        raise self._error

    async def leave(self) -> None:  # type: ignore[override]
        self.left = True


def error_of(driver: str, text: str) -> Exception:
    """Returns the exception that a driver raises for an error reply of a cluster."""
    # redis-py 8 has one parser for servers and clusters.
    of_cluster = getattr(DRIVERS[driver].cluster, "ClusterParser", None)
    parser = of_cluster(4096) if of_cluster else _RESP2Parser(4096)
    error = parser.parse_error(text)
    assert isinstance(error, Exception)
    return error


ERRORS = [
    ("CLUSTERDOWN The cluster is down", True),
    ("OOM command not allowed when used memory > 'maxmemory'.", False),
    ("WRONGTYPE Operation against a key holding the wrong kind of value", False),
]
DRIVERS: dict[str, Any] = {"redis": redis, "valkey": valkey}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize(("text", "is_read"), ERRORS)
def test_a_reply_that_the_map_is_old_reads_it_again(driver: str, text: str, is_read: bool) -> None:
    nodes = Nodes(DRIVERS[driver], A, B)
    nodes.replies = {A: map_of(A), B: map_of(B)}
    transport = threads_over(nodes)
    transport._nodes[A] = Failing(error_of(driver, text))
    with pytest.raises(DRIVERS[driver].ResponseError):
        transport.call(A, ("DEL", "1"), Call(60))
    if is_read:
        read(transport)
    # The node that has replied is queried last.
    assert nodes.sent == [B] * is_read
    assert not is_read or transport.node("1") == B


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_redirection_reads_the_map_from_the_new_owner(driver: str) -> None:
    nodes = Nodes(DRIVERS[driver], A, B, C)
    nodes.replies = {A: map_of(A), B: map_of(B), C: map_of(C)}
    transport = threads_over(nodes)
    transport._nodes[A] = Failing(error_of(driver, f"MOVED 1 {C[0]}:{C[1]}"))
    transport._nodes[C] = Failing(error_of(driver, "ERR any other"))
    with pytest.raises(DRIVERS[driver].ResponseError, match="any other"):
        transport.call(A, ("DEL", "1"), Call(60))
    read(transport)
    assert nodes.sent == [C]


def test_one_thread_at_a_time_reads_the_map_and_at_most_once_per_second(clock: Clock) -> None:
    nodes = Nodes(redis, A)
    transport = threads_over(nodes)
    go, before = threading.Event(), threading.active_count()

    def frozen(node: Address) -> Any:
        assert go.wait(60)
        return nodes.reply(node)

    transport._query = frozen
    for _ in range(9):
        with pytest.raises(Unavailable):
            transport.node("1")
        clock.now_s += 1
    assert threading.active_count() == before + 1
    go.set()
    read(transport)
    for _ in range(20):
        with pytest.raises(Unavailable):
            transport.node("1")
        read(transport)
        clock.now_s += 0.1
    # The reading of the frozen node, and two in 2 s.
    assert len(nodes.sent) == 3


def test_a_child_of_a_fork_reads_the_map_itself(clock: Clock) -> None:
    nodes = Nodes(redis, A)
    nodes.replies = {A: map_of(A)}
    transport = threads_over(nodes)
    transport._lock.acquire()
    transport._reader = threading.current_thread()
    # The child of a fork calls this.
    transport.begin()
    clock.now_s += 1
    with pytest.raises(Unavailable):
        transport.node("1")
    read(transport)
    assert transport.node("1") == A


@pytest.mark.anyio
async def test_one_reading_serves_all_first_calls_of_a_loop(clock: Clock) -> None:
    nodes = Nodes(redis.asyncio, A)
    transport = loop_over(nodes)
    for expected in range(1, 3):
        first = [asyncio.ensure_future(transport._know()) for _ in range(9)]
        found = await asyncio.gather(*first, return_exceptions=True)
        # All these calls are one failure.
        assert [type(one) for one in found] == [redis.ConnectionError] + [Unavailable] * 8
        assert not any(getattr(one, "is_failure", False) for one in found)
        with pytest.raises(Unavailable):
            await transport.call(transport.node("1"), ("DEL", "1"), Call(60))
        assert len(nodes.sent) == expected
        clock.now_s += 1
    nodes.replies = {A: redis.exceptions.NoPermissionError("no permission")}
    for _ in range(2):
        with pytest.raises(redis.exceptions.NoPermissionError):
            await transport.call(None, ("DEL", "1"), Call(60))
    clock.now_s += 1
    nodes.replies = {A: map_of(B)}
    await asyncio.gather(*(transport._know() for _ in range(9)))
    assert transport.node("1") == B
    await transport.close()


def test_each_event_loop_reads_the_map_itself_until_it_is_known() -> None:
    nodes = Nodes(redis.asyncio, A)
    transport = loop_over(nodes)
    for expected in range(1, 4):
        with pytest.raises(redis.ConnectionError):
            asyncio.run(transport._know())
        assert (len(nodes.sent), len(transport._readings)) == (expected, 1)
    nodes.replies = {A: map_of(B)}
    asyncio.run(transport._know())
    assert transport.node("1") == B


@pytest.mark.anyio
async def test_close_ends_a_reading_and_the_calls_that_wait_for_it() -> None:
    transport = loop_over(Nodes(redis.asyncio, A))
    queried = asyncio.Event()

    async def frozen(node: Address) -> None:
        queried.set()
        await asyncio.sleep(60)

    transport._query = frozen
    waiting = asyncio.ensure_future(transport.call(None, ("DEL", "1"), Call(60)))
    await queried.wait()
    await transport.close()
    with pytest.raises(Unavailable):
        await waiting


@pytest.mark.parametrize("name", ["redis", "valkey"])
def test_a_silent_node_is_queried_for_a_limited_time(name: str) -> None:
    package = DRIVERS[name]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        transport: Any = ClusterTransport(Nodes(package, (host, port)), BOUNDS, BREAKERS)
        began = time.monotonic()
        errors = [transport._query((host, port))]

        async def query() -> None:
            waiting: Any = AsyncClusterTransport(
                Nodes(package.asyncio, (host, port)), BOUNDS, BREAKERS
            )
            errors.append(await waiting._query((host, port)))

        asyncio.run(query())
        assert time.monotonic() - began < 10
        assert all(isinstance(error, Exception) for error in errors)
        assert errors[1].stage == "connected, not logged in"
        assert str(errors[1]) == "no reply in time"
        assert str(lost(TimeoutError())) == "no reply: TimeoutError"


# -- nodes that were replaced --------------------------------------------------------------------


def test_the_connections_to_a_node_that_the_map_does_not_name_are_dropped() -> None:
    nodes = Nodes(redis, A)
    transport = threads_over(nodes)
    kept, replaced = Failing(DOWN), Failing(DOWN)
    transport._nodes |= {A: replaced, B: kept}
    transport._read(None, None)
    # Without a reply nothing is known.
    assert transport._nodes == {A: replaced, B: kept}
    nodes.replies = {A: map_of(B, C)}
    transport._read(None, None)
    assert transport._nodes == {B: kept}
    assert (kept.left, replaced.left) == (False, True)


@pytest.mark.anyio
async def test_the_connections_to_a_node_that_the_map_does_not_name_are_dropped_in_asyncio() -> (
    None
):
    nodes = Nodes(redis.asyncio, A)
    transport = loop_over(nodes)
    kept, replaced = FailingInLoop(DOWN), FailingInLoop(DOWN)
    transport._nodes |= {A: replaced, B: kept}
    await transport._read(None, None)
    assert transport._nodes == {A: replaced, B: kept}
    nodes.replies = {A: map_of(B, C)}
    await transport._read(None, None)
    assert transport._nodes == {B: kept}
    assert (kept.left, replaced.left) == (False, True)


@pytest.mark.live
def test_connections_that_are_left_close_as_soon_as_no_call_uses_them(
    shared_server: Server,
) -> None:
    dial = Dial(redis.Connection, {"port": shared_server.port}, 60, wait=False)
    sockets = Sockets(dial.to(None), BOUNDS, BREAKERS, None)
    threads = [
        threading.Thread(target=sockets.call, args=(("DEBUG", "SLEEP", "0.1"), Call(60)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    in_use = sockets.pool.find(Call(60), time.monotonic())
    assert isinstance(in_use, SocketLink)
    sockets.leave()
    assert (sockets.pool.links, in_use.is_usable) == ({in_use}, True)
    sockets.pool.give(in_use, time.monotonic())
    assert (sockets.pool.links, in_use.is_usable) == (set(), False)
    # A call that had found the node before still gets its reply.
    assert sockets.call(("PING",), Call(60)) == b"PONG"
    assert sockets.pool.links == set()


@pytest.mark.anyio
async def test_connections_that_are_left_close_as_soon_as_no_call_uses_them_in_asyncio() -> None:
    dials = Dials()
    dials.go.set()
    dials.reply.set()
    await asyncio.gather(*dials.pings(2))
    dials.reply.clear()
    (in_use,) = dials.pings(1)
    await settled()
    assert [one.is_connected for one in dials.connections] == [True] * dials.count
    await dials.sockets.leave()
    assert sum(one.is_connected for one in dials.connections) == 1
    dials.reply.set()
    assert await in_use == b"PONG"
    # A call that had found the node before still gets its reply.
    assert await dials.ping() == b"PONG"
    await settled()
    assert not any(one.is_connected for one in dials.connections)


def test_the_connections_of_another_loop_are_left_too() -> None:
    dials = Dials()
    called, go_on = threading.Event(), asyncio.Event()

    async def other() -> None:
        dials.go.set()
        dials.reply.set()
        await dials.ping()
        called.set()
        await asyncio.wait_for(go_on.wait(), 60)
        await settled()

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(other(),))
    thread.start()
    assert called.wait(60)
    assert [one.is_connected for one in dials.connections] == [True]
    asyncio.run(dials.sockets.leave())
    loop.call_soon_threadsafe(go_on.set)
    thread.join(60)
    loop.close()
    assert [one.is_connected for one in dials.connections] == [False]
