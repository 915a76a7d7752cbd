"""Rows of `pressure.py`: the faults that a program meets, and the bounds of its calls."""

from __future__ import annotations

import random
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from figures import Figure, Figures, Measured, case_of
from proxy import Link
from scene import (
    GATEWAY,
    POOL,
    Call,
    Failure,
    Language,
    Quota,
    Scene,
    Tools,
    now_ms,
    outcomes,
)
from services import gateway, storm

TIMEOUT_MS, SILENCE_MS = 1000, 100
# What a deadline may be late: a tick of `silence_ms` / 4, and the scheduling of one busy core.
LATE_MS = 40
HEALED_MS = 1500


@dataclass(frozen=True)
class Row:
    """A part of the table. `measure` yields its cases.

    A row that is `calm` uses so little of a core that several run at the same time.
    """

    name: str
    measure: Callable[[Scene], Measured]
    is_for: Callable[[Language], bool] = lambda language: not language.is_service
    proxied: bool = False
    calm: bool = True


def longest_ms(calls: list[Call]) -> float:
    """Returns the duration of the longest call."""
    return max((call.took_ms for call in calls), default=0.0)


def healed_ms(calls: list[Call], since_ms: float) -> float:
    """Returns the time until the beginning of the first call from which the server decides all."""
    degraded = [at for at, call in enumerate(calls) if call.is_degraded]
    if not degraded or calls[degraded[-1]].began_ms < since_ms:
        return 0.0
    if degraded[-1] + 1 == len(calls):
        return float("inf")
    return calls[degraded[-1] + 1].began_ms - since_ms


def heal_time(calls: list[Call], since_ms: float, most: float = HEALED_MS) -> Figure:
    """Returns the time until the server decides again."""
    return Figure("healed in", healed_ms(calls, since_ms), most, unit=" ms")


def by_on_error(calls: list[Call]) -> Figure:
    """Returns the number of calls that `on_error` decided, which must be none."""
    return Figure("by on_error", sum(call.is_degraded for call in calls), 0)


HERDS = {
    "fixed": ({"kind": "fixed", "limit": 1000, "rate": 0, "period_s": 3600}, 1),
    "gcra": ({"kind": "gcra", "limit": 1000, "rate": 6000, "period_s": 60}, 1),
    "100 keys": ({"kind": "fixed", "limit": 10, "rate": 0, "period_s": 3600}, 100),
}
LIMIT, CALLS = 1000, 10_000


def herd(name: str, callers: int) -> Callable[[Scene], Measured]:
    """Makes far more calls than the limit, in a new program and then in a warm one."""
    rule, keys = HERDS[name]
    shape = f"{callers} callers" if callers < CALLS else "10,000 calls at once"

    def measure(scene: Scene) -> Measured:
        for phase in ("cold", "warm"):
            if phase == "warm":
                scene.settle()
            calls = scene.job(name=phase, rule=rule, keys=keys, callers=callers, calls=CALLS)
            span_s = (max(call.ended_ms for call in calls) - calls[0].began_ms) / 1000
            refill = int(span_s * float(str(rule["rate"])) / float(str(rule["period_s"])))
            allowed = sum(call.is_allowed for call in calls)
            degraded = sum(call.is_degraded for call in calls) / len(calls)
            # The last units may refill after the last call that could take one.
            counted = allowed if allowed < LIMIT else max(LIMIT, allowed - refill)
            scene.notes.insert(0, phase)
            yield case_of(
                f"{name}, {shape}",
                Figure("allowed", counted, LIMIT + 10, LIMIT),
                Figure("degraded", degraded * 100, 1, unit="%", digits=1),
            )

    return measure


def many_keys(scene: Scene) -> Measured:
    """Makes 10,000 calls at once, each of another key."""
    calls = scene.job(name="many", keys=CALLS, callers=CALLS, calls=CALLS)
    end_ms = max(call.ended_ms for call in calls)
    after = scene.job(name="after", rate=50, calls=75)
    degraded = sum(call.is_degraded for call in calls) / len(calls)
    yield case_of(
        "10,000 keys at once",
        Figure("longest", longest_ms(calls), 3 * TIMEOUT_MS, unit=" ms"),
        heal_time(after, end_ms, 1000),
        Figure("degraded", degraded * 100, unit="%", digits=1),
    )


def stalls(scene: Scene) -> Measured:
    """Stalls the server 20 times under 256 callers, each for less than `silence_ms`."""
    scene.settle(callers=256)
    scene.begin(callers=256, calls=1_000_000, seconds=3.5)
    time.sleep(0.2)
    for _ in range(20):
        scene.stall(0.08)
        time.sleep(0.07)
    yield case_of("20 stalls of 80 ms, 256 callers", by_on_error(scene.end()))


