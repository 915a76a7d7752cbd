"""Tests the metrics of limiters in a registry of ``prometheus_client``."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from redis_throttle_client import fixed, gcra
from redis_throttle_client.prometheus import metrics
from redis_throttle_client.testing import FakeServer

API, EXPORTS = gcra("api", 6, 10, "60s"), fixed("exports", 1, "60s")


def series(registry: CollectorRegistry) -> dict[str, float]:
    """Returns the samples that are not 0, without the times of their creation."""
    text = generate_latest(registry).decode()
    assert "alice" not in text
    samples = (line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    return {
        name.removeprefix("redis_throttle_"): float(value)
        for name, value in samples
        if float(value) and "_created" not in name
    }


def counted(registry: CollectorRegistry, name: str) -> dict[str, float]:
    return {key: value for key, value in series(registry).items() if key.startswith(f"{name}_")}


def test_the_open_breakers_of_all_limiters_are_counted() -> None:
    registry, servers = CollectorRegistry(), [FakeServer(), FakeServer()]
    limiters = [server.limiter(breaker_failures=1, breaker_pause_ms=50) for server in servers]
    for limiter, server in zip(limiters, servers, strict=True):
        metrics(limiter, registry)
        server.fail()
        limiter.check(API, "alice")
    assert counted(registry, "breaker") == {"breaker_open": 2}
    assert [limiter.open_breakers for limiter in limiters] == [1, 1]
    servers[0].recover()
    servers[0].advance(0.05)
    assert limiters[0].open_breakers == 0
    limiters[0].check(API, "alice")
    assert counted(registry, "breaker") == {"breaker_open": 1}
    # The fake's error has the frames of its calls, and so the limiter.
    servers[1].recover()
    limiters.pop()
    del limiter
    gc.collect()
    limiters[0].check(API, "alice")
    assert counted(registry, "breaker") == {}


def test_rules_after_the_hundredth_share_a_name() -> None:
    server, registry = FakeServer(), CollectorRegistry()
    limiter = server.limiter()
    metrics(limiter, registry)
    for _ in range(2):
        for number in range(103):
            limiter.check(gcra(f"rule-{number}", 6, 10, "60s"), "alice")
    checks = counted(registry, "checks")
    assert len(checks) == 101
    assert checks['checks_total{outcome="allowed",rule="rule-99",source="server"}'] == 2
    assert checks['checks_total{outcome="allowed",rule="(other)",source="server"}'] == 6
    assert counted(registry, "remaining")['remaining_ratio_count{rule="(other)"}'] == 6


WORKER = """
from redis_throttle_client import gcra
from redis_throttle_client.prometheus import metrics
from redis_throttle_client.testing import FakeServer
server = FakeServer()
limiter = server.limiter(breaker_failures=1)
metrics(limiter)
server.fail()
limiter.check(gcra("api", 6, 10, "60s"), "alice")
"""
COLLECTED = """
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
registry = CollectorRegistry()
MultiProcessCollector(registry)
print(generate_latest(registry).decode())
"""


def test_the_metrics_of_several_processes_are_added(tmp_path: Path) -> None:
    environ = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for code in (WORKER, WORKER, COLLECTED):
        command = [sys.executable, "-c", code]
        ended = subprocess.run(command, env=environ, check=True, capture_output=True, text=True)
    checks = 'redis_throttle_checks_total{outcome="allowed",rule="api",source="error"} 2.0'
    assert checks in ended.stdout
    assert "redis_throttle_breaker_open 2.0" in ended.stdout
