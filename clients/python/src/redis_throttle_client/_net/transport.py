"""Transports, which send the calls of a limiter. The type of its client selects one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .._rules.errors import InvalidArgument
from .._rules.options import Bounds
from .._wire.call import Call
from .breaker import Breakers
from .cluster import AsyncClusterTransport, ClusterTransport
from .dial import Node
from .sockets import ServerTransport
from .sockets_async import AsyncServerTransport

_NO_CLIENT = "client: expected a client of redis-py or valkey-py; a URL belongs to from_url"


class Transport(Protocol):
    """Sends each command once.

    One of the caller's own need not have ``is_up`` and ``quiet``.
    """

    def node(self, key: str) -> Node:
        """Returns the node that has the key."""

    def call(self, node: Node, args: tuple[str, ...], call: Call) -> Any:
        """Returns the reply, or the known denial of the call. Raises a driver's error or
        Unavailable.
        """

    def close(self) -> None:
        """Closes the sockets."""


class AsyncTransport(Protocol):
    """Sends each command once, for asyncio."""

    def node(self, key: str) -> Node:
        """Returns the node that has the key; None if it is not known yet."""

    async def call(self, node: Node, args: tuple[str, ...], call: Call) -> Any:
        """The same as :meth:`Transport.call`."""

    async def close(self) -> None:
        """Closes the sockets."""


def _is_async(client: Any) -> bool:
    return any(".asyncio" in base.__module__ for base in type(client).__mro__)


def is_up_of(transport: Any) -> Callable[[Any], bool]:
    """Returns a function that is true for a node with an open connection.

    A transport of the caller's own may have no connections; its nodes are always up.
    """
    found: Callable[[Any], bool] = getattr(transport, "is_up", lambda node: True)
    return found


def transport(client: Any, bounds: Bounds, breakers: Breakers) -> Transport:
    """Returns the transport for a sync client, which may itself be a transport."""
    if callable(getattr(client, "call", None)) and callable(getattr(client, "node", None)):
        made: Transport = client
        return made
    if _is_async(client):
        raise InvalidArgument("client: expected a sync client; use AsyncLimiter for asyncio")
    if hasattr(client, "nodes_manager"):
        return ClusterTransport(client, bounds, breakers)
    if hasattr(client, "connection_pool"):
        return ServerTransport(client, bounds, breakers)
    raise InvalidArgument(_NO_CLIENT)


def async_transport(client: Any, bounds: Bounds, breakers: Breakers) -> AsyncTransport:
    """Returns the transport for an asyncio client, which may itself be a transport."""
    if callable(getattr(client, "call", None)) and callable(getattr(client, "node", None)):
        made: AsyncTransport = client
        return made
    if not _is_async(client):
        raise InvalidArgument("client: expected a client of asyncio; use Limiter for others")
    if hasattr(client, "nodes_manager"):
        return AsyncClusterTransport(client, bounds, breakers)
    if hasattr(client, "connection_pool"):
        return AsyncServerTransport(client, bounds, breakers)
    raise InvalidArgument(_NO_CLIENT)
