"""Measures calls per second and their latency in Python, for `make bench-clients`.

    bench.py SOCKET [asyncio]

Prints its contestants as one line of JSON, then replies to each job on standard input with one
line. The job `{"contestant", "scenario", "seconds", "in_flight", "key", "limit", "period_s",
"denial_cache", "prefetch"}` gets the reply `{"calls", "seconds", "cpu_seconds", "p50_us", "p99_us",
"allowed", "denied", "errors"}`. Jobs of the scenarios `local` and `forget` have `calls` or
`denials`, and their reply is the median of one call, `{"p50_us", "errors"}`. Both contestants run
with threads, or with `asyncio` with tasks. The usual library is `limits` with its Redis storage
and the fixed window, the first in its documentation and its cheapest. `limits` keeps its own
defaults, and has one connection per caller.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any

import limits
import limits.aio
import redis
import redis.asyncio
from limits.strategies import FixedWindowRateLimiter

from redis_throttle_client import AsyncLimiter, Limiter, Rule, fixed, sliding

# The timeout is long, so that a slow call is not an error for only one contestant.
PATIENT_MS = 10_000
Outcome = str
Call = Callable[[], Outcome]
AsyncCall = Callable[[], Awaitable[Outcome]]


def contestants() -> dict[str, str]:
    """Returns the contestants and their versions."""
    driver = f"redis-py {version('redis')}"
    return {
        "ours": f"redis-throttle-client {version('redis-throttle-client')}, {driver}",
        "limits": f"limits {version('limits')}, {driver}, fixed window",
    }


def rule(job: dict[str, Any]) -> Rule:
    """Returns the rule of the limiter for a job. The other contestant has its limit and period."""
    return fixed("bench", job["limit"], job["period_s"])


def options(job: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of a limiter for a job."""
    return {
        "timeout_ms": PATIENT_MS,
        "prefetch": job.get("prefetch", 1),
        "denial_cache": 1000 if job.get("denial_cache") else 0,
    }


def outcome_of(decision: Any) -> Outcome:
    """Returns the outcome that a decision counts as: allowed, denied or errors."""
    if decision.degraded:
        return "errors"
    return "allowed" if decision.allowed else "denied"


class Count:
    """The calls that one caller has made: their times and outcomes."""

    def __init__(self) -> None:
        self.took_ns: list[int] = []
        self.outcomes = {"allowed": 0, "denied": 0, "errors": 0}

    def add(self, began_ns: int, outcome: Outcome) -> None:
        """Adds one call."""
        self.took_ns.append(time.perf_counter_ns() - began_ns)
        self.outcomes[outcome] += 1


def threads(job: dict[str, Any], call: Call) -> list[Count]:
    """Runs `in_flight` callers, each on a thread."""
    counts = [Count() for _ in range(job["in_flight"])]
    end_ns = time.perf_counter_ns() + int(job["seconds"] * 1e9)

    def caller(count: Count) -> None:
        while (began_ns := time.perf_counter_ns()) < end_ns:
            try:
                outcome = call()
            except Exception:
                outcome = "errors"
            count.add(began_ns, outcome)

    running = [threading.Thread(target=caller, args=(count,)) for count in counts]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return counts


async def tasks(job: dict[str, Any], call: AsyncCall) -> list[Count]:
    """Runs `in_flight` callers, each as a task."""
    counts = [Count() for _ in range(job["in_flight"])]
    end_ns = time.perf_counter_ns() + int(job["seconds"] * 1e9)

    async def caller(count: Count) -> None:
        since_others = 0
        while (began_ns := time.perf_counter_ns()) < end_ns:
            try:
                outcome = await call()
            except Exception:
                outcome = "errors"
            count.add(began_ns, outcome)
            since_others += 1
            if since_others % 100 == 0:
                # A call that is decided locally never waits, so give the other tasks their turn.
                await asyncio.sleep(0)

    await asyncio.gather(*(caller(count) for count in counts))
    return counts


def ours(job: dict[str, Any], socket: str) -> tuple[list[Count], float]:
    """Measures the limiter with threads. Closes it at the end, which refunds unused permits."""
    limited = rule(job)
    with redis.Redis(unix_socket_path=socket) as client, Limiter(client, **options(job)) as limiter:
        limiter.ready()
        return run_timed(
            lambda: threads(job, lambda: outcome_of(limiter.check(limited, job["key"])))
        )


async def ours_async(job: dict[str, Any], socket: str) -> tuple[list[Count], float]:
    """Measures the limiter with tasks."""
    limited = rule(job)
    async with (
        redis.asyncio.Redis(unix_socket_path=socket) as client,
        AsyncLimiter(client, **options(job)) as limiter,
    ):
        await limiter.ready()

        async def call() -> Outcome:
            return outcome_of(await limiter.check(limited, job["key"]))

        began = time.perf_counter()
        counts = await tasks(job, call)
        return counts, time.perf_counter() - began


