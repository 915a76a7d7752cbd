"""Applications behind real servers, and clients that leave them."""

from __future__ import annotations

import io
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import uvicorn

from redis_throttle_client import AsyncLimiter

from .conftest import until

# The option of a socket that resets its connection when it is closed.
RESET = struct.pack("ii", 1, 0)


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


class _Threads(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores aborted requests."""


class _Quiet(WSGIRequestHandler):
    def log_message(self, *args: Any) -> None: ...

    def get_stderr(self) -> Any:
        return io.StringIO()


@contextmanager
def served_wsgi(app: Any) -> Iterator[int]:
    """Serves an application for WSGI in threads. Returns its port."""
    server = make_server("127.0.0.1", 0, app, _Threads, _Quiet)
    serve = {"poll_interval": 0.01}
    thread = threading.Thread(target=server.serve_forever, kwargs=serve, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join(60)
    server.server_close()


def cut(port: int, begun: list[Any], *, path: str = "/", resets: bool = False) -> bytes:
    """Sends a part of the body of a request, and cuts it when the handler has begun.

    The handler appends to ``begun``. Ends its side of the connection and returns the response, or
    resets the connection.
    """
    before = len(begun)
    with socket.create_connection(("127.0.0.1", port), 60) as sending:
        head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n"
        sending.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n[1")
        until(lambda: len(begun) > before)
        if resets:
            sending.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            return b""
        sending.shutdown(socket.SHUT_WR)
        return sending.makefile("rb").read()
