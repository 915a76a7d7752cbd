"""Connections: made as the user's client makes them, used as a limiter must.

Drivers repeat what failed, ten times by default, and each repetition counts. So the limiter takes
from the client where and how to connect (address, TLS, credentials, Sentinel, the map of a
cluster) and keeps sockets of its own, on which a call is sent once and has one deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ._errors import InvalidArgument, Unavailable

Node = tuple[str, int] | None
_REFRESH_S = 1.0
_MOST_REDIRECTIONS = 3
# Of a pool's arguments: what would repeat, wait or belongs to the pool it was made for.
_LEFT_OUT = (
    "retry", "retry_on_error", "retry_on_timeout", "health_check_interval", "decode_responses",
    "maint_notifications_config", "maint_notifications_pool_handler", "event_dispatcher",
    "oss_cluster_maint_notifications_handler", "socket_timeout", "socket_connect_timeout",
)  # fmt: skip


class Transport(Protocol):
    """Sends one call, once."""

    def node(self, key: str) -> Node:
        """Who decides about a key."""

    def call(self, node: Node, args: tuple[str, ...], timeout_s: float) -> Any:
        """The reply; a driver's error or Unavailable otherwise."""

    def close(self) -> None:
        """Closes the sockets."""


class AsyncTransport(Protocol):
    """Sends one call, once, for asyncio."""

    async def node(self, key: str) -> Node:
        """Who decides about a key."""

    async def call(self, node: Node, args: tuple[str, ...], timeout_s: float) -> Any:
        """The reply; a driver's error or Unavailable otherwise."""

    async def close(self) -> None:
        """Closes the sockets."""


def _driver(connection_class: type) -> str:
    for base in connection_class.__mro__:
        package = base.__module__.partition(".")[0]
        if package in ("redis", "valkey"):
            return package
    raise InvalidArgument("client: expected a client of redis-py or valkey-py")


class Dial:
    """Makes connections that ask once."""

    def __init__(
        self, connection_class: type, kwargs: dict[str, Any], timeout_s: float, *, wait: bool
    ) -> None:
        package = _driver(connection_class)
        module = f"{package}.asyncio.retry" if wait else f"{package}.retry"
        retry = importlib.import_module(module).Retry
        no_backoff = importlib.import_module(f"{package}.backoff").NoBackoff
        self._class = connection_class
        self._kwargs = {name: value for name, value in kwargs.items() if name not in _LEFT_OUT}
        # A connection that is slow to come is waited for in the background and used by the next.
        self.patience_s = max(1.0, timeout_s)
        self._kwargs |= {
            "retry": retry(no_backoff(), 0),
            "socket_timeout": None if wait else self.patience_s,
            "socket_connect_timeout": self.patience_s,
        }
        self.timeout_error = importlib.import_module(f"{package}.exceptions").TimeoutError
        self.moved = importlib.import_module(f"{package}.exceptions").MovedError
        self.ask = importlib.import_module(f"{package}.exceptions").AskError
        self.response_error = importlib.import_module(f"{package}.exceptions").ResponseError

    def to(self, node: Node) -> Callable[[], Any]:
        """Connections to one node of a cluster, or to the one server."""
        kwargs = self._kwargs
        if node is not None:
            kwargs = kwargs | {"host": node[0], "port": node[1]}
        return lambda: self._class(**kwargs)


