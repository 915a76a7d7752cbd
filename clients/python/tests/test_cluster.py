"""Tests how the transports of a cluster read its slot map, with scripted answers of its nodes."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from types import SimpleNamespace
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
from redis_throttle_client._cluster import AsyncClusterTransport, ClusterTransport
from redis_throttle_client._dial import Dial
from redis_throttle_client._errors import Undialled
from redis_throttle_client._slots import SLOTS, Address, Slots
from redis_throttle_client._sockets import Sockets

from .conftest import Server
from .test_sockets import Dials, settled

A, B, C = [("10.0.0.1", 7001), ("10.0.0.2", 7002), ("10.0.0.3", 7003)]
AWAY = redis.ConnectionError("the node is away")


def told(*owners: Address, replicas: tuple[Address, ...] = ()) -> list[Any]:
    """Returns a reply to CLUSTER SLOTS by which each owner has an equal part of the slots."""
    begins = [SLOTS * at // len(owners) for at in range(len(owners) + 1)]
    return [
        [begin, end - 1, *([host.encode(), port, b"id"] for host, port in (owner, *replicas))]
        for owner, begin, end in zip(owners, begins, begins[1:], strict=False)
    ]


class Nodes:
    """The nodes of a cluster, as an application's client knows them and as they answer.

    ``sent`` has the nodes whose map was read, in order.
    """

    def __init__(self, package: Any, *known: Address) -> None:
        pool = SimpleNamespace(connection_class=package.Connection, connection_kwargs={})
        nodes = [
            SimpleNamespace(
                host=host, port=port, connection_class=package.Connection, connection_kwargs={},
                redis_connection=SimpleNamespace(connection_pool=pool),
            )
            for host, port in known or (A,)
        ]  # fmt: skip
        named = {f"{one.host}:{one.port}": one for one in nodes}
        self.nodes_manager = SimpleNamespace(startup_nodes=named, nodes_cache={}, slots_cache={})
        self.answers: dict[Address, Any] = {}
        self.sent: list[Address] = []

    def get_nodes(self) -> list[Any]:
        return list(self.nodes_manager.startup_nodes.values())

    @staticmethod
    def keyslot(key: str) -> int:
        return int(key)

    def get_node_from_key(self, key: str) -> Any:
        return self.nodes_manager.slots_cache.get(int(key), [None])[0]

    def answer(self, node: Address) -> Any:
        self.sent.append(node)
        return self.answers.get(node, AWAY)

    async def answer_later(self, node: Address) -> Any:
        await asyncio.sleep(0)
        return self.answer(node)


class Clock:
    """The time of a test."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("redis_throttle_client._cluster.time", made)
    return made


def threads_over(nodes: Nodes) -> Any:
    """Returns a sync transport over the nodes."""
    transport: Any = ClusterTransport(nodes, 0.1, 8)
    transport._ask = nodes.answer
    return transport


def loop_over(nodes: Nodes) -> Any:
    """Returns a transport for asyncio over the nodes."""
    transport: Any = AsyncClusterTransport(nodes, 0.1, 8)
    transport._ask = nodes.answer_later
    return transport


def read(transport: Any) -> None:
    """Waits until the reading of the map ends."""
    transport._reader.join(60)
    assert not transport._reader.is_alive()


# -- what a reading asks, and what it makes of the answers --------------------------------------


def test_a_reading_asks_the_new_owner_first_and_a_silent_node_last() -> None:
    slots: Any = Slots(Nodes(redis, A, B, C))
    orders = [slots.reading(first=C, last=A).nodes for _ in range(99)]
    assert orders == [[C, B, A]] * 99
    # Other readings begin at any node.
    assert {slots.reading().nodes[0] for _ in range(999)} == {A, B, C}


def test_the_most_complete_answer_is_the_map() -> None:
    slots = Slots(Nodes(redis, A))
    reading = slots.reading()
    part = told(A)
    part[0][1] = 99
    assert not reading.add(A, AWAY)
    assert not reading.add(A, "no map")
    assert not reading.add(B, part)
    assert not reading.add(C, [])
    assert reading.end() is None
    assert (slots.find("99"), slots.nodes) == (A, {A})
    with pytest.raises(Unavailable, match="no node is known"):
        slots.find("100")
    reading = slots.reading()
    assert reading.add(B, told(B, C))
    reading.end()
    assert [slots.find(str(at)) for at in (0, 8191, 8192, SLOTS - 1)] == [B, B, C, C]


@pytest.mark.parametrize("host", [b"", None])
def test_a_node_without_a_name_is_the_one_that_was_asked(host: bytes | None) -> None:
    slots = Slots(Nodes(redis, A))
    reading = slots.reading()
    assert reading.add(B, [[0, SLOTS - 1, [host, 7009, b"id"], [b"?", 7010, b"id"]]])
    reading.end()
    assert slots.find("1") == (B[0], 7009)


def test_an_address_is_remapped_as_in_the_driver() -> None:
    nodes = Nodes(redis, A)
    nodes.nodes_manager.remap_host_port = lambda host, port: ("outside", port)
    slots = Slots(nodes)
    reading = slots.reading()
    reading.add(A, told(B))
    reading.end()
    assert slots.find("1") == ("outside", B[1])


