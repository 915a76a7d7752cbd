"""Tests the storages for ``limits`` alone, in Flask-Limiter and in slowapi."""

from __future__ import annotations

import subprocess
import sys
import time
from math import floor
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request, Response
from flask import Flask, request
from flask.testing import FlaskClient
from flask_limiter import Limiter as FlaskLimiter
from hypothesis import given
from hypothesis import strategies as st
from limits import RateLimitItemPerMinute, aio
from limits.errors import StorageError
from limits.storage import MemoryStorage, storage_from_string
from limits.strategies import (
    FixedWindowRateLimiter,
    MovingWindowRateLimiter,
    SlidingWindowCounterRateLimiter,
)

from redis_throttle_client import InvalidArgument, Unavailable
from redis_throttle_client._web.windows import _current, _previous
from redis_throttle_client.limits import (
    AsyncGCRARateLimiter,
    AsyncThrottleStorage,
    GCRARateLimiter,
    ThrottleStorage,
)
from redis_throttle_client.testing import FakeServer

from .conftest import Server, free_port

TEN = RateLimitItemPerMinute(10)
STRATEGIES: list[Any] = [
    GCRARateLimiter,
    FixedWindowRateLimiter,
    MovingWindowRateLimiter,
    SlidingWindowCounterRateLimiter,
]
STRATEGY_NAMES = ["gcra", "fixed-window", "moving-window", "sliding-window-counter"]


@pytest.fixture
def storage(server: Server) -> ThrottleStorage:
    uri = f"redis-throttle://127.0.0.1:{server.port}"
    opened: Any = storage_from_string(uri, timeout_ms=60_000)
    assert isinstance(opened, ThrottleStorage)
    return opened


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
    assert storage.get(TEN.key_for("other")) == 0
    storage.clear(TEN.key_for("a"))
    assert strategy.get_window_stats(TEN, "a").remaining == 10


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> float:
    """Stops the time of this process."""
    stopped_s = time.time()
    monkeypatch.setattr(time, "time", lambda: stopped_s)
    return stopped_s


@pytest.mark.live
def test_moving_window(storage: ThrottleStorage, server: Server, now_s: float) -> None:
    strategy = MovingWindowRateLimiter(storage)
    assert strategy.get_window_stats(TEN, "a").remaining == 10
    assert strategy.hit(TEN, "a", cost=4)
    server.advance("20s")
    assert strategy.hit(TEN, "a", cost=5)
    assert not strategy.test(TEN, "a", cost=2)
    assert not strategy.hit(TEN, "a", cost=2)
    for left in (1, 0):
        stats = strategy.get_window_stats(TEN, "a")
        assert stats.remaining == left
        assert stats.reset_time - now_s == pytest.approx(40, abs=2e-3)
        assert strategy.hit(TEN, "a") is bool(left)
    server.advance("40s")
    assert strategy.get_window_stats(TEN, "a").remaining == 4
    assert strategy.hit(TEN, "a", cost=4)
    strategy.clear(TEN, "a")
    assert strategy.hit(TEN, "a", cost=10)
    # The log has more slots than the server's default, so that its times are exact.
    many = RateLimitItemPerMinute(2000)
    assert strategy.hit(many, cost=2000)
    server.advance("60s")
    assert strategy.hit(many)


