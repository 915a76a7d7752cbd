"""Tests that many calls share few sockets, and that a wait for one is no failure of the server."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

from redis_throttle_client import Limiter, LimiterClosed, Unavailable, gcra
from redis_throttle_client._net.breaker import Breakers
from redis_throttle_client._net.connection import SocketLink
from redis_throttle_client._net.dial import MOST_DIALS, MOST_SOCKETS
from redis_throttle_client._net.sockets_async import AsyncSockets
from redis_throttle_client._net.timed_socket import TimedSocket
from redis_throttle_client._rules.options import Bounds, Options
from redis_throttle_client._wire.call import Call
from redis_throttle_client._wire.words import packed

from .conftest import Server, until
from .fakes import settled

API = gcra("api", 1000, 1000, "60s")
MANY = 256
# A slow machine may need a long time for this many calls.
PATIENT: Any = {"timeout_ms": 60_000}


def connections(client: redis.Redis) -> int:
    """Returns the number of connections that the server has accepted so far."""
    return int(client.info("stats")["total_connections_received"])


@pytest.mark.live
def test_a_cold_burst_of_threads_is_decided_by_the_server(shared_server: Server) -> None:
    with shared_server.client() as other, Limiter(shared_server.client(), **PATIENT) as limiter:
        before = connections(other)
        found: list[str] = []
        threads = [
            threading.Thread(target=lambda: found.append(limiter.check(API, "42").source))
            for _ in range(MANY)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == ["server"] * MANY
        assert connections(other) - before <= MOST_SOCKETS


def pool_of(limiter: Any) -> Any:
    """Returns the traffic of a limiter to its server."""
    return limiter._transport._sockets.pool


@pytest.mark.live
def test_a_call_that_ends_in_line_sends_nothing_and_leaves_the_connection(
    shared_server: Server,
) -> None:
    with Limiter(shared_server.client(), max_in_flight=1, timeout_ms=2000) as limiter:
        until(lambda: limiter.check(API, "42").source == "server")
        pool, before = pool_of(limiter), shared_server.counted()
        in_use = pool.find(Call(60), time.monotonic())
        assert limiter.check(API, "42").reason == "overloaded"
        assert (pool.waiting, shared_server.counted()) == (0, before)
        # A waiter gets the connection that another call returns.
        found: list[str] = []
        waiting = threading.Thread(target=lambda: found.append(limiter.check(API, "42").source))
        waiting.start()
        until(lambda: pool.waiting)
        with limiter._transport._sockets._lock:  # type: ignore[attr-defined]
            pool.give(in_use, time.monotonic())
        waiting.join()
        assert found == ["server"]
        assert (len(pool.links), len(pool.dials), len(pool.idle)) == (1, 0, 1)


@pytest.mark.live
def test_a_connection_opened_after_close_is_closed(shared_server: Server) -> None:
    limiter = Limiter(shared_server.client(), timeout_ms=200)
    until(lambda: limiter.check(API, "42").source == "server")
    pool = pool_of(limiter)
    make, goes, opened = pool._make, threading.Event(), []

    def slow() -> Any:
        goes.wait()
        opened.append(make())
        return opened[-1]

    pool._make = slow
    in_use = pool.find(Call(60), time.monotonic())
    # A second connection is being opened for this call.
    assert limiter.check(API, "42").reason == "overloaded"
    limiter.close()
    goes.set()
    until(lambda: opened and opened[0]._sock is None)
    assert (pool.links, pool.dials) == (set(), set())
    assert in_use._connection._sock is None
    with pytest.raises(LimiterClosed):
        limiter.check(API, "42")


# -- bytes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args", [("DEL", "rl:api:42"), ("RL.GCRA", "", "\u20ac \U0001f600", "x" * 300)]
)
def test_calls_are_packed_as_by_the_driver(args: tuple[str, ...]) -> None:
    assert packed(args) == b"".join(redis.Connection().pack_command(*args))


@pytest.mark.parametrize(
    ("reply", "integers"),
    [
        (b"*5\r\n:1\r\n:10\r\n:9\r\n:-1\r\n:600\r\n", [1, 10, 9, -1, 600]),
        (b"*1\r\n:18446744073709551616\r\n", [2**64]),
        # Others are read by the driver: incomplete, nested, or of another type.
        (b"*2\r\n:1\r\n:23", None),
        (b"*2\r\n:1\r\n", None),
        (b"*2\r\n:1\r\n*1\r\n:2\r\n", None),
        (b"*1\r\n$1\r\n1\r\n", None),
        (b"*-1\r\n", None),
        (b":1\r\n", None),
        (b"-READONLY x\r\n", None),
        (b"", None),
    ],
)
def test_a_reply_of_integers_is_read_at_once_and_others_are_left_to_the_driver(
    reply: bytes, integers: list[int] | None
) -> None:
    near, far = socket.socketpair()
    with near, far:
        timed = TimedSocket(near)
        timed.begin(lambda: 60, 60, time.monotonic())
        far.sendall(reply)
        far.shutdown(socket.SHUT_WR)
        assert timed.integers() == integers
        left, into = b"", bytearray(3)
        while size := timed.recv_into(into):
            left += into[:size] + timed.recv(2)
        assert left == (b"" if integers else reply)


# -- connections that the test controls -------------------------------------------------------


class Connection:
    """The part of a driver's connection that a limiter uses."""

    def __init__(self, dials: Dials) -> None:
        self._dials = dials
        self._reader: Any = None
        self._writer: Any = None

    @property
    def is_connected(self) -> bool:
        return self._writer is not None

    async def connect(self) -> None:
        dials = self._dials
        dials.count += 1
        dials.connections.append(self)
        dials.under_way += 1
        dials.most_under_way = max(dials.most_under_way, dials.under_way)
        try:
            await dials.go.wait()
            await asyncio.sleep(0)
        finally:
            dials.under_way -= 1
        if dials.error is not None:
            raise dials.error
        self._reader, self._writer = asyncio.StreamReader(), self

    def write(self, data: bytes) -> None:
        pass

    @property
    def transport(self) -> Connection:
        return self

    def abort(self) -> None:
        self._writer = None

    async def disconnect(self, nowait: bool = False) -> None:
        self._writer = None

    async def read_response(self, disconnect_on_error: bool) -> bytes:
        await self._dials.reply.wait()
        return b"PONG"


