"""Tests that leases come first, are given back, and belong to one process."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from redis_throttle_client import gcra, lease
from redis_throttle_client._net.dial import END_SLOTS, RENEWAL_SLOTS
from redis_throttle_client.asgi import RateLimitMiddleware
from redis_throttle_client.testing import FakeServer
from redis_throttle_client.wsgi import RateLimitMiddleware as WsgiMiddleware

from .conftest import until
from .fakes import Far, Granting, Held, begun, ended, look_again, run
from .test_promise_counted_once import in_child

API = gcra("api", 1000, 1000, "60s")
JOBS = lease("jobs", 400, "6s")
ONE = lease("one", 1, "60s", on_error="deny")


def sent(server: FakeServer, verb: str) -> int:
    """Returns the number of calls of a command."""
    return sum(call[0] == verb for call in server.calls)


def holders(server: Granting, name: str = "jobs") -> int:
    return sum(key == f"rl:{name}:x" for key, _ in server.held)


# -- leases come first ---------------------------------------------------------------------------


def test_calls_on_leases_use_no_more_than_their_slots() -> None:
    async def work() -> None:
        server = Far(20)
        limiter = server.limiter(timeout_ms=1000)
        held = [limiter.lease(JOBS, "x", str(at)) for at in range(100)]
        await asyncio.gather(*(one.__aenter__() for one in held))
        server.most = 0
        await asyncio.gather(*(one.__aexit__() for one in held))
        assert (holders(server), server.most) == (0, END_SLOTS)
        await limiter.close()

    run(work())


def test_a_release_passes_an_open_circuit_if_a_connection_is_up() -> None:
    async def work() -> None:
        server = Far(2)
        limiter = server.limiter(breaker_failures=1)
        async with limiter.lease(JOBS, "x"):
            server.fail()
            await limiter.check(API, "42")
            server.recover()
            assert (await limiter.check(API, "42")).reason == "circuit"
        assert holders(server) == 0
        await limiter.close()

    run(work())


def test_a_thread_repeats_a_release_in_the_background() -> None:
    server = Granting()
    limiter = server.limiter(breaker_failures=1000)
    with limiter.lease(JOBS, "x"):
        server.fail()
    assert holders(server) == 1
    server.recover()
    server.advance(0.1)
    look_again(limiter)
    until(lambda: holders(server) == 0)
    limiter.close()


# -- leases without a holder -----------------------------------------------------------------------


@pytest.mark.parametrize("fails", [True, False])
def test_all_leases_of_a_cancelled_request_are_released(fails: bool) -> None:
    async def work() -> None:
        server = Far(20)
        limiter = server.limiter()
        first, second = lease("first", 1, "6s"), lease("second", 1, "6s")

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if fails:
                server.fail("WRONGTYPE x")
            await asyncio.sleep(1)

        middleware = RateLimitMiddleware(
            app, limiter=limiter, rules=[(first, lambda _: "x"), (second, lambda _: "x")]
        )
        scope = {"type": "http", "path": "/", "headers": [], "client": ("192.0.2.1", 1)}

        nothing: Any = None

        async def request() -> None:
            async with asyncio.timeout(0.1):
                await middleware(scope, nothing, nothing)

        task = asyncio.ensure_future(request())
        await asyncio.sleep(0.105)
        # A second cancellation comes while the leases are being released.
        task.cancel()
        await asyncio.sleep(0.05)
        assert sent(server, "RL.RELEASE") == 2
        if not fails:
            assert (holders(server, "first"), holders(server, "second")) == (0, 0)
        before = len(server.calls)
        await asyncio.sleep(60)
        assert len(server.calls) == before
        await limiter.close()

    run(work())


@pytest.mark.parametrize("fails", [True, False])
def test_a_response_does_not_wait_for_the_release(fails: bool) -> None:
    async def work() -> None:
        server, sent_at = Far(50), []
        limiter = server.limiter()
        clock = asyncio.get_running_loop().time

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            if fails:
                raise ZeroDivisionError
            await send({"type": "http.response.body", "body": b""})

        async def send(message: Any) -> None:
            sent_at.append(clock())

        middleware = RateLimitMiddleware(app, limiter=limiter, rules=JOBS, key=lambda _: "x")
        scope = {"type": "http", "path": "/", "headers": [], "client": ("192.0.2.1", 1)}
        nothing: Any = None
        try:
            await middleware(scope, nothing, send)
        except ZeroDivisionError:
            assert fails
        assert clock() == sent_at[-1]
        assert holders(server) == 1
        await limiter.close()
        assert holders(server) == 0

    run(work())


def test_a_response_of_a_thread_does_not_wait_for_the_release() -> None:
    server = Held("RL.LEASE")
    limiter = server.threads()

    def app(environ: Any, start_response: Any) -> list[bytes]:
        server.hold()
        start_response("200 OK", [])
        return [b"done"]

    middleware = WsgiMiddleware(app, limiter=limiter, rules=JOBS, key=lambda _: "x")
    environ = {"REQUEST_METHOD": "GET", "REMOTE_ADDR": "192.0.2.1"}

    def request() -> None:
        body: Any = middleware(environ, lambda *_: None)
        list(body)
        body.close()

    ended([begun(request)])
    until(lambda: sent(server, "RL.RELEASE") == 1)
    closing = begun(limiter.close)
    until(lambda: limiter._calls.is_closed)
    assert closing.is_alive()
    server.let_go()
    ended([closing])


def test_a_close_sends_the_releases_that_wait_in_the_background() -> None:
    server = Held("RL.LEASE")
    limiter = server.threads()
    held = [limiter.lease(JOBS, "x", str(at)).__enter__() for at in range(2 * END_SLOTS)]
    server.hold()
    for one in held:
        one._release_soon()
    until(lambda: sent(server, "RL.RELEASE") == END_SLOTS)
    closing = begun(limiter.close)
    until(lambda: limiter._renewer._is_closed)
    server.let_go()
    ended([closing])
    assert holders(server) == 0
    assert limiter.counters.unsettled == 0


def test_a_close_ends_a_lease_whose_reply_was_read_before_it() -> None:
    server = Granting()
    limiter = server.limiter()
    keep, reached, closes = limiter._renewer.keep, threading.Event(), threading.Event()

    def late(holds: Any) -> None:
        reached.set()
        assert closes.wait(60)
        keep(holds)

    limiter._renewer.keep = late  # type: ignore[method-assign]
    entered: list[Any] = []
    taking = begun(lambda: entered.append(limiter.lease(JOBS, "x").__enter__()))
    assert reached.wait(60)
    closing = begun(limiter.close)
    until(lambda: limiter._renewer._is_closed)
    closes.set()
    ended([taking, closing])
    assert (holders(server), entered[0].held) == (0, False)


@pytest.mark.parametrize("is_late", [True, False])
def test_a_close_ends_leases_itself_if_no_thread_can_start(
    monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    class Slow(Granting):
        def reply(self, args: tuple[str, ...]) -> Any:
            if args[0] == "RL.RELEASE" and is_late:
                self.advance(1)
            return super().reply(args)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    server = Slow()
    limiter = server.limiter(timeout_ms=1000)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        held = [limiter.lease(JOBS, "x", str(at)).__enter__() for at in range(3)]
        limiter.close()
    assert not any(one.held for one in held)
    # The time of the close is over after the first late reply.
    left = 2 if is_late else 0
    assert (holders(server), limiter.counters.unsettled) == (left, left)


def test_a_close_of_tasks_reports_the_ends_that_had_no_slot() -> None:
    async def work() -> None:
        server = Far(0)
        seen: list[Any] = []
        limiter = server.limiter(timeout_ms=1000, on_decision=seen.append)
        held = [await limiter.lease(JOBS, "x").__aenter__() for _ in range(2 * END_SLOTS)]
        server._s = 5.0
        for one in held:
            one._release_soon()
        del seen[:]
        await limiter.close()
        assert limiter.counters.unsettled == len(seen) == 2 * END_SLOTS

    run(work())


# -- forks and renewals ----------------------------------------------------------------------------


def test_a_forked_child_leaves_the_leases_of_its_parent_alone() -> None:
    server = Granting()
    limiter = server.limiter()
    with limiter.lease(JOBS, "x") as held:
        assert len(limiter._renewer._renewals.due) == 1

        def work() -> str:
            before = len(server.calls)
            held.renew()
            held.release()
            due = len(limiter._renewer._renewals.due)
            return f"{held.held} {due} {len(server.calls) - before}"

        assert in_child(work) == "False 0 0"
        assert held.held
    limiter.close()


def test_leases_of_threads_are_renewed_together() -> None:
    server, before = Held(), set(threading.enumerate())
    limiter = server.threads()
    held = [limiter.lease(JOBS, "x", str(at)) for at in range(20)]
    for one in held:
        one.__enter__()
    server.hold()
    server.advance(2)
    look_again(limiter)
    # All wait for a reply that does not come.
    until(lambda: sent(server, "RL.RENEW") == RENEWAL_SLOTS)
    server.let_go()
    until(lambda: sent(server, "RL.RENEW") == 20)
    ended([begun(lambda one=one: one.__exit__()) for one in held])  # type: ignore[misc]
    assert holders(server) == 0
    limiter.close()
    until(lambda: not set(threading.enumerate()) - before)


def test_leases_that_were_released_take_no_memory() -> None:
    server = Granting()
    limiter = server.limiter()
    with limiter.lease(JOBS, "x", "kept"):
        for at in range(1000):
            with limiter.lease(JOBS, "x", str(at)):
                pass
        due = [hold.taken.id for hold in limiter._renewer._renewals.due]
        assert "kept" in due
        assert len(due) < 100
    limiter.close()
