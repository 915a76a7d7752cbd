"""Runs the tests of ``limits`` on the storage. They are in its source distribution.

    pip download --no-deps --no-binary limits limits==5.8.0 && tar xf limits-5.8.0.tar.gz
    LIMITS_SUITE=limits-5.8.0 pytest tests/test_limits_suite.py

Not applicable, and skipped there or left out here: the moving window and the sliding window (this
storage rejects both when a strategy is created; it has ``gcra`` instead); URIs of other storages;
storages for asyncio, which Flask-Limiter and slowapi do not use; prefixes of ``RedisStorage`` (here
an option of the limiter, with tests of its own).
"""

from __future__ import annotations

import os
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import pytest

from redis_throttle_client.limits import ThrottleStorage

from .conftest import Server

pytestmark = [pytest.mark.live, pytest.mark.filterwarnings("ignore::ResourceWarning")]
SUITE = os.environ.get("LIMITS_SUITE")
if SUITE is None:
    pytest.skip("LIMITS_SUITE names no source distribution", allow_module_level=True)


def suite(*names: str) -> list[Any]:
    """Imports the modules of the suite, whose package has the same name as this one."""
    ours = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith("tests")}
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
        sys.modules.update(ours)


storages, strategies, concurrency = suite(
    "test_storage", "test_strategy", "integration.test_concurrency"
)


class Ours:
    """Runs a test class of the suite with the URI of a real server."""

    @pytest.fixture
    def uri(self, shared_server: Server) -> str:
        shared_server.command("FLUSHALL")
        shared_server.command("RL.DEBUG", "CLOCK", "RESUME")
        return f"redis-throttle://127.0.0.1:{shared_server.port}"

    @pytest.fixture
    def args(self) -> dict[str, Any]:
        return {"timeout_ms": 2000}

    @pytest.fixture
    def expected_instance(self) -> type:
        return ThrottleStorage

    @pytest.fixture
    def fixture(self) -> None:
        pass


def cases(theirs: Any) -> type:
    """Returns the tests of a class without the parameters of their markers."""
    tests = {name: test for name, test in vars(theirs).items() if name.startswith("test_")}
    return type(theirs.__name__, (Ours,), tests)


TestStorage = cases(storages.TestConcreteStorages)
TestFixedWindow = cases(strategies.TestFixedWindow)


class TestConcurrency(Ours):
    CONCURRENT_REQUESTS = concurrency.TestConcurrency.CONCURRENT_REQUESTS

    def test_fixed_window(self, uri: str, args: dict[str, Any]) -> None:
        concurrency.TestConcurrency.test_fixed_window(self, uri, args, None)
