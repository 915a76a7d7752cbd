"""Tests the warnings about the setup of an application, under every adapter."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isfunction
from typing import Any

import pytest
from fastapi import Depends, FastAPI

from redis_throttle_client import Rule, fixed
from redis_throttle_client._web import request
from redis_throttle_client.fastapi import RateLimits
from redis_throttle_client.testing import FakeServer
from redis_throttle_client.wsgi import RateLimitMiddleware as WsgiMiddleware

from .test_middleware import app, get, wsgi_app, wsgi_get
from .test_rest_framework import APIView

# Django needs its settings first.
from django.test import RequestFactory  # isort: skip
from rest_framework.response import Response  # isort: skip
from redis_throttle_client._web.counting import MOST_FUNCTIONS, Once
from redis_throttle_client.rest_framework import RateLimitThrottle

pytestmark = pytest.mark.anyio
DAY = fixed("day", 100, "1d")
FORWARDED = "198.51.100.1"
SendRequest = Callable[..., Any]


async def of_asgi(
    server: FakeServer, fields: dict[str, str], rule: Rule = DAY, **options: Any
) -> int:
    return (await get(app(server, rule, **options), **fields)).status_code


async def of_wsgi(
    server: FakeServer, fields: dict[str, str], rule: Rule = DAY, **options: Any
) -> int:
    limited = WsgiMiddleware(wsgi_app, limiter=server.limiter(), rules=rule, **options)
    environ = {f"HTTP_{name.upper()}": value for name, value in fields.items()}
    return int(wsgi_get(limited, **environ)[0][:3])


async def of_fastapi(
    server: FakeServer, fields: dict[str, str], rule: Rule = DAY, **options: Any
) -> int:
    proxies = {name: options.pop(name) for name in ("trusted_proxies",) if name in options}
    routed, limits = FastAPI(), RateLimits(server.async_limiter(), **proxies)
    limits.install(routed)
    routed.get("/", dependencies=[Depends(limits.limit(rule, **options))])(lambda: None)
    return (await get(routed, **fields)).status_code


async def of_rest_framework(
    server: FakeServer, fields: dict[str, str], rule: Rule = DAY, **options: Any
) -> int:
    functions = {name: one for name, one in options.items() if isfunction(one)}
    members: Any = {name: staticmethod(one) for name, one in functions.items()}
    own = {"limiter": server.limiter(), "rules": rule, **options, **members}
    throttle = type("Throttle", (RateLimitThrottle,), own)
    members_of_view = {"throttle_classes": (throttle,), "get": lambda self, request: Response()}
    view: Any = type("View", (APIView,), members_of_view)
    environ: Any = {f"HTTP_{name.upper()}": value for name, value in fields.items()}
    status: int = view.as_view()(RequestFactory().get("/", **environ)).status_code
    return status


ADAPTERS = pytest.mark.parametrize(
    "send_request", [of_asgi, of_wsgi, of_fastapi, of_rest_framework], ids=lambda one: one.__name__
)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "_warned", Once())


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "redis_throttle_client"]


def first(request: Any) -> str:
    return None.lower()  # type: ignore[attr-defined,no-any-return]


def second(request: Any) -> Any:
    return ["a"]


def third(request: Any) -> Any:
    return {}


@ADAPTERS
async def test_each_broken_function_is_logged_once_by_its_name(
    send_request: SendRequest, caplog: pytest.LogCaptureFixture
) -> None:
    server = FakeServer()
    for options in ({"key": first}, {"key": second}, {"key": lambda _: "a", "tag": third}) * 2:
        assert await send_request(server, {}, **options) == 400
    assert logged(caplog) == [
        f"the key function {__name__}.first failed, so its requests have no subject",
        f"the key function {__name__}.second returned a list, which is no subject: 400",
        f"the tag function {__name__}.third returned a dict, which is no subject: 400",
    ]
    assert caplog.records[0].exc_info is not None


async def test_a_throttle_with_a_broken_method_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Own(RateLimitThrottle):
        limiter, rules = FakeServer().limiter(), DAY

        def key(self, request: Any) -> Any:
            return 1.5

    members_of_view = {"throttle_classes": (Own,), "get": lambda self, request: Response()}
    view: Any = type("View", (APIView,), members_of_view)
    respond = view.as_view()
    assert [respond(RequestFactory().get("/")).status_code for _ in range(3)] == [400] * 3
    assert len(logged(caplog)) == 1


async def test_functions_without_end_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    server = FakeServer()
    for _ in range(MOST_FUNCTIONS + 10):
        assert await of_asgi(server, {}, key=lambda request: 1.5) == 400
    assert len(logged(caplog)) == MOST_FUNCTIONS
    # Other warnings are logged still.
    assert await of_asgi(server, {"x_forwarded_for": FORWARDED}) == 200
    assert len(logged(caplog)) == MOST_FUNCTIONS + 1


@ADAPTERS
async def test_a_header_of_a_proxy_that_is_not_trusted_is_logged_once(
    send_request: SendRequest, caplog: pytest.LogCaptureFixture
) -> None:
    server, fields = FakeServer(), {"x_forwarded_for": FORWARDED}
    quiet: list[dict[str, Any]] = [
        {"trusted_proxies": []}, {"trusted_proxies": ["10.0.0.0/8"]}, {"key": lambda _: "a"},
    ]  # fmt: skip
    for options in quiet:
        assert await send_request(server, fields, **options) == 200
    assert await send_request(server, {}) == 200
    assert logged(caplog) == []
    assert [await send_request(server, fields) for _ in range(2)] == [200, 200]
    assert len(logged(caplog)) == 1
    assert logged(caplog)[0].startswith("X-Forwarded-For arrived, but no proxy is trusted")


@ADAPTERS
async def test_the_rule_of_the_anonymous_warns_of_a_proxy_too(
    send_request: SendRequest, caplog: pytest.LogCaptureFixture
) -> None:
    options: Any = {"key": lambda _: None, "anonymous": fixed("others", 5, "1h")}
    assert await send_request(FakeServer(), {"x_forwarded_for": FORWARDED}, **options) == 200
    assert len(logged(caplog)) == 1
