"""ASGI applications behind a real server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from redis_throttle_client import AsyncLimiter


@contextmanager
def served(app: Any, limiter: AsyncLimiter) -> Iterator[int]:
    """Serves an application, and closes its limiter at the end. Returns its port."""

    async def closing(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await app(scope, receive, send)
            return
        for kind in ("startup", "shutdown"):
            await receive()
            if kind == "shutdown":
                await limiter.close()
            await send({"type": f"lifespan.{kind}.complete"})

    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(closing, log_level="critical", lifespan="on"))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join(60)
    listener.close()
