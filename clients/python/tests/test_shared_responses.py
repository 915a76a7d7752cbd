"""Runs the shared responses of cases.json: requests to the middlewares, over a scripted server."""

import json
from collections import deque
from dataclasses import replace
from typing import Annotated, Any

import pytest
import redis
from fastapi import Depends, FastAPI
from fastapi.responses import PlainTextResponse

from redis_throttle_client import AsyncLimiter, Limiter, key_of
from redis_throttle_client._wire.call import Call
from redis_throttle_client.asgi import RateLimitMiddleware
from redis_throttle_client.fastapi import RateLimits
from redis_throttle_client.wsgi import RateLimitMiddleware as WsgiMiddleware

from .conftest import until
from .test_cases import CASES, build_rule
from .test_middleware import get, wsgi_get


def responses(*without: str) -> pytest.MarkDecorator:
    """Parametrizes a test with the cases that have none of these options.

    A rule has no cost of its own here.
    """
    found = [
        pytest.param(case["input"], case["expect"], id=case["name"])
        for case in CASES["responses"]
        if not any("cost" in limit for limit in case["input"]["limits"])
        and not any(name in case["input"] for name in without)
    ]
    return pytest.mark.parametrize(("given", "expect"), found)


FIELDS = ("ratelimit", "x-ratelimit", "retry-after", "cache-control")


class Scripted:
    """A server for threads that replies to each command with the next reply of a case."""

    def __init__(self, given: dict[str, Any]) -> None:
        replies = [given["server"]] if "server" in given else given.get("servers", [])
        self._replies, self.sent = deque(replies), list[str]()

    def node(self, key: str) -> None:
        return None

    def reply(self, args: tuple[str, ...]) -> Any:
        self.sent.append(" ".join(args))
        reply = self._replies.popleft()
        if isinstance(reply, dict):
            raise redis.ResponseError(reply["error"])
        return reply

    def call(self, node: None, args: tuple[str, ...], call: Call) -> Any:
        return self.reply(args)

    def close(self) -> None:
        pass


class AsyncScripted(Scripted):
    """The same for asyncio."""

    async def call(self, node: None, args: tuple[str, ...], call: Call) -> Any:
        return self.reply(args)

    async def close(self) -> None:  # type: ignore[override]
        pass


def options_of(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of a middleware as a case writes them."""
    plain = ("cost", "trusted_proxies", "headers", "degraded_header")
    options: dict[str, Any] = {name: given[name] for name in plain if name in given}
    options["rules"] = [
        (rule, key_of(*limit["key"])) if "key" in limit else rule
        for limit in given["limits"]
        for rule in [build_rule(limit["rule"])]
    ]
    if "key" in given:
        options["key"] = key_of(*given["key"])
    if "anonymous" in given:
        options["anonymous"] = build_rule(given["anonymous"])
    if "skip" in given:
        options["skip"] = lambda request: given["skip"]
    if "tag" in given:
        options["tag"] = lambda request: given["tag"]
    if "on_denied" in given:
        options["on_denied"] = lambda request, decision, response: replace(
            response, status=given["on_denied"]
        )
    return options


def describe(given: dict[str, Any], decision: Any, degraded: str | None) -> dict[str, Any]:
    """Returns what the application saw, as a case writes it."""
    values = {name: getattr(decision, name, None) for name in ("source", "remaining")}
    return values | ({"degraded": degraded} if "degraded_header" in given else {})


def check(expect: dict[str, Any], status: int, headers: Any, body: Any) -> None:
    """Compares a response with that of a case."""
    assert status == expect["status"]
    if "fields" in expect:
        present = {
            name.lower(): value for name, value in dict(headers).items()
            if name.lower().startswith(FIELDS)
        }  # fmt: skip
        assert present == {name.lower(): value for name, value in expect["fields"].items()}
    if "body" in expect:
        assert headers["content-type"] == "application/problem+json"
        assert json.loads(body) == expect["body"]


def check_sent(expect: dict[str, Any], sent: list[str]) -> None:
    """Compares the commands, of which a case has the beginnings."""
    assert len(sent) == len(expect["sent"])
    for text, start in zip(sent, expect["sent"], strict=True):
        assert text.startswith(start)


@pytest.mark.anyio
@responses()
async def test_responses_over_asgi_follow_the_shared_cases(
    given: dict[str, Any], expect: dict[str, Any]
) -> None:
    found: list[dict[str, Any]] = []
    degraded = given.get("degraded_header", "").lower().encode()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        value = dict(scope["headers"]).get(degraded)
        found.append(describe(given, scope["state"]["rate_limit"], value and value.decode()))
        status = given.get("responds", 200)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    server = AsyncScripted(given)
    limiter = AsyncLimiter(server)
    middleware = RateLimitMiddleware(app, limiter=limiter, **options_of(given))
    response = await get(middleware, **given.get("request", {}))
    await limiter.close()
    assert (found[0] if found else None) == expect["application"]
    check(expect, response.status_code, response.headers, response.content)
    check_sent(expect, server.sent)


@pytest.mark.anyio
@responses("on_denied", "degraded_header")
async def test_responses_of_fastapi_routes_follow_the_shared_cases(
    given: dict[str, Any], expect: dict[str, Any]
) -> None:
    found: list[dict[str, Any]] = []
    server, app, options = AsyncScripted(given), FastAPI(), options_of(given)
    limiter = AsyncLimiter(server)
    of_all = {name: options.pop(name) for name in ("headers", "trusted_proxies") if name in options}
    limits = RateLimits(limiter, **of_all)
    limits.install(app)
    limit = limits.limit(**options)

    @app.get("/")
    async def home(decision: Annotated[Any, Depends(limit)]) -> PlainTextResponse:
        found.append(describe(given, decision, None))
        return PlainTextResponse("served", given.get("responds", 200))

    response = await get(app, **given.get("request", {}))
    await limiter.close()
    assert (found[0] if found else None) == expect["application"]
    check(expect, response.status_code, response.headers, response.content)
    check_sent(expect, server.sent)


@responses()
def test_responses_over_wsgi_follow_the_shared_cases(
    given: dict[str, Any], expect: dict[str, Any]
) -> None:
    found: list[dict[str, Any]] = []
    degraded = "HTTP_" + given.get("degraded_header", "").upper().replace("-", "_")

    def app(environ: Any, start: Any) -> list[bytes]:
        decision = environ["redis_throttle_client.decision"]
        found.append(describe(given, decision, environ.get(degraded)))
        start(f"{given.get('responds', 200)} Said", [("Content-Type", "text/plain")])
        return [b"served"]

    server = Scripted(given)
    limiter = Limiter(server)
    middleware = WsgiMiddleware(app, limiter=limiter, **options_of(given))
    request = {
        "HTTP_" + name.upper().replace("-", "_"): value
        for name, value in given.get("request", {}).items()
    }
    if expect["status"] == 500:
        with pytest.raises(Exception, match=given["server"]["error"]):
            wsgi_get(middleware, **request)
    else:
        status, headers, body = wsgi_get(middleware, **request)
        check(expect, int(status[:3]), headers, body)
    until(lambda: len(server.sent) == len(expect["sent"]))
    limiter.close()
    assert (found[0] if found else None) == expect["application"]
    check_sent(expect, server.sent)
