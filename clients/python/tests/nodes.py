"""A double of a driver's cluster client, whose nodes reply with scripted slot maps."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import redis

from redis_throttle_client._net.slots import SLOTS, Address

A, B, C = [("10.0.0.1", 7001), ("10.0.0.2", 7002), ("10.0.0.3", 7003)]
DOWN = redis.ConnectionError("the node is down")


def map_of(*owners: Address, replicas: tuple[Address, ...] = ()) -> list[Any]:
    """Returns a reply to CLUSTER SLOTS by which each owner has an equal part of the slots."""
    begins = [SLOTS * at // len(owners) for at in range(len(owners) + 1)]
    return [
        [begin, end - 1, *([host.encode(), port, b"id"] for host, port in (owner, *replicas))]
        for owner, begin, end in zip(owners, begins, begins[1:], strict=False)
    ]


class Nodes:
    """A double of a driver's cluster client, and of the nodes that it knows.

    ``sent`` has the nodes whose map was read, in order.
    """

    def __init__(self, package: Any, *known: Address, **kwargs: Any) -> None:
        dials = {"connection_class": package.Connection, "connection_kwargs": kwargs}
        pool = SimpleNamespace(connection_pool=SimpleNamespace(**dials))
        nodes = [
            SimpleNamespace(host=host, port=port, redis_connection=pool, **dials)
            for host, port in known or (A,)
        ]
        named = {f"{one.host}:{one.port}": one for one in nodes}
        self.nodes_manager = SimpleNamespace(startup_nodes=named, nodes_cache={}, slots_cache={})
        self.replies: dict[Address, Any] = {}
        self.sent: list[Address] = []

    def get_nodes(self) -> list[Any]:
        return list(self.nodes_manager.startup_nodes.values())

    @staticmethod
    def keyslot(key: str) -> int:
        return int(key)

    def get_node_from_key(self, key: str) -> Any:
        return self.nodes_manager.slots_cache.get(self.keyslot(key), [None])[0]

    def reply(self, node: Address) -> Any:
        self.sent.append(node)
        return self.replies.get(node, DOWN)

    async def reply_later(self, node: Address) -> Any:
        await asyncio.sleep(0)
        return self.reply(node)
