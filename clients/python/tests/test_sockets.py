"""Tests that many calls share few sockets, and that a wait for one is no failure of the server."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
import redis
import redis.asyncio

from redis_throttle_client import AsyncLimiter, Limiter, Unavailable, gcra
from redis_throttle_client._async_sockets import AsyncSockets
from redis_throttle_client._breaker import Breaker
from redis_throttle_client._deadline import instant
from redis_throttle_client._dial import MOST_DIALS, MOST_SOCKETS, Dial
from redis_throttle_client._errors import Undialled, Unsent
from redis_throttle_client._protocol import packed
from redis_throttle_client._queue import Pace
from redis_throttle_client._sockets import _Line, _Timed

from .conftest import Server, until
from .far import run

API = gcra("api", 1000, 1000, "60s")
MANY = 256
# A slow machine may need a long time for this many calls.
PATIENT: Any = {"timeout_ms": 60_000}


def connections(client: redis.Redis) -> int:
    """Returns the number of connections that the server has accepted so far."""
    return int(client.info("stats")["total_connections_received"])


@pytest.mark.live
@pytest.mark.anyio
async def test_a_cold_burst_is_decided_by_the_server(shared_server: Server) -> None:
    with shared_server.client() as other:
        before = connections(other)
        client = redis.asyncio.Redis(port=shared_server.port)
        async with AsyncLimiter(client, **PATIENT) as limiter:
            found = await asyncio.gather(*(limiter.check(API, "42") for _ in range(MANY)))
        assert [one.source for one in found] == ["server"] * MANY
        assert sorted(one.remaining for one in found) == list(range(1000 - MANY, 1000))
        assert connections(other) - before <= MOST_SOCKETS


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


@pytest.mark.live
def test_a_thread_that_gets_no_socket_sends_nothing(shared_server: Server) -> None:
    with Limiter(shared_server.client(), max_in_flight=1, **PATIENT) as limiter:
        sockets: Any = limiter._transport._sockets  # type: ignore[attr-defined]
        in_use = sockets._take(time.monotonic() + 60)
        with pytest.raises(Unsent):
            sockets.call(("PING",), time.monotonic())
        assert not sockets._waiters
        # A waiter gets the connection that another call returns.
        found: list[str] = []
        waiting = threading.Thread(target=lambda: found.append(limiter.check(API, "42").source))
        waiting.start()
        while not sockets._waiters:
            time.sleep(0.001)
        sockets._give(in_use)
        waiting.join()
        assert found == ["server"]
        assert (sockets._open, sockets._dialling, len(sockets._idle)) == (1, 0, 1)


@pytest.mark.live
def test_a_connection_opened_after_close_is_closed(shared_server: Server) -> None:
    limiter = Limiter(shared_server.client(), **PATIENT)
    sockets: Any = limiter._transport._sockets  # type: ignore[attr-defined]
    make, goes, made = sockets._make, threading.Event(), []

    def slow() -> Any:
        goes.wait()
        made.append(make())
        return made[-1]

    assert limiter.check(API, "42").source == "server"
    sockets._make = slow
    in_use = sockets._take(time.monotonic() + 60)
    with pytest.raises(Unsent):
        sockets.call(("PING",), time.monotonic())
    limiter.close()
    sockets._give(in_use)
    goes.set()
    ends = time.monotonic() + 30
    while sockets._dialling or sockets._open:
        assert time.monotonic() < ends
        time.sleep(0.001)
    assert not in_use.connected
    assert [one._sock for one in made] == [None]
    # A call after ``close`` opens connections again.
    assert limiter.check(API, "42").source == "server"
    limiter.close()


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
    ours, theirs = socket.socketpair()
    with ours, theirs:
        timed = _Timed(ours)
        timed.begin(time.monotonic() + 60)
        theirs.sendall(reply)
        theirs.shutdown(socket.SHUT_WR)
        assert timed.integers() == integers
        left, into = b"", bytearray(3)
        while size := timed.recv_into(into):
            left += into[:size] + timed.recv(2)
        assert left == (b"" if integers else reply)


# -- connections that the test controls -------------------------------------------------------


class Connection:
    """The part of a driver's connection that a limiter uses."""

    def __init__(self, dials: Dials) -> None:
        self._dials, self.is_connected = dials, False
        self._reader, self._writer = asyncio.StreamReader(), None

    async def connect(self) -> None:
        dials = self._dials
        dials.made += 1
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
        self.is_connected = True

    async def disconnect(self, nowait: bool = False) -> None:
        self.is_connected = False

    def pack_command(self, *args: str) -> tuple[str, ...]:
        return args

    async def send_packed_command(self, args: tuple[str, ...], check_health: bool) -> None:
        pass

    async def read_response(self, disconnect_on_error: bool) -> bytes:
        await self._dials.answer.wait()
        return b"PONG"


