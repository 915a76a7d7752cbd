"""Tests that values and errors survive a copy, and the way to another process."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from redis_throttle_client import (
    CommandRejected,
    Counters,
    Decision,
    DecisionEvent,
    Denied,
    InvalidArgument,
    LimiterClosed,
    Outcome,
    ThrottleError,
    Unavailable,
    backoff,
    fastapi,
    fixed,
    gcra,
    key_of,
    leaky_bucket,
    lease,
    policy,
    quota,
    rate,
    sliding,
    sliding_log,
    token_bucket,
)
from redis_throttle_client._rules.errors import ProtocolError, TooManyReservations, counted
from redis_throttle_client._rules.options import Bounds, Options
from redis_throttle_client.asgi import Response

from .test_rest_framework import rest_framework


def is_paid(outcome: Outcome) -> bool:
    return outcome.status != 402


ROW = Decision(False, 6, 0, 6000, 36_000, "api", window_us=36_000_000)
DENIAL = Decision(
    False, 6, 0, 6000, 36_000, "api", "local", True, rows=(ROW, ROW), deciding=1, reason="timeout"
)
API = gcra("api", 6, 10, "60s", on_error="local", prefetch=5, count=is_paid)
VALUES: list[Any] = [
    ROW, DENIAL, API, token_bucket("t", 6, 10, "60s"), leaky_bucket("l", 6, 10, "60s"),
    fixed("f", 6, "60s", aligned=True), sliding("s", 6, "60s"), sliding_log("g", 6, "1m", slots=16),
    backoff("b", 5, "1s", "8s", "60s", count="failures"), quota("q", 6, "month", zone="UTC"),
    lease("j", 6, "60s"), policy("p", default=API, variants=["x"]),
    API.of("42").cost(3).leave("20%"), fixed("f", 6, "60s").of("42").reserve(3, "10s"),
    Outcome(404), Counters(allowed=3), Options.of(timeout_ms=50), Bounds.of(Options()),
    DecisionEvent("check", DENIAL, API, "0123456789abcdef", 0.5), key_of("X-Tenant", "X-Api-Key"),
    rate("10/minute"),
    Response(429, {"Retry-After": "6"}, b"{}"),
]  # fmt: skip


class OwnDenied(Denied):
    """An error of the application, with a field and an argument of its own."""

    def __init__(self, decision: Decision, *, tenant: str) -> None:
        super().__init__(decision)
        self.tenant = tenant


def refused() -> Unavailable:
    error = counted("no reply", "timeout", sent=True)
    error.add_note("at noon")
    return error


ERRORS: list[Exception] = [
    ThrottleError("one", 2), LimiterClosed(), InvalidArgument("cost: expected an integer"),
    Unavailable(), Unavailable("slow", "overloaded"), refused(), CommandRejected("WRONGTYPE"),
    TooManyReservations("ERR too many reservations"), ProtocolError("no decision"),
    Denied(DENIAL), OwnDenied(DENIAL, tenant="acme"), fastapi.RateLimited(DENIAL, ("draft-6",)),
    fastapi.RateLimited(None, ()), rest_framework.RateLimitError(DENIAL),
    rest_framework.RateLimitError(None),
]  # fmt: skip


def through(protocol: int) -> Callable[[Any], Any]:
    return lambda one: pickle.loads(pickle.dumps(one, protocol))


WAYS: list[Callable[[Any], Any]] = [
    copy.copy,
    copy.deepcopy,
    *map(through, range(pickle.HIGHEST_PROTOCOL + 1)),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_survive_pickle_and_copy(value: Any) -> None:
    for way in WAYS:
        copied = way(value)
        assert (type(copied), copied, repr(copied)) == (type(value), value, repr(value))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_survive_pickle_and_copy(error: Exception) -> None:
    for way in WAYS:
        copied = way(error)
        assert (type(copied), copied.args, str(copied)) == (type(error), error.args, str(error))
        assert copied.__dict__ == error.__dict__


def job() -> None:
    raise OwnDenied(DENIAL, tenant="acme")


def test_a_job_that_is_denied_does_not_break_its_process_pool() -> None:
    with (
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool,
        pytest.raises(OwnDenied) as raised,
    ):
        pool.submit(job).result(60)
    assert (raised.value.decision, raised.value.tenant) == (DENIAL, "acme")
    assert raised.value.status == 429
