"""Runs the shared timelines: a frozen clock, a scripted server, and what the limiter does when.

All of them run over scripted connections of a driver, for asyncio. Those in which one call runs at
a time also run with the sync limiter, whose waits, renewals and ends run on the clock of the
timeline.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from redis_throttle_client import AsyncLimiter, Decision, Item, Limiter, gcra
from redis_throttle_client._holds.ending import Renewer

from .fakes import Loop, run
from .scripted import Clock, Script, scripted_client, scripted_sync_client
from .test_cases import ACTIONS, build_rule, item_as_given, timelines_of

# The longest timeline, in seconds of the frozen clock.
_LONGEST_S = 4000
# The turns of the loop after which nothing more happens at an instant.
_TURNS = 60
_BEFORE_S = 1e-6


@dataclass
class Outcome:
    """The end of an action: its result or its error, and when it began and ended."""

    result: Any
    error: Exception | None
    began: float
    ended: float

    def field(self, name: str) -> Any:
        """Returns what ``expect`` compares with the field of this name."""
        if name == "after_ms":
            return round((self.ended - self.began) * 1000)
        if name == "raises":
            raised = None if self.error is None else type(self.error).__name__
            return "Closed" if raised == "LimiterClosed" else raised
        if name == "returns":
            return self.result
        of = self.error if self.error is not None else self.result
        return getattr(getattr(of, "decision", of), name, "absent")

    def kind(self) -> str:
        """Returns the reason of an outcome, or else its source."""
        reason = self.field("reason")
        return str(self.field("source") if reason in (None, "absent") else reason)


class Checks:
    """The script of a timeline, its rules, and the checks at the end of each step."""

    def __init__(self, timeline: dict[str, Any]) -> None:
        self._steps, self._seen = timeline["steps"], 0
        self._script = Script(timeline.get("nodes"))
        self._rules = {rule["name"]: build_rule(rule) for rule in timeline["rules"]}
        # The contexts and the guards of leases and admissions.
        self._held: dict[str, tuple[Any, Any]] = {}
        self._limiter: Any

    def _given(self, action: str, given: Any) -> tuple[list[Any], dict[str, Any]]:
        """Returns the arguments of a method of the limiter."""
        if action in ("check_all", "peek_all", "check_each"):
            return self._items(given), {}
        if action in ("ready", "close"):
            return [], {}
        rule, subject, *others = given
        options = others.pop() if others and isinstance(others[-1], dict) else {}
        return [self._rules[rule], subject, *others], options

    def _items(self, given: Any) -> list[Item]:
        """Returns the items of a call of several rules."""
        items = []
        for rule, subject, *others in given:
            options = others[0] if others else {}
            options = options if isinstance(options, dict) else {"cost": options}
            items.append(item_as_given(self._rules[rule].of(subject), options))
        return items

    def _settle(self, given: Any) -> None:
        id, rule, actual = given  # noqa: A001
        self._held[id][1].settle(self._rules[rule], actual)

    def _check_end(self) -> None:
        assert [item for item in self._script.left() if item != "refuse"] == []

    def _check_step(self, expect: dict[str, Any], outcomes: list[Outcome], together: bool) -> None:
        if "sent" in expect:
            self._check_sent(expect.pop("sent"), together)
        self._seen = len(self._script.sent)
        if "generation" in expect:
            assert self._script.generation == expect.pop("generation"), "generation"
        for name, wanted in expect.pop("held", {}).items():
            assert self._held[name][1].held == wanted, f"held {name}"
        for name, wanted in expect.pop("counters", {}).items():
            assert getattr(self._limiter.counters, name, None) == wanted, f"counter {name}"
        if "outcomes" in expect:
            assert Counter(one.kind() for one in outcomes) == expect.pop("outcomes")
        for name, wanted in expect.items():
            assert _field(outcomes[0], name, wanted) == wanted, name

    def _check_sent(self, wanted: list[str], together: bool) -> None:
        sent = self._script.sent[self._seen :]
        if together:
            sent, wanted = sorted(sent), sorted(wanted)
        begins = [text[: len(start)] for text, start in zip(sent, wanted, strict=False)]
        assert begins + [text[:80] for text in sent[len(wanted) :]] == wanted, "sent"


class Runner(Checks):
    """Runs one timeline."""

    def __init__(self, timeline: dict[str, Any], driver: str) -> None:
        super().__init__(timeline)
        self._loop = loop = asyncio.get_running_loop()
        self._limiter = AsyncLimiter(
            scripted_client(driver, self._script),
            clock=lambda: round(loop.time(), 6),
            **timeline.get("options", {}),
        )
        self._started: dict[str, asyncio.Task[Outcome]] = {}

    async def run(self) -> None:
        try:
            async with asyncio.timeout(_LONGEST_S):
                for step in self._steps:
                    await self._step(step)
            self._check_end()
        finally:
            self._script.over = True
            for task in self._started.values():
                task.cancel()
            await self._limiter.close()

    async def _until(self, instant_s: float) -> None:
        if instant_s > self._loop.time():
            await asyncio.sleep(instant_s - self._loop.time())

    async def _step(self, step: dict[str, Any]) -> None:
        at_s, dials = step["at"] / 1000, self._script.dials
        assert self._loop.time() <= at_s + _BEFORE_S, f"the step at {step['at']} begins late"
        await self._until(at_s - _BEFORE_S)
        self._script.add(_replies(step))
        self._script.nodes = step.get("nodes", self._script.nodes)
        for one in step.get("calls", ()):
            self._script.add(_replies(one) * one.get("times", 1), self._key_of(one))
        await self._until(at_s)
        outcomes = await self._outcomes(step)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        assert self._script.unexpected == [], "commands without a reply in the script"
        expect = dict(step.get("expect", {}))
        if "dials" in expect:
            assert self._script.dials - dials == expect.pop("dials"), "dials"
        self._check_step(expect, outcomes, "calls" in step)

    async def _outcomes(self, step: dict[str, Any]) -> list[Outcome]:
        """Acts, and returns the outcomes of the actions that end in this step."""
        calls = [one for one in step.get("calls", [step]) for _ in range(one.get("times", 1))]
        tasks = [self._begun(one) for one in calls]
        outcomes = [None if task is None else await task for task in tasks]
        for one, outcome in zip(calls, outcomes, strict=True):
            if one is not step and outcome is not None:
                for name, wanted in one.get("expect", {}).items():
                    assert _field(outcome, name, wanted) == wanted, name
        return [outcome for outcome in outcomes if outcome is not None]

    def _begun(self, one: dict[str, Any]) -> asyncio.Task[Outcome] | None:
        action = next((name for name in ACTIONS if name in one), None)
        if action is None:
            return None
        if action == "join":
            return self._started.pop(one["join"])
        if action == "cancel":
            self._started.pop(one["cancel"]).cancel()
            return None
        if action == "disconnect":
            self._script.disconnect()
            return None
        if action == "pause":
            assert isinstance(self._loop, Loop)
            self._loop.pause(one["pause"] / 1000)
            return None
        task = self._loop.create_task(self._outcome(self._act(action, one)))
        if "start" not in one:
            return task
        self._started[one["start"]] = task
        return None

    async def _outcome(self, work: Awaitable[Any]) -> Outcome:
        began, result, error = self._loop.time(), None, None
        try:
            result = await work
        except Exception as raised:
            error = raised
        return Outcome(result, error, began, self._loop.time())

    async def _act(self, action: str, one: dict[str, Any]) -> Any:
        given = one[action]
        match action:
            case "lease":
                rule, subject, name = given
                return await self._enter(
                    name, self._limiter.lease(self._rules[rule], subject, name)
                )
            case "admit":
                name = one["id"]
                return await self._enter(name, self._limiter.admit(*self._items(given), id=name))
            case "settle":
                return self._settle(given)
            case "release" | "finish":
                return await self._held[given][0].__aexit__(None, None, None)
            case _:
                arguments, options = self._given(action, given)
                return await getattr(self._limiter, action)(*arguments, **options)

    async def _enter(self, name: str, context: Any) -> Decision:
        guard = await context.__aenter__()
        self._held[name] = context, guard
        decision: Decision = guard.decision
        return decision

    def _key_of(self, one: dict[str, Any]) -> str | None:
        """Returns the key of a call, whose commands its own replies are for."""
        given = next((one[name] for name in ACTIONS if name in one), None)
        if isinstance(given, str) or "id" in one:
            return str(one.get("id", given))
        if not isinstance(given, list) or isinstance(given[0], list):
            return None
        # The commands of a holder are distinguished by its id, other commands by the key.
        if "lease" in one:
            return str(given[2])
        return f"rl:{given[0]}:{given[1].replace(':', '%3A')}"


def _replies(step: dict[str, Any]) -> list[Any]:
    return [step["server"]] if "server" in step else list(step.get("servers", ()))


def _field(outcome: Outcome, name: str, wanted: Any) -> Any:
    """Returns a field of an outcome; of rows, the fields that are expected."""
    value = outcome.field(name)
    if name != "rows":
        return value
    assert isinstance(value, tuple), outcome.error
    assert all(isinstance(row, Decision) for row in value)
    rows = zip(value, wanted, strict=True)
    return [{field: getattr(row, field, "absent") for field in one} for row, one in rows]


class SyncRunner(Checks):
    """Runs one timeline with the sync limiter."""

    def __init__(self, timeline: dict[str, Any], driver: str, clock: Clock) -> None:
        super().__init__(timeline)
        self._clock = clock
        self._limiter = Limiter(
            scripted_sync_client(driver, self._script, clock),
            clock=clock.monotonic,
            sleep=clock.sleep,
            **timeline.get("options", {}),
        )
        self._renewer = Stepped(self._limiter._run, clock)
        self._limiter._renewer = self._renewer

    def run(self) -> None:
        try:
            for step in self._steps:
                self._step(step)
            self._check_end()
        finally:
            self._script.over = True
            self._limiter.close()

    def _step(self, step: dict[str, Any]) -> None:
        at_s, dials = step["at"] / 1000, self._script.dials
        self._renewer.run_until(at_s - _BEFORE_S)
        assert self._clock.monotonic() <= at_s + _BEFORE_S, f"the step at {step['at']} begins late"
        self._script.add(_replies(step))
        self._script.nodes = step.get("nodes", self._script.nodes)
        self._renewer.run_until(at_s)
        self._clock.sleep(at_s - self._clock.monotonic())
        action = next((name for name in ACTIONS if name in step), None)
        outcomes = [] if action is None else [self._outcome(action, step)]
        self._renewer.run_until(self._clock.monotonic())
        if reader := getattr(self._limiter._transport, "_reader", None):
            # The slot map is read on a thread of its own.
            reader.join(60)
        assert self._script.unexpected == [], "commands without a reply in the script"
        expect = dict(step.get("expect", {}))
        if "dials" in expect:
            assert self._script.dials - dials == expect.pop("dials"), "dials"
        self._check_step(expect, outcomes, together=False)

    def _outcome(self, action: str, one: dict[str, Any]) -> Outcome:
        began, result, error = self._clock.monotonic(), None, None
        try:
            result = self._act(action, one)
        except Exception as raised:
            error = raised
        return Outcome(result, error, began, self._clock.monotonic())

    def _act(self, action: str, one: dict[str, Any]) -> Any:
        given = one[action]
        match action:
            case "lease":
                rule, subject, name = given
                return self._enter(name, self._limiter.lease(self._rules[rule], subject, name))
            case "admit":
                name = one["id"]
                return self._enter(name, self._limiter.admit(*self._items(given), id=name))
            case "settle":
                return self._settle(given)
            case "release" | "finish":
                return self._held[given][0].__exit__(None, None, None)
            case "disconnect":
                return self._script.disconnect()
            case _:
                arguments, options = self._given(action, given)
                return getattr(self._limiter, action)(*arguments, **options)

    def _enter(self, name: str, context: Any) -> Decision:
        guard = context.__enter__()
        self._held[name] = context, guard
        decision: Decision = guard.decision
        return decision


class Stepped(Renewer):
    """Renews and ends holds without threads, on the clock of a timeline."""

    def __init__(self, run: Any, clock: Clock) -> None:
        super().__init__(run, clock.monotonic)
        self._stepped = clock

    def begin(self) -> None:
        super().begin()
        for crew in (self._renewals, self._ends):
            crew._most = 0

    def close(self) -> None:
        super().close()
        for hold in self._ends.close(keeps=lambda hold: False):
            self._end(hold)

    def run_until(self, instant_s: float) -> None:
        while queues := [
            (queue.due[0][0], crew._tend, queue.due)
            for crew in (self._renewals, self._ends) for queue in crew.queues.values()
            if queue.due and queue.due[0][0] <= instant_s + _BEFORE_S / 2
        ]:  # fmt: skip
            at_s, tend, due = min(queues, key=lambda one: one[0])
            hold = heapq.heappop(due)[2]
            self._stepped.sleep(max(0.0, at_s - self._stepped.monotonic()))
            tend(hold)


# The modules that read the clock of threads.
CLOCKED = ("cluster", "connection", "sockets", "timed_socket")
CONCURRENT = frozenset({"calls", "start", "pause"})


def is_sequential(timeline: dict[str, Any]) -> bool:
    """Returns True if one call runs at a time."""
    return not any(CONCURRENT & set(step) for step in timeline["steps"])


JITTER = "redis_throttle_client._net.pool.random.uniform"


@pytest.fixture(autouse=True)
def _no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixes the pause after a refused dial, which is otherwise up to 20 % shorter."""
    monkeypatch.setattr(JITTER, lambda *ends: ends[1])