class Dials:
    """Connections being opened, and a switch that lets them finish."""

    def __init__(self, most: int = MANY) -> None:
        self.made = self.under_way = self.most_under_way = 0
        self.connections: list[Connection] = []
        self.go, self.answer = asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None
        dial = Dial(redis.asyncio.Connection, {}, 60, wait=True)
        self.sockets = AsyncSockets(lambda: Connection(self), dial, most)

    async def ping(self, timeout_s: float = 60) -> Any:
        return await self.sockets.call(("PING",), instant(timeout_s))

    def pings(self, count: int) -> list[asyncio.Task[Any]]:
        return [asyncio.get_running_loop().create_task(self.ping()) for _ in range(count)]


async def settled() -> None:
    """Runs more turns of the loop than any test here needs."""
    for _ in range(1000):
        await asyncio.sleep(0)


@pytest.mark.anyio
async def test_dials_and_open_connections_are_bounded() -> None:
    dials = Dials()
    asked = dials.pings(MANY)
    await settled()
    # The first connection shows if the node answers.
    assert dials.under_way == dials.made == 1
    dials.go.set()
    dials.most_under_way = 0
    await settled()
    assert dials.most_under_way == MOST_DIALS
    assert dials.made == MOST_SOCKETS
    dials.answer.set()
    assert await asyncio.gather(*asked) == [b"PONG"] * MANY
    assert dials.made == MOST_SOCKETS
    assert dials.sockets._pool.open == len(dials.sockets._pool.idle) == MOST_SOCKETS


@pytest.mark.anyio
async def test_a_waiter_that_times_out_or_is_cancelled_leaves_the_queue() -> None:
    dials = Dials(1)
    dials.go.set()
    first, second = dials.pings(2)
    await settled()
    with pytest.raises(Unsent):
        await dials.ping(0)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert not dials.sockets._pool.waiters
    dials.answer.set()
    assert (await first, await dials.ping(), dials.made) == (b"PONG", b"PONG", 1)
    # The connection is handed over, but the waiter is cancelled before it runs.
    pool = dials.sockets._pool
    held = await dials.sockets._take(pool, instant(60))
    (second,) = dials.pings(1)
    await settled()
    pool.offer(held)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert (second.cancelled(), await dials.ping(), dials.made) == (True, b"PONG", 1)


@pytest.mark.anyio
async def test_a_failed_connection_attempt_is_shared_by_all_waiting_calls() -> None:
    dials = Dials()
    dials.error = redis.ConnectionError("refused")
    dials.go.set()
    found = await asyncio.gather(*dials.pings(20), return_exceptions=True)
    # Together they are one failure.
    assert [str(one) for one in found[:1]] == ["refused"]
    assert [type(one) for one in found[1:]] == [Undialled] * 19
    assert dials.made == 1
    # Until the pause is over, no call tries again, and the error comes at once.
    with pytest.raises(Undialled):
        await dials.ping()
    assert dials.made == 1
    dials.sockets._pool.pace._dial_at = 0
    # A failed attempt fails no call while a connection is open: the waiter takes that one.
    dials.error = None
    (first,) = dials.pings(1)
    await settled()
    dials.error = redis.ConnectionError("max number of clients reached")
    asked = dials.pings(20)
    await settled()
    dials.answer.set()
    assert await asyncio.gather(first, *asked) == [b"PONG"] * 21


@pytest.mark.anyio
async def test_a_dial_that_began_before_a_retirement_is_dropped() -> None:
    dials = Dials()
    dials.go.set()
    (first,) = dials.pings(1)
    await settled()
    dials.go.clear()
    others = dials.pings(MOST_DIALS)
    await settled()
    assert dials.made == 1 + MOST_DIALS
    pool = dials.sockets._pool
    await dials.sockets._retire(pool, 1, dials.connections[0])
    dials.answer.set()
    await first
    # A new attempt begins, although the older ones have not ended.
    (last,) = dials.pings(1)
    await settled()
    assert dials.made == 2 + MOST_DIALS
    dials.go.set()
    assert await asyncio.gather(*others, last) == [b"PONG"] * (MOST_DIALS + 1)
    await settled()
    assert not any(one.is_connected for one in dials.connections[: 1 + MOST_DIALS])
    assert set(pool.generations.values()) == {2}


@pytest.mark.live
def test_a_dial_of_a_thread_that_began_before_a_retirement_is_dropped(
    shared_server: Server,
) -> None:
    with Limiter(shared_server.client(), **PATIENT) as limiter:
        sockets: Any = limiter._transport._sockets  # type: ignore[attr-defined]
        make, goes, made = sockets._make, threading.Event(), []
        drop, dropped = sockets._drop, []

        def slow() -> Any:
            connection = make()
            made.append(connection)
            if made[0] is connection:
                goes.wait()
            return connection

        def recorded(line: Any) -> None:
            drop(line)
            dropped.append(line._connection)

        sockets._make, sockets._drop = slow, recorded
        found: list[str] = []
        waiting = [
            threading.Thread(target=lambda: found.append(limiter.check(API, "42").source))
            for _ in range(2)
        ]
        waiting[0].start()
        until(lambda: made)
        assert sockets._retire(1)
        # A new attempt begins while the older one is still waiting.
        waiting[1].start()
        for thread in waiting:
            thread.join()
        assert found == ["server"] * 2
        goes.set()
        until(lambda: dropped == made[:1] and not sockets._dialling)
        assert made[0]._sock is None
        assert {line.generation for line in sockets._idle} == {2}


