"""Tests of admissions against real servers: nothing stays taken, and nothing counts twice."""

from __future__ import annotations

import asyncio
import contextlib
import operator
import types
from collections.abc import Coroutine, Generator, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

from redis_throttle_client import (
    AsyncLimiter,
    Denied,
    Item,
    Limiter,
    fixed,
    gcra,
    lease,
    policy,
    quota,
)

from .conftest import Server, until
from .proxy import Proxy

pytestmark = pytest.mark.live
RPM = gcra("rpm", 1000, 1000, "1m")
TPM = fixed("tpm", 90_000, "1h")
MONTH = quota("month", 5_000_000, "month")
# Nothing expires while a test waits for the ends: what is free at its end was given back.
LONG = "10m"
RUNS = lease("runs", 4, LONG)


def items(ttl: str = LONG) -> list[Item]:
    """Returns the items of one call of a model."""
    reserved = MONTH.of("t").reserve(1800, ttl)
    return [RPM.of("t"), TPM.of("t").cost(1800), reserved, lease("runs", 4, ttl).of("t")]


ESTIMATE, TOOK = 1800, 1240
# The server may be slow, because several suites share the machine.
PATIENT_MS = 60_000


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def live(running: Server) -> Server:
    """Returns an empty server with the module, whose clock runs."""
    running.resume()
    running.command("RL.DEBUG", "CLOCK", "RESUME")
    running.command("FLUSHALL")
    return running


@pytest.fixture
def proxy(live: Server) -> Iterator[Proxy]:
    opened = Proxy(live.port)
    yield opened
    opened.close()


def inspected(server: Server, rule: str) -> dict[bytes, Any]:
    """Returns the state of a key; nothing if there is none."""
    with redis.Redis(port=server.port, protocol=2) as client:
        found = client.execute_command("RL.INSPECT", f"rl:{rule}:t") or []
    return dict(zip(found[::2], found[1::2], strict=True))


def used(server: Server, rule: str) -> int:
    return int(inspected(server, rule).get(b"used", 0))


def is_free(server: Server) -> bool:
    """Returns True if there is neither a lease nor an open reservation."""
    leases = server.command("ZCARD", "rl:runs:t")
    free = server.command("RL.PEEK", "rl:runs:t", "LEASE", "other", "4", "1s")[2] == 3
    return inspected(server, "month").get(b"reservations_open", 0) == 0 and (free or not leases)


def until_renewed(server: Server) -> None:
    """Waits until the reservation and the lease are renewed."""
    commands = "rl.reserve", "rl.renew"
    before = [server.calls(command) for command in commands]
    until(lambda: all(map(operator.gt, map(server.calls, commands), before)))


def assert_held(server: Server) -> None:
    month = inspected(server, "month")
    assert (month[b"reserved"], month[b"reservations_open"]) == (ESTIMATE, 1)
    assert server.command("RL.PEEK", "rl:runs:t", "LEASE", "other", "4", "1s")[2] == 2


async def model(limiter: AsyncLimiter, done: list[str]) -> None:
    """Calls a language model, as an application does."""
    async with limiter.admit(*items()) as admitted:
        done.append("admitted")
        await asyncio.sleep(0.001)
        admitted.settle(TPM, TOOK)
        admitted.settle(MONTH, TOOK)
        done.append("settled")


def assert_settled(server: Server, done: list[str]) -> None:
    until(lambda: is_free(server))
    assert used(server, "month") == (TOOK if "settled" in done else 0)
    if done:
        assert used(server, "tpm") == (TOOK if "settled" in done else ESTIMATE)
    else:
        # The call may have run. Its estimate then stays taken.
        assert used(server, "tpm") in (0, ESTIMATE)


@pytest.mark.anyio
async def test_a_model_call_is_admitted_and_settled(live: Server) -> None:
    async with AsyncLimiter(redis.asyncio.Redis(port=live.port), timeout_ms=PATIENT_MS) as limiter:
        live.freeze()
        # Renewed after 3 s. A busy machine has 6 s more for the renewal.
        async with limiter.admit(*items("9s"), id="job-7") as admitted:
            assert (admitted.id, admitted.held) == ("job-7", True)
            assert_held(live)
            # The server's clock passes the ttl in two steps, with renewals between them.
            live.advance("8s")
            await asyncio.to_thread(until_renewed, live)
            live.advance("8s")
            assert_held(live)
            assert admitted.held
            admitted.settle(TPM, TOOK)
            admitted.settle(MONTH, TOOK)
        assert not admitted.held
        assert_settled(live, ["admitted", "settled"])
        counters = limiter.counters
        assert (counters.allowed, counters.unsettled, counters.rejected) == (1, 0, 0)


def test_a_thread_calls_a_model(live: Server) -> None:
    with Limiter(live.client(), timeout_ms=PATIENT_MS) as limiter:
        with limiter.admit(*items("9s")) as admitted:
            until_renewed(live)
            admitted.settle(TPM, TOOK)
            admitted.settle(MONTH, TOOK)
        assert is_free(live)
        assert_settled(live, ["admitted", "settled"])
        with pytest.raises(RuntimeError), limiter.admit(*items()):
            raise RuntimeError("the model failed")
        assert is_free(live)
        assert (used(live, "month"), used(live, "tpm")) == (TOOK, TOOK + ESTIMATE)
        assert limiter.counters.unsettled == 0


