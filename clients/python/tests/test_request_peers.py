"""Tests requests whose peer has no address, and keys from a body that cannot be read."""

from __future__ import annotations

import asyncio
import logging
import socket
import warnings
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import Depends, FastAPI, Request

from redis_throttle_client import fixed, key_of
from redis_throttle_client._web import request
from redis_throttle_client._web.counting import Once
from redis_throttle_client.fastapi import RateLimits
from redis_throttle_client.testing import FakeServer
from redis_throttle_client.wsgi import RateLimitMiddleware as WsgiMiddleware

from .test_middleware import API, app, get, wsgi_app, wsgi_get

ONE = fixed("one", 1, "1h")
MANY = fixed("many", 100, "1h")
PEERS = [None, ("", 0), ("unix:/run/app.sock", 0), ("1.2.3.4%e", 0), (" 1.2.3.4", 0)]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    monkeypatch.setattr(request, "_warned", Once())
    return FakeServer()


@pytest.fixture
def test_client() -> Any:
    """Returns the class of the client that a newcomer's test uses."""
    with warnings.catch_warnings():
        # It warns of the version of its own library.
        warnings.simplefilter("ignore")
        from starlette.testclient import TestClient
    return TestClient


def keys(server: FakeServer) -> list[str]:
    return [call[1] for call in server.calls]


def test_a_first_test_with_starlettes_client_passes(
    server: FakeServer, test_client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client = test_client(app(server))
    assert [client.get("/").status_code for _ in range(7)] == [200] * 6 + [429]
    assert set(keys(server)) == {"rl:api:peer%3A"}
    logged = [one.getMessage() for one in caplog.records if "peer" in one.getMessage()]
    assert len(logged) == 1
    assert 'trusted_proxies=["unix"]' in logged[0]


def test_a_first_test_of_a_fastapi_route_passes(server: FakeServer, test_client: Any) -> None:
    routed, limits = FastAPI(), RateLimits(server.async_limiter())
    limits.install(routed)
    routed.get("/", dependencies=[Depends(limits.limit(ONE))])(lambda: None)
    client = test_client(routed)
    assert [client.get("/").status_code for _ in range(2)] == [200, 429]


@pytest.mark.anyio
async def test_uvicorn_on_a_unix_socket_has_a_subject(server: FakeServer, tmp_path: Path) -> None:
    proxied = app(server, trusted_proxies=["unix"])
    for site, expected in ((app(server), "rl:api:peer%3A"), (proxied, "rl:api:198.51.100.1")):
        path = str(tmp_path / str(len(server.calls)))
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            listening.listen()
            serving = uvicorn.Server(uvicorn.Config(site, log_level="critical", lifespan="off"))
            task = asyncio.create_task(serving.serve([listening]))
            transport = httpx.AsyncHTTPTransport(uds=path)
            async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
                response = await client.get("/", headers={"X-Forwarded-For": "198.51.100.1"})
            serving.should_exit = True
            await task
        assert (response.status_code, keys(server)[-1]) == (200, expected)


@pytest.mark.anyio
@pytest.mark.parametrize("peer", PEERS)
async def test_a_peer_without_an_address_is_a_subject_of_its_own(
    server: FakeServer, peer: Any
) -> None:
    name = peer[0] if peer else ""
    assert (await get(app(server), peer=peer)).status_code == 200
    assert wsgi_get(
        WsgiMiddleware(wsgi_app, limiter=server.limiter(), rules=API), REMOTE_ADDR=name
    )[0] == "200 OK"  # fmt: skip
    # Its name may be the client's choice, such as the path of its socket.
    assert keys(server) == ["rl:api:peer%3A"] * 2


@pytest.mark.anyio
async def test_a_trusted_unix_socket_without_the_field_is_a_subject(server: FakeServer) -> None:
    limited = app(server, trusted_proxies=["unix"])
    assert (await get(limited, peer=None)).status_code == 200
    # An empty list has empty entries, as in the other languages.
    for value, status in ((" \t", 200), (" , ", 400), ("unknown", 400)):
        assert (await get(limited, peer=None, x_forwarded_for=value)).status_code == status


@pytest.mark.anyio
async def test_a_key_needs_no_address_and_warns_of_none(
    server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    limited = app(server, key=key_of("X-User"), anonymous=ONE)
    assert (await get(limited, peer=None, x_user="a")).status_code == 200
    assert caplog.records == []
    assert (await get(limited, peer=None)).status_code == 200
    assert keys(server)[-1] == "rl:one:peer%3A"
    assert [one.levelno for one in caplog.records] == [logging.WARNING]


async def from_body(request: Request) -> Any:
    return (await request.json())["user"]


@pytest.mark.anyio
@pytest.mark.parametrize("body", ['{"user"', "", "\xff", "[" * 100_000, "[]", '{"user": []}'])
async def test_a_body_that_cannot_be_read_has_no_subject(server: FakeServer, body: str) -> None:
    routed, limits = FastAPI(), RateLimits(server.async_limiter())
    limits.install(routed)
    limit = limits.limit(ONE, key=from_body)
    routed.post("/", dependencies=[Depends(limit)])(lambda: None)
    transport = httpx.ASGITransport(routed, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
        assert (await client.post("/", content=body.encode("latin-1"))).status_code == 400
        assert (await client.post("/", content='{"user": 0}')).status_code == 200
    assert keys(server) == ["rl:one:0"]
