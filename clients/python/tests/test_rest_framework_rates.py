"""Tests the throttles of Django REST framework by rate and scope, and their key by user."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from redis_throttle_client import InvalidArgument, Limiter, gcra, rate

from .conftest import Server
from .test_rest_framework import SOME, APIView

# Django needs its settings first.
from django.test import RequestFactory  # isort: skip
from rest_framework.response import Response  # isort: skip
from rest_framework.settings import api_settings  # isort: skip
from rest_framework.test import force_authenticate  # isort: skip
from redis_throttle_client.rest_framework import RateLimitThrottle, ScopedRateLimitThrottle

pytestmark = pytest.mark.live
RATES = {"burst": "2/min", "none": None, "zero": "0/hour", "x": "1/s", "month": "9/month"}


@pytest.fixture
def limiter(shared_server: Server) -> Any:
    with Limiter(shared_server.client(), timeout_ms=60_000) as opened:
        yield opened


def view(throttle: Any, **members: Any) -> Any:
    def respond(self: Any, request: Any) -> Response:
        return Response()

    named = {"throttle_classes": (throttle,), "get": respond, **members}
    kind: Any = type("View", (APIView,), named)
    return kind.as_view()


def throttle(limiter: Limiter, base: Any = RateLimitThrottle, **members: Any) -> Any:
    return type("Own", (base,), {"limiter": limiter, "THROTTLE_RATES": RATES, **members})


def got(site: Any, user: Any = None, peer: str = "192.0.2.1") -> Any:
    request = RequestFactory().get("/", REMOTE_ADDR=peer)
    if user is not None:
        known: Any = SimpleNamespace(pk=user, is_authenticated=True)
        force_authenticate(request, known)
    return site(request)


def statuses(site: Any, times: int, **given: Any) -> list[int]:
    return [got(site, **given).status_code for _ in range(times)]


def keys(server: Server) -> set[bytes]:
    return set(server.command("KEYS", "*"))


@pytest.mark.parametrize(
    "members", [{"rate": "2/min"}, {"rate": rate("2/minute")}, {"scope": "burst"}]
)
def test_a_rate_counts_the_requests_of_a_user_as_the_framework_does(
    limiter: Limiter, shared_server: Server, members: Any
) -> None:
    site = view(throttle(limiter, **members))
    assert statuses(site, 2, user=1) == [200, 200]
    shared_server.advance("59s")
    denied = got(site, user=1)
    # Both requests stay in the window until the minute is over.
    assert (denied.status_code, denied.headers["Retry-After"]) == (429, "1")
    assert statuses(site, 1, user=2) == [200]
    shared_server.advance("1s")
    assert statuses(site, 3, user=1) == [200, 200, 429]
    name = members.get("scope", "Own").encode()
    assert keys(shared_server) == {b"rl:%b:user%%3A1" % name, b"rl:%b:user%%3A2" % name}


def test_the_key_is_the_user_and_else_the_address(limiter: Limiter, shared_server: Server) -> None:
    site = view(throttle(limiter, rate="1/day"))
    assert statuses(site, 2, user="192.0.2.1") == [200, 429]
    assert statuses(site, 2) == [200, 429]
    assert statuses(site, 1, peer="192.0.2.2") == [200]
    assert statuses(site, 1, peer="") == [200]
    assert keys(shared_server) == {
        b"rl:Own:user%3A192.0.2.1", b"rl:Own:192.0.2.1", b"rl:Own:192.0.2.2", b"rl:Own:peer%3A",
    }  # fmt: skip
    # Rules have the same key.
    site = view(throttle(limiter, rules=gcra("api", 1, 1, "1d")))
    assert statuses(site, 2, user=7) == [200, 429]
    assert b"rl:api:user%3A7" in keys(shared_server)


def test_the_rate_none_is_no_limit_and_0_denies(limiter: Limiter, shared_server: Server) -> None:
    for members in ({"rate": None}, {"scope": "none"}):
        assert statuses(view(throttle(limiter, **members)), 3) == [200] * 3
    for members in ({"rate": "0/hour"}, {"scope": "zero"}, {"rate": "-1/h"}):
        denied = got(view(throttle(limiter, **members)))
        assert (denied.status_code, denied.headers["Retry-After"]) == (429, "3600")
    skips = throttle(limiter, rate="0/hour", skip=lambda self, request: True)
    assert statuses(view(skips), 1) == [200]
    assert keys(shared_server) == set()


def test_a_view_has_the_rate_of_its_throttle_scope(limiter: Limiter, shared_server: Server) -> None:
    scoped = throttle(limiter, ScopedRateLimitThrottle)
    sites = {name: view(scoped, throttle_scope=name) for name in ("burst", "x", "none", "zero")}
    found = {name: statuses(one, 3, user=1) for name, one in sites.items()}
    assert found == {
        "burst": [200, 200, 429], "x": [200, 429, 429], "none": [200] * 3, "zero": [429] * 3,
    }  # fmt: skip
    assert statuses(view(scoped), 3) == [200] * 3
    assert keys(shared_server) == {b"rl:burst:user%3A1", b"rl:x:user%3A1"}
    for scope, name in (("other", "scope"), ("month", "rate")):
        with pytest.raises(InvalidArgument, match=f"^{name}: "):
            got(view(scoped, throttle_scope=scope))


@pytest.mark.parametrize(
    ("rate", "seconds"),
    [("1/s", 1), ("1/sec", 1), ("1/m", 60), ("1/min", 60), ("1/minutes", 60), ("1/h", 3600),
     ("1/hour", 3600), ("1/d", 86_400), ("1/days", 86_400), ("1 per 2 hours", 7200), ("1/90s", 90)],
)  # fmt: skip
def test_rates_of_the_framework(limiter: Limiter, rate: str, seconds: int) -> None:
    site = view(throttle(limiter, rate=rate))
    assert got(site).status_code == 200
    assert got(site).headers["Retry-After"] == str(seconds)


def test_the_longest_retry_time_of_several_throttles_is_sent(limiter: Limiter) -> None:
    rates = {"a": "1/s", "b": "1/min", "c": "1/s"}
    classes = [throttle(limiter, rate=rate, scope=scope) for scope, rate in rates.items()]
    site = view(None, throttle_classes=classes)
    assert statuses(site, 2) == [200, 429]
    assert got(site).headers["Retry-After"] == "60"


def test_a_denial_replaces_a_date_that_the_view_sends_for_retries(limiter: Limiter) -> None:
    date = {"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}
    site = view(throttle(limiter, rate="1/min"), default_response_headers=date)
    assert [got(site).headers["Retry-After"] for _ in range(2)] == [date["Retry-After"], "60"]


@pytest.mark.parametrize(
    "rate", ["3", "3/", "/min", "3/month", "3/mo", "3/year", "3/5", "a/min", "1.5/min", "", 3]
)
def test_rates_that_are_none_fail_when_the_class_is_created(rate: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^rate: "):
        throttle(SOME, rate=rate)


@pytest.mark.parametrize(
    ("name", "instead"),
    [("trusted_proxy", "trusted_proxies"), ("keys", "key"), ("costs", "cost"), ("rule", "rules"),
     ("get_cache_key", "key"), ("get_ident", "key"), ("cache", "limiter"),
     ("parse_rate", "rate"), ("on_denied", "EXCEPTION_HANDLER"), ("NUM_PROXIES", "trusted_prox")],
)  # fmt: skip
def test_members_that_would_be_ignored_fail_when_the_class_is_created(
    name: str, instead: str
) -> None:
    member = {name: lambda self, request, view: "a"}
    mixin: Any = type("Mixin", (), member)
    wrong: list[tuple[tuple[type, ...], dict[str, Any]]] = [
        ((RateLimitThrottle,), member), ((RateLimitThrottle,), {"rate": "3/min", **member}),
        ((mixin, RateLimitThrottle), {"rate": "3/min"}),
        ((mixin, ScopedRateLimitThrottle), {}),
    ]  # fmt: skip
    for bases, members in wrong:
        with pytest.raises(InvalidArgument, match=f"^{name}: .*{instead}"):
            type("Own", bases, {"limiter": SOME, **members})


def test_other_members_of_a_class_are_its_own() -> None:
    others = ("allow_request", "wait", "plan_of_user", "tenants", "_keys", "skip_staff", "scope_of")
    throttle(SOME, rate="3/min", **{name: lambda *given: None for name in others})
    throttle(SOME, rate="3/min", key=None, cost=2, tag=None)


def test_a_base_class_says_what_it_needs() -> None:
    for base, text in (
        (RateLimitThrottle, "rules: expected a subclass of RateLimitThrottle that has them"),
        (ScopedRateLimitThrottle, "limiter: expected a subclass of ScopedRateLimitThrottle"),
    ):
        with pytest.raises(InvalidArgument, match=f"^{text}"):
            base()


def test_classes_with_two_limits_fail_when_they_are_created() -> None:
    rule = gcra("api", 1, 1, "1d")
    wrong: list[tuple[str, Any, dict[str, Any]]] = [
        ("rules", RateLimitThrottle, {"rules": rule, "rate": "3/min"}),
        ("rules", RateLimitThrottle, {"rules": rule, "scope": "burst"}),
        ("rules", ScopedRateLimitThrottle, {"rules": rule}),
        ("rules", ScopedRateLimitThrottle, {"scope": "burst"}),
        ("scope", RateLimitThrottle, {"scope": "other"}),
        ("name", RateLimitThrottle, {"scope": "a b", "rate": "3/min"}),
        ("limit", RateLimitThrottle, {"rate": "9999999999999/min"}),
        ("trusted_proxies", ScopedRateLimitThrottle, {"trusted_proxies": ("x",)}),
    ]
    for name, base, members in wrong:
        with pytest.raises(InvalidArgument, match=f"^{name}: "):
            throttle(SOME, base, **members)
    with pytest.raises(InvalidArgument, match=r"^limiter: "):
        type("Own", (RateLimitThrottle,), {"rate": "3/min"})
    assert api_settings.DEFAULT_THROTTLE_RATES is RateLimitThrottle.THROTTLE_RATES
