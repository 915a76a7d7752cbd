"""Tests the storage for ``limits`` like its own storages, as far as those tests apply."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request, Response
from flask import Flask, request
from flask.testing import FlaskClient
from flask_limiter import Limiter as FlaskLimiter
from limits import RateLimitItemPerMinute
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
def test_gcra_allows_a_burst_and_then_the_rate(storage: ThrottleStorage, server: Server) -> None:
    strategy = GCRARateLimiter(storage)
    assert storage.check()
    assert strategy.get_window_stats(TEN, "a").remaining == 10
    assert all(strategy.hit(TEN, "a") for _ in range(10))
    assert not strategy.hit(TEN, "a")
    assert not strategy.test(TEN, "a")
    assert strategy.hit(TEN, "b", cost=10)
    assert not strategy.hit(TEN, "b", cost=1)
    before = time.time()
    stats = strategy.get_window_stats(TEN, "a")
    assert stats.remaining == 0
    # The result is rounded to a whole second.
    assert before + 5 <= stats.reset_time <= time.time() + 7
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
def test_unsupported_strategies_and_options_fail_at_setup(strategy: Any) -> None:
    storage = ThrottleStorage(limiter=FakeServer().limiter())
    with pytest.raises(NotImplementedError):
        strategy(storage)
    with pytest.raises(NotImplementedError):
        GCRARateLimiter(MemoryStorage())
    with pytest.raises(InvalidArgument):
        ThrottleStorage()
    with pytest.raises(InvalidArgument, match="on_error"):
        ThrottleStorage("redis-throttle://x", on_error="open")  # type: ignore[arg-type]


def test_on_error_decides_the_calls_to_an_unavailable_server() -> None:
    server = FakeServer()
    server.fail()
    with pytest.raises(Unavailable):
        GCRARateLimiter(ThrottleStorage(limiter=server.limiter())).hit(TEN, "a")
    wrapped = ThrottleStorage(limiter=server.limiter(), wrap_exceptions=True)
    with pytest.raises(StorageError):
        FixedWindowRateLimiter(wrapped).hit(TEN, "a")
    assert not ThrottleStorage(f"redis-throttle://127.0.0.1:{free_port()}").check()


@pytest.mark.parametrize("strategy", [GCRARateLimiter, FixedWindowRateLimiter])
@pytest.mark.parametrize(("on_error", "hits"), [("allow", 12), ("deny", 0), ("local", 10)])
def test_on_error_holds_for_every_strategy(strategy: Any, on_error: Any, hits: int) -> None:
    server = FakeServer()
    limited = strategy(ThrottleStorage(limiter=server.limiter(), on_error=on_error))
    assert limited.hit(TEN, "a", cost=10)
    server.fail()
    assert limited.test(TEN, "a") is (hits > 0)
    assert sum(limited.hit(TEN, "a") for _ in range(12)) == hits
    assert limited.test(TEN, "a") is (on_error == "allow")
    stats = limited.get_window_stats(TEN, "a")
    assert (stats.reset_time > time.time() + 1e-3) is (on_error != "allow")
    server.recover()
    server.advance(1)
    # The server counted only the first call.
    assert not limited.hit(TEN, "a")


def test_other_options_with_a_limiter_fail_at_setup() -> None:
    with pytest.raises(InvalidArgument, match="limiter: it has its own client, timeout_ms"):
        ThrottleStorage(limiter=FakeServer().limiter(), client=object(), timeout_ms=5)


@pytest.mark.parametrize("driver", ["redis", "valkey"])
def test_a_driver_is_imported_only_when_used(driver: str) -> None:
    program = """if True:
        import importlib.util, sys
        other = {"redis": "valkey", "valkey": "redis"}[sys.argv[1]]
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *of: None if name == other else find(name, *of)
        sys.modules[other] = None
        from redis_throttle_client.limits import ThrottleStorage
        assert sys.argv[1] not in sys.modules
        ThrottleStorage("redis-throttle://127.0.0.1:1")
        assert sys.argv[1] in sys.modules
    """
    subprocess.run([sys.executable, "-c", program, driver], check=True)


@pytest.mark.live
@pytest.mark.parametrize("how", ["clear", "reset"])
def test_a_reset_also_drops_local_memory(server: Server, how: str) -> None:
    uri = f"redis-throttle://127.0.0.1:{server.port}"
    for options in ({"denial_cache": 9}, {"prefetch": 10}):
        storage: Any = storage_from_string(uri, timeout_ms=2000, **options)
        strategy = GCRARateLimiter(storage)
        server.command("SET", b"rl:limits:\xff", "nobody's")
        assert sum(strategy.hit(TEN, "a") for _ in range(11)) == 10
        if how == "clear":
            strategy.clear(TEN, "a")
        else:
            assert storage.reset() == 1
        assert sum(strategy.hit(TEN, "a") for _ in range(11)) == 10
        server.flush()


@pytest.mark.live
def test_reset_deletes_only_its_own_keys(storage: ThrottleStorage, server: Server) -> None:
    for name in ("a", "b"):
        GCRARateLimiter(storage).hit(TEN, name)
        FixedWindowRateLimiter(storage).hit(TEN, name)
    server.command("SET", "other:limits:x", "1")
    assert storage.reset() == 4
    assert GCRARateLimiter(storage).get_window_stats(TEN, "a").remaining == 10
    assert server.command("DBSIZE") == 1


def served(server: Server, **options: Any) -> dict[str, Any]:
    """Returns the settings by which an application selects the storage."""
    return {
        "strategy": "gcra",
        "storage_uri": f"redis-throttle://127.0.0.1:{server.port}",
        "storage_options": {"timeout_ms": 2000},
        **options,
    }


def flask_app(server: Server, **options: Any) -> tuple[FlaskClient, FlaskLimiter]:
    app = Flask(__name__)
    limiter = FlaskLimiter(
        lambda: request.headers["X-User"], app=app, default_limits=["3 per minute"],
        headers_enabled=True, **served(server, **options),
    )  # fmt: skip

    @app.get("/")
    def home() -> str:
        return "here"

    @app.get("/heavy")
    @limiter.limit("10 per minute", cost=4)
    def heavy() -> str:
        return "there"

    one = limiter.shared_limit("2 per hour", scope="shared")
    app.add_url_rule("/one", "one", one(lambda: "1"))
    app.add_url_rule("/two", "two", one(lambda: "2"))
    return app.test_client(), limiter


def got(client: FlaskClient, path: str = "/", user: str = "alice") -> int:
    return client.get(path, headers={"X-User": user}).status_code


@pytest.mark.live
def test_flask_limiter_denies_above_the_limit_and_refills(server: Server) -> None:
    client, limiter = flask_app(server)
    assert [got(client) for _ in range(4)] == [200, 200, 200, 429]
    assert got(client, user="bob") == 200
    server.advance("20s")
    answer = client.get("/", headers={"X-User": "alice"})
    assert answer.status_code == 200
    assert answer.headers["X-RateLimit-Limit"] == "3"
    assert answer.headers["X-RateLimit-Remaining"] == "0"
    assert [got(client, "/heavy") for _ in range(3)] == [200, 200, 429]
    assert [got(client, path) for path in ("/one", "/two", "/one")] == [200, 200, 429]
    limiter.reset()
    assert got(client) == 200


@pytest.mark.live
def test_flask_limiter_counts_in_fixed_windows_too(server: Server) -> None:
    client, _ = flask_app(server, strategy="fixed-window")
    assert [got(client) for _ in range(4)] == [200, 200, 200, 429]
    server.advance("59s")
    assert got(client) == 429
    server.advance("1s")
    assert got(client) == 200


@pytest.mark.live
def test_flask_limiter_follows_on_error_without_a_server(own_server: Server) -> None:
    options: list[tuple[dict[str, Any], list[int]]] = [
        ({}, [500] * 4),
        ({"swallow_errors": True}, [200] * 4),
        (
            {"in_memory_fallback": ["2 per minute"], "strategy": "fixed-window"},
            [200, 200, 429, 429],
        ),
        ({"storage_options": {"on_error": "allow"}}, [200] * 4),
        ({"storage_options": {"on_error": "deny"}}, [429] * 4),
        ({"storage_options": {"on_error": "local"}}, [200, 200, 200, 429]),
    ]
    apps = [flask_app(own_server, **given)[0] for given, _ in options]
    own_server.end()
    assert [[got(app) for _ in range(4)] for app in apps] == [found for _, found in options]


@pytest.mark.live
def test_flask_limiter_rejects_unsupported_strategies(server: Server) -> None:
    with pytest.raises(NotImplementedError):
        flask_app(server, strategy="moving-window")


@pytest.mark.live
@pytest.mark.anyio
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_slowapi_denies_above_the_limit(server: Server) -> None:
    slowapi: Any = pytest.importorskip("slowapi")
    limiter = slowapi.Limiter(
        lambda request: request.headers["X-User"], headers_enabled=True, **served(server)
    )
    app = FastAPI()
    app.state.limiter = limiter
    app.add_exception_handler(
        slowapi.errors.RateLimitExceeded, slowapi._rate_limit_exceeded_handler
    )

    @app.get("/")
    @limiter.limit("2 per minute")  # type: ignore[untyped-decorator]
    async def home(request: Request, response: Response) -> str:
        return "here"

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:

        async def ask(user: str) -> httpx.Response:
            return await client.get("/", headers={"X-User": user})

        answers = [await ask("alice") for _ in range(3)]
        assert [one.status_code for one in answers] == [200, 200, 429]
        assert answers[0].headers["X-RateLimit-Remaining"] == "1"
        assert (await ask("bob")).status_code == 200
        server.advance("30s")
        assert (await ask("alice")).status_code == 200
