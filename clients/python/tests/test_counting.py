"""Tests ``count``: the requests that count under a rule, and the refunds of the others."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis.asyncio

from redis_throttle_client import (
    AsyncLimiter,
    InvalidArgument,
    Limiter,
    Outcome,
    Rule,
    backoff,
    fixed,
    gcra,
    leaky_bucket,
    lease,
    policy,
    quota,
    sliding,
    sliding_log,
    token_bucket,
)
from redis_throttle_client._rules.outcome import counts
from redis_throttle_client.asgi import RateLimitMiddleware
from redis_throttle_client.wsgi import RateLimitMiddleware as WsgiMiddleware

from .conftest import Server, free_port

RULES: list[Callable[..., Rule]] = [
    lambda count: gcra("a", 6, 10, "60s", count=count),
    lambda count: token_bucket("a", 6, 10, "60s", count=count),
    lambda count: leaky_bucket("a", 6, 10, "60s", count=count),
    lambda count: fixed("a", 6, "60s", count=count),
    lambda count: sliding("a", 6, "60s", count=count),
    lambda count: sliding_log("a", 6, "60s", count=count),
    lambda count: backoff("a", 6, "1s", "60s", "1d", count=count),
    lambda count: quota("a", 6, "month", count=count),
    lambda count: policy("a", count=count),
]


@pytest.mark.parametrize("build", RULES)
def test_a_rule_has_its_count_and_refuses_an_unknown_one(build: Callable[..., Rule]) -> None:
    assert build("failures").count == "failures"
    assert build(callable).count is callable
    assert build("all") != build("failures")
    wrong: list[Any] = ["errors", None, 500, asyncio.sleep]
    for count in wrong:
        with pytest.raises(InvalidArgument, match=r"^count: "):
            build(count)


def test_a_lease_refuses_a_count() -> None:
    wrong: Any = "failures"
    with pytest.raises(InvalidArgument, match=r"^count: "):
        lease("jobs", 1, "60s", count=wrong)
    assert lease("jobs", 1, "60s").count == "all"


@pytest.mark.parametrize(
    ("outcome", "failed"),
    [(Outcome(200), False), (Outcome(399), False), (Outcome(400), True), (Outcome(503), True),
     (Outcome(None), True), (Outcome(None, ZeroDivisionError()), True)],
)  # fmt: skip
def test_a_failure_is_a_status_from_400_or_no_response(outcome: Outcome, failed: bool) -> None:
    assert counts("failures", outcome) == failed
    assert counts("all", outcome)
    assert counts(lambda one: one is outcome, outcome)


# -- refunds, on a real server ----------------------------------------------------------------

LOGIN = backoff("login", 2, "1s", "15m", "1d", count="failures")
TRIES = fixed("tries", 5, "1h", count="failures")
PEER = "192.0.2.7"
Response = int | Exception | None


def limiter_options() -> dict[str, Any]:
    # The server is real, so its replies may take long on a busy machine.
    return {"timeout_ms": 60_000, "denial_cache": 100}


class Service:
    """An application that responds with a status, raises, or ends without a response."""

    def __init__(
        self, server: Server, rules: Any, port: int | None = None, **options: Any
    ) -> None:  # fmt: skip
        self.response: Response = 200
        self.port, self.options = port or server.port, {**limiter_options(), **options}
        self.client = Limiter(server.client(), **limiter_options())

    async def left(self, rule: Rule, expected: int) -> None:
        """Waits until the key has this number of units left. The refund is in the background."""
        for _ in range(1000):
            left = self.client.peek(rule, PEER, 1 if rule.kind == "backoff" else 0).remaining
            if left == expected:
                break
            await asyncio.sleep(0.005)
        assert left == expected

    async def close(self) -> None:
        self.client.close()


class Asgi(Service):
    """The service over ASGI."""

    def __init__(self, server: Server, rules: Any, **options: Any) -> None:
        super().__init__(server, rules, **options)
        self.limiter = AsyncLimiter(redis.asyncio.Redis(port=self.port), **self.options)
        self.app = RateLimitMiddleware(self._serve, limiter=self.limiter, rules=rules)

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        if isinstance(self.response, Exception):
            raise self.response
        if self.response is not None:
            await send({"type": "http.response.start", "status": self.response, "headers": []})
            await send({"type": "http.response.body"})

    async def get(self) -> tuple[int | None, str | None]:
        """Returns the status, and the field RateLimit."""
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "client": (PEER, 1)}
        with contextlib.suppress(ZeroDivisionError):
            await self.app(scope, receive, send)
        if not sent:
            return None, None
        return sent[0]["status"], dict(sent[0]["headers"]).get(b"RateLimit", b"").decode()

    async def close(self) -> None:
        await self.limiter.close()
        await super().close()


class Wsgi(Service):
    """The service over WSGI."""

    def __init__(self, server: Server, rules: Any, **options: Any) -> None:
        super().__init__(server, rules, **options)
        self.limiter = Limiter(redis.Redis(port=self.port), **self.options)
        self.app = WsgiMiddleware(self._serve, limiter=self.limiter, rules=rules)

    def _serve(self, environ: Any, start_response: Any) -> Any:
        if isinstance(self.response, Exception):
            raise self.response
        if self.response is not None:
            start_response(f"{self.response} Any", [])
        return [b"body"] if self.response is not None else []

    async def get(self) -> tuple[int | None, str | None]:
        """Returns the status, and the field RateLimit."""
        sent: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]]) -> Any:
            sent[:] = [int(status[:3]), dict(headers).get("RateLimit")]

        with contextlib.suppress(ZeroDivisionError):
            body = self.app({"REQUEST_METHOD": "GET", "REMOTE_ADDR": PEER}, start)
            list(body)
            if hasattr(body, "close"):
                body.close()
        return (sent[0], sent[1]) if sent else (None, None)

    async def close(self) -> None:
        self.limiter.close()
        await super().close()


@pytest.fixture(params=[Asgi, Wsgi])
def kind(request: pytest.FixtureRequest) -> type[Asgi] | type[Wsgi]:
    found: type[Asgi] | type[Wsgi] = request.param
    return found


Kind = type[Asgi] | type[Wsgi]


def is_live(test: Any) -> Any:
    return pytest.mark.live(pytest.mark.anyio(test))


@is_live
@pytest.mark.parametrize("response", [400, 503, ZeroDivisionError(), None])
async def test_only_failures_count(kind: Kind, server: Server, response: Response) -> None:
    service = kind(server, TRIES)
    # The header shows the state before the refund.
    assert await service.get() == (200, '"tries";r=4;t=3600')
    await service.left(TRIES, 5)
    service.response = response
    await service.get()
    await service.left(TRIES, 4)
    service.response = 302
    await service.get()
    await service.left(TRIES, 4)
    await service.close()


@is_live
async def test_a_login_limiter_counts_only_failed_logins(
    kind: Kind, server: Server
) -> None:  # fmt: skip
    service = kind(server, LOGIN)
    for _ in range(4):
        assert (await service.get())[0] == 200
        await service.left(LOGIN, 1)
    service.response = 401
    found = [(await service.get())[0] for _ in range(4)]
    # A denial takes nothing, so nothing is refunded.
    assert found == [401, 401, 429, 429]
    await service.close()


@is_live
async def test_a_function_decides_and_only_its_rule_is_refunded(
    kind: Kind, shared_server: Server
) -> None:
    seen: list[Outcome] = []

    def on_conflict(outcome: Outcome) -> bool:
        seen.append(outcome)
        return outcome.status == 409

    day, minute = fixed("day", 9, "1d"), gcra("conflicts", 6, 10, "60s", count=on_conflict)
    service = kind(shared_server, [day, minute])
    await service.get()
    await service.left(minute, 6)
    service.response = 409
    await service.get()
    await service.left(minute, 5)
    await service.left(day, 7)
    assert seen == [Outcome(200), Outcome(409)]
    await service.close()


@is_live
async def test_a_function_that_raises_counts_the_request(
    kind: Kind, shared_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(outcome: Outcome) -> bool:
        raise ZeroDivisionError

    async def later(outcome: Outcome) -> bool:
        return False

    is_async: Any = lambda outcome: later(outcome)  # noqa: E731
    rules = [fixed("broken", 5, "1h", count=broken), fixed("later", 5, "1h", count=is_async)]
    service = kind(shared_server, rules)
    for left in (4, 3):
        assert (await service.get())[0] == 200
        for rule in rules:
            await service.left(rule, left)
    # Once for each function, not for each response.
    logged = [record.getMessage() for record in caplog.records]
    assert logged == [f"count failed for the rule {rule.name}" for rule in rules]
    await service.close()


@is_live
async def test_prefetched_permits_go_back_without_a_call(
    kind: Kind, shared_server: Server
) -> None:  # fmt: skip
    rule = fixed("ahead", 5, "1h", count="failures", prefetch=5)
    service = kind(shared_server, rule)
    for _ in range(20):
        assert (await service.get())[0] == 200
    service.response = 500
    # The first request of the fetch is refunded by a call, which is in the background.
    await service.left(rule, 1)
    found = [(await service.get())[0] for _ in range(6)]
    assert found == [500] * 5 + [429]
    await service.close()


@is_live
async def test_units_of_the_local_limiter_go_back(kind: Kind, shared_server: Server) -> None:
    rule = fixed("local", 2, "1h", count="failures", on_error="local")
    # No server listens on this port.
    service = kind(shared_server, rule, port=free_port())
    for _ in range(4):
        assert (await service.get())[0] == 200
    service.response = 500
    assert [(await service.get())[0] for _ in range(3)] == [500, 500, 429]
    await service.close()


@is_live
async def test_a_refund_drops_the_cached_denial(shared_server: Server) -> None:
    one = fixed("one", 1, "1h", count="failures")
    service = Asgi(shared_server, one)
    serve, inner = service._serve, []

    async def requests_twice(scope: Any, receive: Any, send: Any) -> None:
        inner.append((await service.get())[0])
        await serve(scope, receive, send)

    service.app = RateLimitMiddleware(requests_twice, limiter=service.limiter, rules=one)
    await service.get()
    await service.left(one, 1)
    await service.get()
    assert inner == [429, 429]
    await service.close()


@is_live
async def test_a_refund_does_not_delay_the_response_and_may_get_no_reply(
    shared_server: Server,
) -> None:
    # The refund takes this timeout; the response must come long before, also on a busy machine.
    timeout_s = 3
    service = Asgi(shared_server, TRIES, timeout_ms=timeout_s * 1000)
    serve = service._serve

    async def stops_the_server(scope: Any, receive: Any, send: Any) -> None:
        shared_server.pause()
        await serve(scope, receive, send)

    service.app = RateLimitMiddleware(stops_the_server, limiter=service.limiter, rules=TRIES)
    began = time.monotonic()
    try:
        assert (await service.get())[0] == 200
        took_s = time.monotonic() - began
        # Waits for the refund, which gets no reply and raises nothing.
        await service.limiter.close()
        assert time.monotonic() - began >= timeout_s > took_s
    finally:
        shared_server.resume()
    await service.close()


@is_live
async def test_a_cancelled_request_and_a_client_that_is_gone_count(
    shared_server: Server,
) -> None:
    seen: list[Outcome] = []

    def never(outcome: Outcome) -> bool:
        seen.append(outcome)
        return False

    async def hangs(scope: Any, receive: Any, send: Any) -> None:
        entered.set()
        await asyncio.Event().wait()

    async def listens(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "http.disconnect"
        await send({"type": "http.response.start", "status": 200})

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        pass

    rule, entered = fixed("tries", 5, "1h", count=never), asyncio.Event()
    limiter = AsyncLimiter(redis.asyncio.Redis(port=shared_server.port), **limiter_options())
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "client": (PEER, 1)}
    hanging = RateLimitMiddleware(hangs, limiter=limiter, rules=rule)
    task = asyncio.create_task(hanging(scope, receive, send))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await RateLimitMiddleware(listens, limiter=limiter, rules=rule)(scope, receive, send)
    # The function is not called.
    assert seen == []
    assert (await limiter.peek(rule, PEER, 0)).remaining == 3
    await limiter.close()


@is_live
@pytest.mark.parametrize(
    ("message", "left"), [("websocket.accept", 5), ("websocket.close", 4), (None, 4)]
)
async def test_a_websocket_that_is_not_accepted_is_a_failure(
    shared_server: Server, message: str | None, left: int
) -> None:
    async def talks(scope: Any, receive: Any, send: Any) -> None:
        for kind in [message, "websocket.close"] if message else []:
            await send({"type": kind})

    async def nothing(*_: Any) -> Any: ...

    service = Asgi(shared_server, TRIES)
    app = RateLimitMiddleware(talks, limiter=service.limiter, rules=TRIES)
    scope = {"type": "websocket", "path": "/", "headers": [], "client": (PEER, 1)}
    await app(scope, nothing, nothing)
    await service.left(TRIES, left)
    await service.close()


@pytest.mark.live
def test_wsgi_decides_when_the_server_sends_the_head(shared_server: Server) -> None:
    limiter = Limiter(shared_server.client(), **limiter_options())
    environ = {"REQUEST_METHOD": "GET", "REMOTE_ADDR": PEER}

    def left() -> int:
        return limiter.peek(TRIES, PEER, 0).remaining

    def streams(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        yield b""
        if environ.get("fails"):
            raise ZeroDivisionError
        yield b"one"
        yield b"two"

    app = WsgiMiddleware(streams, limiter=limiter, rules=TRIES)
    parts = iter(app(environ, lambda *_: None))
    assert next(parts) == b""
    assert left() == 4
    assert next(parts) == b"one"
    assert left() == 5
    assert list(parts) == [b"two"]
    assert left() == 5
    # An error before the first part becomes a 500.
    failing = app({**environ, "fails": True}, lambda *_: None)
    with pytest.raises(ZeroDivisionError):
        list(failing)
    failing.close()  # type: ignore[attr-defined]
    assert left() == 4
    # The server closes a body that it does not read, as for HEAD. This one has not begun.
    app(environ, lambda *_: None).close()  # type: ignore[attr-defined]
    assert left() == 3
    limiter.close()