@types.coroutine
def cancelled_at(
    work: Coroutine[Any, Any, None], count: int, late: bool
) -> Generator[Any, Any, bool]:
    """Runs the work in this task and cancels it at an await, counted from 1.

    ``late`` cancels it when the outcome of the await is there. Returns False if the work has fewer
    awaits.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    resume = lambda: work.send(None)  # noqa: E731
    while True:
        try:
            future = resume()
        except StopIteration:
            return False
        count -= 1
        if count == 0 and late and future is not None:
            future.add_done_callback(lambda _: task.cancel())
        elif count == 0:
            loop.call_soon(task.cancel)
        try:
            yield future
        except BaseException as error:
            raised = error
            resume = lambda: work.throw(raised)  # noqa: B023, E731
        else:
            resume = lambda: work.send(None)  # noqa: E731


@pytest.mark.anyio
@pytest.mark.parametrize("late", [False, True])
async def test_a_call_that_is_cancelled_at_any_await_leaves_nothing(
    live: Server, late: bool
) -> None:
    async def at(count: int) -> bool:
        live.command("FLUSHALL")
        done: list[str] = []
        client = redis.asyncio.Redis(port=live.port)
        async with AsyncLimiter(client, timeout_ms=PATIENT_MS) as limiter:
            try:
                is_cancelled = await cancelled_at(model(limiter, done), count, late)
            except asyncio.CancelledError:
                is_cancelled = True
        assert_settled(live, done)
        assert limiter.counters.unsettled == 0
        return is_cancelled

    count = 1
    while await asyncio.get_running_loop().create_task(at(count)):
        count += 1
    # At least the connection, the call, the work and its end.
    assert count > 4


@pytest.mark.parametrize("is_async", [True, False])
def test_a_lost_reply_leaves_nothing_and_charges_once(
    live: Server, proxy: Proxy, is_async: bool
) -> None:
    proxy.loses = 0
    while proxy.loses <= proxy.replies:
        live.command("FLUSHALL")
        proxy.replies, proxy.loses = 0, proxy.loses + 1
        with contextlib.suppress(redis.RedisError):
            asyncio.run(through(proxy)) if is_async else through_a_thread(proxy)
        until(lambda: is_free(live))
        # A degraded admission charges no estimate, and a lost charge is not sent again.
        assert used(live, "tpm") in (0, ESTIMATE, TOOK)
        # A commit is repeated. Without a connection at the beginning nothing was reserved.
        assert used(live, "month") in (0, TOOK)
        if proxy.loses > proxy.replies:
            assert (used(live, "month"), used(live, "tpm")) == (TOOK, TOOK)


async def through(proxy: Proxy) -> None:
    limiter = AsyncLimiter(redis.asyncio.Redis(port=proxy.port), timeout_ms=PATIENT_MS)
    await model(limiter, [])
    await ends_are_over(limiter)
    await limiter.close()


async def ends_are_over(limiter: AsyncLimiter) -> None:
    """Waits until no end is repeated any more."""
    running = limiter._tasks._running
    await asyncio.to_thread(until, lambda: not (running.tasks or running.repeating))


def through_a_thread(proxy: Proxy) -> None:
    with Limiter(redis.Redis(port=proxy.port), timeout_ms=PATIENT_MS) as limiter:
        with limiter.admit(*items()) as admitted:
            admitted.settle(TPM, TOOK)
            admitted.settle(MONTH, TOOK)
        ends = limiter._renewer._ends
        until(lambda: not ends.queues)


# -- the calls ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [
        fixed("day", 10, "1d"), quota("week", 10, "week"),
        policy("stored"), policy("missing", default=fixed("any", 10, "1h")),
    ],
    ids=lambda rule: rule.name,
)  # fmt: skip
def test_a_reservation_is_committed_or_cancelled(shared_server: Server, rule: Any) -> None:
    shared_server.command("RL.POLICY", "SET", "stored", "QUOTA", "10", "day")
    with Limiter(shared_server.client(), timeout_ms=PATIENT_MS) as limiter:
        with limiter.reserve(rule, "t", 6, "30s") as reserved:
            assert reserved.decision.remaining == 4
            with pytest.raises(Denied) as denied:
                limiter.reserve(rule, "t", 5)
            assert denied.value.decision.retry_after_ms == 30_000
            reserved.commit(1)
        assert limiter.peek(rule, "t", 0).remaining == 9
        limiter.reserve(rule, "t", 9).cancel()
        with limiter.reserve(rule, "t", 9):
            pass
        assert limiter.peek(rule, "t", 0).remaining == 9
        late = limiter.reserve(rule, "t", 3, "30s")
        shared_server.advance("31s")
        late.commit(4)
        # The reservation is over, so its units are charged.
        assert limiter.peek(rule, "t", 0).remaining == 5
        assert limiter.counters.unsettled == 0
    shared_server.command("RL.POLICY", "DEL", "stored")


def test_reservations_need_the_module(server: Server) -> None:
    if server.backend == "module":
        return
    with Limiter(server.client(), timeout_ms=PATIENT_MS) as limiter:
        with pytest.raises(Exception, match="needs the redis-throttle module"):
            limiter.reserve(fixed("day", 10, "1d"), "t", 1)
        with limiter.admit(RPM.of("t").cost(9), RUNS.of("t")) as admitted:
            admitted.settle(RPM, 4)
        assert limiter.peek(RPM, "t", 0).remaining == 996
        assert limiter.peek_all(RUNS.of("t"), id="x").remaining == 3
        assert limiter.counters.unsettled == 0
