"""Tests every option of the limiters, with the fake server and its clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import redis
import redis.asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from redis_throttle_client import (
    AsyncLimiter,
    CommandRejected,
    InvalidArgument,
    Limiter,
    gcra,
    leaky_bucket,
    lease,
    policy,
    sliding_log,
)
from redis_throttle_client._rules.errors import is_rejection
from redis_throttle_client._rules.keys import Keys
from redis_throttle_client.testing import FakeServer

API = gcra("api", 6, 10, "60s")


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


def test_a_denial_is_false_in_a_condition(server: FakeServer) -> None:
    limiter = server.limiter()
    assert [bool(limiter.check(API, "42")) for _ in range(7)] == [True] * 6 + [False]


def test_a_sliding_log_sends_its_slots_after_the_cost(server: FakeServer) -> None:
    log = sliding_log("log", 100, "1h", slots=16)
    assert server.limiter().check(log, "42", 3)
    assert server.calls == [
        ("RL.SLIDINGLOG", "rl:log:42", "100", "3600", "COST", "3", "SLOTS", "16")
    ]
    for slots in (15, 65_537, True):
        with pytest.raises(InvalidArgument, match="slots: expected an integer from 16 to"):
            sliding_log("log", 100, "1h", slots=slots)


# -- on_error ---------------------------------------------------------------------------------


def test_a_cost_above_the_local_share_has_a_retry_time(server: FakeServer) -> None:
    server.fail()
    rule = gcra("api", 60, 60, "60s", on_error="local", local_share=0.1)
    assert server.limiter().check(rule, "42", 7).retry_after_ms == 1000
    assert server.limiter().check(rule, "42", 61).never


def test_a_policy_falls_back_to_its_default_rule_without_the_server(server: FakeServer) -> None:
    server.fail()
    rule = policy("search", default=gcra("x", 2, 1, "1s"), on_error="local")
    limiter = server.limiter()
    assert [limiter.check(rule, "42").allowed for _ in range(3)] == [True, True, False]


def test_a_rule_without_on_error_uses_that_of_its_limiter(server: FakeServer) -> None:
    server.fail()
    closed = server.limiter(on_error="deny")
    assert [closed.check(rule, "42").allowed for rule in (API, replace(API, on_error="allow"))] == [
        False, True,
    ]  # fmt: skip
    local = server.limiter(on_error="local")
    assert local.check(API, "42").source == "local"
    jobs = lease("jobs", 1, "60s")
    with pytest.raises(InvalidArgument, match=r"^on_error: "):
        local.lease(jobs, "42")
    with local.lease(replace(jobs, on_error="allow"), "42") as held:
        assert held.decision.source == "error"


@pytest.mark.parametrize("reply", ["WRONGTYPE x", "ERR unknown command 'RL.GCRA'", "NOPERM x"])
def test_a_rejected_command_is_raised_under_every_on_error(server: FakeServer, reply: str) -> None:
    server.fail(reply)
    for rule in (API, gcra("api", 6, 10, "60s", on_error="local")):
        with pytest.raises(CommandRejected):
            server.limiter().check(rule, "42")


@pytest.mark.parametrize(
    ("error", "is_refusal"),
    [(TypeError("x"), True), (OSError("x"), False), (TimeoutError(), False),
     (redis.ConnectionError("x"), False), (redis.TimeoutError("x"), False)],
)  # fmt: skip
def test_a_bug_in_the_program_is_a_rejection_and_a_lost_connection_is_not(
    error: Exception, is_refusal: bool
) -> None:
    assert is_rejection(error) is is_refusal


# -- the circuit breaker ----------------------------------------------------------------------


# -- the denial cache -------------------------------------------------------------------------


def test_every_call_is_sent_when_the_denial_cache_is_off(server: FakeServer) -> None:
    limiter = server.limiter()
    for _ in range(9):
        limiter.check(API, "42")
    assert len(server.calls) == 9


def test_the_denial_cache_is_per_cost_and_bounded_and_cleared(server: FakeServer) -> None:
    limiter = server.limiter(denial_cache=1)
    limiter.check(API, "42", 4)
    assert not limiter.check(API, "42", 3)
    assert limiter.check(API, "42", 2)
    limiter.forget(API, "42")
    assert limiter.check(API, "42", 3)
    limiter.check(API, "42", 3)
    assert limiter.check(API, "42").source == "server"
    assert limiter.check(API, "x", 6)
    assert limiter.check(API, "x", 1).source == "server"
    assert limiter.check(API, "42", 1).source == "server"


# -- prefetch ---------------------------------------------------------------------------------


def test_the_prefetch_of_a_rule_overrides_that_of_the_limiter(server: FakeServer) -> None:
    hot = gcra("hot", 100, 100, "1m", prefetch=10)
    cold = gcra("cold", 100, 100, "1m", prefetch=1)
    server.limiter().check(hot, "42")
    limiter = server.limiter(prefetch=4)
    for rule in (hot, cold, gcra("warm", 100, 100, "1m")):
        limiter.check(rule, "43")
    assert [call[6:] for call in server.calls] == [
        ("10", "PARTIAL"), ("10", "PARTIAL"), (), ("4", "PARTIAL"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "cost"), [(leaky_bucket("q", 9, 9, 9), 1), (policy("p", default=API), 1), (API, 2)]
)
def test_some_rules_and_costs_are_not_prefetched(server: FakeServer, rule: Any, cost: int) -> None:
    server.script([1, 6, 5, 0, 6000, 1, 0])
    server.limiter(prefetch=4).check(rule, "42", cost)
    assert "PARTIAL" not in server.calls[0]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([0, 0, 0, 1, 7, 31])), min_size=40, max_size=80
    )
)
def test_prefetching_processes_exceed_a_limit_by_their_permits_at_most(
    steps: list[tuple[int, int]],
) -> None:
    """A window allows the burst, the rate, and at most the prefetched permits of each process."""
    server, prefetch = FakeServer(), 5
    processes = [server.limiter(prefetch=prefetch) for _ in range(3)]
    allowed: list[float] = []
    for process, seconds in steps:
        server.advance(seconds)
        if processes[process].check(API, "42"):
            allowed.append(server.now())
    for began in allowed:
        assert sum(began <= at < began + 60 for at in allowed) <= 6 + 10 + 3 * prefetch
    for limiter in processes:
        limiter.close()
    spent = len(allowed)
    server.advance(3600)
    assert server.limiter().peek(API, "42", 0).remaining == 6
    assert spent <= 6 + 10 * (allowed[-1] - allowed[0]) / 60 + 3 * prefetch


# -- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{"timeout_ms": 0}, {"max_in_flight": 0}, {"breaker_failures": 0}, {"breaker_pause_ms": 0},
     {"denial_cache": -1}, {"prefetch": 0}, {"prefetch": 1.5}, {"prefetch": 10_001},
     {"on_error": "open"}, {"hash_tag": "x"}, {"prefix": "{"}, {"hmac_secret": "short"}],
)  # fmt: skip
def test_invalid_options_are_rejected(server: FakeServer, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=f"^{next(iter(options))}: "):
        server.limiter(**options)


def test_each_limiter_rejects_clients_of_the_other_kind() -> None:
    with pytest.raises(InvalidArgument, match="client"):
        Limiter(redis.asyncio.Redis())
    with pytest.raises(InvalidArgument, match="client"):
        AsyncLimiter(redis.Redis())
    with pytest.raises(InvalidArgument, match="client"):
        Limiter(object())


def test_keys_begin_with_the_prefix(server: FakeServer) -> None:
    server.limiter(prefix="app").check(API, "42")
    assert server.calls[0][1].startswith("app:")


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8"), min_size=1, max_size=60),
            st.from_regex(r"\A[A-Za-z0-9._:/-]{1,8}\Z"),
        ),
        min_size=2, max_size=2, unique=True,
    )
)  # fmt: skip
def test_no_two_subjects_share_a_key(pairs: list[tuple[str, str]]) -> None:
    keys = Keys()
    first, second = (keys.key(rule, subject) for subject, rule in pairs)
    assert first != second


@pytest.mark.parametrize("secret", [None, b"0123456789abcdef"])
def test_a_lone_surrogate_is_rejected(server: FakeServer, secret: bytes | None) -> None:
    limiter = server.limiter(hmac_secret=secret)
    for subject in ("\ud800", "a\udfff", "x" * 200 + "\udc00"):
        with pytest.raises(InvalidArgument, match=r"^subject: "):
            limiter.check(API, subject)
        with pytest.raises(InvalidArgument, match=r"^tag: "):
            limiter.check(API, "42", tag=subject)
    assert limiter.check(API, "\U0001f600").source == "server"
    assert len(server.calls) == 1


def test_keys_of_long_subjects_are_not_cached() -> None:
    keys = Keys()
    assert keys.key("api", "x" * 60_000) == keys.key("api", "x" * 60_000)
    assert keys.key("api", "short", "x" * 60_000)
    assert keys._known.cache_info().currsize == 0
    assert keys.key("api", "short") == "rl:api:short"
    assert keys._known.cache_info().currsize == 1
