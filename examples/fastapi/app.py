"""A FastAPI service with a limit: ten requests at once, then ten a minute, for each address.

SERVER=redis://127.0.0.1:7777 uvicorn app:app --no-proxy-headers --port 8080
for i in $(seq 11); do curl -i http://127.0.0.1:8080/; done
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import redis.asyncio
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from redis_throttle_client import AsyncLimiter, ThrottleError, fixed, gcra, lease
from redis_throttle_client.asgi import RateLimitMiddleware

client = redis.asyncio.Redis.from_url(os.environ.get("SERVER", "redis://127.0.0.1:7777"))
limiter = AsyncLimiter(
    client,
    timeout_ms=int(os.environ.get("TIMEOUT_MS", "100")),
    backend=os.environ.get("BACKEND", "auto"),
)
# Proxies in front of the service, as TRUSTED_PROXIES=10.0.0.0/8,192.0.2.1
proxies = [name for name in os.environ.get("TRUSTED_PROXIES", "").split(",") if name]

API = gcra("api", burst=10, rate=10, period="1m")
LOGIN = gcra("login", burst=5, rate=5, period="15m", on_error="deny")
SEARCH = gcra("search", burst=4, rate=4, period="1m", on_error="local", local_share=0.5)
DAY = fixed("day", 3, "1d")
EXPORTS = lease("exports", limit=1, ttl="30s")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Connects before the first request, and gives back what is still held at the end."""
    try:
        await limiter.ready()
    except ThrottleError as error:
        print(f"no limits yet: {error}", file=sys.stderr)
    yield
    await limiter.close()
    await client.aclose()


app = FastAPI(lifespan=lifespan)


def limited(path: str, *rules: object) -> None:
    """Limits one path; a rule for all needs no ``skip``."""
    app.add_middleware(
        RateLimitMiddleware,
        limiter=limiter,
        rules=rules,
        skip=lambda request: request.path != path,
        trusted_proxies=proxies,
        tag=lambda request: request.client_address,
        degraded_header="X-Limiter-Degraded",
    )


limited("/", API)
limited("/login", LOGIN)
limited("/search", SEARCH)
limited("/report", API, DAY)
limited("/export", EXPORTS)


@app.get("/")
async def home(request: Request) -> dict[str, object]:
    """What is left of the caller's allowance, and whether somebody counted."""
    decision = request.state.rate_limit
    return {"remaining": decision.remaining, "source": decision.source}


@app.get("/login")
@app.get("/search")
@app.get("/report")
async def other(request: Request) -> dict[str, object]:
    """Under other rules, and other policies without a server."""
    return {"source": request.state.rate_limit.source}


@app.get("/export")
async def export() -> StreamingResponse:
    """One at a time: the permit comes back when the response ends, or the client goes."""

    async def rows() -> AsyncIterator[bytes]:
        for _ in range(int(os.environ.get("EXPORT_ROWS", "50"))):
            yield b"row\n" * 100
            await asyncio.sleep(0.1)

    return StreamingResponse(rows(), media_type="text/plain")
