"""Tests that a limiter stores a bounded number of subjects."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from redis_throttle_client import Decision, fixed, gcra
from redis_throttle_client._calls.denials import KnownDenials
from redis_throttle_client._wire.words import Keyed
from redis_throttle_client.testing import FakeServer

SUBJECTS = 10_001
"""One more than the maximum number of keys with permits or local states."""


def test_the_denial_cache_stores_at_most_the_configured_number_of_denials() -> None:
    server = FakeServer()
    limiter = server.limiter(denial_cache=100)
    one = fixed("one", 1, "1h")
    for at in range(1000):
        assert [bool(limiter.check(one, str(at))) for _ in range(2)] == [True, False]
    assert len(limiter._calls._denials._denials) == 100
    sources = [limiter.check(one, str(at)).source for at in (999, 900, 899, 0)]
    assert sources == ["local", "local", "server", "server"]


def test_permits_are_stored_for_a_bounded_number_of_subjects() -> None:
    server = FakeServer()
    limiter = server.limiter(prefetch=3)
    api = gcra("api", 6, 10, "60s")
    for at in range(SUBJECTS):
        assert limiter.check(api, str(at)).source == "server"
    assert len(limiter._calls._grants._grants) == SUBJECTS - 1
    assert len(limiter._calls._grants._fetches) == 0
    assert len(limiter._calls.sender._turns) == 0
    assert limiter._calls.keys._known.cache_info().currsize < SUBJECTS
    # The oldest permits were dropped, which only makes the limit stricter.
    assert [limiter.check(api, str(at)).source for at in (SUBJECTS - 1, 0)] == ["local", "server"]


def test_local_states_are_stored_for_a_bounded_number_of_subjects() -> None:
    server = FakeServer()
    server.fail()
    limiter = server.limiter()
    one = fixed("one", 1, "1h", on_error="local")
    assert [bool(limiter.check(one, "0")) for _ in range(2)] == [True, False]
    for at in range(1, SUBJECTS):
        assert limiter.check(one, str(at))
    local = limiter._calls._local
    assert len(local._states) + len(local._exhausted) == SUBJECTS - 1
    assert not limiter.check(one, str(SUBJECTS - 1))
    assert limiter.check(one, "0")


@pytest.fixture
def hasty() -> Iterator[None]:
    """Lets threads change as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty")
def test_threads_learn_a_bounded_number_of_denials_and_none_of_a_forgotten_key() -> None:
    size, known, one = 50, KnownDenials(50, 1000), fixed("one", 1, "1h")
    denial = Decision(False, 1, 0, 3_600_000, 3_600_000, "one", "server")

    def learn(thread: int) -> int:
        most = 0
        for at in range(3000):
            key = f"{thread}:{at}"
            known.learn([Keyed(one.of(key), key)], denial, lambda: 0.0, known.forgotten)
            most = max(most, len(known._entries))
            if at % 3 == 0:
                seen = known.forgotten
                known.forget(key)
                # This call began before.
                known.learn([Keyed(one.of(key), key)], denial, lambda: 0.0, seen)
                assert key not in known._entries
        return most

    with ThreadPoolExecutor(8) as pool:
        assert max(pool.map(learn, range(8))) <= size
