"""What happens beside a call that is under way: a forget, a close, others who wait, a probe."""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import anyio
import pytest

from redis_throttle_client import (
    AsyncLimiter,
    CommandRejected,
    Decision,
    Limiter,
    Rule,
    Unavailable,
    fixed,
    gcra,
    policy,
    quota,
    sliding,
    token_bucket,
)
from redis_throttle_client._policy import Gate
from redis_throttle_client.testing import FakeServer

from .conftest import until

API = gcra("api", 6, 10, "60s")
HOT = fixed("hot", 10, "1h", prefetch=10)
ONE = fixed("one", 1, "1h")
PATIENT: Any = {"timeout_ms": 60_000}


class Held(FakeServer):
    """Decides at once; while it holds, its answers come later, but to what it lets pass."""

    def __init__(self, *passing: str) -> None:
        super().__init__()
        self._passing = passing
        self._lock = threading.RLock()
        self._go = threading.Event()
        self._go.set()
        self.waits_s: list[float] = []

    def hold(self) -> None:
        self._go = threading.Event()

    def let_go(self) -> None:
        self._go.set()

    def node(self, key: str) -> None:
        return None

    def call(self, node: None, args: tuple[str, ...], timeout_s: float) -> Any:
        with self._lock:
            self.waits_s.append(timeout_s)
            reply = self.reply(args)
        if args[0] not in self._passing:
            assert self._go.wait(60)
        return reply

    def close(self) -> None:
        pass

    def threads(self, **options: Any) -> Limiter:
        return Limiter(self, clock=self.now, **PATIENT, **options)


