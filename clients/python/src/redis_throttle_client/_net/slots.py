"""The slot map of a cluster: the node of each slot.

A driver reads the map on connections of the application, and waits for a silent node as long as
the application's settings allow, which may be for ever. So a transport reads the map itself, on
connections of its own: it queries the nodes in turn, and waits for each only for a limited time.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from .._rules.errors import Unavailable, counted, is_rejection
from .dial import Node

Address = tuple[str, int]
# The first slot, the last slot, and the node that has them.
_Range = tuple[int, int, Address]
SLOTS = 16384
READ = ("CLUSTER", "SLOTS")
# The minimum time between the beginnings of two readings.
READ_PAUSE_S = 1.0
# A server sends this host if it has no name to report.
_NO_HOST = "?"


class Slots:
    """The node of each slot: the driver's map, later the map that was read, and redirections."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._ranges: list[_Range] = []
        self._replicas: list[Address] = []
        self._moved: dict[int, Address] = {}
        # With a map of its own the driver forgets the addresses that the application named.
        self._named_first = list(_addresses(client, "startup_nodes"))
        self._error: Exception | None = None

    @property
    def is_known(self) -> bool:
        """True if a map has been read, by the driver or by the transport."""
        return bool(self._ranges) or bool(self._client.nodes_manager.slots_cache)

    def slot(self, key: str) -> int:
        """Returns the slot of a key."""
        slot: int = self._client.keyslot(key)
        return slot

    def find(self, key: str) -> Address:
        """Returns the node of a key; raises Unavailable if no node is known for its slot."""
        slot = self.slot(key)
        moved = self._moved.get(slot)
        if moved is not None:
            return moved
        node = self._read(slot) if self._ranges else self._drivers(key)
        if node is None:
            raise Unavailable("no node is known for the slot of this key")
        return node

    def _read(self, slot: int) -> Address | None:
        """Returns the node of a slot in the map that the transport has read."""
        ranges = self._ranges
        first, last, node = ranges[bisect_right(ranges, slot, key=lambda one: one[0]) - 1]
        return node if first <= slot <= last else None

    def _drivers(self, key: str) -> Address | None:
        """Returns the node of a key in the map that the driver read when it was created."""
        try:
            node = self._client.get_node_from_key(key)
        except Exception as error:
            raise Unavailable("no node is known for the slot of this key") from error
        return None if node is None else (node.host, int(node.port))

    def _remapped(self, host: str, port: int) -> Address:
        """Returns the address as the application sees it."""
        remap = getattr(self._client.nodes_manager, "remap_host_port", None)
        host, port = remap(host, port) if remap else (host, port)
        return host, int(port)

    def target(self, error: Any, source: Node) -> Address:
        """Returns the node to which a call was redirected. A missing host means the same host."""
        return self._remapped(error.host or (source[0] if source else ""), int(error.port))

    def move(self, error: Any, source: Node) -> Address:
        """Returns the node of a redirection, and uses it for all later calls on the slot."""
        self._moved[int(error.slot_id)] = to = self.target(error, source)
        return to

    def lost(self, node: Node) -> None:
        """Forgets the redirections to an unavailable node, because they may be outdated."""
        for slot in [slot for slot, to in list(self._moved.items()) if to == node]:
            self._moved.pop(slot, None)

    @property
    def nodes(self) -> set[Address]:
        """The nodes to which calls are sent."""
        return {*(node for _, _, node in self._ranges), *list(self._moved.values())}

    def reading(self, *, first: Node = None, last: Node = None) -> Reading:
        """Begins to read the map, first from the node ``first`` and last from the node ``last``."""
        known = {
            *self.nodes, *self._replicas, *self._named_first,
            *_addresses(self._client, "startup_nodes"), *_addresses(self._client, "nodes_cache"),
        }  # fmt: skip
        # Each client queries another node first, so that not all of them query one after a change.
        shuffled = random.sample(sorted(known), len(known))
        return Reading(self, sorted(shuffled, key=lambda node: (node != first, node == last)))

    def ranges(self, reply: Any, source: Address) -> tuple[list[_Range], list[Address]]:
        """Returns the slots of the primaries in a reply, and the replicas."""
        ranges, replicas = [], []
        for begin, end, primary, *others in reply:
            for at, (given, port, *_) in enumerate([primary, *others]):
                host = given.decode() if isinstance(given, bytes) else given
                if host == _NO_HOST:
                    continue
                node = self._remapped(host or source[0], int(port))
                if at:
                    replicas.append(node)
                else:
                    ranges.append((int(begin), int(end), node))
        return sorted(ranges), replicas

    def use(
        self, ranges: list[_Range], replicas: list[Address], redirections: dict[int, Address]
    ) -> None:
        """Replaces the map and the ``redirections``, which are older than the new map."""
        self._ranges, self._replicas, self._error = ranges, replicas, None
        for slot, to in redirections.items():
            # A redirection to another object arrived after the reading began.
            if self._moved.get(slot) is to:
                self._moved.pop(slot, None)

    def copy_redirections(self) -> dict[int, Address]:
        """Returns the redirections so far."""
        return dict(self._moved)

    def failed(self, error: Exception) -> None:
        """Notes that no node returned its map."""
        self._error = error

    def refused(self, *, waited: bool = False) -> Exception:
        """Returns the error of a call for which the map could not be read.

        A rejection, for example of a password, is a final reply for all calls. Anything else is one
        failure, of the first call that ``waited`` for the reading.
        """
        error = self._error
        if error is not None and is_rejection(error):
            return error.with_traceback(None)
        if error is not None and waited:
            self._error = None
            return error
        return counted("the map of the cluster could not be read a short time ago", "connection")


class Reading:
    """One attempt to read the map. ``nodes`` are those to query, in order."""

    def __init__(self, slots: Slots, nodes: list[Address]) -> None:
        self.nodes = nodes
        self._slots, self._redirections = slots, slots.copy_redirections()
        self._covered = 0
        self._best: tuple[list[_Range], list[Address]] = [], []
        self._errors: list[Exception] = []

    def add(self, node: Address, reply: Any) -> bool:
        """Adds the reply or the error of a node. Returns True if no other node must be queried.

        A node that knows only some of the slots may have lost the others.
        """
        try:
            if isinstance(reply, Exception):
                raise reply
            found = self._slots.ranges(reply, node)
        except Exception as error:
            self._errors.append(error)
            return False
        covered = sum(end - begin + 1 for begin, end, _ in found[0])
        if covered > self._covered:
            self._covered, self._best = covered, found
        return covered >= SLOTS

    def end(self) -> Exception | None:
        """Replaces the map by the most complete reply. Returns an error if there is none."""
        if self._covered:
            self._slots.use(*self._best, self._redirections)
            return None
        # A server that is down is no reason to raise another server's rejection.
        passing = [error for error in self._errors if not is_rejection(error)]
        error = (passing or self._errors or [Unavailable("no node has named a slot")])[-1]
        self._slots.failed(error)
        return error


def _addresses(client: Any, of: str) -> Iterable[Address]:
    """Returns the addresses in a dictionary of the driver's ``nodes_manager``."""
    nodes = list(getattr(client.nodes_manager, of).values())
    return [(node.host, int(node.port)) for node in nodes]