@pytest.mark.live
@pytest.mark.parametrize(
    ("previous", "current", "after", "remaining", "reset_s"),
    [
        # The clock is 20 s into a window. A second one begins 40 s later.
        (7, 0, "41s", 4, 59 % (60 / 7)),
        (7, 0, "55s", 5, 45 % (60 / 7)),
        (7, 2, "55s", 3, 45 % (60 / 7)),
        (1, 9, "69s", 1, 31),
        (1, 9, "105s", 2, 55 % (60 / 9)),
        (3, 0, "101s", 10, 0),
        (0, 10, "99s", 0, 1),
    ],
)
def test_sliding_window(
    storage: ThrottleStorage, server: Server, now_s: float, previous: int, current: int,
    after: str, remaining: int, reset_s: float,
) -> None:  # fmt: skip
    strategy = SlidingWindowCounterRateLimiter(storage)
    assert strategy.hit(TEN, "a", cost=previous)
    server.advance("40s")
    assert strategy.hit(TEN, "a", cost=current) or previous + current > 10
    server.advance(f"{int(after[:-1]) - 40}s")
    stats = strategy.get_window_stats(TEN, "a")
    assert stats.remaining == remaining
    assert stats.reset_time - now_s == pytest.approx(reset_s, abs=0.01)
    assert strategy.test(TEN, "a", cost=remaining)
    assert not strategy.test(TEN, "a", cost=remaining + 1)
    assert not strategy.hit(TEN, "a", cost=remaining + 1)
    assert strategy.hit(TEN, "a", cost=remaining)
    strategy.clear(TEN, "a")
    assert strategy.hit(TEN, "a", cost=10)


