"""Runs the examples of the doc comments, with a limiter of a fake server."""

from __future__ import annotations

import asyncio
import doctest
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import redis_throttle_client as rtc
from redis_throttle_client.testing import FakeServer, _Transport

# The functions that a reader needs in the first hour.
FIRST_HOUR: list[Any] = [
    rtc.AsyncLimiter,
    rtc.AsyncLimiter.admit,
    rtc.Limiter,
    rtc.Limiter.admit,
    rtc.Limiter.check,
    rtc.Limiter.from_url,
    rtc.Limiter.lease,
    rtc.Limiter.peek,
    rtc.Limiter.refund,
    rtc.Limiter.reserve,
    rtc.Admission.settle,
    rtc.Reservation.commit,
    rtc.backoff,
    rtc.fixed,
    rtc.gcra,
    rtc.leaky_bucket,
    rtc.lease,
    rtc.policy,
    rtc.quota,
    rtc.rate,
    rtc.sliding,
    rtc.sliding_log,
    rtc.token_bucket,
]
MONTH_MS = 30 * 86_400_000
TAKEN = [1, 100_000, 99_500, 0, MONTH_MS]
SETTLED = [1, 100_000, 99_580, 0, MONTH_MS]
RESERVED = [*TAKEN, 1, TAKEN]
GRANTED = [1, 4, 3, 0, 30_000]
DAY_MS = 86_400_000
ATTEMPTS = [[1, 2, 1, 0, DAY_MS], [1, 2, 0, 0, DAY_MS], [0, 2, 0, 1000, DAY_MS]]


def name_of(function: Any) -> str:
    """Returns the name that doctest gives a function."""
    return f"{function.__module__}.{function.__qualname__}"


# The server's replies in the examples whose rules the fake server does not compute.
REPLIES: dict[str, list[Any]] = {
    name_of(rtc.Limiter.lease): [GRANTED, 1],
    name_of(rtc.Limiter.reserve): [RESERVED, [1, 100_000, 100_000, 0, 0]],
    name_of(rtc.Reservation.commit): [RESERVED, SETTLED, SETTLED],
    name_of(rtc.backoff): ATTEMPTS,
    name_of(rtc.lease): [GRANTED, 1],
    name_of(rtc.policy): [[1, 10, 9, 0, 6000, 1, 0]],
    name_of(rtc.quota): [TAKEN],
}


def examples() -> Iterator[doctest.DocTest]:
    """Yields the doc comments with examples in the modules that define the public names."""
    modules = {inspect.getmodule(getattr(rtc, name)) for name in rtc.__all__}
    finder = doctest.DocTestFinder()
    for module in modules:
        if module is not None and module.__name__.startswith(rtc.__name__):
            yield from (one for one in finder.find(module) if one.examples)


EXAMPLES = {example.name: example for example in examples()}


@pytest.mark.parametrize("function", FIRST_HOUR, ids=lambda function: function.__qualname__)
def test_a_function_of_the_first_hour_has_an_example(function: Any) -> None:
    assert name_of(function) in EXAMPLES


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_gives_the_results_that_it_shows(name: str) -> None:
    server, is_async = FakeServer(), ".AsyncLimiter" in name
    server.script(*REPLIES.get(name, []))
    limiter = server.async_limiter() if is_async else server.limiter()
    client = _Transport(server, waits=is_async)
    public = {one: getattr(rtc, one) for one in rtc.__all__}
    example = EXAMPLES[name]
    example.globs = public | {"asyncio": asyncio, "client": client, "limiter": limiter}
    report: list[str] = []
    doctest.DocTestRunner().run(example, out=report.append)
    assert not report, "".join(report)
    assert not server._scripted, "the example leaves replies"
