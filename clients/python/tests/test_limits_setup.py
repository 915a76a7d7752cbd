"""Tests limits of 0, limits that cannot be enforced, and frameworks around a storage."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from flask_limiter import Limiter as FlaskLimiter
from flask_limiter.commands import cli as commands
from limits import RateLimitItemPerYear, aio, parse
from limits.storage import storage_from_string
from limits.strategies import STRATEGIES as STRATEGIES_OF_LIMITS

from redis_throttle_client import InvalidArgument
from redis_throttle_client.limits import AsyncThrottleStorage, ThrottleStorage, checked
from redis_throttle_client.testing import FakeServer

from .conftest import Server, free_port
from .test_limits import STRATEGY_NAMES, flask_app, got

STRATEGIES: dict[str, Any] = STRATEGIES_OF_LIMITS


@pytest.mark.live
@pytest.mark.parametrize("swallow_errors", [False, True])
@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
def test_a_limit_of_0_denies_in_flask_limiter(
    shared_server: Server, strategy: str, swallow_errors: bool
) -> None:
    client, limiter = flask_app(shared_server, strategy=strategy, swallow_errors=swallow_errors)
    app: Any = client.application
    app.add_url_rule("/none", "none", limiter.limit("0/minute")(lambda: "none"))
    denied = client.get("/none", headers={"X-User": "alice"})
    assert denied.status_code == 429
    assert denied.headers["X-RateLimit-Remaining"] == "0"


@pytest.mark.anyio
@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
async def test_a_limit_of_0_allows_only_the_cost_0(strategy: str) -> None:
    none = parse("0/minute")
    limited = STRATEGIES[strategy](ThrottleStorage(limiter=FakeServer().limiter()))
    assert not limited.test(none)
    assert [limited.hit(none, cost=cost) for cost in (0, 1)] == [True, False]
    strategies: dict[str, Any] = aio.strategies.STRATEGIES
    limited = strategies[strategy](AsyncThrottleStorage(limiter=FakeServer().async_limiter()))
    assert not await limited.test(none)
    assert [await limited.hit(none, cost=cost) for cost in (0, 1)] == [True, False]


def test_a_cost_above_every_bound_is_above_the_limit_of_gcra() -> None:
    limited = STRATEGIES["gcra"](ThrottleStorage(limiter=FakeServer().limiter()))
    assert not limited.test(parse("10/minute"), cost=10**13)
    assert not limited.hit(parse("10/minute"), cost=10**13)


@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
@pytest.mark.parametrize(
    "limits", ["5/2 years", "1/400 day", "10/minute; 1/400 day", f"{10**13}/day", "10", None]
)
def test_limits_that_cannot_be_enforced_fail_at_setup(strategy: str, limits: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^limits: "):
        checked(limits, strategy)


def test_limits_that_can_be_enforced_are_returned_as_they_are() -> None:
    years = RateLimitItemPerYear(5, 1)
    for strategy in STRATEGY_NAMES:
        assert checked("5/2 hours, 0/day", strategy) == "5/2 hours, 0/day"
        assert checked(years, strategy) is years
    with pytest.raises(InvalidArgument, match=r"^strategy: "):
        checked("10/minute", "leaky")
    with pytest.raises(InvalidArgument, match=r"^limits: 1000000000 per 1 day: limit: "):
        checked("1000000000/day", "sliding-window-counter")


@pytest.mark.parametrize("kind", ["", "async+"])
@pytest.mark.parametrize(
    ("uri", "text"),
    [("redis-throttle://s3cret/x", "expected redis-throttle://"),
     ("redis-throttle:///127.0.0.1", "expected redis-throttle://"),
     ("redis-throttles://s3cret/0/1", "expected redis-throttle://"),
     ("redis-throttle+unix://host/s", "expected redis-throttle://"),
     ("redis-throttle://h?timeout_ms=50", "timeout_ms is an option of the limiter"),
     ("redis-throttle://h?colour=red", "the driver has no setting colour")],
)  # fmt: skip
def test_uris_that_name_no_server_fail_at_setup(kind: str, uri: str, text: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^uri: {text}") as raised:
        storage_from_string(kind + uri)
    assert "s3cret" not in str(raised.value)


@pytest.mark.live
@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
def test_the_command_of_flask_limiter_shows_its_configuration(
    shared_server: Server, strategy: str
) -> None:
    pytest.importorskip("rich")
    client, _ = flask_app(shared_server, strategy=strategy)
    runner = client.application.test_cli_runner()

    def run(*args: str) -> str:
        result = runner.invoke(commands, args)
        assert (result.exit_code, result.exception) == (0, None)
        return result.output

    assert "ThrottleStorage" in run("config")
    assert got(client) == 200
    of_alice = ("--key", "alice", "--endpoint", "home")
    assert "2 out of 3 remaining" in run("limits", *of_alice)
    run("clear", *of_alice, "-y")
    assert "3 out of 3 remaining" in run("limits", *of_alice)


@pytest.mark.live
def test_flask_limiter_falls_back_to_its_memory_under_gcra(own_server: Server) -> None:
    client, _ = flask_app(own_server, in_memory_fallback_enabled=True)
    assert got(client) == 200
    own_server.end()
    assert [got(client, user="bob") for _ in range(4)] == [200, 200, 200, 429]


def test_gcra_may_stand_in_settings_of_a_memory() -> None:
    app = Flask(__name__)
    FlaskLimiter(
        lambda: "alice", app=app, default_limits=["2/minute"], storage_uri="memory://",
        strategy="gcra",
    )  # fmt: skip
    app.add_url_rule("/", "home", lambda: "here")
    client = app.test_client()
    assert [client.get("/").status_code for _ in range(3)] == [200, 200, 429]


@pytest.mark.anyio
async def test_slowapi_and_limits_fall_back_to_memory_under_gcra() -> None:
    slowapi: Any = pytest.importorskip("slowapi")
    slowapi.Limiter(
        lambda request: "alice", strategy="gcra", in_memory_fallback_enabled=True,
        storage_uri=f"redis-throttle://127.0.0.1:{free_port()}",
    )  # fmt: skip
    strategies: dict[str, Any] = aio.strategies.STRATEGIES
    limited = strategies["gcra"](aio.storage.MemoryStorage())
    assert [await limited.hit(parse("2/minute")) for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
def test_half_a_surrogate_pair_in_a_key_is_a_key(strategy: str) -> None:
    limited = STRATEGIES[strategy](ThrottleStorage(limiter=FakeServer().limiter()))
    one = parse("1/minute")
    assert [limited.hit(one, key) for key in ("\ud800", "\udfff", "?")] == [True] * 3
    assert not limited.hit(one, "\ud800")
    assert not limited.test(one, "\ud800")
    limited.clear(one, "\ud800")
    assert limited.hit(one, "\ud800")


REFUSED = [
    *((strategy, limit) for strategy in STRATEGY_NAMES for limit in ("5/2 years", "1/400 day")),
    *((strategy, f"{10**13}/minute") for strategy in STRATEGY_NAMES if "fixed" not in strategy),
]


@pytest.mark.live
@pytest.mark.parametrize("swallow_errors", [False, True])
@pytest.mark.parametrize(("strategy", "limit"), REFUSED)
def test_a_limit_that_cannot_be_enforced_denies_in_flask_limiter(
    shared_server: Server, strategy: str, limit: str, swallow_errors: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    client, limiter = flask_app(shared_server, strategy=strategy, swallow_errors=swallow_errors)
    app: Any = client.application
    app.add_url_rule("/none", "none", limiter.limit(limit)(lambda: "none"))
    on_success = limiter.limit(limit, deduct_when=lambda response: response.status_code == 200)
    app.add_url_rule("/tested", "tested", on_success(lambda: "tested"))
    for path in ("/none", "/none", "/tested"):
        denied = client.get(path, headers={"X-User": "alice"})
        assert (denied.status_code, denied.headers["X-RateLimit-Remaining"]) == (429, "0")
    storage: Any = limiter.storage
    storage.limiter.close()
    logged = [one.getMessage() for one in caplog.records if one.name == "redis_throttle_client"]
    assert len(logged) == 1
    assert logged[0].startswith(f"the limit {parse(limit)} denies every call, because {strategy} ")


@pytest.mark.live
@pytest.mark.parametrize("cost", [-1, 1.5, "1", None, True, 10**13])
@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
def test_a_cost_that_no_call_can_have_is_denied_in_flask_limiter(
    shared_server: Server, strategy: str, cost: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client, limiter = flask_app(shared_server, strategy=strategy, swallow_errors=True)
    app: Any = client.application
    app.add_url_rule("/dear", "dear", limiter.limit("3/minute", cost=lambda: cost)(lambda: "dear"))
    for _ in range(2):
        assert client.get("/dear", headers={"X-User": "alice"}).status_code == 429
    storage: Any = limiter.storage
    storage.limiter.close()
    logged = [one.getMessage() for one in caplog.records if one.name == "redis_throttle_client"]
    assert [one.partition(" (")[0] for one in logged] == (
        [] if cost == 10**13 else ["calls with a cost that no call can have are denied"]
    )


@pytest.mark.anyio
@pytest.mark.parametrize(("strategy", "limit"), REFUSED)
async def test_a_limit_that_cannot_be_enforced_denies_also_in_asyncio(
    strategy: str, limit: str
) -> None:
    server, strategies = FakeServer(), dict[str, Any](aio.strategies.STRATEGIES)
    limited = strategies[strategy](AsyncThrottleStorage(limiter=server.async_limiter()))
    assert not await limited.hit(parse(limit), "alice")
    assert not await limited.test(parse(limit), "alice")
    assert (await limited.get_window_stats(parse(limit), "alice")).remaining == 0


@pytest.mark.anyio
async def test_identifiers_with_slashes_share_no_key_under_gcra() -> None:
    one, pairs = parse("1/minute"), [("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c")]
    strategies: dict[str, Any] = aio.strategies.STRATEGIES
    limited = STRATEGIES["gcra"](ThrottleStorage(limiter=FakeServer().limiter()))
    assert [limited.hit(one, *pair) for pair in pairs] == [True] * 3
    limited.clear(one, *pairs[0])
    assert [limited.test(one, *pair) for pair in pairs] == [True, False, False]
    limited = strategies["gcra"](AsyncThrottleStorage(limiter=FakeServer().async_limiter()))
    assert [await limited.hit(one, *pair) for pair in pairs] == [True] * 3
    await limited.clear(one, *pairs[0])
    assert [await limited.test(one, *pair) for pair in pairs] == [True, False, False]
