"""Tests which nodes a reading of a cluster's slot map queries, and how it reads their replies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import redis

from redis_throttle_client import Unavailable
from redis_throttle_client._net.slots import SLOTS, Slots

from .nodes import DOWN, A, B, C, Nodes, map_of


def test_a_reading_queries_the_new_owner_first_and_a_silent_node_last() -> None:
    slots: Any = Slots(Nodes(redis, A, B, C))
    orders = [slots.reading(first=C, last=A).nodes for _ in range(99)]
    assert orders == [[C, B, A]] * 99
    # Other readings begin at any node.
    assert {slots.reading().nodes[0] for _ in range(999)} == {A, B, C}


def test_the_most_complete_reply_is_the_map() -> None:
    slots = Slots(Nodes(redis, A))
    reading = slots.reading()
    part = map_of(A)
    part[0][1] = 99
    assert not reading.add(A, DOWN)
    assert not reading.add(A, "no map")
    assert not reading.add(B, part)
    assert not reading.add(C, [])
    assert reading.end() is None
    assert (slots.find("99"), slots.nodes) == (A, {A})
    with pytest.raises(Unavailable, match="no node is known"):
        slots.find("100")
    reading = slots.reading()
    assert reading.add(B, map_of(B, C))
    reading.end()
    assert [slots.find(str(at)) for at in (0, 8191, 8192, SLOTS - 1)] == [B, B, C, C]


@pytest.mark.parametrize("host", [b"", None])
def test_a_node_without_a_name_is_the_one_that_was_queried(host: bytes | None) -> None:
    slots = Slots(Nodes(redis, A))
    reading = slots.reading()
    assert reading.add(B, [[0, SLOTS - 1, [host, 7009, b"id"], [b"?", 7010, b"id"]]])
    reading.end()
    assert slots.find("1") == (B[0], 7009)


def test_an_address_is_remapped_as_in_the_driver() -> None:
    nodes = Nodes(redis, A)
    nodes.nodes_manager.remap_host_port = lambda host, port: ("outside", port)
    slots = Slots(nodes)
    reading = slots.reading()
    reading.add(A, map_of(B))
    reading.end()
    assert slots.find("1") == ("outside", B[1])


def test_later_readings_query_the_nodes_of_the_map_and_those_the_application_named() -> None:
    nodes = Nodes(redis, A)
    slots = Slots(nodes)
    reading = slots.reading()
    reading.add(A, map_of(B, replicas=(C,)))
    reading.end()
    nodes.nodes_manager.startup_nodes.clear()
    assert sorted(slots.reading().nodes) == [A, B, C]


def test_a_new_map_replaces_older_redirections_only() -> None:
    slots = Slots(Nodes(redis, A))
    slots.move(SimpleNamespace(host=B[0], port=B[1], slot_id=1), A)
    slots.move(SimpleNamespace(host=B[0], port=B[1], slot_id=2), A)
    reading = slots.reading()
    slots.move(SimpleNamespace(host=B[0], port=B[1], slot_id=2), A)
    reading.add(A, map_of(C))
    reading.end()
    assert (slots.find("1"), slots.find("2"), slots.find("3")) == (C, B, C)


def test_the_error_of_a_node_that_is_down_hides_a_rejection() -> None:
    rejected = redis.exceptions.NoPermissionError("no permission")
    for replies, error in (((rejected, DOWN, rejected), DOWN), ((rejected,), rejected)):
        slots = Slots(Nodes(redis, A))
        reading = slots.reading()
        for reply in replies:
            reading.add(A, reply)
        assert reading.end() is error
    assert slots.refused() is rejected
    assert isinstance(Slots(Nodes(redis)).reading().end(), Unavailable)
