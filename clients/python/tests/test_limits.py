"""The storage for ``limits``: what its own storages are held to, as far as it applies."""

from __future__ import annotations

import time
from typing import Any

import pytest
from flask import Flask
from flask_limiter import Limiter as FlaskLimiter
from limits import RateLimitItemPerMinute, parse
from limits.errors import StorageError
from limits.storage import MemoryStorage, storage_from_string
from limits.strategies import (
    FixedWindowRateLimiter,
    MovingWindowRateLimiter,
    SlidingWindowCounterRateLimiter,
)

from redis_throttle_client import InvalidArgument, Unavailable
from redis_throttle_client.limits import GCRARateLimiter, ThrottleStorage
from redis_throttle_client.testing import FakeServer

from .conftest import Server, free_port

TEN = RateLimitItemPerMinute(10)


@pytest.fixture
def storage(server: Server) -> ThrottleStorage:
    uri = f"redis-throttle://127.0.0.1:{server.port}"
    made: Any = storage_from_string(uri, timeout_ms=2000)
    assert isinstance(made, ThrottleStorage)
    return made


@pytest.mark.live
def test_gcra(storage: ThrottleStorage, server: Server) -> None:
    strategy = GCRARateLimiter(storage)
    assert storage.check()
    assert strategy.get_window_stats(TEN, "a").remaining == 10
    assert all(strategy.hit(TEN, "a") for _ in range(10))
    assert not strategy.hit(TEN, "a")
    assert not strategy.test(TEN, "a")
    assert strategy.hit(TEN, "b", cost=10)
    assert not strategy.hit(TEN, "b", cost=1)
    stats = strategy.get_window_stats(TEN, "a")
    assert stats.remaining == 0
    assert stats.reset_time == pytest.approx(time.time() + 6, abs=2)
    server.advance("6s")
    assert strategy.test(TEN, "a")
    assert strategy.hit(TEN, "a")
    strategy.clear(TEN, "a")
    assert strategy.get_window_stats(TEN, "a").remaining == 10


@pytest.mark.live
def test_fixed_window(storage: ThrottleStorage, server: Server) -> None:
    strategy = FixedWindowRateLimiter(storage)
    assert [strategy.hit(TEN, "a", cost=5) for _ in range(3)] == [True, True, False]
    assert storage.get(TEN.key_for("a")) == 15
    assert strategy.get_window_stats(TEN, "a").remaining == 0
    assert storage.get_expiry(TEN.key_for("a")) > time.time()
    server.advance("60s")
    assert strategy.hit(TEN, "a")
    assert storage.get(TEN.key_for("nobody")) == 0
    storage.clear(TEN.key_for("a"))
    assert strategy.get_window_stats(TEN, "a").remaining == 10


@pytest.mark.parametrize("strategy", [MovingWindowRateLimiter, SlidingWindowCounterRateLimiter])
def test_what_cannot_be_expressed_fails_at_set_up(strategy: Any) -> None:
    storage = ThrottleStorage(limiter=FakeServer().limiter())
    with pytest.raises(NotImplementedError):
        strategy(storage)
    with pytest.raises(NotImplementedError):
        GCRARateLimiter(MemoryStorage())
    with pytest.raises(InvalidArgument):
        ThrottleStorage()
    with pytest.raises(InvalidArgument, match="on_error"):
        ThrottleStorage("redis-throttle://x", on_error="open")  # type: ignore[arg-type]


def test_a_server_that_is_away() -> None:
    server = FakeServer()
    server.fail()
    with pytest.raises(Unavailable):
        GCRARateLimiter(ThrottleStorage(limiter=server.limiter())).hit(TEN, "a")
    wrapped = ThrottleStorage(limiter=server.limiter(), wrap_exceptions=True)
    with pytest.raises(StorageError):
        FixedWindowRateLimiter(wrapped).hit(TEN, "a")
    policies: list[tuple[Any, bool]] = [("allow", True), ("deny", False), ("local", True)]
    for on_error, allowed in policies:
        storage = ThrottleStorage(limiter=server.limiter(), on_error=on_error)
        assert GCRARateLimiter(storage).hit(TEN, "a") is allowed
    assert not ThrottleStorage(f"redis-throttle://127.0.0.1:{free_port()}").check()


@pytest.mark.live
def test_flask_limiter(server: Server) -> None:
    app = Flask(__name__)
    FlaskLimiter(
        lambda: "somebody", app=app, strategy="gcra", default_limits=["3 per minute"],
        storage_uri=f"redis-throttle://127.0.0.1:{server.port}",
        storage_options={"timeout_ms": 2000},
    )  # fmt: skip

    @app.get("/")
    def home() -> str:
        return "here"

    client = app.test_client()
    assert [client.get("/").status_code for _ in range(4)] == [200, 200, 200, 429]
    server.advance("20s")
    assert client.get("/").status_code == 200


@pytest.mark.live
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_slowapi(server: Server) -> None:
    slowapi = pytest.importorskip("slowapi")
    limiter = slowapi.Limiter(
        lambda request: "x", strategy="gcra",
        storage_uri=f"redis-throttle://127.0.0.1:{server.port}",
        storage_options={"timeout_ms": 2000},
    )  # fmt: skip
    item = parse("2 per minute")
    assert [limiter.limiter.hit(item, "x") for _ in range(3)] == [True, True, False]
