"""Tests rules, costs and keys that are functions of the request, on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest
import redis.asyncio

from redis_throttle_client import (
    AsyncLimiter,
    InvalidArgument,
    Limiter,
    Rule,
    backoff,
    fixed,
    gcra,
    lease,
    policy,
    quota,
)
from redis_throttle_client.asgi import RateLimitMiddleware, Request
from redis_throttle_client.wsgi import RateLimitMiddleware as WsgiMiddleware

from .conftest import Server
from .test_middleware import get, wsgi_app, wsgi_get

pytestmark = [pytest.mark.live, pytest.mark.anyio]
PLANS = {"free": fixed("free", 1, "1h"), "paid": fixed("paid", 3, "1h")}
DAY = fixed("day", 100, "1d")


def plan(request: Request) -> Rule | None:
    return PLANS.get(request.header("x-plan") or "")


def cost(request: Request) -> int:
    return int(request.header("x-cost") or 1)


def user(request: Request) -> str | None:
    return request.header("x-user")


async def async_plan(request: Request) -> Rule | None:
    return plan(request)


async def async_cost(request: Request) -> int:
    return cost(request)


async def async_user(request: Request) -> str | None:
    return user(request)


class AsyncUser:
    """A key that is an object with an async call."""

    async def __call__(self, request: Request) -> str | None:
        return user(request)


@pytest.fixture
async def limiter(shared_server: Server) -> AsyncIterator[AsyncLimiter]:
    client = redis.asyncio.Redis(port=shared_server.port)
    async with AsyncLimiter(client, timeout_ms=60_000) as opened:
        yield opened


@pytest.fixture
def sync_limiter(shared_server: Server) -> Iterator[Limiter]:
    with Limiter(shared_server.client(), timeout_ms=60_000) as opened:
        yield opened


async def home(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body"})


@pytest.mark.parametrize("functions", [(plan, cost, user), (async_plan, async_cost, async_user)])
async def test_functions_of_the_request_choose_rule_cost_and_key(
    limiter: AsyncLimiter, shared_server: Server, functions: Any
) -> None:
    rule, units, key = functions
    app = RateLimitMiddleware(home, limiter=limiter, rules=[rule, DAY], key=key, cost=units)
    responses = [await get(app, x_plan=name, x_user="a") for name in ("free", "free", "paid")]
    assert [one.status_code for one in responses] == [200, 429, 200]
    dear = await get(app, x_plan="paid", x_user="a", x_cost="2")
    assert dear.headers["ratelimit"] == '"paid";r=0;t=3600, "day";r=96;t=86400'
    # Without a plan only the other rule applies.
    assert (await get(app, x_user="a")).headers["ratelimit"] == '"day";r=95;t=86400'
    alone = RateLimitMiddleware(home, limiter=limiter, rules=rule, key=key)
    before = shared_server.counted("fixed")
    free = await get(alone, x_user="a")
    assert (free.status_code, "ratelimit" in free.headers) == (200, False)
    assert shared_server.counted("fixed") == before
    assert (await get(alone)).status_code == 200


def test_wsgi_takes_the_same_functions(sync_limiter: Limiter) -> None:
    app = WsgiMiddleware(wsgi_app, limiter=sync_limiter, rules=plan, key=user, cost=cost)
    requests = [{"HTTP_X_PLAN": name, "HTTP_X_USER": "a"} for name in ("free", "free", "paid")]
    assert [wsgi_get(app, **one)[0][:3] for one in requests] == ["200", "429", "200"]
    status, headers, _ = wsgi_get(app, **requests[2], HTTP_X_COST="2")
    assert (status[:3], headers["ratelimit"]) == ("200", '"paid";r=0;t=3600')
    status, headers, _ = wsgi_get(app, HTTP_X_USER="a")
    assert (status[:3], "ratelimit" in headers) == ("200", False)


def from_headers(request: Request) -> str:
    return str(dict(request.raw["headers"])[b"x-user"], "ascii")


def from_environ(request: Request) -> str:
    return str(request.raw["HTTP_X_USER"])


async def async_from_headers(request: Request) -> str:
    return from_headers(request)


@pytest.mark.parametrize("key", [user, from_headers, async_user, async_from_headers])
async def test_a_request_without_the_header_of_the_key_gets_400(
    limiter: AsyncLimiter, key: Any
) -> None:
    app = RateLimitMiddleware(home, limiter=limiter, rules=[plan, DAY], key=key)
    missing = await get(app)
    assert (missing.status_code, missing.json()["status"]) == (400, 400)
    assert missing.headers["content-type"] == "application/problem+json"
    assert (await get(app, x_user="a")).status_code == 200
    strangers = fixed("strangers", 1, "1h")
    app = RateLimitMiddleware(home, limiter=limiter, rules=DAY, key=key, anonymous=strangers)
    assert [(await get(app)).status_code for _ in range(2)] == [200, 429]


def test_wsgi_responds_with_400_without_the_header_of_the_key(sync_limiter: Limiter) -> None:
    for key in (user, from_environ):
        app = WsgiMiddleware(wsgi_app, limiter=sync_limiter, rules=DAY, key=key)
        assert wsgi_get(app)[0] == "400 Bad Request"
        assert wsgi_get(app, HTTP_X_USER="a")[0] == "200 OK"


@pytest.mark.parametrize(
    "options",
    [{"rules": async_plan}, {"rules": [(plan, async_user)]}, {"key": async_user},
     {"key": AsyncUser()}, {"key": partial(async_user)}, {"cost": async_cost},
     {"skip": async_user}, {"tag": async_user}],
)  # fmt: skip
async def test_wsgi_refuses_async_functions_at_setup(
    sync_limiter: Limiter, limiter: AsyncLimiter, options: dict[str, Any]
) -> None:
    name = next(iter(options))
    with pytest.raises(InvalidArgument, match=f"^{name}: expected a function that is not async"):
        WsgiMiddleware(wsgi_app, limiter=sync_limiter, **{"rules": DAY, **options})
    RateLimitMiddleware(home, limiter=limiter, **{"rules": DAY, **options})


def test_wsgi_refuses_an_awaitable_at_use(sync_limiter: Limiter) -> None:
    """A lambda hides that its function is async."""
    app = WsgiMiddleware(
        wsgi_app, limiter=sync_limiter, rules=DAY, key=lambda request: async_user(request)
    )
    with pytest.raises(InvalidArgument, match="async"):
        wsgi_get(app)


@pytest.mark.parametrize("rules", ["api", [3], [(DAY,)], [("day", user)], []])
def test_invalid_rules_are_rejected_at_setup(sync_limiter: Limiter, rules: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^rules: "):
        WsgiMiddleware(wsgi_app, limiter=sync_limiter, rules=rules)


def test_a_rule_function_that_returns_no_rule_is_an_invalid_argument(
    sync_limiter: Limiter,
) -> None:
    wrong: Any = user
    app = WsgiMiddleware(wsgi_app, limiter=sync_limiter, rules=wrong)
    with pytest.raises(InvalidArgument, match=r"^rules: "):
        wsgi_get(app, HTTP_X_USER="a")


NOT_LOCAL = [
    backoff("login", 2, "1s", "15m", "1d"),
    quota("month", 5, "month"),
    lease("jobs", 1, "60s"),
    policy("search"),
]


@pytest.mark.parametrize("rule", NOT_LOCAL, ids=lambda rule: rule.kind)
async def test_a_default_on_error_that_a_rule_cannot_have_fails_at_setup(
    shared_server: Server, rule: Rule
) -> None:
    limiter = AsyncLimiter(redis.asyncio.Redis(port=shared_server.port), on_error="local")
    options: list[dict[str, Any]] = [
        {"rules": rule},
        {"rules": [(rule, user)]},
        {"rules": DAY, "anonymous": rule},
    ]
    for given in options:
        with pytest.raises(InvalidArgument, match=r"^on_error: "):
            RateLimitMiddleware(home, limiter=limiter, **given)
        with pytest.raises(InvalidArgument, match=r"^on_error: "):
            WsgiMiddleware(
                wsgi_app, limiter=Limiter(shared_server.client(), on_error="local"), **given
            )
    # The rule of a function is known when the function is called.
    app = RateLimitMiddleware(home, limiter=limiter, rules=lambda request: rule)
    with pytest.raises(InvalidArgument, match=r"^on_error: "):
        await app(
            {"type": "http", "path": "/", "headers": [], "client": ("192.0.2.1", 1)},
            None,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
        )
    await limiter.close()


async def test_several_functions_are_one_call(limiter: AsyncLimiter, shared_server: Server) -> None:
    app = RateLimitMiddleware(
        home, limiter=limiter, rules=[plan, (lambda _: gcra("api", 6, 10, "60s"), async_user)],
        tag=async_user,
    )  # fmt: skip
    before = shared_server.calls("rl.all")
    assert (await get(app, x_plan="paid", x_user="a")).status_code == 200
    assert shared_server.calls("rl.all") == before + 1
    assert shared_server.command("KEYS", "*{a}*")