class _Late:
    """A connection on its way; who gave up waiting leaves it to the next caller."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.connection: Any = None
        self.error: BaseException | None = None
        self.abandoned = False


class Sockets:
    """The idle connections to one server, last used first."""

    def __init__(self, make: Callable[[], Any], dial: Dial, most: int) -> None:
        self._make, self._dial, self._most = make, dial, most
        self._idle: list[Any] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def call(self, args: tuple[str, ...], deadline: float, *, asking: bool = False) -> Any:
        """Sends the call on one connection and reads its reply, by ``deadline``."""
        connection = self._take(deadline)
        try:
            if asking:
                self._exchange(connection, ("ASKING",), deadline)
            reply = self._exchange(connection, args, deadline)
        except self._dial.response_error as error:
            # An error reply leaves the connection in order. Not one of the handshake: it is none.
            self._give(connection)
            raise error
        except BaseException:
            connection.disconnect()
            raise
        self._give(connection)
        return reply

    @staticmethod
    def _exchange(connection: Any, args: tuple[str, ...], deadline: float) -> Any:
        connection._sock.settimeout(max(0.001, deadline - time.monotonic()))
        connection.send_packed_command(connection.pack_command(*args), check_health=False)
        connection._sock.settimeout(max(0.001, deadline - time.monotonic()))
        return connection.read_response()

    def _take(self, deadline: float) -> Any:
        if self._pid != os.getpid():
            # A child must not talk on its parent's sockets.
            self._idle, self._pid, self._lock = [], os.getpid(), threading.Lock()
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            if _usable(connection):
                return connection
            connection.disconnect()
        late = _Late()
        threading.Thread(target=self._connect, args=(late,), daemon=True).start()
        late.done.wait(max(0.0, deadline - time.monotonic()))
        with self._lock:
            late.abandoned = not late.done.is_set()
        if late.abandoned:
            raise Unavailable("no connection in time")
        if late.error is not None:
            raise late.error
        return late.connection

    def _connect(self, late: _Late) -> None:
        try:
            connection = self._make()
            connection.connect()
            late.connection = connection
        except BaseException as error:
            late.error = error
        with self._lock:
            late.done.set()
            if late.abandoned and late.connection is not None:
                self._idle.append(late.connection)

    def _give(self, connection: Any) -> None:
        if connection._sock is not None and len(self._idle) < self._most:
            self._idle.append(connection)
        else:
            connection.disconnect()

    def close(self) -> None:
        """Closes what is idle."""
        while self._idle:
            self._idle.pop().disconnect()


def _usable(connection: Any) -> bool:
    """False when the other side has gone, or has something to say that nobody asked for."""
    try:
        return connection._sock is not None and not connection.can_read(0)
    except Exception:
        return False


class ServerTransport:
    """One server, from a ``redis.Redis`` or ``valkey.Valkey``."""

    def __init__(self, client: Any, timeout_s: float, most: int) -> None:
        pool = client.connection_pool
        dial = Dial(pool.connection_class, pool.connection_kwargs, timeout_s, wait=False)
        self._sockets = Sockets(dial.to(None), dial, most)

    def node(self, key: str) -> Node:
        """There is one."""
        return None

    def call(self, node: Node, args: tuple[str, ...], timeout_s: float) -> Any:
        """The reply."""
        return self._sockets.call(args, time.monotonic() + timeout_s)

    def close(self) -> None:
        """Closes the sockets."""
        self._sockets.close()


class _Map:
    """Who has which slot: the client's map, and what redirections have told since."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._moved: dict[int, tuple[str, int]] = {}
        self._refreshed = 0.0

    def find(self, key: str) -> tuple[str, int]:
        slot = self._client.keyslot(key)
        moved = self._moved.get(slot)
        if moved is not None:
            return moved
        try:
            node = self._client.get_node_from_key(key)
        except Exception as error:
            raise Unavailable("nobody has the slot of this key") from error
        if node is None:
            raise Unavailable("nobody has the slot of this key")
        return node.host, int(node.port)

    def move(self, error: Any) -> tuple[str, int]:
        self._moved[int(error.slot_id)] = to = (error.host, int(error.port))
        return to

    def due(self) -> bool:
        """Whether to ask the cluster for its map again: once a second at most."""
        now = time.monotonic()
        if now - self._refreshed < _REFRESH_S:
            return False
        self._refreshed = now
        return True

    def lost(self, node: Node) -> None:
        """A node that is away: what was told about it may be old."""
        for slot in [slot for slot, to in self._moved.items() if to == node]:
            del self._moved[slot]


