"""Tests that a wrong argument is an error that names it, and sends nothing."""

from __future__ import annotations

from typing import Any

import pytest

import redis_throttle_client as rtc
from redis_throttle_client import (
    AsyncLimiter,
    InvalidArgument,
    Limiter,
    backoff,
    fixed,
    gcra,
    lease,
    policy,
    quota,
    sliding,
)
from redis_throttle_client.asgi import RateLimitMiddleware
from redis_throttle_client.testing import FakeServer
from redis_throttle_client.wsgi import RateLimitMiddleware as WsgiMiddleware

from .test_middleware import wsgi_app

API = gcra("api", 6, 10, "60s")
AHEAD = gcra("ahead", 60, 10, "60s", prefetch=5)
DAY = fixed("day", 100, "1d")
JOBS = lease("jobs", 1, "60s")
HALF = "\ud800"


async def hook(event: Any) -> None: ...


OPTIONS: list[tuple[str, list[Any]]] = [
    ("timeout_ms", ["100", 0.5, True, None]), ("denial_cache", [True, None, "1"]),
    ("on_error", [True, None, ["deny"]]), ("prefetch", [True, 1.0]), ("backend", [["auto"], 1]),
    ("prefix", [None, 5, b"rl", HALF]), ("hash_tag", [True, ["subject"]]),
    ("hmac_secret", [5, "short", HALF * 16, ["x"] * 16]), ("on_decision", [5, "log", hook]),
    ("log_errors", [1, None, "no"]), ("clock", [5, None]), ("sleep", [5, None]),
    ("timeout", [100]), ("socket_timeout", [1]), ("Prefix", ["rl"]), ("rule", [API]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "values"), OPTIONS)
def test_a_wrong_option_of_a_limiter_is_named(name: str, values: list[Any]) -> None:
    for value in values:
        for make in (FakeServer().limiter, FakeServer().async_limiter):
            with pytest.raises(InvalidArgument, match=rf"^{name}: "):
                make(**{name: value})


