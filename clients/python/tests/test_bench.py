"""Tests that the Python benchmark answers the jobs of `make bench-clients`."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from .conftest import ROOT, Server

pytestmark = pytest.mark.live
BENCH = ROOT / "benches/clients/python/bench.py"
JOB = {
    "seconds": 0.1, "in_flight": 4, "limit": 10**9, "period_s": 60, "denial_cache": False,
    "prefetch": 1,
}  # fmt: skip


def answers(server: Server, jobs: list[dict[str, Any]], *mode: str) -> list[dict[str, Any]]:
    """Returns the first line and the answer to each job."""
    found = subprocess.run(
        [sys.executable, str(BENCH), server.path, *mode],
        input="".join(json.dumps(JOB | job) + "\n" for job in jobs),
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return [json.loads(line) for line in found.stdout.splitlines()]


@pytest.mark.parametrize("mode", [[], ["asyncio"]])
def test_every_job_is_answered(shared_server: Server, mode: list[str]) -> None:
    shared_server.command("FLUSHALL")
    shared_server.command("RL.DEBUG", "CLOCK", "RESUME")
    before = shared_server.counted("fixed")
    hello, check, usual, flood, hot = answers(
        shared_server,
        [
            {"contestant": "ours", "scenario": "check", "key": "a"},
            {"contestant": "limits", "scenario": "check", "key": "b"},
            {
                "contestant": "ours",
                "scenario": "flood",
                "key": "c",
                "limit": 5,
                "denial_cache": True,
            },
            {"contestant": "ours", "scenario": "hot", "key": "d", "prefetch": 10},
        ],
        *mode,
    )
    assert hello["language"].startswith("python")
    assert list(hello["contestants"]) == ["ours", "limits"]
    for answer in (check, usual, flood, hot):
        assert answer["errors"] == 0
        assert answer["calls"] == answer["allowed"] + answer["denied"]
        assert 0 < answer["p50_us"] <= answer["p99_us"]
    assert flood["allowed"] == 5
    assert flood["denied"] > 0
    reached = shared_server.counted("fixed") - before
    # Calls that reach the server: all of `check`; in the flood, five allowed calls and the first
    # denials; for the hot key, one fetch for every ten calls and one for each of the four callers.
    assert reached <= check["calls"] + 5 + 4 + hot["calls"] / 10 + 4
