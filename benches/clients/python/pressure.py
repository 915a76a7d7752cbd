"""Makes calls as a job describes, in Python, for `make bench-clients ONLY=pressure`.

    pressure.py HOST:PORT [asyncio]

Replies to each job on standard input with one line. A job is `{"name", "rule": {"kind", "limit",
"rate", "period_s"}, "keys", "calls", "callers", "seconds", "rate", "burst", "peek_every"}`.
`callers` make the calls one after the other, until `calls` were made or `seconds` are over. With
`rate`, each call begins when it is due, after a `burst` of calls that are due at once. Call number
`n` is of the key `n % keys`, and every `peek_every`th is a `peek`. The reply is `{"began_ms",
"calls"}`: the Unix time, and for each outcome a list of the beginning and the duration of each
call, in microseconds. The limiter has its default options and begins with the first job. All
programs of this benchmark have these jobs and replies.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import redis
import redis.asyncio

from redis_throttle_client import AsyncLimiter, Decision, Limiter, Rule, fixed, gcra

# With a rate, more calls than this do not run at a time. A call lasts at most a second.
THREADS_MAX = 2000


class Job:
    """A job and the calls that were made for it."""

    def __init__(self, line: str) -> None:
        self.given: dict[str, Any] = json.loads(line)
        rule, period_s = self.given["rule"], self.given["rule"]["period_s"]
        self.rule: Rule = (
            fixed("bench", rule["limit"], period_s)
            if rule["kind"] == "fixed"
            else gcra("bench", rule["limit"], rule["rate"], period_s)
        )
        self.took: defaultdict[str, list[int]] = defaultdict(list)
        self.began_ms = time.time() * 1000
        self._began_ns = time.perf_counter_ns()

    def now_us(self) -> int:
        """Returns the time since the job began."""
        return (time.perf_counter_ns() - self._began_ns) // 1000

    def numbers(self) -> Iterator[int]:
        """Yields the numbers of the calls; callers share it."""
        end_us = self.given["seconds"] * 1e6
        for number in range(self.given["calls"]):
            if end_us and self.now_us() >= end_us:
                return
            yield number

    def due(self) -> Iterator[tuple[int, float]]:
        """Yields the number of each call, and the seconds until it is due."""
        for number in range(self.given["calls"]):
            due_s = (number - self.given["burst"]) / self.given["rate"]
            yield number, max(0.0, due_s - self.now_us() / 1e6)

    def subject(self, number: int) -> str:
        """Returns the subject of a call."""
        return f"{self.given['name']}-{number % self.given['keys']}"

    def is_peek(self, number: int) -> bool:
        """Returns true if a call is a `peek`."""
        return bool(self.given["peek_every"]) and number % self.given["peek_every"] == 0

    def add(self, number: int, began_us: int, result: Decision | Exception) -> None:
        """Adds a call."""
        took_us = self.now_us() - began_us
        outcome = "peek " if self.is_peek(number) else ""
        if isinstance(result, Exception):
            outcome += f"raised {type(result).__name__}"
        else:
            outcome += f"{'allowed' if result.allowed else 'denied'} {result.source}"
            outcome += f" {result.reason}" if result.reason else ""
        self.took[outcome] += began_us, took_us

    def print(self) -> None:
        """Prints the reply."""
        print(json.dumps({"began_ms": self.began_ms, "calls": self.took}), flush=True)


class Shared:
    """An iterator that threads share."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers, self._lock = numbers, threading.Lock()

    def __iter__(self) -> Shared:
        return self

    def __next__(self) -> int:
        with self._lock:
            return next(self._numbers)


def run(job: Job, limiter: Limiter) -> None:
    """Makes the calls of a job on threads."""
    lock = threading.Lock()

    def call(number: int) -> None:
        method = limiter.peek if job.is_peek(number) else limiter.check
        began_us, result = job.now_us(), None
        try:
            result = method(job.rule, job.subject(number))
        except Exception as error:
            result = error
        with lock:
            job.add(number, began_us, result)

    if job.given["rate"]:
        with ThreadPoolExecutor(THREADS_MAX) as pool:
            for number, wait_s in job.due():
                time.sleep(wait_s)
                pool.submit(call, number)
        return
    numbers = Shared(job.numbers())
    callers = [
        threading.Thread(target=lambda: [call(number) for number in numbers])
        for _ in range(job.given["callers"])
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()


async def run_async(job: Job, limiter: AsyncLimiter) -> None:
    """Makes the calls of a job as tasks."""

    async def call(number: int) -> None:
        method = limiter.peek if job.is_peek(number) else limiter.check
        began_us, result = job.now_us(), None
        try:
            result = await method(job.rule, job.subject(number))
        except Exception as error:
            result = error
        job.add(number, began_us, result)

    async def caller(numbers: Iterator[int]) -> None:
        for number in numbers:
            await call(number)
            if number % 100 == 0:
                # A call that is decided locally never waits, so give the other tasks their turn.
                await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        if not job.given["rate"]:
            numbers = job.numbers()
            for _ in range(job.given["callers"]):
                tasks.create_task(caller(numbers))
            return
        for number, wait_s in job.due():
            await asyncio.sleep(wait_s)
            tasks.create_task(call(number))


def main(host: str, port: int) -> None:
    """Runs jobs with threads, and replies to each."""
    with redis.Redis(host=host, port=port) as client, Limiter(client) as limiter:
        for line in sys.stdin:
            job = Job(line)
            run(job, limiter)
            job.print()


async def main_async(host: str, port: int) -> None:
    """Runs jobs with tasks, and replies to each."""
    async with redis.asyncio.Redis(host=host, port=port) as client, AsyncLimiter(client) as limiter:
        while line := await asyncio.to_thread(sys.stdin.readline):
            job = Job(line)
            await run_async(job, limiter)
            job.print()


if __name__ == "__main__":
    address, _, port = sys.argv[1].rpartition(":")
    if sys.argv[2:] == ["asyncio"]:
        asyncio.run(main_async(address, int(port)))
    else:
        main(address, int(port))
