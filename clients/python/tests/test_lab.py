"""Tests each driver on ``redis-throttle-lab serve``, which makes decisions without a Redis."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio

from redis_throttle_client import AsyncLimiter, Limiter, gcra

from .conftest import ROOT

LAB = Path(os.environ.get("RL_LAB", ROOT / "target/release/redis-throttle-lab"))
PATIENT: Any = {"timeout_ms": 60_000}
PACKAGES: dict[str, Any] = {"redis": redis, "valkey": valkey}
drivers = pytest.mark.parametrize("driver", PACKAGES)
protocols = pytest.mark.parametrize("protocol", [2, 3])


@pytest.fixture(scope="module")
def lab() -> Iterator[int]:
    if not LAB.exists():
        if os.environ.get("CI"):
            pytest.fail("no lab: see RL_LAB")
        pytest.skip("no lab: see RL_LAB")
    words = [str(LAB), "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"redis://127\.0\.0\.1:(\d+),", process.stdout.readline())
        assert found is not None
        yield int(found[1])
        process.kill()


def options(port: int, protocol: int) -> dict[str, Any]:
    """Returns options that make a driver send all that it can when it connects."""
    login = {"username": "user", "password": "secret", "client_name": "test"}
    return {"port": port, "protocol": protocol, "db": 0, **login}


@drivers
@protocols
def test_a_driver_is_denied_by_the_lab(lab: int, driver: str, protocol: int) -> None:
    client = getattr(PACKAGES[driver], driver.capitalize())(**options(lab, protocol))
    once = gcra(f"sync-{driver}-{protocol}", 1, 1, "1h")
    with Limiter(client, **PATIENT) as limiter:
        assert limiter.ready() == "module"
        decisions = [limiter.check(once, "42") for _ in range(2)]
        assert [decision.allowed for decision in decisions] == [True, False]
        assert {decision.source for decision in decisions} == {"server"}
    assert client.ping()
    assert client.client_getname() in ("test", b"test")
    client.close()


@drivers
@protocols
@pytest.mark.anyio
async def test_a_driver_is_denied_by_the_lab_in_asyncio(
    lab: int, driver: str, protocol: int
) -> None:
    client = getattr(PACKAGES[driver].asyncio, driver.capitalize())(**options(lab, protocol))
    once = gcra(f"async-{driver}-{protocol}", 1, 1, "1h")
    async with AsyncLimiter(client, **PATIENT) as limiter:
        decisions = [await limiter.check(once, "42") for _ in range(2)]
        assert [decision.allowed for decision in decisions] == [True, False]
        assert {decision.source for decision in decisions} == {"server"}
    assert await client.ping()
    await client.aclose()
