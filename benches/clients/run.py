"""Measures a call through each client, compared with the usual libraries of its language.

    make bench-clients                         all of it, into docs/bench/clients.md
    benches/clients/run.py --only node --rounds 1 --seconds 0.5 --print

One server with the module, one process per language, and jobs in interleaved rounds: within a round
all contestants run at about the same time on the same machine, so the bars compare medians of the
ratios within a round. A program reads one job per line and replies with one line; JMH, in the
program of Java, starts a process for each job. `jobs` lists the jobs; the number of calls that
reached the server comes from the server.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from report import (
    DENIALS,
    LOCAL_CALLS,
    MANY_KEYS,
    ONE_AT_A_TIME,
    PREFETCHES,
    Excess,
    Figures,
    Results,
    is_ours,
    report,
)
from server import Server, options_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/bench/clients.md"
BUILT = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
JAVA_PATH = ":".join(str(ROOT / "benches/clients/java/target" / name) for name in
                     ("bench.jar", "dependency/*"))  # fmt: skip
PROGRAMS = {
    "python": [str(ROOT / ".cache/venv/bench/bin/python"), "benches/clients/python/bench.py"],
    "node": ["node", "benches/clients/node/main.js"],
    "rust": [str(BUILT / "bench-rust-client")],
    "go": [str(ROOT / ".cache/bench-go-client")],
    "java": ["java", "-cp", JAVA_PATH, "redisthrottle.bench.Program"],
}

IN_FLIGHT = 32
# The languages whose usual library is slower the more calls there are of the same key.
WITH_MANY_KEYS = ("java",)
# A limit that no job reaches in its time.
UNREACHED = 1_000_000_000
# The period of a limit in the scenario `flood`: the limit allows a small part of the calls at once,
# and nearly all later calls are denied.
MINUTE_S = 60
# A period so long that no units return during a job.
YEAR_S = 365 * 86_400
PASSING_SHARE = 0.01

Started = TypeVar("Started")
Job = dict[str, Any]
Reply = dict[str, Any]


def on_cores(chosen: slice, start: Callable[[], Started]) -> Started:
    """Starts a program on some of the cores of this process, if it has more than one.

    A program that is faster than the server would otherwise take the server's core at times, and
    its slowest calls would be those that wait for the operating system.
    """
    if not hasattr(os, "sched_setaffinity") or len(all_cores := os.sched_getaffinity(0)) < 2:
        return start()
    os.sched_setaffinity(0, sorted(all_cores)[chosen])
    try:
        return start()
    finally:
        os.sched_setaffinity(0, all_cores)


class Program:
    """The program of one language, a process that reads jobs and writes replies, one per line."""

    def __init__(self, language: str, command: list[str], path: str) -> None:
        self._command = [*command, path]
        self._process = on_cores(
            slice(1, None),
            lambda: subprocess.Popen(
                self._command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ),
        )
        greeting = self._line()
        self.language = language
        self.contestants: dict[str, str] = greeting["contestants"]

    def _line(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(self._command)} has ended")
        return json.loads(line)

    def run(self, job: Job) -> Reply:
        """Runs a job and returns its reply."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        reply: Reply = self._line()
        if reply["errors"]:
            raise SystemExit(f"{self.language}: {reply['errors']} errors of {job}")
        return reply

    def close(self) -> None:
        """Ends the process by closing its input."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def jobs(program: Program, warm: Results | None, seconds: float) -> Iterator[Job]:
    """Yields the jobs of a round. Jobs that are compared with each other are next to each other."""

    def job(name: str, contestant: str, scenario: str, **more: object) -> Job:
        plain = {"limit": UNREACHED, "period_s": MINUTE_S, "denial_cache": False, "prefetch": 1}
        return {"name": name, "contestant": contestant, "scenario": scenario, "seconds": seconds,
                "in_flight": IN_FLIGHT, **plain, **more}  # fmt: skip

    for contestant in program.contestants:
        yield job("one key", contestant, "check")
    for contestant in program.contestants:
        yield job(ONE_AT_A_TIME, contestant, "check", in_flight=1)
    for contestant in program.contestants if program.language in WITH_MANY_KEYS else ():
        yield job(MANY_KEYS, contestant, "check", keys=10_000)
    ours = [contestant for contestant in program.contestants if is_ours(contestant)]
    for contestant in ours:
        for prefetch in PREFETCHES[1:]:
            yield job(f"one key, prefetch {prefetch}", contestant, "hot", prefetch=prefetch)
    for contestant in program.contestants:
        limit = passing(warm, contestant, "flood", seconds)
        yield job("flood", contestant, "flood", limit=limit)
    for contestant in ours:
        name = "flood, denial cache"
        limit = passing(warm, contestant, name, seconds)
        yield job(name, contestant, "flood", limit=limit, denial_cache=True)


def passing(warm: Results | None, contestant: str, name: str, seconds: float) -> int:
    """Returns the limit of a `flood` job, from the rate of its calls in the warm-up."""
    if warm is None:
        return 1_000
    expected = statistics.median(warm.figures[contestant, name].rate) * seconds
    return max(1, round(expected * PASSING_SHARE))


def measure(
    program: Program, server: Server, results: Results, warm: Results | None, seconds: float
) -> None:
    """Measures one round of one language. The warm-up sets the limits of its `flood` jobs."""
    for at, job in enumerate(jobs(program, warm, seconds)):
        reply, reached = run_job(program, server, {**job, "key": f"{job['scenario']}-{at}"})
        figures = results.figures.setdefault((job["contestant"], job["name"]), Figures())
        figures.add(reply, reached)
    ours = [contestant for contestant in program.contestants if is_ours(contestant)]
    for contestant in [] if warm is None else ours:
        rate = statistics.median(results.figures[contestant, "one key"].rate)
        for prefetch in PREFETCHES:
            # The job reaches this limit in its first half. The limit is half a grant above the
            # calls of that time, so that part of a grant should remain unused. A program does not
            # warm up before it, so that the key has no other calls.
            limit = max(prefetch, round(rate * seconds / 4)) + prefetch // 2
            job = {"contestant": contestant, "scenario": "hot", "seconds": seconds,
                   "in_flight": IN_FLIGHT, "limit": limit, "period_s": YEAR_S,
                   "denial_cache": False, "prefetch": prefetch, "cold": True,
                   "key": f"limited-{prefetch}"}  # fmt: skip
            reply, _ = run_job(program, server, job)
            used = server.used(limit, YEAR_S)
            if used is None:
                raise SystemExit(f"{program.language}: expected one key after {job}")
            excess = results.excess.setdefault((contestant, prefetch), Excess())
            excess.over.append(reply["allowed"] - limit)
            excess.kept.append(used - reply["allowed"])


def measure_memory(program: Program, server: Server, results: Results) -> None:
    """Measures what the memory of a limiter costs: a local window, and a full denial cache."""
    for contestant in filter(is_ours, program.contestants):
        for scenario, size in (("local", {"calls": LOCAL_CALLS}), ("forget", {"denials": DENIALS})):
            job = {"contestant": contestant, "scenario": scenario, "key": scenario, **size}
            reply, _ = run_job(program, server, job)
            results.medians_us[contestant, scenario] = float(reply["p50_us"])


def run_job(program: Program, server: Server, job: Job) -> tuple[Reply, int]:
    """Runs a job on an empty server. Returns its reply and the number of calls that arrived."""
    server.call("FLUSHALL")
    server.call("CONFIG", "RESETSTAT")
    sent = {name: value for name, value in job.items() if name != "name"}
    return program.run(sent), server.calls()


def options() -> argparse.Namespace:
    """Parses the command line. `make` passes the default values in environment variables."""
    parser, environ = options_of(__doc__), os.environ.get
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--only", default=environ("ONLY") or " ".join(PROGRAMS))
    return parser.parse_args()


def measure_all(
    chosen: argparse.Namespace, languages: list[str], server: Server, busy: float
) -> tuple[str, str]:
    """Runs all rounds of all languages. Returns the page and its data."""
    programs = [Program(name, PROGRAMS[name], server.path) for name in languages]
    warm = {program.language: Results(program.contestants) for program in programs}
    all_results = {program.language: Results(program.contestants) for program in programs}
    for program in programs:
        print(f"warming up: {program.language}", file=sys.stderr)
        measure(program, server, warm[program.language], None, chosen.seconds)
    for round_number in range(1, chosen.rounds + 1):
        for program in programs:
            name = program.language
            print(f"round {round_number} of {chosen.rounds}: {name}", file=sys.stderr)
            measure(program, server, all_results[name], warm[name], chosen.seconds)
    for program in programs:
        print(f"memory: {program.language}", file=sys.stderr)
        measure_memory(program, server, all_results[program.language])
    load = f"{chosen.seconds:g} s with {IN_FLIGHT} calls in flight"
    load += f"; load average before {busy:.2f}"
    for program in programs:
        program.close()
    return report(server.version(), all_results, chosen.rounds, load)


def main() -> None:
    """Measures and prints the results; writes the page if all languages were measured."""
    chosen = options()
    languages = chosen.only.split()
    for name in languages:
        if name not in PROGRAMS:
            sys.exit(f"redis-throttle: unknown language {name}: expected {', '.join(PROGRAMS)}")
    busy = os.getloadavg()[0]
    module = str(Path(chosen.module).resolve())
    with on_cores(slice(0, 1), lambda: Server([chosen.server], module)) as server:
        page, data = measure_all(chosen, languages, server, busy)
    print(page[page.index("| what") :])
    if not chosen.print and languages == list(PROGRAMS):
        PAGE.write_text(page)
        PAGE.with_suffix(".tsv").write_text(data)
        print(f"written to {PAGE.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