class ClusterTransport:
    """A cluster, from a ``RedisCluster``: each call goes to the node that has its slot."""

    def __init__(self, client: Any, timeout_s: float, most: int) -> None:
        pool = next(iter(client.get_nodes())).redis_connection.connection_pool
        self._dial = Dial(pool.connection_class, pool.connection_kwargs, timeout_s, wait=False)
        self._client, self._most = client, most
        self._map = _Map(client)
        self._nodes: dict[Node, Sockets] = {}

    def node(self, key: str) -> Node:
        """Who has the slot of the key."""
        return self._map.find(key)

    def _sockets(self, node: Node) -> Sockets:
        sockets = self._nodes.get(node)
        if sockets is None:
            made = Sockets(self._dial.to(node), self._dial, self._most)
            sockets = self._nodes.setdefault(node, made)
        return sockets

    def call(self, node: Node, args: tuple[str, ...], timeout_s: float) -> Any:
        """The reply; a redirected call was refused before it ran, so it is sent again."""
        deadline, asking = time.monotonic() + timeout_s, False
        for _ in range(_MOST_REDIRECTIONS):
            try:
                return self._sockets(node).call(args, deadline, asking=asking)
            except self._dial.moved as error:
                # A MovedError is an AskError too, so it stands first.
                node, asking = self._map.move(error), False
                self._refresh()
            except self._dial.ask as error:
                node, asking = (error.host, int(error.port)), True
            except self._dial.response_error:
                raise
            except Exception:
                self._map.lost(node)
                self._refresh()
                raise
        raise Unavailable("redirected too often")

    def _refresh(self) -> None:
        if self._map.due():
            threading.Thread(target=self._read_map, daemon=True).start()

    def _read_map(self) -> None:
        with contextlib.suppress(Exception):
            self._client.nodes_manager.initialize()

    def close(self) -> None:
        """Closes the sockets."""
        for sockets in self._nodes.values():
            sockets.close()


