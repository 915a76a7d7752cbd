"""Tests on a real server that ``r`` calls within ``t`` seconds are not denied."""

from __future__ import annotations

import random
import re

import pytest

from redis_throttle_client import (
    Limiter,
    Rule,
    backoff,
    fixed,
    gcra,
    leaky_bucket,
    quota,
    sliding,
    sliding_log,
    token_bucket,
)

from .conftest import Server

RULES = [
    gcra("gcra", 6, 10, "60s"),
    gcra("odd", 5, 7, "1s"),
    token_bucket("token", 10, 3, "7s"),
    leaky_bucket("leaky", 8, 2, "1s"),
    fixed("fixed", 9, "10s"),
    fixed("aligned", 9, "10s", aligned=True),
    sliding("sliding", 12, "10s"),
    sliding_log("log", 9, "10s"),
    backoff("backoff", 5, "1s", "8s", "60s"),
    quota("quota", 9, "day"),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_r_calls_within_t_seconds_are_not_denied(shared_server: Server, rule: Rule) -> None:
    chance = random.Random(42)

    def pause(most_ms: int) -> None:
        shared_server.advance(f"{chance.randint(1, max(1, most_ms))}ms")

    with Limiter(shared_server.client(), timeout_ms=60_000) as limiter:
        for turn in range(20):
            decision = limiter.check(rule, str(turn))
            for _ in range(chance.randrange(8)):
                pause(chance.choice((1, 700, 4000)))
                decision = limiter.check(rule, str(turn))
            if not decision:
                continue
            fields = re.fullmatch(r'".*";r=(\d+);t=(\d+)', decision.headers()["RateLimit"])
            assert fields is not None
            left, within_ms = int(fields[1]), int(fields[2]) * 1000
            assert left == decision.remaining
            instants = sorted(chance.randint(1, within_ms) for _ in range(left))
            for before, at in zip([0, *instants], instants, strict=False):
                if at > before:
                    shared_server.advance(f"{at - before}ms")
                assert limiter.check(rule, str(turn)), (turn, left, within_ms, instants)