@pytest.mark.parametrize(("end", "pause_s"), [(0, 0.8), (1, 1)])
def test_a_limiter_varies_the_pause_between_dials(
    end: int, pause_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JITTER, lambda *ends: ends[end])

    async def work() -> None:
        script = Script()
        script.add(["refuse"] * 2)
        clock = asyncio.get_running_loop().time
        async with AsyncLimiter(scripted_client("redis", script), clock=clock) as limiter:
            for sleep_s, dials in ((0, 1), (pause_s - 0.001, 1), (0.002, 2)):
                await asyncio.sleep(sleep_s)
                assert (await limiter.check(gcra("api", 6, 10, "60s"), "42")).reason == "connection"
                assert script.dials == dials

    run(work())


def each(timelines: list[dict[str, Any]]) -> pytest.MarkDecorator:
    """Parametrizes a test with timelines, under their names."""
    return pytest.mark.parametrize(
        "timeline", [pytest.param(timeline, id=timeline["name"]) for timeline in timelines]
    )


@pytest.mark.parametrize("driver", ["redis", "valkey"])
@each([timeline for timeline in timelines_of("python") if is_sequential(timeline)])
def test_sequential_timelines_follow_the_shared_cases_with_the_sync_limiter(
    timeline: dict[str, Any], driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(driver)
    clock = Clock()
    for module in CLOCKED:
        monkeypatch.setattr(f"redis_throttle_client._net.{module}.time", clock)
    SyncRunner(timeline, driver, clock).run()


@pytest.mark.parametrize("driver", ["redis", "valkey"])
@each(timelines_of("python"))
def test_timelines_follow_the_shared_cases(
    timeline: dict[str, Any], driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(driver)

    async def follow() -> None:
        clock = SimpleNamespace(monotonic=asyncio.get_running_loop().time)
        monkeypatch.setattr("redis_throttle_client._net.cluster.time", clock)
        await Runner(timeline, driver).run()

    run(follow())