def denied(scene: Scene) -> Measured:
    """Stalls the server for longer than `silence_ms`, for a key that it denied for an hour."""
    rule = {"kind": "fixed", "limit": 1, "rate": 0, "period_s": 3600}
    scene.settle()
    before = scene.job(rule=rule, calls=2)
    if [call.outcome for call in before] != ["allowed server", "denied server"]:
        raise Failure(f"expected a denial by the server, not {outcomes(before)}")
    scene.begin(rule=rule, rate=100, calls=200)
    time.sleep(0.5)
    scene.stall(0.3)
    allowed = sum(call.is_allowed for call in scene.end())
    yield case_of("a stall of 300 ms, the key denied before", Figure("allowed", allowed, 0))


def stop_server(scene: Scene, case: str, most_ms: float, **job: int) -> Measured:
    """Stops the server for 2 s, after 1 of the 5 s of a job."""
    scene.begin(**job)
    time.sleep(1)
    scene.server.process.send_signal(signal.SIGSTOP)
    time.sleep(2)
    scene.server.process.send_signal(signal.SIGCONT)
    since_ms = now_ms()
    calls = scene.end()
    # A call that began after the stop also waits for those before it, so all count.
    yield case_of(
        case, Figure("longest", longest_ms(calls), most_ms, unit=" ms"), heal_time(calls, since_ms)
    )


def stop(scene: Scene) -> Measured:
    """Stops the server after it was heard."""
    scene.settle(callers=4)
    yield from stop_server(scene, "the server stops", 2 * SILENCE_MS + LATE_MS, rate=50, calls=250)


def quota(scene: Scene) -> Measured:
    """Stops the server while the program has a tenth of a core."""
    scene.settle(callers=64)
    with Quota(scene.program.pid):
        case = "the server stops, 10% CPU for the program"
        yield from stop_server(scene, case, TIMEOUT_MS, rate=100, calls=500)


def refused(scene: Scene) -> Measured:
    """Refuses connections for 7 s. Then dials take 80 ms."""
    scene.proxy.delay_s = lambda link: 0.08 if link.replies == 0 else 0
    scene.begin(rate=20, calls=190)
    time.sleep(7)
    since_ms = now_ms()
    scene.proxy.listen()
    calls = scene.end()
    if calls[0].began_ms > since_ms - 4000:
        raise Failure("the program began too late: the machine is too busy")
    yield case_of("refused for 7 s, then dials of 80 ms", heal_time(calls, since_ms, 1200))


def slow_replies(scene: Scene) -> Measured:
    """Delays each reply, with more calls than the connections carry.

    What they carry follows from the time of a call at a low rate, because the proxy adds to the
    delay. The burst at the beginning fills the line, so that the overload has lasted for a while
    when the window begins.
    """
    lanes, window_s = scene.language.lanes, 3.0
    scene.proxy.listen()
    scene.settle()
    scene.proxy.delay_s = lambda _: 0.09
    scene.settle(callers=lanes)
    alone = scene.job(rate=50, calls=25)
    carried = 1000 * lanes / statistics.median(call.took_ms for call in alone)
    rate = round(1.1 * carried)
    scene.begin(rate=rate, burst=7 * lanes, calls=round(rate * (window_s + 2)) + 7 * lanes)
    time.sleep(1.5)
    began_ms, first = now_ms(), scene.server.calls()
    time.sleep(window_s)
    ended_ms, last = now_ms(), scene.server.calls()
    calls = scene.end()
    counted = (last - first) / ((ended_ms - began_ms) / 1000) / carried
    took = [call.took_ms for call in calls if began_ms <= call.began_ms < ended_ms]
    scene.notes.append(f"{carried:,.0f} calls per second carried")
    yield case_of(
        "replies of 90 ms, 10% more calls than fit",
        Figure("counted", counted * 100, least=90, unit="%"),
        Figure("p50", statistics.median(took), 300, unit=" ms"),
    )


def late_replies(scene: Scene) -> Measured:
    """Delays a fifth of the replies by 2 s."""
    chance = random.Random(1)

    def delay_s(link: Link) -> float:
        return 2.0 if link.has_called and chance.random() < 0.2 else 0.0

    scene.proxy.listen()
    scene.settle(callers=4)
    scene.proxy.delay_s = delay_s
    calls = scene.job(rate=100, calls=600)
    mean = statistics.fmean(call.took_ms for call in calls)
    yield case_of(
        "20% of replies 2 s late, 100 calls/s", Figure("mean", mean, 40, unit=" ms", digits=1)
    )


