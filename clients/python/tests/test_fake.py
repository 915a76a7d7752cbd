"""Compares the fake server with a real one: the same calls at the same instants."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from redis_throttle_client import (
    Decision,
    Limiter,
    Rule,
    fixed,
    gcra,
    leaky_bucket,
    lease,
    sliding_log,
    token_bucket,
)
from redis_throttle_client import _protocol as protocol
from redis_throttle_client.testing import FakeServer

from .conftest import Server

RULES = [
    gcra("gcra", 6, 10, "60s"),
    gcra("odd", 5, 7, "1s"),
    token_bucket("token", 10, 3, "7s"),
    leaky_bucket("leaky", 4, 2, "1s"),
    fixed("fixed", 5, "10s"),
    sliding_log("log", 5, "10s"),
]
COSTS = (1, 1, 1, 2, 0, 7)
PAUSES_MS = (1, 1, 250, 1000, 3333, 9999)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_fake_decides_as_the_server_does(server: Server, rule: Rule) -> None:
    fake, chance = FakeServer(), random.Random(42)
    with Limiter(server.client(), timeout_ms=10_000) as real:
        pair = (real, fake.limiter())
        for step in range(120):
            verb, cost = chance.choice(["check"] * 5 + ["peek", "refund", "charge"]), 1
            cost = max(chance.choice(COSTS), int(verb in ("refund", "charge")))
            if verb == "check" and cost and rule.takes_prefetch and chance.random() < 0.25:
                args = protocol.check(rule.of("42").cost(cost), f"rl:{rule.name}:42", partial=True)
                replies = [limiter._ask(args) for limiter in pair]
                assert replies[0] == replies[1], (step, args)
            else:
                decided = [getattr(limiter, verb)(rule, "42", cost) for limiter in pair]
                assert decided[0] == decided[1], (step, verb, cost)
            pause_ms = chance.choice(PAUSES_MS)
            server.advance(f"{pause_ms}ms")
            fake.advance(pause_ms / 1000)


def test_the_fake_decides_several_rules_as_the_server_does(server: Server) -> None:
    fake, chance = FakeServer(), random.Random(7)
    jobs = lease("jobs", 2, "3s")
    with Limiter(server.client(), timeout_ms=10_000) as real:
        pair = (real, fake.limiter())
        for step in range(60):
            holder = str(step % 5)
            items = [rule.of("42").cost(chance.randrange(3)) for rule in RULES] + [jobs.of("42")]
            told: list[Decision] = [limiter.check_all(*items, id=holder) for limiter in pair]
            assert told[0].rows == told[1].rows, step
            assert replace(told[0], rows=()) == replace(told[1], rows=()), step
            pause_ms = chance.choice((1, 250, 1000))
            server.advance(f"{pause_ms}ms")
            fake.advance(pause_ms / 1000)
