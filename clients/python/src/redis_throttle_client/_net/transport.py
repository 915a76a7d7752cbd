"""Transports, which send the calls of a limiter. The type of its client selects one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .._rules.errors import InvalidArgument
from .._rules.options import Bounds
from .._wire.call import Call
from .breaker import Breakers
from .cluster import AsyncClusterTransport, ClusterTransport
from .dial import Dial, Node
from .sockets import Sockets
from .sockets_async import AsyncSockets

_NO_CLIENT = "client: expected a client of redis-py or valkey-py; a URL belongs to from_url"


class Transport(Protocol):
    """Sends each command once. For asyncio, ``call`` and ``close`` return awaitables.

    One of the caller's own need not have ``is_up``, ``catch_up`` and ``quiet``.
    """

    def node(self, key: str) -> Node:
        """Returns the node that has the key; None if it is not known yet."""

    def call(self, node: Node, args: tuple[str, ...], call: Call) -> Any:
        """Returns the reply, or the known denial of the call. Raises a driver's error or
        Unavailable.
        """

    def close(self) -> Any:
        """Closes the sockets."""


class ServerTransport:
    """One server, from a client of threads or of asyncio."""

    def __init__(self, client: Any, bounds: Bounds, breakers: Breakers, *, wait: bool) -> None:
        pool = client.connection_pool
        dial = Dial(pool.connection_class, pool.connection_kwargs, bounds.dial_s, wait=wait)
        kind: Any = AsyncSockets if wait else Sockets
        self._sockets = kind(dial.to(None), bounds, breakers, None)
        self.quiet, self.close = self._sockets.quiet, self._sockets.close

    def node(self, key: str) -> Node:
        """Returns None, because there is only one node."""
        return None

    def call(self, node: Node, args: tuple[str, ...], call: Call) -> Any:
        """Sends a command, and returns the reply or the known denial of the call."""
        return self._sockets.call(args, call)

    def is_up(self, node: Node) -> bool:
        """Returns True if a connection is open."""
        is_up: bool = self._sockets.is_up
        return is_up

    def catch_up(self, node: Node) -> None:
        """Reads what has arrived for threads that have gone."""
        self._sockets.catch_up()


def is_up_of(transport: Any) -> Callable[[Any], bool]:
    """Returns a function that is true for a node with an open connection.

    A transport of the caller's own may have no connections; its nodes are always up.
    """
    found: Callable[[Any], bool] = getattr(transport, "is_up", lambda node: True)
    return found


def transport(client: Any, bounds: Bounds, breakers: Breakers, *, wait: bool = False) -> Transport:
    """Returns the transport for a client, which may itself be one. ``wait`` is true for asyncio."""
    if callable(getattr(client, "call", None)) and callable(getattr(client, "node", None)):
        given: Transport = client
        return given
    is_async = any(".asyncio" in base.__module__ for base in type(client).__mro__)
    if is_async and not wait:
        raise InvalidArgument("client: expected a sync client; use AsyncLimiter for asyncio")
    if wait and not is_async:
        raise InvalidArgument("client: expected a client of asyncio; use Limiter for others")
    if hasattr(client, "nodes_manager"):
        return (AsyncClusterTransport if wait else ClusterTransport)(client, bounds, breakers)
    if hasattr(client, "connection_pool"):
        return ServerTransport(client, bounds, breakers, wait=wait)
    raise InvalidArgument(_NO_CLIENT)
