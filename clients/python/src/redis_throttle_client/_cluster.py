"""Clusters: each call goes to the node that has the slot of its key.

A redirected call was refused before it ran, so it is sent again. No other call is sent twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any

from ._async_sockets import AsyncSockets
from ._deadline import by, instant
from ._dial import Dial, Node
from ._errors import Unavailable, retires
from ._protocol import key_of
from ._sockets import Sockets

_REFRESH_S = 1.0
_MAP_IS_OLD = ("CLUSTERDOWN", "The cluster is down", "Hash slot not served")
_MOST_REDIRECTIONS = 3


class _Map:
    """The node of each slot: the client's map, and later redirections."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._moved: dict[int, tuple[str, int]] = {}
        self._refreshed = 0.0

    def find(self, key: str) -> tuple[str, int]:
        """Returns the node of a key; raises Unavailable if no node is known for its slot."""
        moved = self._moved.get(self._client.keyslot(key))
        if moved is not None:
            return moved
        try:
            node = self._client.get_node_from_key(key)
        except Exception as error:
            raise Unavailable("no node is known for the slot of this key") from error
        if node is None:
            raise Unavailable("no node is known for the slot of this key")
        return node.host, int(node.port)

    def target(self, error: Any, asked: Node) -> tuple[str, int]:
        """Returns the node to which a call was redirected. A missing host means the same host."""
        host: str = error.host or (asked[0] if asked else "")
        remap = getattr(self._client.nodes_manager, "remap_host_port", None)
        host, port = remap(host, int(error.port)) if remap else (host, error.port)
        return host, int(port)

    def move(self, error: Any, asked: Node) -> tuple[str, int]:
        """Returns the node of a redirection, and uses it for all later calls on the slot."""
        self._moved[int(error.slot_id)] = to = self.target(error, asked)
        return to

    def due(self) -> bool:
        """Returns True if the cluster's map may be read again, which is at most once a second."""
        now = time.monotonic()
        if now - self._refreshed < _REFRESH_S:
            return False
        self._refreshed = now
        return True

    def lost(self, node: Node) -> None:
        """Forgets the redirections to an unavailable node, because they may be outdated."""
        for slot in [slot for slot, to in list(self._moved.items()) if to == node]:
            self._moved.pop(slot, None)


class ClusterTransport:
    """A cluster, from a ``RedisCluster``."""

    def __init__(self, client: Any, timeout_s: float, most: int, pause_s: float = 1.0) -> None:
        node = next(iter(client.get_nodes()))
        # The two drivers use different names.
        named = "redis_connection" if hasattr(node, "redis_connection") else "valkey_connection"
        pool = getattr(node, named).connection_pool
        self._dial = Dial(
            pool.connection_class, pool.connection_kwargs, timeout_s, wait=False, pause_s=pause_s
        )
        self._client, self._most = client, most
        self._map = _Map(client)
        self._nodes: dict[Node, Sockets] = {}

    def node(self, key: str) -> Node:
        """Returns the node that has the slot of the key."""
        try:
            return self._map.find(key)
        except Unavailable:
            self._refresh()
            raise

    def _sockets(self, node: Node) -> Sockets:
        sockets = self._nodes.get(node)
        if sockets is None:
            made = Sockets(self._dial.to(node), self._dial, self._most)
            sockets = self._nodes.setdefault(node, made)
        return sockets

    def call(self, node: Node, args: tuple[str, ...], timeout_s: float) -> Any:
        """Sends a call, follows redirections, and returns the reply."""
        deadline, asking = time.monotonic() + timeout_s, False
        for _ in range(_MOST_REDIRECTIONS):
            try:
                return self._sockets(node).call(args, deadline, asking=asking)
            except self._dial.moved as error:
                # Handle a MovedError first, because it is an AskError too.
                node, asking = self._map.move(error, node), False
                self._refresh()
            except self._dial.ask as error:
                node, asking = self._map.target(error, node), True
            except self._dial.response_error as error:
                error.answered_by = node
                if str(error).startswith(_MAP_IS_OLD) or retires(error):
                    self._map.lost(node)
                    self._refresh()
                raise
            except Exception:
                self._map.lost(node)
                self._refresh()
                raise
        raise Unavailable("too many redirections")

    def _refresh(self) -> None:
        if self._map.due():
            threading.Thread(target=self._read_map, daemon=True).start()

    def _read_map(self) -> None:
        with contextlib.suppress(Exception):
            self._client.nodes_manager.initialize()

    def is_up(self, node: Node) -> bool:
        """Returns True if a connection to the node is open."""
        return node in self._nodes and self._nodes[node].is_up

    def close(self) -> None:
        """Closes the sockets."""
        for sockets in self._nodes.values():
            sockets.close()


class AsyncClusterTransport:
    """A cluster, from a ``redis.asyncio.RedisCluster``."""

    def __init__(self, client: Any, timeout_s: float, most: int, pause_s: float = 1.0) -> None:
        self._client, self._timeout_s, self._most = client, timeout_s, most
        self._pause_s = pause_s
        self._map = _Map(client)
        self._dial: Dial | None = None
        self._nodes: dict[Node, AsyncSockets] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def node(self, key: str) -> Node:
        """Returns the node of the key's slot; None until a call has read the cluster's map."""
        if self._dial is None:
            return None
        try:
            return self._map.find(key)
        except Unavailable:
            self._refresh()
            raise

    async def call(self, node: Node, args: tuple[str, ...], timeout_s: float) -> Any:
        """Sends a call, follows redirections, and returns the reply."""
        deadline = instant(timeout_s)
        dial, asking = await by(deadline, self._known()), False
        if node is None:
            node = self._map.find(key_of(args))
        for _ in range(_MOST_REDIRECTIONS):
            try:
                return await self._sockets(dial, node).call(args, deadline, asking=asking)
            except dial.moved as error:
                # Handle a MovedError first, because it is an AskError too.
                node, asking = self._map.move(error, node), False
                self._refresh()
            except dial.ask as error:
                node, asking = self._map.target(error, node), True
            except dial.response_error as error:
                error.answered_by = node
                if str(error).startswith(_MAP_IS_OLD) or retires(error):
                    self._map.lost(node)
                    self._refresh()
                raise
            except (Exception, asyncio.CancelledError):
                self._map.lost(node)
                self._refresh()
                raise
        raise Unavailable("too many redirections")

    async def _known(self) -> Dial:
        if self._dial is None:
            # If the caller gives up, the map is still read, for the next caller.
            await asyncio.shield(self._task(self._client.initialize()))
            template = self._client.get_nodes()[0]
            self._dial = Dial(
                template.connection_class, template.connection_kwargs, self._timeout_s, wait=True,
                pause_s=self._pause_s,
            )  # fmt: skip
        return self._dial

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

    def _refresh(self) -> None:
        if self._map.due():
            self._task(self._read_map())

    async def _read_map(self) -> None:
        with contextlib.suppress(Exception):
            await self._client.nodes_manager.initialize()

    def is_up(self, node: Node) -> bool:
        """Returns True if a connection to the node is open."""
        return node in self._nodes and self._nodes[node].is_up

    async def close(self) -> None:
        """Closes the sockets."""
        if self._tasks:
            # Do not cancel the tasks that read the map: the driver would leak its sockets.
            await asyncio.wait(self._tasks, timeout=self._timeout_s)
        for task in list(self._tasks):
            task.cancel()
        for sockets in self._nodes.values():
            await sockets.close()
