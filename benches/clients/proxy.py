"""Proxies between a program and a server, which delay, drop or refuse as a network does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class Link(asyncio.Protocol):
    """A connection of the program, and its connection to the server.

    `has_called` is true once a call was sent on it, which its login is not. `replies` counts the
    parts of replies that arrived. While `is_silent` is true, nothing passes.
    """

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._client: asyncio.Transport | None = None
        self._server: asyncio.Transport | None = None
        self._early: list[bytes] = []
        self._free_at = 0.0
        self.is_silent = proxy.is_silent
        self.has_called = False
        self.replies = 0

    @property
    def is_open(self) -> bool:
        """True until the program or the server closes the connection."""
        return self._client is not None and not self._client.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connects to the server."""
        assert isinstance(transport, asyncio.Transport)
        self._client = transport
        self._proxy.links.append(self)
        task = asyncio.get_running_loop().create_task(self._connect())
        self._proxy.tasks.add(task)
        task.add_done_callback(self._proxy.tasks.discard)

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: Back(self), "127.0.0.1", self._proxy.server_port)
        except OSError:
            self.close()

    def attach_server(self, transport: asyncio.Transport) -> None:
        """Sends what arrived before the server was connected."""
        self._server = transport
        transport.write(b"".join(self._early))

    def data_received(self, data: bytes) -> None:
        """Passes a part of a request."""
        if self.is_silent:
            return
        self.has_called = self.has_called or b"RL." in data
        if self._server is None:
            self._early.append(data)
        elif not self._server.is_closing():
            self._server.write(data)

    def reply(self, data: bytes) -> None:
        """Passes a part of a reply, delayed, and after the parts before it."""
        if self.is_silent:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._free_at = max(self._free_at, now + self._proxy.delay_s(self))
        self.replies += 1
        if self._free_at <= now:
            self._pass(data)
        else:
            loop.call_at(self._free_at, self._pass, data)

    def _pass(self, data: bytes) -> None:
        if self._client is not None and self.is_open and not self.is_silent:
            self._client.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Closes the connection to the server."""
        self.close()

    def close(self) -> None:
        """Closes both connections."""
        for transport in (self._client, self._server):
            if transport is not None:
                transport.abort()


class Back(asyncio.Protocol):
    """A connection to the server."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connects it with that of the program."""
        assert isinstance(transport, asyncio.Transport)
        if self._link.is_open:
            self._link.attach_server(transport)
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Passes a part of a reply."""
        self._link.reply(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Closes the connection of the program, unless the network is silent."""
        if not self._link.is_silent:
            self._link.close()


def at_once(_: Link) -> float:
    """Returns no delay."""
    return 0.0


class Proxy:
    """A proxy before a server. Its port is refused until `listen`.

    `delay_s` returns the delay of a part of a reply. `is_silent` is that of new connections.
    """

    def __init__(self, proxies: Proxies, port: int, server_port: int) -> None:
        self._proxies = proxies
        self._listening: asyncio.Server | None = None
        self.port = port
        self.server_port = server_port
        self.delay_s: Callable[[Link], float] = at_once
        self.is_silent = False
        self.links: list[Link] = []
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def open_links(self) -> list[Link]:
        """The connections of the program that are open."""
        return [link for link in self.links if link.is_open]

    def listen(self) -> None:
        """Accepts connections from now on."""

        async def listen() -> asyncio.Server:
            loop = asyncio.get_running_loop()
            return await loop.create_server(lambda: Link(self), "127.0.0.1", self.port, backlog=512)

        self._listening = self._proxies.do(listen())

    def close(self) -> None:
        """Closes all connections."""

        async def close() -> None:
            if self._listening is not None:
                self._listening.close()
            for link in self.links:
                link.close()

        self._proxies.do(close())


class Proxies:
    """The event loop of all proxies, on a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs a coroutine on the loop and returns its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)
