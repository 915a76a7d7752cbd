"""Tests that the Python benchmark runs the jobs of `make bench-clients`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT, Server

pytestmark = pytest.mark.live
BENCH = ROOT / "benches/clients/python/bench.py"
PRESSURE = ROOT / "benches/clients/python/pressure.py"
JOB = {
    "seconds": 0.1, "in_flight": 4, "limit": 10**9, "period_s": 60, "denial_cache": False,
    "prefetch": 1,
}  # fmt: skip


def run_jobs(jobs: list[dict[str, Any]], program: Path, *words: str) -> list[dict[str, Any]]:
    """Returns the lines that a program prints."""
    found = subprocess.run(
        [sys.executable, str(program), *words],
        input="".join(json.dumps(job) + "\n" for job in jobs),
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return [json.loads(line) for line in found.stdout.splitlines()]


@pytest.mark.parametrize("mode", [[], ["asyncio"]])
def test_every_job_gets_a_reply(shared_server: Server, mode: list[str]) -> None:
    shared_server.command("FLUSHALL")
    shared_server.command("RL.DEBUG", "CLOCK", "RESUME")
    before = shared_server.counted("fixed")
    jobs: list[dict[str, Any]] = [
        {"contestant": "ours", "scenario": "check", "key": "a"},
        {"contestant": "limits", "scenario": "check", "key": "b"},
        {"contestant": "ours", "scenario": "flood", "key": "c", "limit": 5, "denial_cache": True},
        {"contestant": "ours", "scenario": "hot", "key": "d", "prefetch": 10},
    ]
    hello, check, usual, flood, hot = run_jobs(
        [JOB | job for job in jobs], BENCH, shared_server.path, *mode
    )
    assert hello["language"].startswith("python")
    assert list(hello["contestants"]) == ["ours", "limits"]
    for reply in (check, usual, flood, hot):
        assert reply["errors"] == 0
        assert reply["calls"] == reply["allowed"] + reply["denied"]
        assert 0 < reply["p50_us"] <= reply["p99_us"]
    assert flood["allowed"] == 5
    assert flood["denied"] > 0
    reached = shared_server.counted("fixed") - before
    # Calls that reach the server: all of `check`; in the flood, five allowed calls and the first
    # denials; for the hot key, one fetch for every ten calls and one for each of the four callers.
    assert reached <= check["calls"] + 5 + 4 + hot["calls"] / 10 + 4


@pytest.mark.parametrize("mode", [[], ["asyncio"]])
def test_a_job_under_pressure_reports_every_call(shared_server: Server, mode: list[str]) -> None:
    shared_server.command("FLUSHALL")
    shared_server.command("RL.DEBUG", "CLOCK", "RESUME")
    rule = {"kind": "fixed", "limit": 5, "rate": 0, "period_s": 3600}
    plain = {"rule": rule, "calls": 20, "callers": 4, "seconds": 0, "burst": 2, "peek_every": 0}
    jobs = [
        plain | {"name": "herd", "keys": 2, "rate": 0},
        plain | {"name": "paced", "keys": 1, "rate": 100, "peek_every": 20},
    ]
    address = f"127.0.0.1:{shared_server.port}"
    herd, paced = (reply["calls"] for reply in run_jobs(jobs, PRESSURE, address, *mode))
    # Two numbers for each call.
    assert len(herd["allowed server"]) == 2 * 10
    assert sum(map(len, herd.values())) == 2 * 20
    assert len(paced["peek allowed server"]) == 2
    assert sum(map(len, paced.values())) == 2 * 20
    # The last call was due 17 intervals after the burst.
    assert max(began for calls in paced.values() for began in calls[::2]) >= 170_000
