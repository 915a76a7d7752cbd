"""Tests of admissions in one process: what they settle, report, wait for, and leave to a parent."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
from typing import Any

import pytest

from redis_throttle_client import (
    DecisionEvent,
    InvalidArgument,
    Limiter,
    backoff,
    fixed,
    gcra,
    lease,
    policy,
    quota,
)
from redis_throttle_client._net.dial import RENEWAL_SLOTS
from redis_throttle_client._wire.call import Call
from redis_throttle_client.testing import FakeServer

from .conftest import until
from .fakes import Far, Granting, look_again, run
from .scripted import Clock, Script, scripted_sync_client
from .test_promise_counted_once import in_child

RPM = gcra("rpm", 10, 10, "60s")
MONTH = quota("month", 100, "month")
RUNS = lease("runs", 3, "6s")
ITEMS = (RPM.of("t").cost(5), MONTH.of("t").reserve(20, "6s"), RUNS.of("t"))


@pytest.fixture
def server() -> Granting:
    return Granting()


def verbs(server: Granting) -> list[str]:
    return [call[0] for call in server.calls]


# -- items and settling ----------------------------------------------------------------------------


def test_an_item_is_a_value() -> None:
    plain = MONTH.of("t")
    assert plain.cost(3) == MONTH.of("t").cost(3) != plain
    assert plain.reserve(3) == plain.reserve(3, "30s")
    with pytest.raises(AttributeError):
        plain.units = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("wrong", "argument"),
    [
        (lambda: RUNS.of("t").cost(2), "cost"),
        (lambda: RPM.of("t").cost(-1), "cost"),
        (lambda: MONTH.of("t").reserve(2).cost(3), "cost"),
        (lambda: MONTH.of("t").cost(3).reserve(2), "reserve"),
        (lambda: RPM.of("t").reserve(2), "reserve"),
        (lambda: MONTH.of("t").reserve(2, "367d"), "ttl"),
        (lambda: backoff("b", 3, "1s", "2s", "3s").of("t").leave(1), "leave"),
        (lambda: RPM.of("t").leave("2.5%"), "leave"),
        (lambda: FakeServer().limiter().admit(), "items"),
        (lambda: FakeServer().limiter().admit(RPM.of("t"), RPM.of("t")), "items"),
        (lambda: FakeServer().limiter().admit(RPM.of("t"), id="a b"), "id"),
        (lambda: FakeServer().limiter().admit(RPM.of("t"), id="x" * 65), "id"),
        (lambda: FakeServer().async_limiter().admit((RPM, "t")), "items"),  # type: ignore[arg-type]
        (lambda: FakeServer().limiter().reserve(RPM, "t", 1), "reserve"),
        (lambda: FakeServer().limiter().check(RPM, "t", 0, partial=True), "partial"),
    ],
)
def test_a_wrong_item_names_its_argument(wrong: Any, argument: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{argument}: "):
        wrong()


def test_settle_takes_a_rule_or_the_item_if_two_have_the_rule(server: Granting) -> None:
    limiter, login = server.limiter(), backoff("login", 3, "1s", "2s", "3s")
    items = (RPM.of("a").cost(2), RPM.of("b").cost(2), RUNS.of("a"), login.of("a"))
    with limiter.admit(*items) as admitted:
        for wrong in (RPM, RUNS, login, MONTH, RUNS.of("a"), RPM.of("c")):
            with pytest.raises(InvalidArgument, match=r"^rule: "):
                admitted.settle(wrong, 1)
        with pytest.raises(InvalidArgument, match=r"^actual: "):
            admitted.settle(items[1], -1)
        admitted.settle(items[1], 0)
        admitted.settle(RPM.of("a"), 3)
    assert server.calls[1:3] == [
        ("RL.CHARGE", "rl:rpm:a", *RPM.words), ("RL.REFUND", "rl:rpm:b", *RPM.words, "COST", "2"),
    ]  # fmt: skip
    with pytest.raises(InvalidArgument, match="rpm"):
        admitted.settle(items[1], 1)


def test_a_policy_settles_by_its_name(server: Granting) -> None:
    limiter, plan = server.limiter(), policy("plan", default=fixed("any", 10, "1h"))
    with limiter.admit(plan.of("a").cost(4), plan.of("b").reserve(4)) as admitted:
        admitted.settle(plan.of("a"), 1)
        admitted.settle(plan.of("b"), 2)
    ends = [call[:2] for call in server.calls[1:]]
    assert ends == [("RL.REFUND", "rl:plan:a"), ("RL.COMMIT", "rl:plan:b")]


def test_an_end_drops_the_cached_denials_of_its_key(server: Granting) -> None:
    limiter = server.limiter(denial_cache=9)
    reserved = limiter.reserve(MONTH, "t", 100)
    server.script([0, 100, 0, 5000, 5000])
    assert [limiter.check(MONTH, "t").source for _ in range(2)] == ["server", "local"]
    reserved.cancel()
    assert limiter.check(MONTH, "t").allowed


# -- events and counters ---------------------------------------------------------------------------


def test_the_hook_gets_each_end(server: Granting) -> None:
    seen: list[DecisionEvent] = []
    limiter = server.limiter(on_decision=seen.append)
    with limiter.admit(*ITEMS) as admitted:
        admitted.settle(RPM, 6)
        admitted.settle(MONTH, 10)
    with limiter.admit(RPM.of("t").cost(2), MONTH.of("t").reserve(20)) as admitted:
        admitted.settle(RPM, 1)
    reported = [(event.kind, event.rule.name) for event in seen if event.decision is not None]
    assert reported == [
        ("check", "rpm"), ("charge", "rpm"), ("commit", "month"),
        ("check", "rpm"), ("refund", "rpm"), ("cancel", "month"),
    ]  # fmt: skip
    assert len(reported) == len(seen)


def test_close_ends_the_renewals_of_tasks() -> None:
    async def work() -> None:
        server = Far(2)
        limiter = server.limiter()
        admitted = await limiter.admit(*ITEMS)
        others = len(asyncio.all_tasks())
        await limiter.close()
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == others - 2
        before = len(server.calls)
        await asyncio.sleep(60)
        assert len(server.calls) == before
        assert not admitted.held

    run(work())


def test_an_admission_that_no_caller_ends_expires() -> None:
    async def work() -> None:
        server = Far(2)
        admitted = await server.limiter().admit(*ITEMS)
        await asyncio.sleep(10)
        assert admitted.held
        del admitted
        gc.collect()
        before = len(server.calls)
        await asyncio.sleep(60)
        assert len(server.calls) == before

    run(work())


def test_a_thread_renews_no_admission_that_no_caller_ends() -> None:
    script = Script()
    script.add([[1, 9, 4, 0, 1, 1, [1, 9, 4, 0, 1], [1, 9, 4, 0, 1], [1, 3, 2, 0, 6000]]])
    clock = Clock()
    client = scripted_sync_client("redis", script, clock)
    limiter = Limiter(client, clock=clock.monotonic, sleep=clock.sleep)
    admitted = limiter.admit(*ITEMS)
    (*_, renewed) = [hold for hold in admitted._holds if hold.is_renewable]
    del admitted
    gc.collect()
    assert not renewed.is_renewable
    limiter.close()


# -- the end of the work ---------------------------------------------------------------------------


def test_an_end_waits_for_one_deadline_of_each_item(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script()
    script.add([[1, 9, 4, 0, 1, 1, [1, 9, 4, 0, 1], [1, 9, 4, 0, 1], [1, 3, 2, 0, 6000]]])

    clock = Clock()
    for module in ("sockets", "connection", "timed_socket"):
        monkeypatch.setattr(f"redis_throttle_client._net.{module}.time", clock)
    client = scripted_sync_client("redis", script, clock)
    limiter = Limiter(
        client, clock=clock.monotonic, sleep=clock.sleep, timeout_ms=100, breaker_failures=1000
    )
    with limiter.admit(*ITEMS) as admitted:
        admitted.settle(RPM, 6)
        before = clock.monotonic()
        script.add(["silent"] * 3)
    assert clock.monotonic() - before == pytest.approx(0.3)
    script.over = True
    limiter.close()


def test_a_second_end_waits_for_the_first() -> None:
    async def work() -> None:
        server = Far(20)
        limiter = server.limiter(timeout_ms=1000)
        admitted = await limiter.admit(*ITEMS)
        began = asyncio.get_running_loop().time()
        ends = [asyncio.ensure_future(admitted.finish()) for _ in range(2)]
        await asyncio.sleep(0)
        ends[0].cancel()
        await ends[1]
        # The ends of all items are sent at once.
        assert asyncio.get_running_loop().time() - began == pytest.approx(0.02)
        assert verbs(server) == ["RL.ALL", "RL.CANCEL", "RL.RELEASE"]
        await admitted.finish()
        assert len(server.calls) == 3
        await limiter.close()

    run(work())


def test_cancel_uses_nothing_although_units_were_settled(server: Granting) -> None:
    limiter = server.limiter()
    reserved = limiter.reserve(MONTH, "t", 20)
    reserved.settle(MONTH, 7)
    reserved.cancel()
    assert verbs(server) == ["RL.ALL", "RL.CANCEL"]


def test_a_reservation_is_cancelled_after_its_renewal() -> None:
    class SlowRenewals(Far):
        async def call(self, node: None, args: tuple[str, ...], call: Call) -> Any:
            if args[0] == "RL.RESERVE":
                await asyncio.sleep(0.3)
            return await super().call(node, args, call)

    async def work() -> None:
        server = SlowRenewals(50)
        limiter = server.limiter(timeout_ms=1000)
        reserved = await limiter.reserve(MONTH, "t", 20, "6s")
        # The renewal is under way. After a cancellation that passed it, it would reserve again.
        await asyncio.sleep(2)
        await reserved.cancel()
        assert verbs(server) == ["RL.ALL", "RL.RESERVE", "RL.CANCEL"]
        await limiter.close()

    run(work())


def test_a_renewal_that_waits_for_a_slot_is_not_sent_after_the_end() -> None:
    async def work() -> None:
        server = Far(90)
        limiter = server.limiter()
        taken = [limiter.reserve(MONTH, str(at), 20, "3s") for at in range(40)]
        held = await asyncio.gather(*(one.__aenter__() for one in taken))
        await asyncio.sleep(0.95)
        await asyncio.gather(*(one.cancel() for one in held))
        assert verbs(server).count("RL.RESERVE") == RENEWAL_SLOTS
        assert verbs(server).count("RL.CANCEL") == 40
        await limiter.close()

    run(work())


def test_an_interrupted_end_goes_on_in_the_background(
    server: Granting, monkeypatch: pytest.MonkeyPatch
) -> None:
    limiter, reply = server.limiter(), server.reply
    main = threading.current_thread()

    def interrupted(args: tuple[str, ...]) -> Any:
        if args[0] == "RL.COMMIT" and threading.current_thread() is main:
            raise KeyboardInterrupt
        return reply(args)

    monkeypatch.setattr(server, "reply", interrupted)
    with pytest.raises(KeyboardInterrupt), limiter.admit(*ITEMS) as admitted:
        admitted.settle(MONTH, 10)
    until(lambda: "RL.RELEASE" in verbs(server))
    # An end without a reply is repeated after 100 ms.
    server.advance(0.1)
    look_again(limiter)
    until(lambda: "RL.COMMIT" in verbs(server))
    limiter.close()
    assert server.calls[-1][-2:] == ("COST", "10")


def test_a_forked_child_leaves_the_admissions_of_its_parent_alone(server: Granting) -> None:
    limiter = server.limiter()
    with limiter.admit(*ITEMS) as admitted:
        admitted.settle(RPM, 9)

        def work() -> str:
            before = len(server.calls)
            held = admitted.held
            admitted.finish()
            unsettled = limiter.counters.unsettled
            due = len(limiter._renewer._renewals.due)
            return f"{held} {due} {len(server.calls) - before} {unsettled}"

        assert in_child(work) == "False 0 0 0"
        assert admitted.held
    assert ("RL.CHARGE", "rl:rpm:t", *RPM.words, "COST", "4") in server.calls
    limiter.close()


def test_a_forked_child_does_not_wait_for_an_end_of_its_parent(server: Granting) -> None:
    limiter = server.limiter()
    admitted = limiter.admit(*ITEMS)

    def work() -> str:
        # The default of this signal ends the child.
        signal.alarm(5)
        admitted.finish()
        return f"{admitted.held}"

    has, done = threading.Event(), threading.Event()

    def ends() -> None:
        with admitted._ending:
            has.set()
            done.wait()

    thread = threading.Thread(target=ends)
    thread.start()
    has.wait()
    assert in_child(work) == "False"
    done.set()
    thread.join()
    admitted.finish()
    limiter.close()