def test_later_readings_ask_the_nodes_that_the_map_names_and_those_the_application_named() -> None:
    nodes = Nodes(redis, A)
    slots = Slots(nodes)
    reading = slots.reading()
    reading.add(A, told(B, replicas=(C,)))
    reading.end()
    nodes.nodes_manager.startup_nodes.clear()
    assert sorted(slots.reading().nodes) == [A, B, C]


def test_a_new_map_replaces_older_redirections_only() -> None:
    slots = Slots(Nodes(redis, A))
    slots.move(SimpleNamespace(host=B[0], port=B[1], slot_id=1), A)
    slots.move(SimpleNamespace(host=B[0], port=B[1], slot_id=2), A)
    reading = slots.reading()
    slots.move(SimpleNamespace(host=B[0], port=B[1], slot_id=2), A)
    reading.add(A, told(C))
    reading.end()
    assert (slots.find("1"), slots.find("2"), slots.find("3")) == (C, B, C)


def test_the_error_of_a_node_that_is_away_hides_a_rejection() -> None:
    rejected = redis.exceptions.NoPermissionError("no permission")
    for answers, error in (((rejected, AWAY, rejected), AWAY), ((rejected,), rejected)):
        slots = Slots(Nodes(redis, A))
        reading = slots.reading()
        for answer in answers:
            reading.add(A, answer)
        assert reading.end() is error
    assert slots.refused() is rejected
    assert isinstance(Slots(Nodes(redis)).reading().end(), Unavailable)


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
    made = parser.parse_error(text)
    assert isinstance(made, Exception)
    return made


ERRORS = [
    ("CLUSTERDOWN The cluster is down", True),
    ("CLUSTERDOWN Hash slot not served", True),
    ("READONLY You can't write against a read only replica.", True),
    ("OOM command not allowed when used memory > 'maxmemory'.", False),
    ("WRONGTYPE Operation against a key holding the wrong kind of value", False),
]
DRIVERS: dict[str, Any] = {"redis": redis, "valkey": valkey}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize(("text", "is_read"), ERRORS)
def test_a_reply_that_the_map_is_old_reads_it_again(driver: str, text: str, is_read: bool) -> None:
    nodes = Nodes(DRIVERS[driver], A, B)
    nodes.answers = {A: told(A), B: told(B)}
    transport = threads_over(nodes)
    transport._nodes[A] = Failing(error_of(driver, text))
    with pytest.raises(DRIVERS[driver].ResponseError):
        transport.call(A, ("DEL", "1"), 60)
    if is_read:
        read(transport)
    # The node that has answered is asked last.
    assert nodes.sent == [B] * is_read
    assert not is_read or transport.node("1") == B


@pytest.mark.anyio
@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize(("text", "is_read"), ERRORS)
async def test_a_reply_that_the_map_is_old_reads_it_again_in_asyncio(
    driver: str, text: str, is_read: bool
) -> None:
    nodes = Nodes(DRIVERS[driver].asyncio, A, B)
    nodes.nodes_manager.slots_cache = {1: nodes.get_nodes()}
    nodes.answers = {A: told(A), B: told(B)}
    transport = loop_over(nodes)
    transport._nodes[A] = FailingInLoop(error_of(driver, text))
    with pytest.raises(DRIVERS[driver].ResponseError):
        await transport.call(transport.node("1"), ("DEL", "1"), 60)
    await asyncio.gather(*(reading for _, reading in transport._readings.values()))
    assert nodes.sent == [B] * is_read
    assert not is_read or transport.node("1") == B


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_redirection_reads_the_map_from_the_new_owner(driver: str) -> None:
    nodes = Nodes(DRIVERS[driver], A, B, C)
    nodes.answers = {A: told(A), B: told(B), C: told(C)}
    transport = threads_over(nodes)
    transport._nodes[A] = Failing(error_of(driver, f"MOVED 1 {C[0]}:{C[1]}"))
    transport._nodes[C] = Failing(error_of(driver, "ERR any other"))
    with pytest.raises(DRIVERS[driver].ResponseError, match="any other"):
        transport.call(A, ("DEL", "1"), 60)
    read(transport)
    assert nodes.sent == [C]


def test_one_thread_at_a_time_reads_the_map_and_at_most_once_a_second(clock: Clock) -> None:
    nodes = Nodes(redis, A)
    transport = threads_over(nodes)
    go, before = threading.Event(), threading.active_count()

    def frozen(node: Address) -> Any:
        assert go.wait(60)
        return nodes.answer(node)

    transport._ask = frozen
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
    nodes.answers = {A: told(A)}
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
        assert [type(one) for one in found] == [redis.ConnectionError] + [Undialled] * 8
        with pytest.raises(Undialled):
            await transport.call(transport.node("1"), ("DEL", "1"), 60)
        assert len(nodes.sent) == expected
        clock.now_s += 1
    nodes.answers = {A: redis.exceptions.NoPermissionError("no permission")}
    for _ in range(2):
        with pytest.raises(redis.exceptions.NoPermissionError):
            await transport.call(None, ("DEL", "1"), 60)
    clock.now_s += 1
    nodes.answers = {A: told(B)}
    await asyncio.gather(*(transport._know() for _ in range(9)))
    assert transport.node("1") == B
    await transport.close()