def one_left(scene: Scene) -> Measured:
    """Makes all connections but one fall silent."""
    scene.proxy.listen()
    scene.proxy.delay_s = lambda _: 0.02
    scene.settle(callers=64)
    scene.proxy.delay_s = lambda _: 0.001
    scene.begin(rate=100, calls=500)
    time.sleep(1)
    lost = scene.proxy.open_links[1:]
    for link in lost:
        link.is_silent = True
    since_ms = now_ms()
    calls = scene.end()
    still = sum(link.is_open for link in lost)
    scene.notes.append(f"{len(lost)} connections fell silent")
    yield case_of(
        "all connections but one fall silent",
        heal_time(calls, since_ms),
        Figure("connections lost", still, 0),
    )


def paused(scene: Scene) -> Measured:
    """Pauses writes for 3 s, while the server replies to peeks."""
    rate = 40
    scene.settle(callers=4)
    scene.begin(rate=rate, calls=200, peek_every=2)
    time.sleep(1)
    since_ms = now_ms()
    scene.server.call("CLIENT", "PAUSE", 3000, "WRITE")
    # The calls from the end of the first second to the end of the pause are those of "then".
    first_ms, last_ms = since_ms + TIMEOUT_MS + LATE_MS, since_ms + 3000
    calls = [call for call in scene.end() if call.ended_ms >= since_ms]
    first = [call for call in calls if call.began_ms < first_ms]
    later = [call for call in calls if first_ms <= call.began_ms < last_ms]
    # With a connection for each call, the silence of one counts from the reply to the next peek.
    next_ms = 1000 / rate if is_pool(scene.language) else 0
    yield case_of(
        "writes paused for 3 s, peeks answered",
        Figure("in the first second", longest_ms(first), TIMEOUT_MS + LATE_MS, unit=" ms"),
        Figure("then", longest_ms(later), next_ms + SILENCE_MS + LATE_MS, unit=" ms"),
    )


def swallowed(scene: Scene) -> Measured:
    """Accepts connections from the start, and swallows all that is sent."""
    scene.proxy.is_silent = True
    scene.proxy.listen()
    first_ms = scene.language.first_dial_ms
    calls = scene.job(rate=20, calls=20 * (first_ms // 1000 + 3))
    end_ms = calls[0].began_ms + first_ms + LATE_MS
    first = [call for call in calls if call.began_ms < end_ms]
    later = [call for call in calls if call.began_ms >= end_ms]
    yield case_of(
        "packets swallowed from the start",
        Figure("in the first dial", longest_ms(first), first_ms + LATE_MS, unit=" ms"),
        Figure("then", longest_ms(later), SILENCE_MS + LATE_MS, unit=" ms"),
    )


def is_at_once(language: Language) -> bool:
    """Returns true for a program that makes 10,000 calls at once."""
    return language.at_once and not language.is_service


def is_pool(language: Language) -> bool:
    """Returns true for a program with a connection for each call under way."""
    return language.lanes == POOL


def is_service(language: Language) -> bool:
    """Returns true for a service."""
    return language.is_service


def is_gateway(language: Language) -> bool:
    """Returns true for the gateway."""
    return language is GATEWAY


ROWS = [
    *(Row("herd", herd(name, 64), calm=False) for name in HERDS),
    *(Row("herd", herd(name, CALLS), is_at_once, calm=False) for name in HERDS),
    Row("keys", many_keys, is_at_once, calm=False),
    Row("stalls", stalls, calm=False),
    Row("slow", slow_replies, proxied=True, calm=False),
    Row("denied", denied),
    Row("stop", stop),
    Row("quota", quota),
    Row("refused", refused, proxied=True),
    Row("late", late_replies, proxied=True),
    Row("one-left", one_left, is_pool, proxied=True),
    Row("paused", paused),
    Row("swallowed", swallowed, proxied=True),
    Row("storm", storm, is_service, proxied=True, calm=False),
    Row("gateway", gateway, is_gateway, calm=False),
]


def measure_row(tools: Tools, row: Row, language: Language) -> Iterator[tuple[str, Figures, str]]:
    """Runs a row once. Yields its cases with their figures, and the outcomes of the calls."""
    with Scene(tools, language, proxied=row.proxied) as scene:
        for case, figures in row.measure(scene):
            yield case, figures, "; ".join(scene.notes)
            scene.notes.clear()