class Dials:
    """Connections being opened, and a switch that lets them finish."""

    def __init__(self, most: int = MANY) -> None:
        self.count = self.under_way = self.most_under_way = 0
        self.connections: list[Connection] = []
        self.go, self.reply = asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None
        options = Options.of(timeout_ms=60_000, max_in_flight=most)
        self.breakers = Breakers(options)
        bounds = Bounds.of(options)
        self.sockets = AsyncSockets(lambda: Connection(self), bounds, self.breakers, None)

    async def ping(self, timeout_s: float = 60) -> Any:
        return await self.sockets.call(("PING",), Call(timeout_s))

    def pings(self, count: int) -> list[asyncio.Task[Any]]:
        return [asyncio.get_running_loop().create_task(self.ping()) for _ in range(count)]


@pytest.mark.anyio
async def test_dials_and_open_connections_are_bounded() -> None:
    dials = Dials()
    calls = dials.pings(MANY)
    await settled()
    # The first connection shows if the node replies.
    assert dials.under_way == dials.count == 1
    dials.go.set()
    dials.most_under_way = 0
    await settled()
    assert dials.most_under_way == MOST_DIALS
    assert dials.count == MOST_SOCKETS
    dials.reply.set()
    assert await asyncio.gather(*calls) == [b"PONG"] * MANY
    assert dials.count == MOST_SOCKETS
    assert len(dials.sockets.pool.links) == len(dials.sockets.pool.idle) == MOST_SOCKETS
    await dials.sockets.close()


@pytest.mark.anyio
async def test_a_cancelled_waiter_leaves_the_line() -> None:
    dials = Dials(1)
    dials.go.set()
    first, second = dials.pings(2)
    await settled()
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    pool = dials.sockets.pool
    assert not pool.waiting
    dials.reply.set()
    assert (await first, await dials.ping(), dials.count) == (b"PONG", b"PONG", 1)
    # The connection is handed over, but the waiter is cancelled before it runs.
    held = pool.find(Call(60), pool.loop.time())
    (second,) = dials.pings(1)
    await settled()
    pool.give(held, pool.loop.time())
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert (second.cancelled(), await dials.ping(), dials.count) == (True, b"PONG", 1)
    await dials.sockets.close()


