"""Tests the waiters of fetches: the time that they wait, and the decisions that they get."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from redis_throttle_client import (
    CommandRejected,
    Decision,
    Rule,
    fixed,
    gcra,
    sliding,
    token_bucket,
)
from redis_throttle_client._calls.prefetch import Fetch, Grants
from redis_throttle_client.testing import FakeServer

from .conftest import until
from .fakes import Far, Held, begun, ended, run

API = gcra("api", 6, 10, "60s")
HOT = fixed("hot", 10, "1h", prefetch=10)


@pytest.mark.parametrize("prefetch", [2, 7, 10, 150])
@pytest.mark.parametrize("every_ms", [0, 0.3])
def test_a_burst_is_decided_by_the_server_over_a_slow_link(prefetch: int, every_ms: float) -> None:
    async def burst() -> None:
        server = Far(60)
        limiter = server.limiter(timeout_ms=100)
        hot = fixed("hot", 100, "1h", prefetch=prefetch)

        async def come(at: int) -> Decision:
            await asyncio.sleep(at * every_ms / 1000)
            decision: Decision = await limiter.check(hot, "42")
            return decision

        found = await asyncio.gather(*(come(at) for at in range(200)))
        assert "error" not in {one.source for one in found}
        assert sum(one.allowed for one in found) == 100
        assert limiter._breakers.of(None)._failed == 0
        assert (await limiter.check(API, "42")).source == "server"
        await limiter.close()
        assert (await server.limiter().peek(hot, "42", 0)).remaining == 0
        assert limiter._calls._grants._fetches == {}
        if not every_ms:
            assert server.calls[0][5] == "200"

    run(burst())


def test_concurrent_fetches_of_several_keys_do_not_open_the_circuit() -> None:
    async def flood() -> None:
        server = Far(60)
        limiter = server.limiter(timeout_ms=100, breaker_failures=1)
        rules = [gcra(f"hot{at}", 100, 100, "60s", prefetch=2) for at in range(5)]
        found = [asyncio.create_task(limiter.check(rule, "42")) for rule in rules for _ in range(3)]
        await asyncio.sleep(0.055)
        found += [asyncio.create_task(limiter.check(rule, "42")) for rule in rules]
        assert {(await one).allowed for one in found} == {True}
        assert limiter.counters.degraded == 0

    run(flood())


def test_each_waiting_thread_gets_a_permit() -> None:
    server = Held()
    limiter = server.threads()
    hot, found = fixed("hot", 95, "1h", prefetch=10), list[Decision]()
    server.hold()
    threads = [begun(lambda: found.append(limiter.check(hot, "42"))) for _ in range(200)]
    until(lambda: len(server.calls) == 20)
    # The last callers join the twentieth fetch after it was sent.
    fetches = limiter._calls._grants._fetches["rl:hot:42"]
    until(lambda: sum(fetch.waiting for fetch in fetches) == 200)
    server.let_go()
    ended(threads)
    assert sum(one.allowed for one in found) == 95
    assert {one.source for one in found} == {"server", "local"}
    # The five callers of the tenth fetch that got no permit start one more fetch, together.
    assert len(server.calls) == 21
    assert set(server.waits_s) == {60}
    assert limiter._calls._grants._fetches == {}


@pytest.mark.parametrize(
    "rule",
    [gcra("a", 5, 5, "1m", prefetch=9), gcra("b", 5, 7, "1s", prefetch=9),
     token_bucket("c", 5, 5, "1m", prefetch=9), fixed("d", 5, "1m", prefetch=9),
     sliding("e", 5, "1m", prefetch=9)],
    ids=lambda rule: rule.kind,
)  # fmt: skip
def test_a_waiter_whose_permit_does_not_arrive_is_denied_with_a_retry_time(rule: Rule) -> None:
    async def come() -> None:
        # The deadline permits no second reply.
        server, single = Far(60), replace(rule, prefetch=1)
        FakeServer.limiter(server).check(single, "42")
        server.advance(0.01)
        limiter = server.limiter(timeout_ms=100)
        found = await asyncio.gather(*(limiter.check(rule, "42") for _ in range(9)))
        assert sum(one.allowed for one in found) == 4
        last = found[-1]
        assert (last.allowed, last.source, last.remaining) == (False, "local", 0)
        exact = FakeServer.limiter(server).peek(single, "42").retry_after_ms
        assert exact <= last.retry_after_ms <= exact + (rule.kind == "sliding") * 10 + 1
        server.advance(last.retry_after_ms / 1000)
        assert FakeServer.limiter(server).check(single, "42").allowed

    run(come())


def test_permits_of_two_rules_with_the_same_name_are_not_mixed() -> None:
    async def come() -> None:
        server = Far(10)
        limiter = server.limiter()
        large, small = (fixed("plan", limit, "1h", prefetch=2) for limit in (1000, 5))
        rules = [large, small] * 3
        found = await asyncio.gather(*(limiter.check(rule, "42") for rule in rules))
        assert [one.limit for one in found] == [1000, 5] * 3

    run(come())


def test_the_permit_of_a_cancelled_waiter_is_used_by_others() -> None:
    async def come() -> None:
        server = Far(60)
        limiter = server.limiter()
        calls = [asyncio.create_task(limiter.check(HOT, "42")) for _ in range(4)]
        await asyncio.sleep(0.01)
        # The first task started the fetch. The last one is cancelled after the grant has arrived.
        calls[0].cancel()
        grants, end = limiter._calls._grants, limiter._calls._grants.end

        def ended(*came: Any) -> None:
            end(*came)
            calls[3].cancel()

        grants.end = ended
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(one, asyncio.CancelledError) for one in found] == [
            True, False, False, True,
        ]  # fmt: skip
        assert [(await limiter.check(HOT, "42")).source for _ in range(8)] == ["local"] * 8
        assert not (await limiter.check(HOT, "42")).allowed
        assert len(server.calls) == 2

    run(come())


def test_the_error_of_a_rejected_fetch_is_raised_in_all_waiters() -> None:
    async def come() -> None:
        server = Far(60)
        server.fail("WRONGTYPE x")
        limiter = server.limiter()
        found = await asyncio.gather(
            *(limiter.check(HOT, "42") for _ in range(3)), return_exceptions=True
        )
        assert [type(one) for one in found] == [CommandRejected] * 3
        assert limiter.counters.rejected == 3

    run(come())


def test_concurrent_loops_share_permits_but_wait_only_for_their_own_fetches() -> None:
    server = FakeServer()
    limiter, found = server.async_limiter(), list[Decision]()

    async def come() -> None:
        found.extend(await asyncio.gather(*(limiter.check(HOT, "42") for _ in range(5))))

    ended([begun(lambda: asyncio.run(come())) for _ in range(4)])
    assert sum(one.allowed for one in found) == 10
    assert {one.degraded for one in found} == {False}


def test_no_caller_waits_for_the_fetch_of_another_loop() -> None:
    limiter = FakeServer().async_limiter()
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()

    async def begin() -> asyncio.Task[Decision]:
        call = asyncio.create_task(limiter.check(HOT, "42"))
        await asyncio.sleep(0)
        return call

    call = first.run_until_complete(begin())
    assert limiter._calls._grants._fetches
    other = second.run_until_complete(second.run_until_complete(begin()))
    assert (other.source, first.run_until_complete(call).allowed) == ("server", False)
    first.close()
    second.close()


def test_a_waiter_of_a_cancelled_fetch_gets_a_decision() -> None:
    async def come() -> None:
        limiter = Far(60).limiter()
        call = asyncio.create_task(limiter.check(HOT, "42"))
        await asyncio.sleep(0.01)
        for task in limiter._tasks._running.tasks:
            task.cancel()
        assert (await asyncio.wait_for(call, 60)).source == "error"

    run(come())


def test_the_denial_of_a_fetch_is_cached() -> None:
    server = FakeServer()
    limiter = server.limiter(denial_cache=9)
    found = [limiter.check(HOT, "42") for _ in range(12)]
    assert [one.allowed for one in found] == [True] * 10 + [False] * 2
    assert [one.source for one in found[-2:]] == ["server", "local"]
    assert len(server.calls) == 2


def granted(permits: int, reset_after_ms: int) -> Decision:
    return Decision(True, 100, 0, 0, reset_after_ms, "hot", granted=permits)


def test_permits_of_two_concurrent_fetches_are_stored_together() -> None:
    grants, rule = Grants(), gcra("hot", 100, 100, "1m")
    first, second = (Fetch(rule, None, 1, None) for _ in range(2))
    assert grants.join("k", first, 0) is first
    first.wanted = 1
    assert grants.join("k", second, 0) is second
    assert grants.join("k", Fetch(rule, None, 1, None), 0) is second
    # A waiter of the second fetch finds no permit there, and takes one of the first fetch.
    grants.end("k", first, 0, granted(9, 3000))
    grants.end("k", second, 0, granted(1, 9000))
    shares = [grants.share("k", one, 1, None) for one in (first, second, second)]
    assert [isinstance(one, Decision) and one.allowed for one in shares] == [True] * 3
    # All stored permits expire when the first of them do.
    third = Fetch(rule, None, 1, None)
    assert grants.drain(2) == [("k", rule, 7)]
    grants.end("k", third, 0, granted(5, 3000))
    grants.end("k", third, 0, granted(5, 9000))
    assert grants.drain(3) == []


def test_no_caller_waits_for_a_fetch_whose_loop_ended() -> None:
    server = FakeServer()
    loop = asyncio.new_event_loop()
    limiter = server.async_limiter()

    async def come() -> Decision:
        return await limiter.check(HOT, "42")

    async def end() -> None:
        call = asyncio.create_task(come())
        await asyncio.sleep(0)
        for task in [call, *limiter._tasks._running.tasks]:
            task.cancel()
        await asyncio.wait([call])

    loop.run_until_complete(end())
    server.advance(1)
    assert loop.run_until_complete(come()).source == "server"
    assert limiter._calls._grants._fetches == {}
    loop.close()