@pytest.mark.anyio
async def test_close_ends_a_reading_and_the_calls_that_wait_for_it() -> None:
    transport = loop_over(Nodes(redis.asyncio, A))
    asked = asyncio.Event()

    async def frozen(node: Address) -> None:
        asked.set()
        await asyncio.sleep(60)

    transport._ask = frozen
    waiting = asyncio.ensure_future(transport.call(None, ("DEL", "1"), 60))
    await asked.wait()
    await transport.close()
    with pytest.raises(Undialled):
        await waiting


@pytest.mark.parametrize("name", ["redis", "valkey"])
def test_a_silent_node_is_asked_for_a_limited_time(name: str) -> None:
    package = DRIVERS[name]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        transport: Any = ClusterTransport(Nodes(package, (host, port)), 0.1, 8)
        began = time.monotonic()
        errors = [transport._ask((host, port))]

        async def ask() -> None:
            waiting: Any = AsyncClusterTransport(Nodes(package.asyncio, (host, port)), 0.1, 8)
            errors.append(await waiting._ask((host, port)))

        asyncio.run(ask())
        assert time.monotonic() - began < 10
        assert all(isinstance(error, Exception) for error in errors)


# -- nodes that were replaced --------------------------------------------------------------------


def test_the_connections_to_a_node_that_the_map_does_not_name_are_dropped() -> None:
    nodes = Nodes(redis, A)
    transport = threads_over(nodes)
    kept, replaced = Failing(AWAY), Failing(AWAY)
    transport._nodes |= {A: replaced, B: kept}
    transport._read(None, None)
    # Without an answer nothing is known.
    assert transport._nodes == {A: replaced, B: kept}
    nodes.answers = {A: told(B, C)}
    transport._read(None, None)
    assert transport._nodes == {B: kept}
    assert (kept.left, replaced.left) == (False, True)


@pytest.mark.anyio
async def test_the_connections_to_a_node_that_the_map_does_not_name_are_dropped_in_asyncio() -> (
    None
):
    nodes = Nodes(redis.asyncio, A)
    transport = loop_over(nodes)
    kept, replaced = FailingInLoop(AWAY), FailingInLoop(AWAY)
    transport._nodes |= {A: replaced, B: kept}
    await transport._read(None, None)
    assert transport._nodes == {A: replaced, B: kept}
    nodes.answers = {A: told(B, C)}
    await transport._read(None, None)
    assert transport._nodes == {B: kept}
    assert (kept.left, replaced.left) == (False, True)


@pytest.mark.live
def test_connections_that_are_left_close_as_soon_as_no_call_uses_them(
    shared_server: Server,
) -> None:
    dial = Dial(redis.Connection, {"port": shared_server.port}, 60, wait=False)
    sockets = Sockets(dial.to(None), dial, 8)
    in_use, idle = (sockets._take(time.monotonic() + 60) for _ in range(2))
    sockets._give(idle)
    sockets.leave()
    assert (in_use.connected, idle.connected) == (True, False)
    sockets._give(in_use)
    assert (in_use.connected, sockets._open, sockets._idle) == (False, 0, [])
    # A call that had found the node before is still answered.
    assert sockets.call(("PING",), time.monotonic() + 60) == b"PONG"
    assert (sockets._open, sockets._idle) == (0, [])


@pytest.mark.anyio
async def test_connections_that_are_left_close_as_soon_as_no_call_uses_them_in_asyncio() -> None:
    dials = Dials()
    dials.go.set()
    dials.answer.set()
    await asyncio.gather(*dials.pings(2))
    dials.answer.clear()
    (in_use,) = dials.pings(1)
    await settled()
    assert [one.is_connected for one in dials.connections] == [True] * dials.made
    await dials.sockets.leave()
    assert sum(one.is_connected for one in dials.connections) == 1
    dials.answer.set()
    assert await in_use == b"PONG"
    # A call that had found the node before is still answered.
    assert await dials.ping() == b"PONG"
    await settled()
    assert not any(one.is_connected for one in dials.connections)


def test_the_connections_of_another_loop_are_left_too() -> None:
    dials = Dials()
    asked, go_on = threading.Event(), asyncio.Event()

    async def other() -> None:
        dials.go.set()
        dials.answer.set()
        await dials.ping()
        asked.set()
        await asyncio.wait_for(go_on.wait(), 60)
        await settled()

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(other(),))
    thread.start()
    assert asked.wait(60)
    assert [one.is_connected for one in dials.connections] == [True]
    asyncio.run(dials.sockets.leave())
    loop.call_soon_threadsafe(go_on.set)
    thread.join(60)
    loop.close()
    assert [one.is_connected for one in dials.connections] == [False]
