"""Tests events during a call in flight: a forget, a close, a probe."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import anyio
import pytest

from redis_throttle_client import Limiter, LimiterClosed, Unavailable, fixed, gcra, policy
from redis_throttle_client._net.breaker import Breaker
from redis_throttle_client._wire.call import Call
from redis_throttle_client.testing import FakeServer

from .conftest import until
from .fakes import Far, Held, begun, ended, run

API = gcra("api", 6, 10, "60s")
HOT = fixed("hot", 10, "1h", prefetch=10)
ONE = fixed("one", 1, "1h")


# -- forget, refund and charge ------------------------------------------------------------------


def use_up(limiter: Limiter) -> None:
    for _ in range(6):
        limiter.check(API, "42")


def test_a_denial_that_arrives_after_a_forget_is_not_cached() -> None:
    server = Held("DEL")
    limiter = server.threads(denial_cache=9)
    use_up(limiter)
    server.hold()
    calls = [
        begun(lambda: limiter.check(API, "42")),
        begun(lambda: limiter.check_all(ONE.of("x"), API.of("42"))),
    ]
    until(lambda: len(server.calls) == 8)
    limiter.forget(API, "42")
    server.let_go()
    ended(calls)
    assert limiter.check(API, "42").allowed
    assert limiter.check_all(ONE.of("x"), API.of("42")).allowed


@pytest.mark.parametrize("verb", ["forget", "refund", "charge"])
def test_a_denial_that_arrives_during_a_forget_refund_or_charge_is_not_cached(verb: str) -> None:
    class Late(Held):
        def reply(self, args: tuple[str, ...]) -> Any:
            if args[0] in ("DEL", "RL.REFUND", "RL.CHARGE"):
                # A denial arrives while this call is on its way to the server.
                limiter.check(API, "42")
            return super().reply(args)

    limiter = Late().threads(denial_cache=9)
    use_up(limiter)
    getattr(limiter, verb)(API, "42")
    after = limiter.check(API, "42")
    assert (after.source, after.allowed) == ("server", verb != "charge")


def test_a_forget_of_another_key_does_not_drop_a_pending_denial() -> None:
    server = Held("DEL")
    limiter = server.threads(denial_cache=9)
    use_up(limiter)
    cache, args = limiter._calls._denials, server.calls[-1]
    server.hold()
    call = begun(lambda: limiter.check(API, "42"))
    until(lambda: len(server.calls) == 7)
    before = cache.drops(args)
    limiter.forget(API, next(other for other in map(str, range(99)) if not meets(other, args)))
    assert cache.drops(args) == before
    server.let_go()
    ended([call])
    assert limiter.check(API, "42").source == "local"


def meets(subject: str, args: tuple[str, ...]) -> bool:
    """Returns True if the key shares a counter with a word of the call, which varies by run."""
    return hash(f"rl:api:{subject}") % 1024 in {hash(word) % 1024 for word in args}


def test_permits_that_arrive_after_a_forget_are_dropped() -> None:
    server = Held("DEL")
    limiter = server.threads()
    server.hold()
    call = begun(lambda: limiter.check(HOT, "42"))
    until(lambda: len(server.calls) == 1)
    limiter.forget(HOT, "42")
    server.let_go()
    ended([call])
    # All permits are available again, and no more than that.
    assert sum(limiter.check(HOT, "42").allowed for _ in range(40)) == 10


def test_no_permits_are_prefetched_during_a_forget() -> None:
    server = Held("RL.FIXED")
    limiter = server.threads()
    server.hold()
    forgotten = begun(lambda: limiter.forget(HOT, "42"))
    until(lambda: len(server.calls) == 1)
    assert limiter.check(HOT, "42").allowed
    server.let_go()
    ended([forgotten])
    assert sum(limiter.check(HOT, "42").allowed for _ in range(40)) == 9
    assert [call[-2:] for call in server.calls[1:3]] == [("1", "PARTIAL"), ("10", "PARTIAL")]
    assert limiter._calls._grants._forgetting == {}


def test_a_call_after_a_forget_does_not_wait_for_an_older_fetch() -> None:
    server = Held("DEL")
    limiter = server.threads()
    server.hold()
    calls = [begun(lambda: limiter.check(HOT, "42"))]
    until(lambda: len(server.calls) == 1)
    limiter.forget(HOT, "42")
    calls.append(begun(lambda: limiter.check(HOT, "42")))
    until(lambda: len(server.calls) == 3)
    server.let_go()
    ended(calls)


@pytest.mark.anyio
async def test_forget_and_check_may_run_concurrently_in_asyncio() -> None:
    server = FakeServer()
    limiter = server.async_limiter(denial_cache=9)
    await limiter.check(API, "42", 6)
    await asyncio.gather(
        limiter.check(API, "42"), limiter.check(HOT, "42"),
        limiter.forget(API, "42"), limiter.forget(HOT, "42"),
    )  # fmt: skip
    assert (await limiter.check(API, "42")).allowed
    found = [await limiter.check(HOT, "42") for _ in range(40)]
    assert 9 <= sum(one.allowed for one in found) <= 10


# -- close --------------------------------------------------------------------------------------


def test_permits_that_arrive_during_close_are_refunded() -> None:
    server = Held("RL.REFUND", "RL.PEEK")
    limiter = server.threads()
    server.hold()
    hot = [gcra(f"hot{at}", 100, 100, "60s", prefetch=10) for at in range(3)]
    calls = [begun(partial(limiter.check, rule, "42")) for rule in hot]
    until(lambda: len(server.calls) == 3)
    closed = begun(limiter.close)
    until(lambda: limiter._calls._grants._closed)
    assert closed.is_alive()
    server.let_go()
    ended([*calls, closed])
    assert [call[-1] for call in server.calls if call[0] == "RL.REFUND"] == ["9"] * 3
    with pytest.raises(LimiterClosed):
        limiter.check(hot[0], "42")
    other = server.threads()
    assert [other.peek(rule, "42", 0).remaining for rule in hot] == [99] * 3


def test_close_waits_no_longer_than_one_timeout() -> None:
    async def close() -> None:
        server = Far(10**6)
        limiter = server.limiter(timeout_ms=100)
        call = asyncio.create_task(limiter.check(HOT, "42"))
        await asyncio.sleep(0.01)
        await limiter.close()
        assert asyncio.get_running_loop().time() < 0.2
        assert (await call).source == "error"

    run(close())


# -- the circuit breaker ------------------------------------------------------------------------


@pytest.mark.parametrize("succeeds", [True, False])
def test_only_one_call_is_the_probe_even_if_older_calls_end_during_it(succeeds: bool) -> None:
    now = [0.0]
    breaker = Breaker(1, 1, lambda: now[0])
    breaker.failed()
    now[0], call = 1, Call(1)
    assert breaker.enter(call)
    if succeeds:
        # The server decides again, so others enter. The probe is still pending at the next failure.
        breaker.succeeded()
        assert breaker.enter(call) is False
    breaker.failed()
    for now[0] in (1, 2, 9):
        with pytest.raises(Unavailable):
            breaker.enter(call)
    breaker.leave(call)
    # The pause began with the probe.
    assert breaker.enter(call)


# -- decisions by on_error --------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_decision_by_on_error_has_the_limit_of_its_rule() -> None:
    server = FakeServer()
    server.fail()
    limiter = server.limiter()
    closed = fixed("day", 9, "1d", on_error="deny")
    named = [policy("search", default=API), policy("unknown")]
    assert [limiter.check(rule, "42").limit for rule in (API, closed, *named)] == [6, 9, 6, 0]
    assert limiter.check_all(API.of("42"), closed.of("42")).limit == 9
    assert limiter.peek(API, "42").limit == 6
    with anyio.fail_after(60):
        assert (await server.async_limiter(prefetch=9).check(API, "42")).limit == 6
    assert limiter.check(closed, "42").headers() == {"Retry-After": "1"}