@pytest.mark.anyio
async def test_a_failed_dial_is_shared_by_all_waiting_calls_as_one_failure() -> None:
    dials = Dials()
    dials.error = redis.ConnectionError("refused")
    dials.go.set()
    found = await asyncio.gather(*dials.pings(20), return_exceptions=True)
    assert {str(one) for one in found} == {"refused"}
    assert {getattr(one, "is_failure", None) for one in found} == {False}
    assert (dials.count, dials.breakers.of(None)._failed) == (1, 1)
    # Until the pause is over, no call tries again, and the error comes at once.
    with pytest.raises(Unavailable, match="refused"):
        await dials.ping()
    assert dials.count == 1
    dials.sockets.pool._dial_at = 0
    # A failed dial fails no call while a connection is open: the waiter takes that one.
    dials.error = None
    (first,) = dials.pings(1)
    await settled()
    dials.error = redis.ConnectionError("max number of clients reached")
    calls = dials.pings(20)
    await settled()
    dials.reply.set()
    assert await asyncio.gather(first, *calls) == [b"PONG"] * 21
    await dials.sockets.close()


@pytest.mark.anyio
async def test_a_dial_that_began_before_a_retirement_is_dropped() -> None:
    dials = Dials()
    dials.go.set()
    (first,) = dials.pings(1)
    await settled()
    dials.go.clear()
    others = dials.pings(MOST_DIALS)
    await settled()
    assert dials.count == 1 + MOST_DIALS
    pool = dials.sockets.pool
    pool.retire(pool.loop.time())
    with pytest.raises(Unavailable):
        await first
    await settled()
    # A new attempt begins, although the older ones have not ended.
    assert dials.count == 2 + MOST_DIALS
    dials.go.set()
    dials.reply.set()
    assert await asyncio.gather(*others) == [b"PONG"] * MOST_DIALS
    await settled()
    assert not any(one.is_connected for one in dials.connections[: 1 + MOST_DIALS])
    assert {link.generation for link in pool.links} == {2}
    await dials.sockets.close()


@pytest.mark.live
def test_a_dial_of_a_thread_that_began_before_a_retirement_is_dropped(
    shared_server: Server,
) -> None:
    with Limiter(shared_server.client(), **PATIENT) as limiter:
        pool = pool_of(limiter)
        make, goes, opened = pool._make, threading.Event(), []

        def slow() -> Any:
            connection = make()
            opened.append(connection)
            if opened[0] is connection:
                goes.wait()
            return connection

        pool._make = slow
        found: list[str] = []
        waiting = threading.Thread(target=lambda: found.append(limiter.check(API, "42").source))
        waiting.start()
        until(lambda: opened)
        # A new attempt begins while the older one is still waiting.
        with limiter._transport._sockets._lock:  # type: ignore[attr-defined]
            pool.retire(time.monotonic())
        waiting.join()
        assert found == ["server"]
        goes.set()
        until(lambda: opened[0]._sock is None and opened[0].pid and not pool.dials)
        assert {link.generation for link in pool.links} == {2}


@pytest.mark.anyio
@pytest.mark.parametrize("turns", range(6))
async def test_close_leaves_no_connection_at_any_moment(turns: int) -> None:
    dials = Dials()
    calls = dials.pings(9)
    await settled()
    dials.go.set()
    dials.reply.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    await dials.sockets.close()
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert all(one == b"PONG" or isinstance(one, LimiterClosed) for one in found)
    await settled()
    assert dials.connections
    assert [one for one in dials.connections if one.is_connected] == []


# -- signals ---------------------------------------------------------------------------------------


@pytest.fixture
def signals() -> Iterator[None]:
    """Sends a signal each 10 ms, for 40 s at most."""
    ends = time.monotonic() + 40

    def arrived(*_: object) -> None:
        if time.monotonic() > ends:
            signal.setitimer(signal.ITIMER_REAL, 0)

    before = signal.signal(signal.SIGALRM, arrived)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("sends", [True, False])
def test_the_deadline_of_a_call_holds_while_signals_arrive(sends: bool) -> None:
    """The kernel's own timeouts begin again after each signal."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connection: Any = redis.Connection(port=silent.getsockname()[1])
        connection._sock = socket.create_connection(silent.getsockname())
        link = SocketLink(connection)
        began = time.monotonic()

        def look() -> float:
            if time.monotonic() - began >= 0.1:
                raise Unavailable("no reply in time", "timeout")
            return 0.025

        with pytest.raises(Unavailable):
            link.exchange(("PING", "x" * 50_000_000 if sends else "x"), look, 0.025, began)
        # Without the deadline it would end with the signals.
        assert 0.1 <= time.monotonic() - began < 20
        link.close()