@given(
    st.sampled_from([1, 60, 86_400]), st.integers(0, 5000), st.integers(1, 5000),
    st.floats(0, 1, exclude_min=True),
)  # fmt: skip
def test_two_times_give_the_counts_of_a_sliding_window(
    window_s: int, previous: int, current: int, left: float
) -> None:
    window_us, taken = window_s * 1_000_000, current * 1000
    left_us = max(1, round(window_us * left))
    parts = -(-previous * 1000 * left_us // window_us) + taken
    if parts // 2 < taken:
        half_us = left_us + window_us - parts // 2 * window_us // taken
    else:
        half_us = left_us - (parts // 2 - taken) * window_us // (previous * 1000)
    lasts_ms = -(-(left_us + window_us) // 1000)
    found = _current(parts, lasts_ms, -(-half_us // 1000), window_s)
    assert found == current or window_s == 1
    before, left_s = _previous(parts - found * 1000, lasts_ms - window_s * 1000, window_s)
    # The weighted count that `limits` computes is the server's.
    assert floor(before * left_s / window_s + found) == parts // 1000


@pytest.mark.parametrize(
    ("kind", "of_another", "strategy"),
    [
        (ThrottleStorage, FakeServer().async_limiter(), GCRARateLimiter),
        (AsyncThrottleStorage, FakeServer().limiter(), AsyncGCRARateLimiter),
    ],
)
def test_unsupported_options_fail_at_setup(kind: Any, of_another: Any, strategy: Any) -> None:
    with pytest.raises(NotImplementedError):
        strategy(MemoryStorage())
    with pytest.raises(InvalidArgument, match="uri"):
        kind()
    with pytest.raises(InvalidArgument, match="limiter: expected a"):
        kind(limiter=of_another)
    with pytest.raises(InvalidArgument, match="limiter: it has its own client, timeout_ms"):
        kind(limiter=of_another, client=object(), timeout_ms=5)
    with pytest.raises(InvalidArgument, match="on_error"):
        kind(kind.STORAGE_SCHEME[0] + "://x", on_error="open")


def test_bounds_of_the_windows() -> None:
    storage = ThrottleStorage(limiter=FakeServer().limiter())
    for strategy in (MovingWindowRateLimiter(storage), SlidingWindowCounterRateLimiter(storage)):
        none = RateLimitItemPerMinute(0)
        assert not strategy.hit(none)
        assert strategy.get_window_stats(none).remaining == 0
        # A cost above every server's bound is above the limit.
        assert not strategy.hit(TEN, cost=10**13)
    most = RateLimitItemPerMinute(999_999_999)
    assert strategy.hit(most, cost=999_999_999)
    assert strategy.get_window_stats(most).remaining == 0
    assert not strategy.hit(RateLimitItemPerMinute(10**9))


def test_on_error_decides_the_calls_to_an_unavailable_server() -> None:
    server = FakeServer()
    server.fail()
    with pytest.raises(Unavailable):
        GCRARateLimiter(ThrottleStorage(limiter=server.limiter())).hit(TEN, "a")
    wrapped = ThrottleStorage(limiter=server.limiter(), wrap_exceptions=True)
    with pytest.raises(StorageError):
        FixedWindowRateLimiter(wrapped).hit(TEN, "a")
    assert not ThrottleStorage(f"redis-throttle://127.0.0.1:{free_port()}").check()


@pytest.mark.parametrize("strategy", STRATEGIES)
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
    # Of a moving window in which nothing counts, `limits` returns the end of a full window.
    is_later = on_error != "allow" or strategy is MovingWindowRateLimiter
    assert (stats.reset_time > time.time() + 1e-3) is is_later
    server.recover()
    server.advance(1)
    # The server counted only the first call.
    assert not limited.hit(TEN, "a")


@pytest.mark.anyio
async def test_gcra_with_asyncio() -> None:
    server = FakeServer()
    storage = AsyncThrottleStorage(limiter=server.async_limiter())
    strategies: dict[str, Any] = aio.strategies.STRATEGIES
    strategy = strategies["gcra"](storage)
    assert [await strategy.hit(TEN, cost=5) for _ in range(2)] == [True, True]
    assert not await strategy.test(TEN)
    assert not await strategy.hit(TEN)
    assert (await strategy.get_window_stats(TEN)).remaining == 0
    await strategy.clear(TEN)
    assert await strategy.hit(TEN)
    assert await storage.check()
    server.fail()
    with pytest.raises(Unavailable):
        await strategy.hit(TEN)
    assert not await storage.check()


@pytest.mark.parametrize("driver", ["redis", "valkey"])
def test_a_driver_is_imported_only_when_used(driver: str) -> None:
    program = """if True:
        import importlib.util, sys
        other = {"redis": "valkey", "valkey": "redis"}[sys.argv[1]]
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *of: None if name == other else find(name, *of)
        sys.modules[other] = None
        from redis_throttle_client.limits import AsyncThrottleStorage, ThrottleStorage
        assert sys.argv[1] not in sys.modules
        ThrottleStorage("redis-throttle://127.0.0.1:1")
        assert sys.argv[1] in sys.modules
        AsyncThrottleStorage("async+redis-throttles://127.0.0.1:1")
    """
    subprocess.run([sys.executable, "-c", program, driver], check=True)


@pytest.mark.live
@pytest.mark.parametrize("how", ["clear", "reset"])
@pytest.mark.parametrize("kind", [one for one in STRATEGIES if one is not FixedWindowRateLimiter])
def test_a_reset_also_drops_local_memory(server: Server, how: str, kind: Any) -> None:
    uri = f"redis-throttle://127.0.0.1:{server.port}"
    for options in ({"denial_cache": 9}, {"prefetch": 10}):
        storage: Any = storage_from_string(uri, timeout_ms=60_000, **options)
        strategy = kind(storage)
        server.command("SET", b"rl:limits:\xff", "another program's")
        assert sum(strategy.hit(TEN, "a") for _ in range(11)) == 10
        if how == "clear":
            strategy.clear(TEN, "a")
        else:
            assert storage.reset() == 1
        assert sum(strategy.hit(TEN, "a") for _ in range(11)) == 10
        server.flush()


@pytest.mark.live
def test_reset_deletes_only_its_own_keys(storage: ThrottleStorage, server: Server) -> None:
    for strategy in STRATEGIES:
        assert all(strategy(storage).hit(TEN, name) for name in ("a", "b"))
    server.command("SET", "other:limits:x", "1")
    storage.clear(TEN.key_for("a"))
    assert server.command("DBSIZE") == len(STRATEGIES) + 1
    assert storage.reset() == len(STRATEGIES)
    assert server.command("DBSIZE") == 1


def served(server: Server, **options: Any) -> dict[str, Any]:
    """Returns the settings by which an application selects the storage."""
    return {
        "strategy": "gcra",
        "storage_uri": f"redis-throttle://127.0.0.1:{server.port}",
        "storage_options": {"timeout_ms": 60_000},
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
    response = client.get("/", headers={"X-User": "alice"})
    assert response.status_code == 200
    assert response.headers["X-RateLimit-Limit"] == "3"
    assert response.headers["X-RateLimit-Remaining"] == "0"
    assert [got(client, "/heavy") for _ in range(3)] == [200, 200, 429]
    assert [got(client, path) for path in ("/one", "/two", "/one")] == [200, 200, 429]
    limiter.reset()
    assert got(client) == 200


@pytest.mark.live
@pytest.mark.parametrize(
    ("strategy", "found"),
    [
        ("fixed-window", [(429, "0"), (200, "2")]),
        ("moving-window", [(429, "0"), (200, "2")]),
        # Of the three calls, 2.05 and then 2 count, and the call itself.
        ("sliding-window-counter", [(200, "0"), (429, "0")]),
    ],
)
def test_flask_limiter_counts_in_windows(
    server: Server, strategy: str, found: list[tuple[int, str]]
) -> None:
    client, _ = flask_app(server, strategy=strategy)
    assert [got(client) for _ in range(4)] == [200, 200, 200, 429]
    for after, expected in zip(("59s", "1s"), found, strict=True):
        server.advance(after)
        response = client.get("/", headers={"X-User": "alice"})
        assert (response.status_code, response.headers["X-RateLimit-Remaining"]) == expected


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
        *(
            ({"storage_options": {"on_error": "local"}, "strategy": name}, [200, 200, 200, 429])
            for name in STRATEGY_NAMES
        ),
    ]
    apps = [flask_app(own_server, **given)[0] for given, _ in options]
    own_server.end()
    assert [[got(app) for _ in range(4)] for app in apps] == [found for _, found in options]


@pytest.mark.live
@pytest.mark.anyio
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("strategy", "after"),
    [("gcra", "30s"), ("moving-window", "60s"), ("sliding-window-counter", "70s")],
)
async def test_slowapi_denies_above_the_limit(server: Server, strategy: str, after: str) -> None:
    slowapi: Any = pytest.importorskip("slowapi")
    limiter = slowapi.Limiter(
        lambda request: request.headers["X-User"], headers_enabled=True,
        **served(server, strategy=strategy),
    )  # fmt: skip
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

        async def get(user: str) -> httpx.Response:
            return await client.get("/", headers={"X-User": user})

        responses = [await get("alice") for _ in range(3)]
        assert [one.status_code for one in responses] == [200, 200, 429]
        assert responses[0].headers["X-RateLimit-Remaining"] == "1"
        assert (await get("bob")).status_code == 200
        server.advance(after)
        assert (await get("alice")).status_code == 200


@pytest.mark.live
def test_the_first_hit_of_a_process_waits_for_a_slow_dial(shared_server: Server) -> None:
    storage: Any = storage_from_string(f"redis-throttle://127.0.0.1:{shared_server.port}")
    pool = storage.limiter._transport._sockets.pool
    make = pool._make

    def slow() -> Any:
        # Longer than the dial of a limiter.
        time.sleep(1.3)
        return make()

    pool._make = slow
    assert GCRARateLimiter(storage).hit(TEN, "a")
    storage.limiter.close()


def test_an_overloaded_fixed_window_is_counted_in_this_process() -> None:
    server = FakeServer()
    storage = ThrottleStorage(limiter=server.limiter(), on_error="allow")
    strategy = FixedWindowRateLimiter(storage)
    server._failure = Unavailable("too many calls", "overloaded")
    assert [strategy.hit(TEN, "a") for _ in range(11)] == [True] * 10 + [False]


@pytest.mark.parametrize("on_error", ["raise", "allow"])
def test_a_known_denial_denies_without_the_server(on_error: Any) -> None:
    server = FakeServer()
    storage = ThrottleStorage(limiter=server.limiter(), on_error=on_error)
    strategy = GCRARateLimiter(storage)
    assert [strategy.hit(TEN, "a") for _ in range(11)] == [True] * 10 + [False]
    server.fail()
    assert not strategy.hit(TEN, "a")
