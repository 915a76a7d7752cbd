"""A service with limits: per client address and per API key, for pages, logins and a chat.

REDIS_URL=redis://127.0.0.1:7777 PORT=8080 python app.py
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import redis.asyncio
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

from redis_throttle_client import (
    AsyncLimiter,
    BackendOption,
    Denied,
    Rule,
    ThrottleError,
    fixed,
    gcra,
    lease,
    quota,
    sliding_log,
    token_bucket,
)
from redis_throttle_client.asgi import RateLimitMiddleware, RuleFunction
from redis_throttle_client.asgi import Request as LimitedRequest

env = os.environ.get
client = redis.asyncio.Redis.from_url(env("REDIS_URL", "redis://127.0.0.1:7777"))
limiter = AsyncLimiter(
    client,
    prefix="example",
    hash_tag="subject",  # in a cluster, the keys of all rules of one client are in one slot
    timeout_ms=int(env("TIMEOUT_MS", "1000")),
    silence_ms=int(env("SILENCE_MS", "100")),
    backend=cast(BackendOption, env("BACKEND", "auto")),
)
# The proxies in front of the service, such as TRUSTED_PROXIES=10.0.0.0/8,unix
proxies = [name for name in env("TRUSTED_PROXIES", "").split(",") if name]

# Ten at once, then one every six seconds. If Redis is down, the page is served.
API = gcra("api", burst=10, rate=10, period="60s")
# For the API keys of a better plan.
GOLD = gcra("gold", burst=30, rate=30, period="60s")
# Five wrong passwords in 15 minutes. If Redis is down, no password is checked.
LOGIN = sliding_log("login", 5, "15m", count="failures", on_error="deny")
# For a service of two processes: if Redis is down, each enforces half of the limit.
SEARCH = gcra("search", burst=4, rate=4, period="60s", on_error="local", local_share=0.5)
DAY = fixed("day", 3, "1d")
# One export at a time. The permit is released when the response ends or the client disconnects.
EXPORTS = lease("exports", limit=1, ttl="30s")
# Chats: two at once, 1,000 tokens per minute, 10,000 per month. Tokens cost money: if Redis is
# down, no chat is served.
CHATS = lease("chats", limit=2, ttl="30s")
TOKENS = token_bucket("tokens", capacity=1000, rate=1000, period="60s")
BUDGET = quota("budget", 10_000, "month", on_error="deny")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Connects before the first request, and refunds unused prefetched permits at the end."""
    try:
        await limiter.ready()
    except ThrottleError as error:
        print(f"no limits yet: {error}", file=sys.stderr)
    yield
    await limiter.close()
    await client.aclose()


app = FastAPI(lifespan=lifespan)
READ = ("GET", "HEAD")
ALICE = b"Basic YWxpY2U6c2VjcmV0"  # alice:secret


async def show_decision(request: Request) -> dict[str, object]:
    """Reports the units left and the source of the decision."""
    decision = request.state.rate_limit
    return {"remaining": decision.remaining, "source": decision.source}


async def log_in(request: Request) -> Response:
    """Checks a password. The middleware refunds the attempt if the password is right."""
    given = request.headers.get("authorization", "")
    if not hmac.compare_digest(given.encode(), ALICE):
        return Response(status_code=401, headers={"WWW-Authenticate": 'Basic realm="example"'})
    return JSONResponse(await show_decision(request))


async def export() -> StreamingResponse:
    """Streams rows slowly."""

    async def rows() -> AsyncIterator[bytes]:
        for _ in range(int(env("EXPORT_ROWS", "50"))):
            yield b"row\n" * 100
            await asyncio.sleep(0.1)

    return StreamingResponse(rows(), media_type="text/plain")


def plan(request: LimitedRequest) -> Rule:
    """Returns the rule of an API key's plan, which a real service looks up."""
    return GOLD if (request.header("x-api-key") or "").startswith("gold-") else API


@app.post("/chat")
async def chat(request: Request) -> Response:
    """Takes the estimated tokens of a reply, and settles those that it took."""
    key = request.headers.get("x-api-key")
    estimate, words = number(request, "estimate"), number(request, "words")
    if not key or estimate is None or words is None:
        return PlainTextResponse("expected X-Api-Key, estimate and words", 400)
    items = CHATS.of(key), TOKENS.of(key).cost(estimate), BUDGET.of(key).reserve(estimate)
    async with limiter.admit(*items) as admitted:
        reply = [word async for word in model(words)]
        admitted.settle(TOKENS, len(reply))
        admitted.settle(BUDGET, len(reply))
    decision = admitted.decision
    body = {"remaining": decision.remaining, "words": len(reply)}
    return JSONResponse(body, headers=decision.headers())


@app.exception_handler(Denied)
async def refuse(request: Request, denied: Denied) -> Response:
    """Responds to a denial as the middleware does."""
    problem = denied.decision.problem()
    headers = {"Cache-Control": "no-store", **denied.decision.headers()}
    return JSONResponse(problem, problem["status"], headers, "application/problem+json")


def number(request: Request, name: str) -> int | None:
    """Returns a number of at most four digits in the query."""
    text = request.query_params.get(name, "")
    return int(text) if re.fullmatch("[0-9]{1,4}", text) else None


async def model(words: int) -> AsyncIterator[str]:
    """Stands for a language model."""
    for _ in range(words):
        yield "word"


def route(
    path: str, handler: Callable[..., Any], *rules: Rule | RuleFunction,
    methods: Sequence[str] = READ, **options: Any,
) -> None:  # fmt: skip
    """Adds a path with its rules. ``skip`` limits these rules to this path."""
    app.add_middleware(
        RateLimitMiddleware, limiter=limiter, rules=rules, trusted_proxies=proxies,
        skip=lambda at: at.path != path or at.method not in methods,
        degraded_header="X-Limiter-Degraded", **options,
    )  # fmt: skip
    for method in methods:
        app.add_api_route(path, handler, methods=[method], include_in_schema=method != "HEAD")


route("/", show_decision, API)
route("/login", log_in, LOGIN, methods=["POST"])
route("/search", show_decision, SEARCH)
route("/report", show_decision, API, DAY)
route("/export", export, EXPORTS)
# Limits by the API key in a header. A request without the header gets a 400.
route("/me", show_decision, plan, key=lambda request: request.header("x-api-key"))

if __name__ == "__main__":
    # The limiter finds the client's address itself, so uvicorn must not replace the peer's.
    uvicorn.run(
        app, host=env("HOST", "127.0.0.1"), port=int(env("PORT", "8080")),
        proxy_headers=False, log_level="warning",
    )  # fmt: skip
