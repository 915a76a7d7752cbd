"""Tests the end of limiters, and threads that another one or a fork leaves in the middle."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import Any

import pytest
import redis
import redis.asyncio

from redis_throttle_client import AsyncLimiter, Limiter, LimiterClosed, fixed, lease
from redis_throttle_client._net.connection import NEVER
from redis_throttle_client._net.pool import Dialling
from redis_throttle_client._net.sockets import _MOST_DIALLING
from redis_throttle_client._net.timed_socket import TimedSocket, readable
from redis_throttle_client._wire.call import Call

from .conftest import Server, until
from .fakes import Far, Held, begun, ended, run, settled
from .scripted import Script, scripted_client
from .test_promise_counted_once import in_child

pytestmark = pytest.mark.live
FREE = fixed("free", 10**9, "1h")
KEYS = 60


def test_close_refunds_permits_within_one_timeout_if_the_server_is_silent() -> None:
    server = Server()
    options: Any = {"prefetch": 3, "timeout_ms": 1000, "silence_ms": 200}
    limiter = Limiter(server.client(), breaker_failures=1000, **options)
    try:
        until(lambda: limiter.check(FREE, "0").source == "server")
        for at in range(1, KEYS):
            limiter.check(FREE, str(at))
        server.pause()
        began = time.monotonic()
        limiter.close()
        # One silence for each key would take 12 s.
        assert time.monotonic() - began < 6
    finally:
        server.resume()
        server.close()


@pytest.mark.anyio
async def test_a_second_close_ends_although_the_first_one_failed(shared_server: Server) -> None:
    limiter = AsyncLimiter(redis.asyncio.Redis(port=shared_server.port))
    await limiter.check(FREE, "42")
    transport: Any = limiter._transport
    close = transport.close

    async def broken() -> None:
        await close()
        raise ZeroDivisionError

    transport.close = broken
    with pytest.raises(ZeroDivisionError):
        await limiter.close()
    async with asyncio.timeout(60):
        await limiter.close()


def test_a_forked_child_closes_a_limiter_that_its_parent_uses(shared_server: Server) -> None:
    with Limiter(shared_server.client(), timeout_ms=60_000) as limiter:
        limiter._use.taking += 1
        with limiter._use.closing:

            def close() -> str:
                began = time.monotonic()
                limiter.close()
                return str(time.monotonic() - began)

            assert float(in_child(close)) < 30
        limiter._use.taking -= 1


def test_threads_whose_dials_hang_are_bounded(shared_server: Server) -> None:
    with Limiter(shared_server.client()) as limiter:
        pool: Any = limiter._transport._sockets.pool  # type: ignore[attr-defined]
        goes, before = threading.Event(), threading.active_count()
        pool._make = goes.wait
        for _ in range(3 * _MOST_DIALLING):
            assert pool._dial(Dialling(NEVER), 1)
        assert threading.active_count() - before <= _MOST_DIALLING
        goes.set()
        until(lambda: pool._dialling == 0)


class Tls(socket.socket):
    """A socket that is not polled, with bytes that were decrypted and not read."""

    decrypted = 0

    def pending(self) -> int:
        return self.decrypted


def test_only_sockets_with_bytes_are_read_for_callers_that_have_gone() -> None:
    pairs = [socket.socketpair() for _ in range(3)]
    encrypted = [Tls(fileno=one.detach()) for one, _ in pairs]
    timed = [TimedSocket(one) for one in encrypted]
    assert not any(one.is_polled for one in timed)
    assert readable(timed) == []
    pairs[1][1].sendall(b":1\r\n")
    encrypted[2].decrypted = 4
    assert set(readable(timed)) == {timed[1], timed[2]}
    for one in (*encrypted, *(theirs for _, theirs in pairs)):
        one.close()


def test_a_command_that_its_thread_has_not_sent_yet_is_not_silent(shared_server: Server) -> None:
    with Limiter(shared_server.client()) as limiter:
        until(lambda: limiter.check(FREE, "42").source == "server")
        sockets: Any = limiter._transport._sockets  # type: ignore[attr-defined]
        pool, call, at = sockets.pool, Call(1), time.monotonic()
        with sockets._lock:
            link = pool.find(call, at)
            pool.send(link, call, at)
            link.overtaken = pool.now(at) - 10
            assert pool._silent_at() == NEVER
            pool.look(at)
            assert link.error is None
            # Bytes that the thread has taken, and not handed on yet, count as arrived.
            link.is_sent = link.timed.is_reading = True
            pool.look(at)
            assert link.error is None
            link.timed.is_reading = False
            pool.look(at)
            assert link.error is not None
            pool.lose(link, link.error, at)


# -- ends without a reply --------------------------------------------------------------------------

JOBS = lease("jobs", 400, "60s")


@pytest.mark.parametrize("is_lost", [False, True])
def test_close_counts_the_ends_of_threads_without_a_reply_once(is_lost: bool) -> None:
    class Late(Held):
        def call(self, node: None, args: tuple[str, ...], call: Call) -> Any:
            reply = super().call(node, args, call)
            if args[0] == "RL.RELEASE" and is_lost:
                raise ConnectionError("the reply is lost")
            return reply

    server, before = Late("RL.LEASE"), threading.active_count()
    reported: list[Any] = []
    limiter = Limiter(server, clock=server.now, timeout_ms=100, on_decision=reported.append)
    held = [limiter.lease(JOBS, "x").__enter__() for _ in range(3)]
    reported.clear()
    server.hold()
    # A thread waits for the end of its block, and two others for those that the close begins.
    releasing = begun(held[0].release)
    until(lambda: server.calls[-1][0] == "RL.RELEASE")
    limiter.close()
    assert (limiter.counters.unsettled, len(reported)) == (3, 3)
    server.let_go()
    ended([releasing])
    until(lambda: threading.active_count() <= before)
    # What comes later counts no more.
    assert (limiter.counters.unsettled, len(reported)) == (3, 3)


def test_close_counts_a_lease_of_a_thread_without_a_reply() -> None:
    class Silent(Held):
        def call(self, node: None, args: tuple[str, ...], call: Call) -> Any:
            super().call(node, args, call)
            raise ConnectionError("the connection was closed")

        def close(self) -> None:
            self.let_go()

    server = Silent()
    server.hold()
    limiter = Limiter(server, clock=server.now, timeout_ms=1000, silence_ms=1000)
    raised: list[type] = []

    def take() -> None:
        try:
            limiter.lease(JOBS, "x").__enter__()
        except LimiterClosed as error:
            raised.append(type(error))

    taking = begun(take)
    until(lambda: server.calls)
    limiter.close()
    assert limiter.counters.unsettled == 1
    ended([taking])
    assert raised == [LimiterClosed]


def test_close_counts_the_ends_of_tasks_without_a_reply() -> None:
    async def work() -> None:
        server = Far(2)
        reported: list[Any] = []
        limiter = server.limiter(timeout_ms=200)
        for _ in range(2):
            await limiter.lease(JOBS, "x").__aenter__()
        limiter.on_decision(reported.append)
        # The ends wait as long as the close does.
        server._s = 60
        await limiter.close()
        assert (limiter.counters.unsettled, len(reported)) == (2, 2)
        await asyncio.sleep(60)
        assert (limiter.counters.unsettled, len(reported)) == (2, 2)

    run(work())


def test_close_counts_a_lease_of_a_task_without_a_reply() -> None:
    async def work() -> None:
        script = Script()
        reported: list[Any] = []
        script.add(["silent"] * 2)
        limiter = AsyncLimiter(
            scripted_client("redis", script), clock=asyncio.get_running_loop().time,
            timeout_ms=200, on_decision=reported.append,
        )  # fmt: skip
        taking = asyncio.ensure_future(limiter.lease(JOBS, "x").__aenter__())
        await settled()
        assert len(script.sent) == 1
        await limiter.close()
        assert (limiter.counters.unsettled, reported[-1].kind) == (1, "lease")
        with pytest.raises(LimiterClosed):
            await taking

    run(work())
