"""Tests rates as text in place of a rate and its period, or of a limit and its window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redis_throttle_client import (
    InvalidArgument,
    Rate,
    Rule,
    fixed,
    gcra,
    leaky_bucket,
    rate,
    sliding,
    sliding_log,
    token_bucket,
)

BUCKETS: list[Callable[..., Rule]] = [gcra, token_bucket, leaky_bucket]
WINDOWS: list[Callable[..., Rule]] = [fixed, sliding, sliding_log]


@pytest.mark.parametrize("make", BUCKETS)
def test_a_rate_stands_for_the_rate_and_period_of_a_rule(make: Callable[..., Rule]) -> None:
    expected = make("api", 20, 10, "2m", on_error="deny")
    for given in ("10/2 minutes", rate("10 per 120s")):
        assert make("api", 20, given, on_error="deny") == expected
        assert make("api", 20, rate=given, on_error="deny") == expected


@pytest.mark.parametrize("make", WINDOWS)
def test_a_rate_stands_for_the_limit_and_window_of_a_rule(make: Callable[..., Rule]) -> None:
    expected = make("api", 100, "1h", on_error="deny")
    for given in ("100/hour", rate("100 per 60m")):
        assert make("api", given, on_error="deny") == expected
        assert make("api", limit=given, on_error="deny") == expected


WRONG: list[tuple[str, str | int | Rate, str | None]] = [
    ("amount", "10/fortnight", None), ("amount", "10", "1m"), ("amount", "0/minute", None),
    ("amount", "10/month", None), ("span", "10/minute", "1m"), ("span", rate("10/minute"), "1m"),
    ("span", 10, None),
]  # fmt: skip


@pytest.mark.parametrize(("named", "amount", "span"), WRONG)
def test_a_wrong_rate_of_a_rule_is_named(
    named: str, amount: str | int | Rate, span: str | None
) -> None:
    name = {"amount": "rate", "span": "period"}[named]
    for bucket in BUCKETS:
        with pytest.raises(InvalidArgument, match=f"^{name}: "):
            bucket("api", 20, amount, span)
    name = {"amount": "limit", "span": "window"}[named]
    for window in WINDOWS:
        with pytest.raises(InvalidArgument, match=f"^{name}: "):
            window("api", amount, span)


@pytest.mark.parametrize("text", ["10/month", "5 per 2 years"])
def test_a_rate_of_months_or_years_is_referred_to_a_quota(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^rate: .* a quota counts months and years$"):
        rate(text)


NO_RATES: list[Any] = [None, 10, 0.5, True, b"10/minute", ["10/minute"], "10/90", "10/1.5"]


@pytest.mark.parametrize("text", NO_RATES)
def test_what_is_no_rate_is_named(text: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^rate: "):
        rate(text)
