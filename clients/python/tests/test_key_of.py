"""Tests the key of several header fields, in every middleware."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI

from redis_throttle_client import InvalidArgument, fixed, key_of
from redis_throttle_client.asgi import RateLimitMiddleware
from redis_throttle_client.testing import FakeServer

from .test_request_warnings import ADAPTERS, SendRequest

ONE = fixed("one", 1, "1h")
KEY = key_of("X-Tenant", "X-Api-Key")
# The pairs that a join without an encoding would confuse, and the key of each.
CALLERS = {("a|b", "c"): "a%7Cb|c", ("a", "b|c"): "a|b%7Cc", ("a%7Cb", "c"): "a%257Cb|c"}


def subjects(server: FakeServer) -> set[str]:
    return {call[1].removeprefix("rl:one:") for call in server.calls}


EXPECTED = {key.replace("%", "%25") for key in CALLERS.values()}


@pytest.mark.anyio
@ADAPTERS
async def test_callers_of_two_headers_have_a_key_each(send_request: SendRequest) -> None:
    server = FakeServer()
    for tenant, key in CALLERS:
        fields = {"x_tenant": tenant, "x_api_key": key}
        assert [await send_request(server, fields, ONE, key=KEY) for _ in range(2)] == [200, 429]
    assert subjects(server) == EXPECTED
    for fields in ({"x_tenant": "a"}, {"x_tenant": "a", "x_api_key": ""}):
        assert await send_request(server, fields, ONE, key=KEY) == 400


@pytest.mark.anyio
async def test_a_repeated_header_is_no_subject() -> None:
    server = FakeServer()
    limited = RateLimitMiddleware(
        FastAPI(), limiter=server.async_limiter(), rules=ONE, key=key_of("X-Tenant")
    )
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"x-tenant", b"a"), (b"X-Tenant", b"b")]
    await limited({"type": "http", "path": "/", "headers": headers}, pytest.fail, send)
    assert sent[0]["status"] == 400


@pytest.mark.parametrize("names", [(), ("",), ("X Tenant",), (["X-Tenant"],), (None,)])
def test_key_of_refuses_what_is_no_name_of_a_header(names: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^headers: "):
        key_of(*names)