@pytest.mark.anyio
@pytest.mark.parametrize("turns", range(6))
async def test_close_leaves_no_connection_at_any_moment(turns: int) -> None:
    dials = Dials()
    asked = dials.pings(9)
    await settled()
    dials.go.set()
    dials.answer.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    await dials.sockets.close()
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert all(one == b"PONG" or isinstance(one, Undialled) for one in found)
    await settled()
    assert dials.connections
    assert [one for one in dials.connections if one.is_connected] == []


def test_an_attempt_is_repeated_after_the_breaker_pause_with_jitter() -> None:
    again = []
    for _ in range(200):
        pace = Pace(Dial(redis.Connection, {}, 1, wait=False))
        pace.failed(10, redis.ConnectionError("refused"))
        again.append(pace._dial_at)
        assert not pace.begins_dial(10.79, 1, 0, 0, begins=True)
        assert pace.begins_dial(11.21, 1, 0, 0, begins=True)
    assert max(again) - min(again) > 0.2


# -- a dial that leaves too little time ------------------------------------------------------------


class Slow(Connection):
    """A connection whose dial takes 300 ms."""

    async def connect(self) -> None:
        await asyncio.sleep(0.3)
        await super().connect()


def test_a_call_whose_dial_leaves_too_little_time_is_not_sent_in_asyncio() -> None:
    async def work() -> None:
        dials = Dials()
        dials.go.set()
        dials.answer.set()
        dials.sockets._make = lambda: Slow(dials)
        late = await asyncio.gather(*(dials.ping(0.5) for _ in range(3)), return_exceptions=True)
        assert [getattr(one, "reason", one) for one in late] == ["timeout"] * 3
        # The connection serves the next call, which has no dial of its own.
        assert (await dials.ping(0.1), dials.made, dials.sockets._pool.pace.generation) == (
            b"PONG", 1, 1,
        )  # fmt: skip
        await dials.sockets.close()
        assert await dials.ping(0.7) == b"PONG"

    run(work())


class Clock:
    """The time of a test."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.mark.live
def test_a_call_whose_dial_leaves_too_little_time_is_not_sent(
    shared_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("redis_throttle_client._sockets.time", clock)
    limiter = Limiter(shared_server.client(), timeout_ms=4000)
    sockets: Any = limiter._transport._sockets  # type: ignore[attr-defined]
    make = sockets._make

    def slow() -> Any:
        clock.now_s += 2.5
        return make()

    sockets._make = slow
    late = limiter.check(API, "42")
    assert (late.source, late.reason) == ("error", "timeout")
    assert limiter.check(API, "42").source == "server"
    assert (sockets._open, sockets._pace.generation) == (1, 1)
    limiter.close()


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
        line = _Line(connection)
        began = time.monotonic()
        with pytest.raises(Unavailable):
            line.exchange(("PING", "x" * 50_000_000 if sends else "x"), began + 0.1)
        # Without the deadline it would end with the signals.
        assert 0.1 <= time.monotonic() - began < 20
        line.close()


# -- the breaker ---------------------------------------------------------------------------------


class Crowded:
    """Answers the first call at once. The second call never gets a connection."""

    def __init__(self) -> None:
        self.full = anyio.Event()

    def node(self, key: str) -> None:
        return None

    async def call(self, node: None, args: tuple[str, ...], timeout_s: float) -> list[int]:
        if args[1].endswith("late"):
            await self.full.wait()
            raise Unsent
        return [1, 6, 5, 0, 6000]

    async def close(self) -> None:
        pass


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answers_others", "failures", "after"),
    [(True, 1, "server"), (False, 1, "error"), (False, 2, "server")],
)
async def test_unsent_calls_are_one_failure_unless_the_server_answers_others(
    answers_others: bool, failures: int, after: str
) -> None:
    crowded = Crowded()
    limiter = AsyncLimiter(crowded, breaker_failures=failures)
    await limiter.check(API, "before")
    late = [asyncio.create_task(limiter.check(API, "late")) for _ in range(9)]
    await anyio.wait_all_tasks_blocked()
    if answers_others:
        assert (await limiter.check(API, "42")).source == "server"
    crowded.full.set()
    reasons = {one.reason for one in await asyncio.gather(*late)}
    assert reasons == {"overloaded" if answers_others else "timeout"}
    assert (await limiter.check(API, "42")).source == after


def test_calls_above_max_in_flight_are_no_failure_of_the_server() -> None:
    breaker = Breaker(1, 1, 1)
    probe = breaker.enter(0)
    for _ in range(9):
        with pytest.raises(Unavailable, match="1 calls wait"):
            breaker.enter(0)
    breaker.leave(0, probe, answered=None)
    assert not breaker.enter(0)
