"""Tests that renewals do not wait for ends, and that neither wait for those of another node."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import redis.asyncio

from redis_throttle_client import AsyncLimiter, Limiter, Unavailable, gcra, lease
from redis_throttle_client._net.dial import END_SLOTS, RENEWAL_SLOTS
from redis_throttle_client._wire.call import Call

from .conftest import Server, until
from .fakes import Held, begun, ended, look_again, run
from .scripted import Script, scripted_client

API = gcra("api", 1000, 1000, "60s")
JOBS = lease("jobs", 400, "600s")
# More ends than have slots: the others are in line.
ENDS = END_SLOTS + 10
# As much time as the slowest machine needs.
PATIENT: Any = {"timeout_ms": 60_000, "silence_ms": 60_000, "max_in_flight": 1}
# A command without a reply for now, as an end or as any other call.
BLOCKS = ("BLPOP", "list", "0")


def blocked(server: Server) -> int:
    """Returns the number of connections whose command has no reply."""
    return int(server.command("INFO", "clients")["blocked_clients"])


def unblock(server: Server) -> None:
    server.command("RPUSH", "list", *range(2 * ENDS))


@pytest.mark.live
def test_a_renewal_passes_ends_in_flight_and_in_line(shared_server: Server) -> None:
    with Limiter(shared_server.client(), **PATIENT) as limiter:
        limiter.ready()
        calls = limiter._calls
        with limiter.lease(JOBS, "x") as held:
            begun(lambda: limiter._run(calls.send(BLOCKS)))
            until(lambda: blocked(shared_server) == 1)
            until_at = calls.clock() + 600
            ends = [begun(lambda: limiter._run(calls.keep(BLOCKS, until_at))) for _ in range(ENDS)]
            renewed: list[bool] = []
            try:
                until(lambda: blocked(shared_server) == 1 + END_SLOTS)
                begun(lambda: renewed.append(held.renew()))
                until(lambda: renewed == [True])
                assert blocked(shared_server) == 1 + END_SLOTS
            finally:
                unblock(shared_server)
            ended(ends)


@pytest.mark.live
@pytest.mark.anyio
async def test_a_renewal_passes_ends_in_flight_and_in_line_in_asyncio(
    shared_server: Server,
) -> None:
    client = redis.asyncio.Redis(port=shared_server.port)
    async with AsyncLimiter(client, **PATIENT) as limiter:
        await limiter.ready()
        calls = limiter._calls
        async with limiter.lease(JOBS, "x") as held:
            blocking = [asyncio.ensure_future(limiter._run(calls.send(BLOCKS)))]
            await asyncio.to_thread(until, lambda: blocked(shared_server) == 1)
            until_at = calls.clock() + 600
            for _ in range(ENDS):
                end = limiter._run(calls.keep(BLOCKS, until_at))
                blocking.append(asyncio.ensure_future(end))
            try:
                await asyncio.to_thread(until, lambda: blocked(shared_server) == 1 + END_SLOTS)
                async with asyncio.timeout(60):
                    assert await held.renew()
                assert blocked(shared_server) == 1 + END_SLOTS
            finally:
                unblock(shared_server)
            await asyncio.gather(*blocking)


@pytest.mark.live
def test_a_call_in_line_takes_the_idle_connection_of_an_end_if_the_other_is_lost(
    shared_server: Server,
) -> None:
    with Limiter(shared_server.client(), **PATIENT) as limiter:
        limiter.ready()
        calls, pool = limiter._calls, limiter._transport._sockets.pool  # type: ignore[attr-defined]
        first = begun(lambda: lost(limiter))
        until(lambda: blocked(shared_server) == 1)
        [link] = pool.links
        # The end opens a connection of its own.
        limiter._run(calls.keep(("PING", "list"), calls.clock() + 600))
        assert len(pool.idle) == 1
        found: list[str] = []
        second = begun(lambda: found.append(limiter.check(API, "42").source))
        until(lambda: pool.waiting == 1)
        shared_server.command("CLIENT", "KILL", "ID", id_of(shared_server, "blpop"))
        ended([first, second])
        assert found == ["server"]
        assert link not in pool.links


def lost(limiter: Limiter) -> None:
    with pytest.raises(Unavailable):
        limiter._run(limiter._calls.send(BLOCKS))


def id_of(server: Server, command: str) -> int:
    """Returns the number of the connection whose last command this is."""
    return next(int(one["id"]) for one in server.client().client_list() if one["cmd"] == command)


def test_a_renewal_in_the_background_passes_ends_in_the_background() -> None:
    server = Held("RL.LEASE", "RL.RENEW")
    limiter = server.threads()
    lost = [limiter.lease(JOBS, "x", str(at)).__enter__() for at in range(ENDS)]
    with limiter.lease(JOBS, "x", "kept"):
        server.hold()
        limiter._renewer.abandon([one._hold for one in lost])
        until(lambda: [call[0] for call in server.calls].count("RL.RELEASE") == END_SLOTS)
        server.advance(200)
        look_again(limiter)
        until(lambda: server.calls[-1][0] == "RL.RENEW")
        server.let_go()
    limiter.close()
    assert not server.held


class Nodes(Held):
    """A cluster whose nodes have the names of the subjects. The node ``quick`` has no delay."""

    def node(self, key: str) -> str:
        return key.rpartition(":")[2]

    def call(self, node: str, args: tuple[str, ...], call: Call) -> Any:
        if node == "quick":
            with self._lock:
                return self.reply(args)
        return super().call(node, args, call)

    def sent(self, verb: str, node: str) -> int:
        """Returns the number of calls of a command to a node."""
        with self._lock:
            return sum((call[0], self.node(call[1])) == (verb, node) for call in self.calls)


def test_neither_renewals_nor_ends_in_the_background_wait_for_a_slow_node() -> None:
    server = Nodes("RL.LEASE")
    limiter = server.threads()
    slow = [limiter.lease(JOBS, "slow", str(at)).__enter__() for at in range(ENDS)]
    quick = limiter.lease(JOBS, "quick").__enter__()
    server.hold()
    server.advance(200)
    look_again(limiter)
    until(lambda: server.sent("RL.RENEW", "slow") == RENEWAL_SLOTS)
    until(lambda: server.sent("RL.RENEW", "quick") == 1)
    for one in (*slow, quick):
        one._release_soon()
    until(lambda: server.sent("RL.RELEASE", "slow") == END_SLOTS)
    until(lambda: server.sent("RL.RELEASE", "quick") == 1)
    assert server.sent("RL.RENEW", "slow") == RENEWAL_SLOTS
    assert server.sent("RL.RELEASE", "slow") == END_SLOTS
    server.let_go()
    limiter.close()
    assert not server.held


def test_nodes_without_leases_keep_no_threads() -> None:
    server, before = Nodes(), set(threading.enumerate())
    limiter = server.threads()

    def threads() -> int:
        return len(set(threading.enumerate()) - before)

    with limiter.lease(JOBS, "quick"):
        nodes = [str(at) for at in range(3)]
        held = [limiter.lease(JOBS, node) for node in nodes for _ in range(RENEWAL_SLOTS)]
        for one in held:
            one.__enter__()
        assert threads() == 1 + 3 * RENEWAL_SLOTS
        for one in held:
            one.__exit__()
        server.advance(200)
        look_again(limiter)
        until(lambda: threads() <= RENEWAL_SLOTS)
    limiter.close()
    until(lambda: not threads())


def test_renewals_and_ends_wait_for_a_dial_as_long_as_other_calls() -> None:
    async def work() -> None:
        script = Script()
        clock = asyncio.get_running_loop().time
        limiter = AsyncLimiter(scripted_client("redis", script), clock=clock)
        script.add([[1, 400, 399, 0, 600_000]])
        async with limiter.lease(JOBS, "x") as held:
            script.disconnect()
            # Longer than both of them together wait.
            script.add([{"dial_ms": 900}])
            began = clock()
            with pytest.raises(Unavailable, match="no connection in time"):
                await held.renew()
            renewed = clock()
        assert (round(renewed - began, 3), round(clock() - renewed, 3)) == (0.1, 0.1)
        script.add([1])
        await limiter.close()

    run(work())