def usual(job: dict[str, Any], socket: str) -> tuple[list[Count], float]:
    """Measures `limits` with threads."""
    storage = limits.storage.RedisStorage(f"redis+unix://{socket}")
    limiter = FixedWindowRateLimiter(storage)
    item = limits.RateLimitItemPerSecond(job["limit"], job["period_s"])

    def call() -> Outcome:
        return "allowed" if limiter.hit(item, job["key"]) else "denied"

    return run_timed(lambda: threads(job, call))


async def usual_async(job: dict[str, Any], socket: str) -> tuple[list[Count], float]:
    """Measures `limits` with tasks, over the same driver."""
    storage = limits.aio.storage.RedisStorage(
        f"async+redis+unix://{socket}", implementation="redispy", max_connections=job["in_flight"]
    )
    limiter = limits.aio.strategies.FixedWindowRateLimiter(storage)
    item = limits.RateLimitItemPerSecond(job["limit"], job["period_s"])

    async def call() -> Outcome:
        return "allowed" if await limiter.hit(item, job["key"]) else "denied"

    began = time.perf_counter()
    counts = await tasks(job, call)
    return counts, time.perf_counter() - began


def run_timed(work: Callable[[], list[Count]]) -> tuple[list[Count], float]:
    """Runs the work and returns its result and duration in seconds."""
    began = time.perf_counter()
    return work(), time.perf_counter() - began


def median_us(calls: int, call: Callable[[int], object]) -> float:
    """Returns the median time of a call. `call` gets the number of the call."""
    took_ns = []
    for number in range(calls):
        began_ns = time.perf_counter_ns()
        call(number)
        took_ns.append(time.perf_counter_ns() - began_ns)
    return statistics.median(took_ns) / 1000


def local(job: dict[str, Any], socket: str) -> dict[str, Any]:
    """Measures a sliding window in this process, after `calls` calls of its key."""
    window = sliding("local", 2 * job["calls"], "1h")
    # No server listens there.
    unreachable = redis.Redis(unix_socket_path=f"{socket}.down")
    with Limiter(unreachable, on_error="local") as limiter:
        call = lambda _: limiter.check(window, job["key"])  # noqa: E731
        median_us(job["calls"], call)
        return {"p50_us": median_us(1000, call), "errors": limiter.counters.denied}


def forget(job: dict[str, Any], socket: str) -> dict[str, Any]:
    """Measures `forget` and `refund` together, with `denials` denials in the cache."""
    limited = fixed("forget", 1, "1h")
    kept = {"denial_cache": job["denials"], "denial_cache_max_ms": 3_600_000}
    with redis.Redis(unix_socket_path=socket) as client, Limiter(client, **kept) as limiter:
        for number in range(job["denials"]):
            limiter.check(limited, str(number), cost=2)

        def call(number: int) -> None:
            limiter.forget(limited, str(number))
            limiter.refund(limited, str(number))

        return {"p50_us": median_us(1000, call) / 2, "errors": limiter.counters.degraded}


RUNNERS: dict[tuple[str, bool], Callable[[dict[str, Any], str], Any]] = {
    ("ours", False): ours,
    ("ours", True): lambda job, socket: asyncio.run(ours_async(job, socket)),
    ("limits", False): usual,
    ("limits", True): lambda job, socket: asyncio.run(usual_async(job, socket)),
}


MEDIANS = {"local": local, "forget": forget}


def run(job: dict[str, Any], socket: str, *, with_tasks: bool) -> dict[str, Any]:
    """Runs one job."""
    if job["scenario"] in MEDIANS:
        return MEDIANS[job["scenario"]](job, socket)
    cpu = time.process_time()
    counts, seconds = RUNNERS[job["contestant"], with_tasks](job, socket)
    cpu = time.process_time() - cpu
    took_ns = sorted(took for count in counts for took in count.took_ns)
    found = {
        name: sum(count.outcomes[name] for count in counts)
        for name in ("allowed", "denied", "errors")
    }
    return {
        "calls": len(took_ns),
        "seconds": seconds,
        "cpu_seconds": cpu,
        "p50_us": took_ns[len(took_ns) // 2] / 1000,
        "p99_us": took_ns[len(took_ns) * 99 // 100] / 1000,
        **found,
    }


def main() -> None:
    """Reads jobs from standard input and replies to each of them, until the input ends."""
    socket, with_tasks = sys.argv[1], sys.argv[2:] == ["asyncio"]
    language = "python, asyncio" if with_tasks else "python"
    print(json.dumps({"language": language, "contestants": contestants()}), flush=True)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line), socket, with_tasks=with_tasks)), flush=True)


if __name__ == "__main__":
    main()
