"""Tests calls that end at any point: no place, connection or probe is lost."""

from __future__ import annotations

import asyncio
import linecache
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

import redis_throttle_client
from redis_throttle_client import AsyncLimiter, Limiter, fixed, lease
from redis_throttle_client._wire.call import Call

from .conftest import Server, until

pytestmark = pytest.mark.live
PACKAGE = str(Path(redis_throttle_client.__file__).parent)
FREE = fixed("free", 10**9, "1h")
JOBS = lease("jobs", 1000, "60s")
BUSY: Any = {"silence_ms": 1000, "timeout_ms": 2000}


class Interrupt(BaseException):
    """Stands for KeyboardInterrupt, which would end the tests."""


def interrupted_at(line: int, work: Callable[[], object]) -> bool:
    """Raises at the line of this number that the package runs. Returns False if there is none.

    Python handles no signal at the lines left out: at `try`, and between the end of a `with` block
    and the release of its lock.
    """
    left = line

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and not text.startswith(("with ", "try:")):
            left -= 1
            if left == 0:
                raise Interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except Interrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def is_whole(limiter: Limiter) -> bool:
    """Returns True if all connections are free. A call reads what has arrived before."""
    sockets: Any = limiter._transport._sockets  # type: ignore[attr-defined]
    pool = sockets.pool
    sockets.catch_up()
    with sockets._lock:
        idle = len(pool.idle) == len(pool.links) and not pool.in_flight and not pool.dials
        return bool(idle and pool._placed == 0 and not pool.waiting)


@pytest.mark.parametrize("state", ["warm", "in line"])
def test_an_interrupt_at_any_line_of_a_call_loses_nothing(
    shared_server: Server, state: str
) -> None:
    # Each second call meets no free connection, and waits in line for the one that drains.
    client, most = shared_server.client(), 1 if state == "in line" else 2
    with Limiter(client, max_in_flight=most, **BUSY) as limiter:
        pool = limiter._transport._sockets.pool  # type: ignore[attr-defined]
        until(lambda: limiter.check(FREE, "42").source == "server")
        line, was_interrupted = 0, True
        while was_interrupted:
            line += 1
            assert line < 2000
            if state == "in line" and pool.idle:
                held = pool.find(Call(60), time.monotonic())
                with limiter._transport._sockets._lock:  # type: ignore[attr-defined]
                    pool.send(held, held.holder, time.monotonic())
                    held.timed.sendall(b"PING\r\n")
                    held.is_sent, held._left, held._is_drivers = True, 1, False
                    pool.abandon(held)
            was_interrupted = interrupted_at(line, lambda: limiter.check(FREE, "42"))
            until(lambda: is_whole(limiter))
            assert limiter.check(FREE, "42").source == "server", line
        assert line > 50
        assert limiter.open_breakers == 0


def test_an_interrupt_at_any_line_of_a_probe_leaves_the_breaker_usable(
    shared_server: Server,
) -> None:
    options: Any = {**BUSY, "breaker_failures": 1, "breaker_pause_ms": 1}
    with Limiter(shared_server.client(), **options) as limiter:
        until(lambda: limiter.check(FREE, "42").source == "server")
        line, was_interrupted = 0, True
        while was_interrupted:
            line += 1
            limiter._breakers.of(None).failed()
            until(lambda: not limiter._breakers.of(None).is_open())
            was_interrupted = interrupted_at(line, lambda: limiter.check(FREE, "42"))
            until(lambda: limiter.check(FREE, "42").source == "server")
        assert line > 50


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["check", "lease"])
async def test_a_cancellation_at_any_turn_loses_nothing(shared_server: Server, kind: str) -> None:
    client = redis.asyncio.Redis(port=shared_server.port)
    async with AsyncLimiter(client, max_in_flight=2, **BUSY) as limiter:
        await limiter.ready()
        pool: Any = limiter._transport._sockets.pool  # type: ignore[attr-defined]

        async def call() -> None:
            if kind == "check":
                await limiter.check(FREE, "42")
                return
            async with limiter.lease(JOBS, "42"):
                pass

        for turns in range(40):
            # Two have the connections, and two wait in line.
            tasks = [asyncio.ensure_future(call()) for _ in range(4)]
            for _ in range(turns // 2):
                await asyncio.sleep(0)
            for task in tasks[turns % 2 :]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for _ in range(10_000):
                if not (pool.in_flight or pool.waiting or pool.dials):
                    break
                await asyncio.sleep(0.001)
            assert (len(pool.idle), pool._placed) == (len(pool.links), 0)
            assert (await limiter.check(FREE, "42")).source == "server"
        for _ in range(10_000):
            async with limiter.lease(JOBS, "42") as held:
                left = held.decision.remaining
            if left == 999:
                break
            await asyncio.sleep(0.001)
        assert left == 999
