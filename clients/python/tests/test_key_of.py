"""Tests the key of several header fields, in every middleware."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import Depends, FastAPI

from redis_throttle_client import InvalidArgument, fixed, key_of
from redis_throttle_client.asgi import RateLimitMiddleware
from redis_throttle_client.fastapi import RateLimits
from redis_throttle_client.testing import FakeServer

from .test_middleware import get
from .test_rest_framework import APIView, rest_framework

# Django needs its settings first.
from django.test import RequestFactory  # isort: skip
from rest_framework.response import Response  # isort: skip

ONE = fixed("one", 1, "1h")
KEY = key_of("X-Tenant", "X-Api-Key")
# The pairs that a join without an encoding would confuse, and the key of each.
CALLERS = {("a|b", "c"): "a%7Cb|c", ("a", "b|c"): "a|b%7Cc", ("a%7Cb", "c"): "a%257Cb|c"}


def subjects(server: FakeServer) -> set[str]:
    return {call[1].removeprefix("rl:one:") for call in server.calls}


EXPECTED = {key.replace("%", "%25") for key in CALLERS.values()}


@pytest.mark.anyio
async def test_callers_of_two_headers_have_a_key_each_in_fastapi() -> None:
    server, made = FakeServer(), FastAPI()
    limits = RateLimits(server.async_limiter())
    limits.install(made)

    @made.get("/", dependencies=[Depends(limits.limit([(ONE, KEY)]))])
    async def home() -> None: ...

    for tenant, key in CALLERS:
        assert (await get(made, x_tenant=tenant, x_api_key=key)).status_code == 200
        assert (await get(made, x_tenant=tenant, x_api_key=key)).status_code == 429
    assert subjects(server) == EXPECTED
    assert (await get(made, x_tenant="a")).status_code == 400
    assert (await get(made, x_tenant="a", x_api_key="")).status_code == 400


def test_callers_of_two_headers_have_a_key_each_in_rest_framework() -> None:
    server = FakeServer()

    class Throttle(rest_framework.RateLimitThrottle):
        limiter = server.limiter()
        rules = ONE
        key = KEY

    class View(APIView):
        throttle_classes = (Throttle,)

        def get(self, request: Any) -> Any:
            return Response()

    def status(**headers: str) -> int:
        request = RequestFactory().get("/", headers=headers)
        return int(View.as_view()(request).status_code)

    for tenant, key in CALLERS:
        named = {"x-tenant": tenant, "x-api-key": key}
        assert [status(**named) for _ in range(2)] == [200, 429]
    assert subjects(server) == EXPECTED
    assert status(**{"x-tenant": "a"}) == 400


@pytest.mark.anyio
async def test_a_repeated_header_is_no_subject() -> None:
    server = FakeServer()
    made = RateLimitMiddleware(
        FastAPI(), limiter=server.async_limiter(), rules=ONE, key=key_of("X-Tenant")
    )
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"x-tenant", b"a"), (b"X-Tenant", b"b")]
    await made({"type": "http", "path": "/", "headers": headers}, pytest.fail, send)
    assert sent[0]["status"] == 400


@pytest.mark.parametrize("names", [(), ("",), ("X Tenant",), (["X-Tenant"],), (None,)])
def test_key_of_refuses_what_is_no_name_of_a_header(names: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^headers: "):
        key_of(*names)
