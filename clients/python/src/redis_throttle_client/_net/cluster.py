"""Clusters: each call goes to the node that has the slot of its key.

A redirected call was refused before it ran, so it is sent again. No other call is sent twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any

from .._rules.errors import LimiterClosed, Unavailable, counted, retires
from .._rules.options import Bounds
from .._wire.call import Call
from .._wire.words import key_of
from .breaker import Breakers
from .connection import call_once, call_once_in_loop
from .dial import Dial, Node
from .fork import forgets
from .slots import READ, READ_PAUSE_S, Address, Slots
from .sockets import Sockets
from .sockets_async import AsyncSockets

_MAP_IS_OLD = ("CLUSTERDOWN", "The cluster is down", "Hash slot not served")
_MOST_REDIRECTIONS = 3


class _Cluster:
    """The part that both transports share: connections to each node, and redirections."""

    _kind: Any
    _dial: Dial

    def __init__(self, client: Any, bounds: Bounds, breakers: Breakers) -> None:
        self._bounds, self._breakers, self._slots = bounds, breakers, Slots(client)
        self._nodes: dict[Node, Any] = {}

    def _sockets(self, node: Node) -> Any:
        sockets = self._nodes.get(node)
        if sockets is None:
            new = self._kind(self._dial.to(node), self._bounds, self._breakers, node)
            sockets = self._nodes.setdefault(node, new)
        return sockets

    def is_up(self, node: Node) -> bool:
        """Returns True if a connection to the node is open."""
        sockets = self._nodes.get(node)
        return sockets is not None and sockets.is_up

    def slot(self, key: str) -> int:
        """Returns the slot of a key."""
        return self._slots.slot(key)

    def _refresh(self, *, first: Node = None, last: Node = None) -> Any:
        """Reads the map in the background."""
        raise NotImplementedError

    def _redirected(self, error: BaseException, node: Node) -> tuple[Node, bool]:
        """Returns the node to which a call was redirected, and whether ``ASKING`` comes first.

        Raises any other error. The map is then read again, unless the node has only refused the
        call.
        """
        # Handle a MovedError first, because it is an AskError too.
        if isinstance(error, self._dial.moved):
            node = self._slots.move(error, node)
            self._refresh(first=node)
            return node, False
        if isinstance(error, self._dial.ask):
            return self._slots.target(error, node), True
        if isinstance(error, LimiterClosed) or getattr(error, "reason", "") == "overloaded":
            raise error
        if isinstance(error, self._dial.response_error):
            error.replied_by = node
            if not (str(error).startswith(_MAP_IS_OLD) or retires(error)):
                raise error
        self._slots.lost(node)
        self._refresh(last=node)
        raise error


class ClusterTransport(_Cluster):
    """A cluster, from a ``RedisCluster``."""

    _kind = Sockets

    def __init__(self, client: Any, bounds: Bounds, breakers: Breakers) -> None:
        super().__init__(client, bounds, breakers)
        node = next(iter(client.get_nodes()))
        # The two drivers use different names.
        named = "redis_connection" if hasattr(node, "redis_connection") else "valkey_connection"
        pool = getattr(node, named).connection_pool
        self._dial = Dial(pool.connection_class, pool.connection_kwargs, bounds.dial_s, wait=False)
        self._read_at = float("-inf")
        forgets(self)

    def begin(self) -> None:
        """Forgets the reader of the map, also after a fork: the child has no such thread."""
        self._lock = threading.Lock()
        self._reader: threading.Thread | None = None

    def node(self, key: str) -> Node:
        """Returns the node that has the slot of the key."""
        try:
            return self._slots.find(key)
        except Unavailable:
            self._refresh()
            raise

    def call(self, node: Node, args: tuple[str, ...], call: Call) -> Any:
        """Sends a command, follows redirections, and returns the reply or a known denial."""
        asking = False
        for _ in range(_MOST_REDIRECTIONS):
            try:
                return self._sockets(node).call(args, call, asking=asking)
            except Exception as error:
                node, asking = self._redirected(error, node)
        raise Unavailable("too many redirections")

    def _refresh(self, *, first: Node = None, last: Node = None) -> None:
        """Reads the map in the background: one reading at a time, and at most one per second."""
        now = time.monotonic()
        with self._lock:
            is_reading = self._reader is not None and self._reader.is_alive()
            if is_reading or now - self._read_at < READ_PAUSE_S:
                return
            self._read_at = now
            self._reader = threading.Thread(target=self._read, args=(first, last), daemon=True)
            # If no thread can start, a later call tries again.
            with contextlib.suppress(RuntimeError):
                self._reader.start()

    def _read(self, first: Node, last: Node) -> None:
        reading = self._slots.reading(first=first, last=last)
        for node in reading.nodes:
            if reading.add(node, self._query(node)):
                break
        if reading.end() is None:
            for replaced in set(self._nodes) - self._slots.nodes:
                self._nodes.pop(replaced).leave()

    def _query(self, node: Address) -> Any:
        """Returns the map of a node, or the error."""
        try:
            return call_once(self._dial.to(node), READ, self._dial.patience_s)
        except Exception as error:
            return error

    def catch_up(self, node: Node) -> None:
        """Reads what has arrived from the node for callers that have gone."""
        if (sockets := self._nodes.get(node)) is not None:
            sockets.catch_up()

    def quiet(self, timeout_s: float) -> None:
        """Ends the calls in line, and waits for those in flight."""
        ends_at = time.monotonic() + timeout_s
        for sockets in list(self._nodes.values()):
            sockets.quiet(max(0.0, ends_at - time.monotonic()))

    def close(self) -> None:
        """Closes the sockets."""
        for sockets in list(self._nodes.values()):
            sockets.close()


class AsyncClusterTransport(_Cluster):
    """A cluster, from a ``redis.asyncio.RedisCluster``."""

    _kind = AsyncSockets

    def __init__(self, client: Any, bounds: Bounds, breakers: Breakers) -> None:
        super().__init__(client, bounds, breakers)
        manager = client.nodes_manager
        template = next(iter((manager.startup_nodes or manager.nodes_cache).values()))
        self._dial = Dial(
            template.connection_class, template.connection_kwargs, bounds.dial_s, wait=True
        )
        self._has_read = False
        # The last reading of the map by each event loop, and when it began.
        self._readings: dict[asyncio.AbstractEventLoop, tuple[float, asyncio.Task[None]]] = {}

    def node(self, key: str) -> Node:
        """Returns the node of the key's slot; None until a call has read the cluster's map."""
        if not self._slots.is_known:
            return None
        try:
            return self._slots.find(key)
        except Unavailable:
            self._refresh()
            raise

    async def call(self, node: Node, args: tuple[str, ...], call: Call) -> Any:
        """Sends a command, follows redirections, and returns the reply or a known denial."""
        asking = False
        if not self._slots.is_known:
            await self._know()
        if node is None:
            node = self._slots.find(key_of(args))
        for _ in range(_MOST_REDIRECTIONS):
            try:
                return await self._sockets(node).call(args, call, asking=asking)
            except Exception as error:
                node, asking = self._redirected(error, node)
        raise Unavailable("too many redirections")

    async def _know(self) -> None:
        """Reads the map for the first time. One reading serves all callers that wait.

        As for the first dial, they wait until it has ended, and for a later one ``silence_ms``.
        """
        reading = self._refresh()
        if reading is None:
            raise self._slots.refused()
        wait_s = self._bounds.silence_s if self._has_read else None
        # If a caller gives up, the map is still read, for the next caller.
        await asyncio.wait([reading], timeout=wait_s)
        if not reading.done():
            raise counted("the map of the cluster was not read in time", "connection")
        self._has_read = True
        if not self._slots.is_known:
            raise self._slots.refused(waited=True)

    def _refresh(self, *, first: Node = None, last: Node = None) -> asyncio.Task[None] | None:
        """Reads the map in the background: one reading at a time, and at most one per second.

        Returns the reading under way. Returns None if it is too early for another.
        """
        loop, now = asyncio.get_running_loop(), time.monotonic()
        began, reading = self._readings.get(loop, (float("-inf"), None))
        if reading is not None and not reading.done():
            return reading
        if now - began < READ_PAUSE_S:
            return None
        for closed in [known for known in list(self._readings) if known.is_closed()]:
            self._readings.pop(closed, None)
        reading = loop.create_task(self._read(first, last))
        self._readings[loop] = now, reading
        return reading

    async def _read(self, first: Node, last: Node) -> None:
        reading = self._slots.reading(first=first, last=last)
        for node in reading.nodes:
            if reading.add(node, await self._query(node)):
                break
        if reading.end() is None:
            for replaced in set(self._nodes) - self._slots.nodes:
                if (sockets := self._nodes.pop(replaced, None)) is not None:
                    await sockets.leave()

    async def _query(self, node: Address) -> Any:
        """Returns the map of a node, or the error."""
        try:
            return await call_once_in_loop(self._dial.to(node), READ, self._dial.patience_s)
        except Exception as error:
            return error

    async def quiet(self, timeout_s: float) -> None:
        """Ends the calls in line, and waits for those in flight."""
        nodes = list(self._nodes.values())
        await asyncio.gather(*(sockets.quiet(timeout_s) for sockets in nodes))

    async def close(self) -> None:
        """Closes the sockets. Ends a reading of the map."""
        _, reading = self._readings.pop(asyncio.get_running_loop(), (0, None))
        if reading is not None:
            reading.cancel()
            await asyncio.wait([reading])
        for sockets in list(self._nodes.values()):
            await sockets.close()