class AsyncSockets:
    """The idle connections to one server, of one event loop."""

    def __init__(self, make: Callable[[], Any], dial: Dial, most: int) -> None:
        self._make, self._dial, self._most = make, dial, most
        self._idle: list[Any] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._late: set[asyncio.Task[Any]] = set()

    async def call(self, args: tuple[str, ...], *, asking: bool = False) -> Any:
        """Sends the call on one connection and reads its reply; the caller has the deadline."""
        connection = await self._take()
        try:
            if asking:
                await self._exchange(connection, ("ASKING",))
            reply = await self._exchange(connection, args)
        except self._dial.response_error as error:
            await self._give(connection)
            raise error
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        await self._give(connection)
        return reply

    @staticmethod
    async def _exchange(connection: Any, args: tuple[str, ...]) -> Any:
        await connection.send_packed_command(connection.pack_command(*args), check_health=False)
        return await connection.read_response()

    async def _take(self) -> Any:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._idle, self._loop, self._late = [], loop, set()
        while self._idle:
            connection = self._idle.pop()
            reader = connection._reader
            if connection.is_connected and reader is not None and not reader.at_eof():
                return connection
            await connection.disconnect(nowait=True)
        task = loop.create_task(self._connect())
        self._late.add(task)
        task.add_done_callback(self._late.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._keep)
            raise

    async def _connect(self) -> Any:
        connection = self._make()
        try:
            async with asyncio.timeout(self._dial.patience_s):
                await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    def _keep(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is None:
            self._idle.append(task.result())

    async def _give(self, connection: Any) -> None:
        if connection.is_connected and len(self._idle) < self._most:
            self._idle.append(connection)
        else:
            await connection.disconnect(nowait=True)

    async def close(self) -> None:
        """Closes what is idle, and waits for nothing."""
        for task in list(self._late):
            task.cancel()
        while self._idle:
            await self._idle.pop().disconnect(nowait=True)


async def _in_time(awaitable: Awaitable[Any], timeout_s: float) -> Any:
    try:
        async with asyncio.timeout(timeout_s):
            return await awaitable
    except TimeoutError as error:
        raise Unavailable(f"no answer within {timeout_s * 1000:g} ms") from error


class AsyncServerTransport:
    """One server, from a ``redis.asyncio.Redis`` or ``valkey.asyncio.Valkey``."""

    def __init__(self, client: Any, timeout_s: float, most: int) -> None:
        pool = client.connection_pool
        dial = Dial(pool.connection_class, pool.connection_kwargs, timeout_s, wait=True)
        self._sockets = AsyncSockets(dial.to(None), dial, most)

    async def node(self, key: str) -> Node:
        """There is one."""
        return None

    async def call(self, node: Node, args: tuple[str, ...], timeout_s: float) -> Any:
        """The reply."""
        return await _in_time(self._sockets.call(args), timeout_s)

    async def close(self) -> None:
        """Closes the sockets."""
        await self._sockets.close()


class AsyncClusterTransport:
    """A cluster, from a ``redis.asyncio.RedisCluster``."""

    def __init__(self, client: Any, timeout_s: float, most: int) -> None:
        self._client, self._timeout_s, self._most = client, timeout_s, most
        self._map = _Map(client)
        self._dial: Dial | None = None
        self._nodes: dict[Node, AsyncSockets] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def node(self, key: str) -> Node:
        """Who has the slot of the key."""
        if self._dial is None:
            await _in_time(asyncio.shield(self._task(self._client.initialize())), self._timeout_s)
            template = self._client.get_nodes()[0]
            self._dial = Dial(
                template.connection_class, template.connection_kwargs, self._timeout_s, wait=True
            )
        return self._map.find(key)

    def _task(self, coroutine: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    def _sockets(self, dial: Dial, node: Node) -> AsyncSockets:
        if node not in self._nodes:
            self._nodes[node] = AsyncSockets(dial.to(node), dial, self._most)
        return self._nodes[node]

    async def call(self, node: Node, args: tuple[str, ...], timeout_s: float) -> Any:
        """The reply; a redirected call was refused before it ran, so it is sent again."""
        return await _in_time(self._call(node, args), timeout_s)

    async def _call(self, node: Node, args: tuple[str, ...]) -> Any:
        dial, asking = self._dial, False
        if dial is None:
            raise Unavailable("the cluster is not known yet")
        for _ in range(_MOST_REDIRECTIONS):
            try:
                return await self._sockets(dial, node).call(args, asking=asking)
            except dial.moved as error:
                # A MovedError is an AskError too, so it stands first.
                node, asking = self._map.move(error), False
                self._refresh()
            except dial.ask as error:
                node, asking = (error.host, int(error.port)), True
            except dial.response_error:
                raise
            except (Exception, asyncio.CancelledError):
                self._map.lost(node)
                self._refresh()
                raise
        raise Unavailable("redirected too often")

    def _refresh(self) -> None:
        if self._map.due():
            self._task(self._read_map())

    async def _read_map(self) -> None:
        with contextlib.suppress(Exception):
            await self._client.nodes_manager.initialize()

    async def close(self) -> None:
        """Closes the sockets."""
        for task in list(self._tasks):
            task.cancel()
        for sockets in self._nodes.values():
            await sockets.close()


def _is_async(client: Any) -> bool:
    return any(".asyncio" in base.__module__ for base in type(client).__mro__)


def transport(client: Any, timeout_s: float, most: int) -> Transport:
    """What sends calls for a sync client. A transport of its own passes as it is."""
    if callable(getattr(client, "call", None)) and callable(getattr(client, "node", None)):
        made: Transport = client
        return made
    if _is_async(client):
        raise InvalidArgument("client: of asyncio: expected by AsyncLimiter")
    if hasattr(client, "nodes_manager"):
        return ClusterTransport(client, timeout_s, most)
    if hasattr(client, "connection_pool"):
        return ServerTransport(client, timeout_s, most)
    raise InvalidArgument("client: expected a client of redis-py or valkey-py")


def async_transport(client: Any, timeout_s: float, most: int) -> AsyncTransport:
    """What sends calls for a client of asyncio."""
    if callable(getattr(client, "call", None)) and callable(getattr(client, "node", None)):
        made: AsyncTransport = client
        return made
    if not _is_async(client):
        raise InvalidArgument("client: expected one of asyncio; Limiter takes the others")
    if hasattr(client, "nodes_manager"):
        return AsyncClusterTransport(client, timeout_s, most)
    if hasattr(client, "connection_pool"):
        return AsyncServerTransport(client, timeout_s, most)
    raise InvalidArgument("client: expected a client of redis-py or valkey-py")
