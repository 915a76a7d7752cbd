"""Tests the local limiter: its time per call, and the keys that it drops."""

from __future__ import annotations

import time

import pytest

from redis_throttle_client import fixed, sliding, sliding_log
from redis_throttle_client._calls.local import Limits, LocalLimiter

WINDOW_US = 60_000_000


@pytest.mark.parametrize("limit", [1000, 100_000])
def test_a_call_on_a_sliding_window_takes_the_same_time_at_the_30000th(limit: int) -> None:
    local, limits = LocalLimiter(), Limits.of(sliding("s", limit, "60s"))
    for at in range(30_000):
        local.decide(limits, "k", 1, at * 1000)
    fastest_s = 1.0
    for at in range(30_000, 30_200):
        for peek in (True, False):
            began = time.perf_counter()
            local.decide(limits, "k", 1, at * 1000, peek=peek)
            fastest_s = min(fastest_s, time.perf_counter() - began)
    # A walk through the window took 6 ms.
    assert fastest_s < 0.0005


def test_a_large_log_has_at_most_1000_counters_and_never_allows_more() -> None:
    local, limits = LocalLimiter(), Limits.of(sliding_log("s", 3000, "60s"))
    allowed: list[int] = []
    for now_us in range(0, 3 * WINDOW_US, 7919):
        if local.decide(limits, "k", 1, now_us)[0]:
            allowed.append(now_us)
    assert len(local._current(limits, "k", 3 * WINDOW_US).log) <= 1001
    for first, last in zip(allowed, allowed[3000:], strict=False):
        assert last - first >= WINDOW_US
    # A unit is free at most a thousandth of the window late.
    assert len(allowed) > 2.9 * 3000


def test_a_full_local_limiter_drops_an_exhausted_key_last() -> None:
    local, limits = LocalLimiter(10), Limits.of(fixed("f", 2, "60s"))
    local.decide(limits, "exhausted", 2, 0)
    for at in range(100):
        local.decide(limits, f"k{at}", 1, 1 + at)
    assert not local.decide(limits, "exhausted", 1, 200)[0]
    assert len(local._states) + len(local._exhausted) == 10
    # After its window it is dropped first.
    local.decide(limits, "new", 1, WINDOW_US)
    assert "exhausted" not in local._exhausted


def test_exhausted_keys_leave_room_for_others() -> None:
    local, limits = LocalLimiter(10), Limits.of(fixed("f", 2, "60s"))
    for at in range(20):
        local.decide(limits, f"k{at}", 2, at)
    allowed = [local.decide(limits, "admin", 1, 50 + at)[0] for at in range(3)]
    assert allowed == [1, 1, 0]


def test_more_exhausted_keys_than_fit_are_bounded() -> None:
    local, limits = LocalLimiter(10), Limits.of(fixed("f", 1, "60s"))
    for at in range(100):
        local.decide(limits, f"k{at}", 1, at)
    assert len(local._states) + len(local._exhausted) == 10
