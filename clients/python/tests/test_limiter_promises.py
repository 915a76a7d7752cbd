"""Tests edge cases of the limiters, with the fake server and its clock."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import pytest

from redis_throttle_client import (
    CommandRejected,
    DecisionEvent,
    Denied,
    InvalidArgument,
    fixed,
    gcra,
    leaky_bucket,
    lease,
    token_bucket,
)
from redis_throttle_client._calls.denials import DenialCache
from redis_throttle_client._rules.decision import Decision
from redis_throttle_client.testing import FakeServer

API = gcra("api", 6, 10, "60s")
ONE = fixed("one", 1, "1h")


class SlowServer(FakeServer):
    """A fake server that decides, and replies 50 ms later."""

    def reply(self, args: tuple[str, ...]) -> Any:
        reply = super().reply(args)
        self.advance(0.05)
        return reply


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


def verbs(server: FakeServer) -> list[str]:
    return [call[0] for call in server.calls]


# -- wait -----------------------------------------------------------------------------------------


def test_wait_does_not_sleep_longer_than_max_wait_ms_in_all(server: FakeServer) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        server.advance(seconds)
        # Another caller takes the next unit first.
        server.limiter().check(rule, "42")
        assert len(slept) < 9

    rule = gcra("turns", 1, 10, "60s")
    limiter = server.limiter(sleep=sleep)
    limiter.check(rule, "42")
    assert not limiter.wait(rule, "42", 17_999)
    assert slept == [6, 6]


def test_wait_returns_at_once_for_a_cost_above_the_limit_or_without_a_server(
    server: FakeServer,
) -> None:
    def sleep(seconds: float) -> None:
        raise AssertionError("it sleeps")

    closed = gcra("closed", 1, 1, "1s", on_error="deny")
    limiter = server.limiter(sleep=sleep)
    assert limiter.wait(API, "42", 10**9, 7).never
    server.fail()
    refused = limiter.wait(closed, "42", 10**9)
    assert (refused.allowed, refused.source) == (False, "error")


# -- without a reply; refunds and charges -------------------------------------------------------


def test_a_local_share_below_one_unit_lengthens_the_window(server: FakeServer) -> None:
    server.fail()
    limiter = server.limiter()
    for rule in (
        fixed("fixed", 5, 60, on_error="local", local_share=0.1),
        gcra("gcra", 5, 5, 60, on_error="local", local_share=0.1),
    ):
        assert [bool(limiter.check(rule, "42")) for _ in range(2)] == [True, False]
        server.advance(119.999)
        assert not limiter.check(rule, "42")
        server.advance(0.001)
        assert limiter.check(rule, "42")


@pytest.mark.parametrize("make", [gcra, token_bucket, leaky_bucket])
def test_a_local_limiter_with_a_fractional_rate_loses_no_units(
    server: FakeServer, make: Any
) -> None:
    server.fail()
    limiter, rule = server.limiter(), make("odd", 5, 7, "1s", on_error="local")
    assert [bool(limiter.check(rule, "42")) for _ in range(6)] == [True] * 5 + [False]
    server.advance(0.143)
    assert [bool(limiter.check(rule, "42")) for _ in range(2)] == [True, False]


def test_a_charge_may_leave_a_debt(server: FakeServer) -> None:
    limiter = server.limiter()
    assert limiter.charge(ONE, "42").allowed
    assert not limiter.charge(ONE, "42").allowed
    assert limiter.refund(ONE, "42").remaining == 0


# -- the denial cache -------------------------------------------------------------------------


def test_a_cached_denial_is_timed_from_before_its_call() -> None:
    server = SlowServer()
    limiter = server.limiter(denial_cache=9)
    limiter.check(ONE, "42")
    denied = limiter.check(ONE, "42")
    assert not denied
    # The server decided 50 ms before, and the window opened 100 ms before.
    server.advance((1000 - 51) / 1000)
    assert limiter.check(ONE, "42").source == "local"
    server.advance(0.001)
    assert limiter.check(ONE, "42").source == "server"


def test_a_key_is_forgotten_without_a_search_through_the_denial_cache() -> None:
    size = 100_000
    cache = DenialCache(size, 1000)
    denied = Decision(False, 1, 0, 1000, 1000, "one")
    for at in range(size):
        args = ("RL.FIXED", f"k{at}", "1", "1")
        cache.put(args, denied, 0, cache.drops(args))
    began = time.perf_counter()
    for at in range(1000):
        cache.drop(f"k{at}")
    # A search took 4 ms for each key.
    assert time.perf_counter() - began < 0.4
    assert cache.get(("RL.FIXED", "k0", "1", "1"), 0) is None
    assert cache.get(("RL.FIXED", "k1000", "1", "1"), 0) is not None


def test_a_denied_lease_is_not_cached(server: FakeServer) -> None:
    limiter = server.limiter(denial_cache=9)
    jobs, denial = lease("jobs", 1, "60s"), [0, 1, 0, 60_000, 60_000]
    server.script([1, 1, 0, 0, 60_000], denial, denial, 1)
    with limiter.lease(jobs, "42", "a"):
        for _ in range(2):
            with pytest.raises(Denied), limiter.lease(jobs, "42", "b"):
                pass
    assert verbs(server) == ["RL.LEASE"] * 3 + ["RL.RELEASE"]


# -- prefetch and forget ------------------------------------------------------------------------


def test_expired_permits_are_not_refunded(server: FakeServer) -> None:
    limiter = server.limiter(prefetch=4)
    limiter.check(API, "42")
    server.advance(24)
    limiter.close()
    assert verbs(server) == ["RL.GCRA"]


@pytest.mark.anyio
async def test_all_unused_permits_are_refunded_on_close(server: FakeServer) -> None:
    limiter = server.async_limiter(prefetch=4)
    for subject in range(5):
        await limiter.check(API, str(subject))
    await limiter.close()
    refunded = [call[-1] for call in server.calls if call[0] == "RL.REFUND"]
    assert refunded == ["3"] * 5


def test_forget_also_drops_local_memory(server: FakeServer) -> None:
    limiter = server.limiter(prefetch=4)
    limiter.check(API, "42")
    limiter.forget(API, "42")
    assert limiter.check(API, "42").source == "server"
    local = fixed("local", 1, "1h", on_error="local")
    server.fail()
    assert [bool(limiter.check(local, "42")) for _ in range(2)] == [True, False]
    server.recover()
    limiter.forget(local, "42")
    server.fail()
    assert limiter.check(local, "42")


def test_a_rejected_command_is_also_counted_for_calls_without_a_decision(
    server: FakeServer,
) -> None:
    limiter = server.limiter()
    server.fail("NOPERM x")
    for call in (limiter.refund, limiter.charge, limiter.forget):
        with pytest.raises(CommandRejected):
            call(API, "42")
    with pytest.raises(CommandRejected):
        limiter.ready()
    assert limiter.counters.rejected == 4


# -- the hook -----------------------------------------------------------------------------------


def test_the_hook_gets_a_keyed_hash_and_the_latency() -> None:
    server = SlowServer()
    reported: list[DecisionEvent] = []
    for secret in (None, None, b"0123456789abcdef"):
        limiter = server.limiter(hmac_secret=secret, on_decision=reported.append)
        limiter.check(API, "alice")
    plain, same, keyed = reported
    assert plain.rule == API
    # Without a secret the key is a random one of this process: a plain hash could be reversed.
    assert plain.key_hash == same.key_hash != hashlib.sha256(b"alice").hexdigest()[:16]
    assert keyed.key_hash != plain.key_hash
    assert len(keyed.key_hash) == 16
    assert plain.latency_ms == pytest.approx(50)


# -- tags -----------------------------------------------------------------------------------------


def test_a_tag_is_in_every_key_of_its_call(server: FakeServer) -> None:
    limiter = server.limiter(prefetch=2)
    limiter.check(API, "42", tag="t")
    limiter.check(API, "42", 2, tag="t")
    limiter.peek(API, "42", tag="t")
    limiter.refund(API, "42", tag="t")
    limiter.charge(API, "42", tag="t")
    limiter.check_all(API.of("42"), ONE.of("42"), tag="t")
    limiter.wait(API, "42", 0, tag="t")
    server.script([1, 1, 0, 0, 60_000], 1)
    with limiter.lease(lease("jobs", 1, "60s"), "42", tag="t"):
        pass
    limiter.forget(API, "42", tag="t")
    limiter.close()
    assert all(call[1].startswith("rl:{t}:") for call in server.calls)
    assert server.calls[5][3].startswith("rl:{t}:")
    with pytest.raises(InvalidArgument, match=r"^tag: "):
        limiter.check(API, "42", tag="")
