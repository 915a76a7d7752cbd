"""Runs the tests of ``limits`` on the storages. They are in its source distribution.

``scripts/clients.sh test python`` fetches it. By hand, in a virtual environment:

    pip download --no-deps --no-binary limits limits==5.8.0 && tar xf limits-5.8.0.tar.gz
    LIMITS_SUITE=limits-5.8.0 pytest tests/test_limits_suite.py

Left out: URIs of other storages, and prefixes of ``RedisStorage``, which are an option of the
limiter here, with tests of their own.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import types
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

from redis_throttle_client import AsyncLimiter, Limiter
from redis_throttle_client.limits import AsyncThrottleStorage, ThrottleStorage

from .conftest import START_US, Server

pytestmark = pytest.mark.live
SUITE = os.environ.get("LIMITS_SUITE")
if SUITE is None:
    if os.environ.get("CI"):
        pytest.fail("LIMITS_SUITE names no source distribution", pytrace=False)
    pytest.skip("LIMITS_SUITE names no source distribution", allow_module_level=True)


def suite(*names: str) -> list[Any]:
    """Imports the modules of the suite, whose package has the same name as this one."""
    own = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith("tests")}
    lazy: Any = types.ModuleType("pytest_lazy_fixtures")
    lazy.lf = str
    sys.modules.setdefault("pytest_lazy_fixtures", lazy)
    sys.path.insert(0, str(Path(SUITE or "").resolve()))
    try:
        # The suite registers its markers in its own configuration.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pytest.PytestUnknownMarkWarning)
            return [__import__(f"tests.{name}", fromlist=["*"]) for name in names]
    finally:
        sys.path.pop(0)
        for name in [name for name in sys.modules if name.startswith("tests")]:
            del sys.modules[name]
        sys.modules.update(own)


storages, aio_storages, strategies, aio_strategies, concurrency = suite(
    "test_storage", "aio.test_storage", "test_strategy", "aio.test_strategy",
    "integration.test_concurrency",
)  # fmt: skip


class Ours:
    """Runs tests of the suite on a real server."""

    CONCURRENT_REQUESTS = concurrency.TestConcurrency.CONCURRENT_REQUESTS

    @pytest.fixture
    def uri(self) -> str:
        return "redis-throttle://"

    @pytest.fixture
    def expected_instance(self) -> type:
        return ThrottleStorage

    @pytest.fixture
    def fixture(self) -> None:
        pass

    @pytest.fixture
    def args(self, shared_server: Server) -> Iterator[dict[str, Any]]:
        shared_server.command("RL.DEBUG", "CLOCK", "RESUME")
        with Limiter(shared_server.client(), timeout_ms=60_000) as limiter:
            yield {"limiter": limiter}


@pytest.mark.anyio
class AsyncOurs(Ours):
    """Runs tests of the suite for asyncio on a real server."""

    @pytest.fixture
    def uri(self) -> str:
        return "async+redis-throttle://"

    @pytest.fixture
    def expected_instance(self) -> type:
        return AsyncThrottleStorage

    @pytest.fixture
    async def args(self, shared_server: Server) -> AsyncIterator[dict[str, Any]]:
        shared_server.command("RL.DEBUG", "CLOCK", "RESUME")
        client = redis.asyncio.Redis(port=shared_server.port)
        async with AsyncLimiter(client, timeout_ms=60_000) as limiter:
            yield {"limiter": limiter}


@pytest.fixture
def clock(args: dict[str, Any], shared_server: Server) -> Iterator[None]:
    """Gives the test and the server one clock, which runs only while the test sleeps."""
    # The tests round up the time to learn the second in which they run.
    now_us = START_US + 1

    with shared_server.client() as client, pytest.MonkeyPatch.context() as patch:

        def sleep(seconds: float) -> None:
            nonlocal now_us
            # A sleep takes a little longer than requested.
            now_us += round(seconds * 1_000_000) + 100
            client.execute_command("RL.DEBUG", "CLOCK", "FREEZE", now_us)

        async def async_sleep(seconds: float) -> None:
            sleep(seconds)

        sleep(0)
        patch.setattr(time, "time", lambda: now_us / 1_000_000)
        patch.setattr(time, "sleep", sleep)
        patch.setattr(asyncio, "sleep", async_sleep)
        yield


def cases(base: type, *classes: Any) -> type:
    """Returns the tests of classes without their markers, which select other storages."""
    found = {name: test for one in classes for name, test in vars(one).items()}
    found = {name: test for name, test in found.items() if name.startswith("test_")}
    for test in found.values():
        vars(test).pop("pytestmark", None)
    return type(base.__name__, (base,), found)


def of_strategies(base: type, module: Any) -> Any:
    classes = [one for name, one in vars(module).items() if name.startswith("Test")]
    return pytest.mark.usefixtures("clock")(cases(base, *classes))


TestStorage = cases(Ours, storages.TestConcreteStorages)
TestAsyncStorage = cases(AsyncOurs, aio_storages.TestConcreteStorages)
TestStrategies = of_strategies(Ours, strategies)
TestAsyncStrategies = of_strategies(AsyncOurs, aio_strategies)
TestConcurrency = cases(Ours, concurrency.TestConcurrency)
TestAsyncConcurrency = cases(AsyncOurs, concurrency.TestAsyncConcurrency)
