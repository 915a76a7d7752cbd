"""Tests calls with several rules, waits, leases, the hook and the counters, on the fake server."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from redis_throttle_client import (
    AsyncLimiter,
    CommandRejected,
    DecisionEvent,
    InvalidArgument,
    LimiterClosed,
    Unavailable,
    backoff,
    fixed,
    gcra,
    lease,
)
from redis_throttle_client._holds.ending import Renewer
from redis_throttle_client._rules.errors import PASSING
from redis_throttle_client._wire.call import Call, Steps

from .fakes import Granting, look_again

API = gcra("api", 6, 10, "60s")


@pytest.fixture
def server() -> Granting:
    return Granting()


class Silent:
    """A server that never replies, and records how long each call would wait."""

    def __init__(self) -> None:
        self.waits_s: list[float] = []
        self.silence = anyio.Event()

    def node(self, key: str) -> None:
        return None

    async def call(self, node: None, args: tuple[str, ...], call: Call) -> None:
        self.waits_s.append(call.left_s)
        await self.silence.wait()
        raise Unavailable("no reply in time")

    async def close(self) -> None:
        pass


@pytest.mark.anyio
async def test_a_fetch_and_its_waiters_have_the_full_timeout() -> None:
    silent, now_s = Silent(), [0.0]
    limiter = AsyncLimiter(silent, timeout_ms=60_000, prefetch=2, clock=lambda: now_s[0])
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(limiter.check, API, "42")
            await anyio.wait_all_tasks_blocked()
            now_s[0] += 24
        # The third call finds no fetch with a permit that is not promised.
        assert silent.waits_s == [60, 60]
        silent.silence.set()
    assert silent.waits_s == [60, 60]


def test_a_lease_is_lost_by_the_clock_of_this_process(server: Granting) -> None:
    limiter, jobs = server.limiter(), lease("jobs", 1, "60s")
    with limiter.lease(jobs, "42", "job-1") as held:
        server.advance(59.9)
        assert held.held
        assert held.renew()
        server.advance(60)
        assert not held.held
        assert not held.renew()
    assert not held.held


def test_a_lease_held_by_a_thread_renews_itself(server: Granting) -> None:
    limiter, jobs = server.limiter(), lease("jobs", 1, "3ms")
    renewed = threading.Event()
    with limiter.lease(jobs, "42", "job-1") as held:
        hold = held._hold
        original = hold.renew

        def renew() -> Steps[bool]:
            renewed.set()
            return original()

        hold.renew = renew  # type: ignore[method-assign]
        server.advance(0.001)
        limiter._renewer._renewals.close(keeps=lambda hold: False)
        limiter._renewer = Renewer(limiter._run, server.now)
        limiter._renewer.keep([hold])
        server.advance(0.001)
        look_again(limiter)
        assert renewed.wait(5)
    limiter.close()


def test_the_hook_gets_no_subject_and_changes_no_decision(
    server: Granting, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[DecisionEvent] = []
    limiter = server.limiter(on_decision=seen.append)
    decision = limiter.check(API, "alice")
    assert (seen[0].kind, seen[0].decision, seen[0].rule) == ("check", decision, API)
    assert "alice" not in seen[0].key_hash
    assert len(seen[0].key_hash) == 16

    def broken(event: DecisionEvent) -> None:
        raise ZeroDivisionError

    limiter = server.limiter(on_decision=broken)
    limiter.on_decision(seen.append)
    assert limiter.check(API, "alice")
    assert "on_decision failed" in caplog.text
    assert len(seen) == 2


def test_the_hook_gets_the_error_of_a_rejected_forget(server: Granting) -> None:
    seen: list[DecisionEvent] = []
    limiter = server.limiter(on_decision=seen.append)
    limiter.check(API, "alice")
    server.fail("WRONGTYPE x")
    with pytest.raises(CommandRejected) as raised:
        limiter.forget(API, "alice")
    assert (len(seen), seen[-1].kind, seen[-1].error) == (2, "rejected", raised.value)
    assert seen[-1].key_hash == seen[0].key_hash


def test_the_hook_gets_the_deciding_subject_if_a_rule_is_checked_for_two_subjects(
    server: Granting,
) -> None:
    seen: list[str] = []
    limiter = server.limiter(on_decision=lambda event: seen.append(event.key_hash))
    for name in ("bob", "bob"):
        limiter.check(API, name, 3)
    denied = limiter.check_all(API.of("alice"), API.of("bob"))
    assert (denied.allowed, denied.deciding) == (False, 1)
    limiter.check(API, "bob")
    assert seen[-2] == seen[-1]


def test_check_each_validates_all_calls_before_the_first_one_takes_units(
    server: Granting,
) -> None:
    limiter = server.limiter()
    wrong: list[list[Any]] = [
        [API.of("42"), lease("jobs", 1, "60s").of("42")],
        [API.of("42"), backoff("login", 3, "1s", "60s", "1h").of("42")],
        [API.of("42"), fixed("day", 9, "1d").of("42").reserve(2)],
        [API.of("42"), (API, "43")],
        [],
    ]
    for items in wrong:
        with pytest.raises(InvalidArgument):
            limiter.check_each(*items)
    assert server.calls == []


def test_check_each_refunds_the_earlier_costs_if_its_thread_is_interrupted(
    server: Granting, monkeypatch: pytest.MonkeyPatch
) -> None:
    limiter, reply = server.limiter(), server.reply

    def interrupted(args: tuple[str, ...]) -> Any:
        if args[0] == "RL.FIXED":
            raise KeyboardInterrupt
        return reply(args)

    monkeypatch.setattr(server, "reply", interrupted)
    with pytest.raises(KeyboardInterrupt):
        limiter.check_each(API.of("42").cost(3), fixed("day", 9, "1d").of("42"))
    assert limiter.peek(API, "42", 0).remaining == 6


def test_granted_is_the_cost_of_an_allowed_call(server: Granting) -> None:
    limiter, day = server.limiter(on_error="local"), fixed("day", 9, "1d")
    assert limiter.check(API, "42", 3).granted == 3
    assert limiter.check(API, "42", 4).granted == 0
    both = limiter.check_all(API.of("42").cost(2), day.of("42").cost(4))
    assert (both.granted, [row.granted for row in both.rows]) == (2, [2, 4])
    denied = limiter.check_all(API.of("42").cost(2), day.of("42").cost(4))
    assert (denied.granted, [row.granted for row in denied.rows]) == (0, [0, 0])
    assert limiter.charge(day, "42", 3).granted == 3
    server.fail()
    assert limiter.check(API, "43", 3).granted == 3


@pytest.mark.parametrize("word", sorted(PASSING))
def test_temporary_errors_of_the_fake_server_are_decided_by_on_error(
    server: Granting, word: str
) -> None:
    server.fail(f"{word} for the moment")
    assert server.limiter().check(API, "42").source == "error"


# -- close and the log ---------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_second_close_waits_for_the_first(server: Granting) -> None:
    limiter = server.async_limiter()
    await limiter.check(API, "42")
    async with anyio.create_task_group() as group:
        group.start_soon(limiter.close)
        group.start_soon(limiter.close)
    with pytest.raises(LimiterClosed):
        await limiter.check(API, "42")


@pytest.mark.parametrize("logs", [True, False])
def test_decisions_without_the_server_are_logged_once_per_second_and_reason(
    server: Granting, caplog: pytest.LogCaptureFixture, logs: bool
) -> None:
    limiter = server.limiter(log_errors=logs, breaker_failures=3)
    server.fail()
    for _ in range(5):
        limiter.check(API, "alice")
    server.advance(0.5)
    limiter.check(API, "alice")
    server.advance(0.5)
    limiter.check(API, "alice")
    limiter.check(API, "alice")
    limiter.close()
    text = "redis-throttle: {} calls decided without the server: {}"
    logged = [(1, "timeout"), (1, "circuit"), (3, "timeout"), (3, "circuit")]
    expected = [text.format(*one) for one in logged] if logs else []
    assert [record.getMessage() for record in caplog.records] == expected
