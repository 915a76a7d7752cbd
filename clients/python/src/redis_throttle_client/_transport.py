"""What sends the calls of a limiter, chosen by the client that it is given."""

from __future__ import annotations

from typing import Any, Protocol

from ._async_sockets import AsyncServerTransport
from ._cluster import AsyncClusterTransport, ClusterTransport
from ._dial import Node
from ._errors import InvalidArgument
from ._sockets import ServerTransport


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

    def node(self, key: str) -> Node:
        """Who decides about a key, as far as it is known."""

    async def call(self, node: Node, args: tuple[str, ...], timeout_s: float) -> Any:
        """The reply; a driver's error or Unavailable otherwise."""

    async def close(self) -> None:
        """Closes the sockets."""


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
