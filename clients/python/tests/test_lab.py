"""Tests each driver on ``redis-throttle-lab serve``, which makes decisions without a Redis."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redis_throttle_client import Limiter, gcra

from .conftest import ROOT
from .either import PACKAGES, client_of, kinds, limiter_over

LAB = Path(os.environ.get("RL_LAB", ROOT / "target/release/redis-throttle-lab"))


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


@kinds
@pytest.mark.parametrize("driver", PACKAGES)
@pytest.mark.parametrize("protocol", [2, 3])
def test_a_driver_is_denied_by_the_lab(lab: int, driver: str, protocol: int, kind: Any) -> None:
    # The options make a driver send all that it can when it connects.
    login = {"username": "user", "password": "secret", "client_name": "test"}
    client = client_of(kind, driver, port=lab, protocol=protocol, db=0, **login)
    once = gcra(f"{kind.__name__}-{driver}-{protocol}", 1, 1, "1h")
    with limiter_over(client, kind) as limiter:
        assert limiter.ready() == "module"
        decisions = [limiter.check(once, "42") for _ in range(2)]
        assert [decision.allowed for decision in decisions] == [True, False]
        assert {decision.source for decision in decisions} == {"server"}
        assert client.ping() if kind is Limiter else limiter._wait(client.ping())
        if kind is Limiter:
            assert client.client_getname() in ("test", b"test")
