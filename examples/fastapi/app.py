"""A service with limits: per client address and per API key, and with a lease.

REDIS_URL=redis://127.0.0.1:7777 PORT=8080 python app.py
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import redis.asyncio
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from redis_throttle_client import AsyncLimiter, Rule, ThrottleError, fixed, gcra, lease, sliding_log
from redis_throttle_client.asgi import RateLimitMiddleware

env = os.environ.get
client = redis.asyncio.Redis.from_url(env("REDIS_URL", "redis://127.0.0.1:7777"))
limiter = AsyncLimiter(
    client,
    prefix="example",
    hash_tag="subject",  # in a cluster, the keys of all rules of one client are in one slot
    timeout_ms=int(env("TIMEOUT_MS", "100")),
    backend=env("BACKEND", "auto"),
)
# The proxies in front of the service, such as TRUSTED_PROXIES=10.0.0.0/8,unix
proxies = [name for name in env("TRUSTED_PROXIES", "").split(",") if name]

# Ten at once, then one every six seconds. If Redis is down, the page is served.
API = gcra("api", burst=10, rate=10, period="60s")
# Five attempts in 15 minutes. If Redis is down, no password is checked.
LOGIN = sliding_log("login", 5, "15m", on_error="deny")
# For a service of two processes: if Redis is down, each enforces half of the limit.
SEARCH = gcra("search", burst=4, rate=4, period="60s", on_error="local", local_share=0.5)
DAY = fixed("day", 3, "1d")
# One export at a time. The permit is released when the response ends or the client disconnects.
EXPORTS = lease("exports", limit=1, ttl="30s")


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
limit = partial(
    app.add_middleware, RateLimitMiddleware, limiter=limiter, trusted_proxies=proxies,
    degraded_header="X-Limiter-Degraded",
)  # fmt: skip


async def told(request: Request) -> dict[str, object]:
    """Reports the units left and the source of the decision."""
    decision = request.state.rate_limit
    return {"remaining": decision.remaining, "source": decision.source}


async def export() -> StreamingResponse:
    """Streams rows slowly."""

    async def rows() -> AsyncIterator[bytes]:
        for _ in range(int(env("EXPORT_ROWS", "50"))):
            yield b"row\n" * 100
            await asyncio.sleep(0.1)

    return StreamingResponse(rows(), media_type="text/plain")


def route(
    path: str, handler: Callable[..., Any], *rules: Rule, methods: Sequence[str] = READ,
    **options: Any,
) -> None:  # fmt: skip
    """Adds a path with its rules. ``skip`` limits these rules to this path."""
    limit(rules=rules, skip=lambda at: at.path != path or at.method not in methods, **options)
    for method in methods:
        app.add_api_route(path, handler, methods=[method], include_in_schema=method != "HEAD")


route("/", told, API)
route("/login", told, LOGIN, methods=["POST"])
route("/search", told, SEARCH)
route("/report", told, API, DAY)
route("/export", export, EXPORTS)
# Limits by the API key in a header. A request without the header is answered 400.
route("/me", told, API, key=lambda request: request.header("x-api-key"))

if __name__ == "__main__":
    # The limiter finds the client's address itself, so uvicorn must not replace the peer's.
    uvicorn.run(
        app, host=env("HOST", "127.0.0.1"), port=int(env("PORT", "8080")),
        proxy_headers=False, log_level="warning",
    )  # fmt: skip
