"""Tests ``count``: the requests that count under a rule, and the refunds of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redis_throttle_client import (
    InvalidArgument,
    Outcome,
    Rule,
    backoff,
    fixed,
    gcra,
    leaky_bucket,
    lease,
    policy,
    quota,
    sliding,
    sliding_log,
    token_bucket,
)
from redis_throttle_client._outcome import counts

RULES: list[Callable[..., Rule]] = [
    lambda count: gcra("a", 6, 10, "60s", count=count),
    lambda count: token_bucket("a", 6, 10, "60s", count=count),
    lambda count: leaky_bucket("a", 6, 10, "60s", count=count),
    lambda count: fixed("a", 6, "60s", count=count),
    lambda count: sliding("a", 6, "60s", count=count),
    lambda count: sliding_log("a", 6, "60s", count=count),
    lambda count: backoff("a", 6, "1s", "60s", "1d", count=count),
    lambda count: quota("a", 6, "month", count=count),
    lambda count: policy("a", count=count),
]


@pytest.mark.parametrize("made", RULES)
def test_a_rule_has_its_count_and_refuses_an_unknown_one(made: Callable[..., Rule]) -> None:
    assert made("failures").count == "failures"
    assert made(callable).count is callable
    assert made("all") != made("failures")
    wrong: list[Any] = ["errors", None, 500]
    for count in wrong:
        with pytest.raises(InvalidArgument, match=r"^count: "):
            made(count)


def test_a_lease_refuses_a_count() -> None:
    wrong: Any = "failures"
    with pytest.raises(InvalidArgument, match=r"^count: "):
        lease("jobs", 1, "60s", count=wrong)
    assert lease("jobs", 1, "60s").count == "all"


@pytest.mark.parametrize(
    ("outcome", "failed"),
    [(Outcome(200), False), (Outcome(399), False), (Outcome(400), True), (Outcome(503), True),
     (Outcome(None), True), (Outcome(None, ZeroDivisionError()), True)],
)  # fmt: skip
def test_a_failure_is_a_status_from_400_or_no_response(outcome: Outcome, failed: bool) -> None:
    assert counts("failures", outcome) == failed
    assert counts("all", outcome)
    assert counts(lambda one: one is outcome, outcome)