@pytest.mark.parametrize(
    ("name", "closest"),
    [("timeout", "; did you mean timeout_ms?"), ("onerror", "; did you mean on_error?"),
     ("Prefix", "; did you mean prefix?"), ("xyz", "")],
)  # fmt: skip
def test_the_error_of_a_misspelt_option_names_the_closest(name: str, closest: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        FakeServer().limiter(**{name: 1})
    assert str(raised.value) == f"{name}: there is no such option{closest}"


@pytest.mark.parametrize("client", [None, "redis://127.0.0.1", 6379, object(), FakeServer])
@pytest.mark.parametrize("make", [Limiter, AsyncLimiter])
def test_what_is_no_client_is_named(make: Any, client: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^client: "):
        make(client)


CALLS: list[tuple[str, str, tuple[Any, ...], dict[str, Any]]] = [
    *(
        ("cost", method, (API, "42", cost), {})
        for method in ("check", "peek", "refund", "charge")
        for cost in (True, False, 1.0, "1", None, -1)
    ),
    *(("rule", method, (rule, "42"), {})
      for method in ("check", "peek", "refund", "charge", "forget", "lease")
      for rule in ("api", None, API.of("42"), gcra)),
    ("rule", "block", ("api", "42", "1s"), {}), ("rule", "reserve", ("api", "42", 1), {}),
    ("rule", "wait", ("api", "42", 10), {}), ("cost", "check", (AHEAD, "42", True), {}),
    ("cost", "wait", (API, "42", 10, True), {}), ("cost", "reserve", (DAY, "42", True), {}),
    ("ttl", "reserve", (DAY, "42", 1, True), {}), ("leave", "check", (API, "42"), {"leave": True}),
    ("leave", "check", (API, "42"), {"leave": 0.2}),
    ("partial", "check", (API, "42"), {"partial": 1}),
    ("partial", "check", (API, "42"), {"partial": "no"}),
    ("max_wait_ms", "wait", (API, "42", "10"), {}), ("max_wait_ms", "wait", (API, "42", True), {}),
    ("max_wait_ms", "wait", (API, "42", float("nan")), {}),
    ("duration", "block", (API, "42", True), {}), ("duration", "block", (API, "42", None), {}),
    ("items", "check_all", (API,), {}), ("items", "check_all", ([API.of("42")],), {}),
    ("items", "check_each", (API,), {}), ("items", "admit", ("api",), {}),
    ("id", "lease", (JOBS, "42", 5), {}), ("id", "lease", (JOBS, "42", HALF), {}),
    ("id", "admit", (JOBS.of("42"),), {"id": 5}), ("id", "admit", (JOBS.of("42"),), {"id": HALF}),
    ("on_decision", "on_decision", (5,), {}), ("on_decision", "on_decision", (hook,), {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "method", "args", "options"), CALLS)
@pytest.mark.anyio
async def test_a_wrong_argument_of_a_call_is_named(
    name: str, method: str, args: tuple[Any, ...], options: dict[str, Any]
) -> None:
    server = FakeServer()
    limiter, aio = server.limiter(), server.async_limiter()
    with pytest.raises(InvalidArgument, match=rf"^{name}: "):
        getattr(limiter, method)(*args, **options)
    with pytest.raises(InvalidArgument, match=rf"^{name}: "):
        await getattr(aio, method)(*args, **options)
    assert server.calls == []


def test_a_wrong_amount_of_an_item_and_of_a_settlement_is_named() -> None:
    with FakeServer().limiter().admit(DAY.of("42").cost(5)) as admitted:
        for actual in (True, 1.5, None):
            with pytest.raises(InvalidArgument, match=r"^actual: "):
                admitted.settle(DAY, actual)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match=r"^rule: "):
            admitted.settle("day", 5)  # type: ignore[arg-type]
    for units in (True, 1.5, None):
        with pytest.raises(InvalidArgument, match=r"^cost: "):
            DAY.of("42").cost(units)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match=r"^leave: "):
            DAY.of("42").leave(units)  # type: ignore[arg-type]


RULES: list[tuple[str, Any, tuple[Any, ...], dict[str, Any]]] = [
    ("name", gcra, (5, 6, 10, "60s"), {}), ("burst", gcra, ("api", True, 10, "60s"), {}),
    ("rate", gcra, ("api", 6, 10.0, "60s"), {}), ("period", gcra, ("api", 6, 10, True), {}),
    ("period", gcra, ("api", 6, 10, None), {}), ("limit", fixed, ("f", "6", "60s"), {}),
    ("window", sliding, ("s", 6, b"60s"), {}), ("aligned", fixed, ("f", 6, "60s"), {"aligned": 1}),
    ("prefetch", fixed, ("f", 6, "60s"), {"prefetch": True}),
    ("local_share", fixed, ("f", 6, "60s"), {"local_share": True}),
    ("local_share", fixed, ("f", 6, "60s"), {"local_share": float("nan")}),
    ("on_error", fixed, ("f", 6, "60s"), {"on_error": ["deny"]}),
    ("count", fixed, ("f", 6, "60s"), {"count": True}),
    ("attempts", backoff, ("b", True, "1s", "8s", "60s"), {}),
    ("limit: .*1000, 'month'$", quota, ("q", "1000/month"), {}),
    ("limit: .*1000, 'month'$", quota, ("q", rtc.rate("5/day")), {}), ("unit", quota, ("q", 6), {}),
    ("limit: expected from 1 to", fixed, ("f", "0/minute"), {}),
    ("rate: expected from 1 to", gcra, ("api", 5, "0/minute"), {}),
    ("unit", quota, ("q", 6, ["day"]), {}), ("zone", quota, ("q", 6, "day"), {"zone": 5}),
    ("start", quota, ("q", 6, "month"), {"start": True}), ("ttl", lease, ("j", 6, None), {}),
    ("slots", rtc.sliding_log, ("g", 6, "60s"), {"slots": 16.0}),
    ("default", policy, ("p",), {"default": "api"}), ("variants", policy, ("p",), {"variants": 5}),
    ("variants", policy, ("p",), {"variants": None}),
    ("variants", policy, ("p",), {"variants": [5]}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "make", "args", "options"), RULES)
def test_a_wrong_argument_of_a_rule_is_named(
    name: str, make: Any, args: tuple[Any, ...], options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument, match=rf"^{name}" if ":" in name else rf"^{name}: "):
        make(*args, **options)


@pytest.mark.parametrize("seconds", ["6", None, True, float("nan"), float("inf")])
def test_a_wrong_argument_of_the_fake_server_is_named(seconds: Any) -> None:
    server = FakeServer()
    with pytest.raises(InvalidArgument, match=r"^seconds: "):
        server.advance(seconds)
    with pytest.raises(InvalidArgument, match=r"^reply: "):
        server.fail(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [("key", "X-User"), ("skip", True), ("cost", True), ("cost", "1"), ("on_denied", 5),
     ("tag", "acme"), ("anonymous", "api"), ("headers", 5), ("headers", [["draft-6"]]),
     ("trusted_proxies", 5), ("trusted_proxies", [5]), ("degraded_header", 5), ("rules", 5),
     ("rules", None), ("rules", ["api"]), ("keys", "X-User"), ("trusted_proxy", True)],
)  # fmt: skip
def test_a_wrong_option_of_a_middleware_is_named(name: str, value: Any) -> None:
    server, options = FakeServer(), {"rules": API, name: value}
    with pytest.raises(InvalidArgument, match=rf"^{name}: "):
        WsgiMiddleware(wsgi_app, limiter=server.limiter(), **options)
    with pytest.raises(InvalidArgument, match=rf"^{name}: "):
        RateLimitMiddleware(wsgi_app, limiter=server.async_limiter(), **options)  # type: ignore[arg-type]