def begun(work: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def ended(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


class Loop(asyncio.SelectorEventLoop):
    """Where all wait, its clock goes on to the next timer: no test waits for it."""

    def __init__(self) -> None:
        selector = selectors.DefaultSelector()
        super().__init__(selector)
        self._now_s, self._look = 0.0, selector.select
        selector.select = self._jump  # type: ignore[method-assign]

    def _jump(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "all wait, and nothing comes"
        found = self._look(0)
        if not found:
            self._now_s += timeout
        return found

    def time(self) -> float:
        return self._now_s


class Far(FakeServer):
    """A server of asyncio at so many ms for there and back, and what it let wait."""

    def __init__(self, ms: float) -> None:
        super().__init__()
        self._s = ms / 1000
        self.in_flight = self.most = 0

    def node(self, key: str) -> None:
        return None

    async def call(self, node: None, args: tuple[str, ...], timeout_s: float) -> Any:
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.sleep(self._s / 2)
                reply = self.reply(args)
                await asyncio.sleep(self._s / 2)
                return reply
        except TimeoutError as error:
            raise Unavailable("no answer in time") from error
        finally:
            self.in_flight -= 1

    async def close(self) -> None:
        pass

    def limiter(self, **options: Any) -> Any:
        return AsyncLimiter(self, clock=asyncio.get_running_loop().time, **options)


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(work)


# -- forget, refund and charge ------------------------------------------------------------------


def use_up(limiter: Limiter) -> None:
    for _ in range(6):
        limiter.check(API, "42")


def test_a_forgotten_denial_does_not_come_back_with_a_call_under_way() -> None:
    server = Held("DEL")
    limiter = server.threads(denial_cache=9)
    use_up(limiter)
    server.hold()
    asked = [
        begun(lambda: limiter.check(API, "42")),
        begun(lambda: limiter.check_all([(ONE, "x"), (API, "42")])),
    ]
    until(lambda: len(server.calls) == 8)
    limiter.forget(API, "42")
    server.let_go()
    ended(asked)
    assert limiter.check(API, "42").allowed
    assert limiter.check_all([(ONE, "x"), (API, "42")]).allowed


def test_nor_with_one_that_the_server_answered_before_the_forget() -> None:
    class Late(Held):
        def reply(self, args: tuple[str, ...]) -> Any:
            if args[0] == "DEL":
                # A denial that comes while the forget is on its way to the server.
                limiter.check(API, "42")
            return super().reply(args)

    limiter = Late().threads(denial_cache=9)
    use_up(limiter)
    limiter.forget(API, "42")
    assert limiter.check(API, "42").allowed


@pytest.mark.parametrize("verb", ["refund", "charge"])
def test_what_is_given_or_taken_here_ends_a_denial_on_its_way(verb: str) -> None:
    server = Held("RL.REFUND", "RL.CHARGE")
    limiter = server.threads(denial_cache=9)
    use_up(limiter)
    server.hold()
    asked = begun(lambda: limiter.check(API, "42"))
    until(lambda: len(server.calls) == 7)
    getattr(limiter, verb)(API, "42")
    server.let_go()
    ended([asked])
    after = limiter.check(API, "42")
    assert (after.source, after.allowed) == ("server", verb == "refund")


def test_another_key_that_is_forgotten_ends_no_denial() -> None:
    server = Held("DEL")
    limiter = server.threads(denial_cache=9)
    use_up(limiter)
    cache, args = limiter._calls._denials, server.calls[-1]
    server.hold()
    asked = begun(lambda: limiter.check(API, "42"))
    until(lambda: len(server.calls) == 7)
    before = cache.drops(args)
    limiter.forget(API, next(other for other in map(str, range(99)) if not meets(other, args)))
    assert cache.drops(args) == before
    server.let_go()
    ended([asked])
    assert limiter.check(API, "42").source == "local"


def meets(subject: str, args: tuple[str, ...]) -> bool:
    """Whether it is told apart from none of a call's words. That changes from run to run."""
    return hash(f"rl:api:{subject}") % 1024 in {hash(word) % 1024 for word in args}


def test_forgotten_permits_do_not_come_back_with_a_fetch_under_way() -> None:
    server = Held("DEL")
    limiter = server.threads()
    server.hold()
    asked = begun(lambda: limiter.check(HOT, "42"))
    until(lambda: len(server.calls) == 1)
    limiter.forget(HOT, "42")
    server.let_go()
    ended([asked])
    # All are there again, and no more.
    assert sum(limiter.check(HOT, "42").allowed for _ in range(40)) == 10


def test_while_a_key_is_forgotten_nothing_is_taken_in_advance() -> None:
    server = Held("RL.FIXED")
    limiter = server.threads()
    server.hold()
    forgotten = begun(lambda: limiter.forget(HOT, "42"))
    until(lambda: len(server.calls) == 1)
    assert limiter.check(HOT, "42").allowed
    server.let_go()
    ended([forgotten])
    assert sum(limiter.check(HOT, "42").allowed for _ in range(40)) == 9
    assert [call[-2:] for call in server.calls[1:3]] == [("1", "PARTIAL"), ("10", "PARTIAL")]
    assert limiter._calls._grants._forgetting == {}


def test_who_comes_after_a_forget_does_not_wait_for_what_was_asked_before() -> None:
    server = Held("DEL")
    limiter = server.threads()
    server.hold()
    asked = [begun(lambda: limiter.check(HOT, "42"))]
    until(lambda: len(server.calls) == 1)
    limiter.forget(HOT, "42")
    asked.append(begun(lambda: limiter.check(HOT, "42")))
    until(lambda: len(server.calls) == 3)
    server.let_go()
    ended(asked)


@pytest.mark.anyio
async def test_forget_and_check_at_once_in_asyncio() -> None:
    server = FakeServer()
    limiter = server.async_limiter(denial_cache=9)
    await limiter.check(API, "42", 6)
    await asyncio.gather(
        limiter.check(API, "42"), limiter.check(HOT, "42"),
        limiter.forget(API, "42"), limiter.forget(HOT, "42"),
    )  # fmt: skip
    assert (await limiter.check(API, "42")).allowed
    found = [await limiter.check(HOT, "42") for _ in range(40)]
    assert 9 <= sum(one.allowed for one in found) <= 10


# -- close --------------------------------------------------------------------------------------


def test_what_comes_while_it_closes_is_given_back() -> None:
    server = Held("RL.REFUND", "RL.PEEK")
    limiter = server.threads()
    server.hold()
    hot = [gcra(f"hot{at}", 100, 100, "60s", prefetch=10) for at in range(3)]
    asked = [begun(lambda rule=rule: limiter.check(rule, "42")) for rule in hot]  # type: ignore[misc]
    until(lambda: len(server.calls) == 3)
    closed = begun(limiter.close)
    until(lambda: limiter._calls._grants._closed)
    assert closed.is_alive()
    server.let_go()
    ended([*asked, closed])
    assert [call[-1] for call in server.calls if call[0] == "RL.REFUND"] == ["9"] * 3
    assert [limiter.peek(rule, "42", 0).remaining for rule in hot] == [99] * 3
    # What is asked afterwards is for nobody to give back.
    assert limiter.check(hot[0], "42").remaining == 98


def test_what_comes_while_it_closes_is_given_back_in_asyncio() -> None:
    async def close() -> None:
        server = Far(60)
        limiter = server.limiter()
        asked = asyncio.create_task(limiter.check(HOT, "42"))
        await asyncio.sleep(0.01)
        await limiter.close()
        assert (await asked).source == "server"
        assert [call[0] for call in server.calls] == ["RL.FIXED", "RL.REFUND"]
        assert server.calls[-1][-1] == "9"

    run(close())


def test_a_close_waits_no_longer_than_a_call_may_take() -> None:
    async def close() -> None:
        server = Far(10**6)
        limiter = server.limiter()
        asked = asyncio.create_task(limiter.check(HOT, "42"))
        await asyncio.sleep(0.01)
        await limiter.close()
        assert asyncio.get_running_loop().time() < 0.2
        assert (await asked).source == "error"

    run(close())


# -- those who wait for permits -----------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [2, 7, 10, 150])
@pytest.mark.parametrize("every_ms", [0, 0.3])
def test_a_burst_is_decided_by_the_server_however_far_it_is(prefetch: int, every_ms: float) -> None:
    async def burst() -> None:
        server = Far(60)
        limiter = server.limiter(timeout_ms=100)
        hot = fixed("hot", 100, "1h", prefetch=prefetch)

        async def come(at: int) -> Decision:
            await asyncio.sleep(at * every_ms / 1000)
            decision: Decision = await limiter.check(hot, "42")
            return decision

        found = await asyncio.gather(*(come(at) for at in range(200)))
        assert "error" not in {one.source for one in found}
        assert sum(one.allowed for one in found) == 100
        assert limiter._calls._gate(None)._failed == 0
        assert (await limiter.check(API, "42")).source == "server"
        await limiter.close()
        assert (await server.limiter().peek(hot, "42", 0)).remaining == 0
        assert limiter._calls._grants._fetches == {}
        if not every_ms:
            assert server.calls[0][5] == "200"

    run(burst())


def test_a_flood_on_many_keys_opens_no_circuit() -> None:
    async def flood() -> None:
        server = Far(60)
        limiter = server.limiter(timeout_ms=100, breaker_failures=1)
        rules = [gcra(f"hot{at}", 100, 100, "60s", prefetch=2) for at in range(5)]
        found = [asyncio.create_task(limiter.check(rule, "42")) for rule in rules for _ in range(3)]
        await asyncio.sleep(0.055)
        found += [asyncio.create_task(limiter.check(rule, "42")) for rule in rules]
        assert {(await one).allowed for one in found} == {True}
        assert limiter.counters.degraded == 0

    run(flood())


def test_threads_that_wait_have_a_permit_each() -> None:
    server = Held()
    limiter = server.threads()
    hot, found = fixed("hot", 95, "1h", prefetch=10), list[Decision]()
    server.hold()
    threads = [begun(lambda: found.append(limiter.check(hot, "42"))) for _ in range(200)]
    until(lambda: len(server.calls) == 20)
    server.let_go()
    ended(threads)
    assert sum(one.allowed for one in found) == 95
    assert {one.source for one in found} == {"server", "local"}
    assert len(server.calls) == 20
    assert set(server.waits_s) == {60}
    assert limiter._calls._grants._fetches == {}


@pytest.mark.parametrize(
    "rule",
    [gcra("a", 5, 5, "1m", prefetch=9), gcra("b", 5, 7, "1s", prefetch=9),
     token_bucket("c", 5, 5, "1m", prefetch=9), fixed("d", 5, "1m", prefetch=9),
     sliding("e", 5, "1m", prefetch=9), quota("f", 5, "month", prefetch=9)],
    ids=lambda rule: rule.kind,
)  # fmt: skip
def test_who_finds_less_than_was_asked_for_hears_when_to_come_back(rule: Rule) -> None:
    async def come() -> None:
        server, single = FakeServer(), replace(rule, prefetch=1)
        server.limiter().check(single, "42")
        server.advance(0.01)
        limiter = server.async_limiter()
        found = await asyncio.gather(*(limiter.check(rule, "42") for _ in range(9)))
        assert sum(one.allowed for one in found) == 4
        last = found[-1]
        assert (last.allowed, last.source, last.remaining) == (False, "local", 0)
        exact = server.limiter().peek(single, "42").retry_after_ms
        assert exact <= last.retry_after_ms <= exact + (rule.kind == "sliding") * 10 + 1
        server.advance(last.retry_after_ms / 1000)
        assert server.limiter().check(single, "42").allowed

    asyncio.run(come())


def test_permits_of_two_rules_of_one_name_are_not_mixed() -> None:
    async def come() -> None:
        server = Far(10)
        limiter = server.limiter()
        large, small = (fixed("plan", limit, "1h", prefetch=2) for limit in (1000, 5))
        rules = [large, small] * 3
        found = await asyncio.gather(*(limiter.check(rule, "42") for rule in rules))
        assert [one.limit for one in found] == [1000, 5] * 3

    run(come())


def test_who_goes_leaves_its_permit_to_others() -> None:
    async def come() -> None:
        server = Far(60)
        limiter = server.limiter()
        asked = [asyncio.create_task(limiter.check(HOT, "42")) for _ in range(4)]
        await asyncio.sleep(0.01)
        # The first of them had it asked for; the last goes when it has come.
        asked[0].cancel()
        grants, end = limiter._calls._grants, limiter._calls._grants.end

        def ended(*came: Any) -> None:
            end(*came)
            asked[3].cancel()

        grants.end = ended
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [isinstance(one, asyncio.CancelledError) for one in found] == [
            True, False, False, True,
        ]  # fmt: skip
        assert [(await limiter.check(HOT, "42")).source for _ in range(8)] == ["local"] * 8
        assert not (await limiter.check(HOT, "42")).allowed
        assert len(server.calls) == 2

    run(come())


def test_a_mistake_is_raised_to_all_who_wait() -> None:
    async def come() -> None:
        server = Far(60)
        server.fail("WRONGTYPE x")
        limiter = server.limiter()
        found = await asyncio.gather(
            *(limiter.check(HOT, "42") for _ in range(3)), return_exceptions=True
        )
        assert [type(one) for one in found] == [CommandRejected] * 3
        assert limiter.counters.mistakes == 3

    run(come())


def test_a_failure_is_one_for_the_circuit_however_many_wait() -> None:
    async def come() -> None:
        server = Far(60)
        server.fail()
        limiter = server.limiter(breaker_failures=2)
        found = await asyncio.gather(*(limiter.check(HOT, "42") for _ in range(9)))
        assert {one.source for one in found} == {"error"}
        server.recover()
        assert (await limiter.check(HOT, "42")).source == "server"

    run(come())


def test_loops_side_by_side_share_permits_and_wait_for_their_own() -> None:
    server = FakeServer()
    limiter, found = server.async_limiter(), list[Decision]()

    async def come() -> None:
        found.extend(await asyncio.gather(*(limiter.check(HOT, "42") for _ in range(5))))

    ended([begun(lambda: asyncio.run(come())) for _ in range(4)])
    assert sum(one.allowed for one in found) == 10
    assert {one.degraded for one in found} == {False}


def test_a_fetch_whose_loop_ended_before_it_began_is_waited_for_by_nobody() -> None:
    server = FakeServer()
    loop = asyncio.new_event_loop()
    limiter = server.async_limiter()

    async def come() -> Decision:
        return await limiter.check(HOT, "42")

    async def end() -> None:
        asked = asyncio.create_task(come())
        await asyncio.sleep(0)
        for task in [asked, *limiter._tasks]:
            task.cancel()
        await asyncio.wait([asked])

    loop.run_until_complete(end())
    server.advance(0.1)
    assert loop.run_until_complete(come()).source == "server"
    assert limiter._calls._grants._fetches == {}
    loop.close()


# -- the circuit breaker ------------------------------------------------------------------------


@pytest.mark.parametrize("answered", [True, False, None])
def test_one_call_is_the_probe_whatever_older_ones_end_meanwhile(answered: bool | None) -> None:
    gate = Gate(9, 1, 1)
    older = [gate.enter(0) for _ in range(2)]
    gate.leave(0, gate.enter(0), answered=False)
    assert gate.enter(1)
    gate.leave(1, older[0], answered=answered)
    if answered:
        # It does answer, so they are let in; but the probe is still under way when it is shut.
        assert gate.enter(1) is False
        gate.leave(1, older[1], answered=False)
    for now in (1, 2, 9):
        with pytest.raises(Unavailable):
            gate.enter(now)
    gate.leave(9, True, answered=False)
    assert gate.enter(10)


# -- decisions that nobody made -----------------------------------------------------------------


@pytest.mark.anyio
async def test_the_limit_of_a_decision_that_nobody_made_is_the_rules() -> None:
    server = FakeServer()
    server.fail()
    limiter = server.limiter()
    closed = fixed("day", 9, "1d", on_error="deny")
    named = [policy("search", default=API), policy("unknown")]
    assert [limiter.check(rule, "42").limit for rule in (API, closed, *named)] == [6, 9, 6, 0]
    assert limiter.check_all([(API, "42"), (closed, "42")]).limit == 9
    assert limiter.peek(API, "42").limit == 6
    with anyio.fail_after(60):
        assert (await server.async_limiter(prefetch=9).check(API, "42")).limit == 6
    assert limiter.check(closed, "42").headers() == {"Retry-After": "1"}
