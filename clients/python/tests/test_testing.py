"""Compares the fake server with a real one: the same calls at the same instants."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from redis_throttle_client import (
    CommandRejected,
    Decision,
    Limiter,
    Rule,
    Unavailable,
    fixed,
    gcra,
    leaky_bucket,
    lease,
    quota,
    sliding_log,
    token_bucket,
)
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


LEAVES = (None, None, None, 1, 3, "20%", "100%")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_fake_decides_as_the_server_does(server: Server, rule: Rule) -> None:
    fake, chance = FakeServer(), random.Random(42)
    with Limiter(server.client(), timeout_ms=60_000) as real:
        pair = (real, fake.limiter())
        for step in range(160):
            verb, cost = chance.choice(["check"] * 5 + ["peek", "refund", "charge"]), 1
            cost = max(chance.choice(COSTS), int(verb in ("refund", "charge")))
            options: dict[str, Any] = {}
            if verb in ("check", "peek"):
                options["leave"] = chance.choice(LEAVES)
            if verb == "check" and cost and chance.random() < 0.25:
                options["partial"] = True
            decided = [getattr(one, verb)(rule, "42", cost, **options) for one in pair]
            assert decided[0] == decided[1], (step, verb, cost, options)
            pause_ms = chance.choice(PAUSES_MS)
            server.advance(f"{pause_ms}ms")
            fake.advance(pause_ms / 1000)


def test_the_fake_decides_several_rules_as_the_server_does(server: Server) -> None:
    fake, chance = FakeServer(), random.Random(7)
    with Limiter(server.client(), timeout_ms=60_000) as real:
        pair = (real, fake.limiter())
        for step in range(60):
            items = [rule.of("42").cost(chance.randrange(3)) for rule in RULES]
            leave = chance.choice(LEAVES)
            if leave is not None:
                at = chance.randrange(len(items))
                items[at] = items[at].leave(leave)
            verb = chance.choice(["check_all"] * 3 + ["peek_all"])
            found: list[Decision] = [getattr(one, verb)(*items) for one in pair]
            assert found[0].rows == found[1].rows, step
            assert replace(found[0], rows=()) == replace(found[1], rows=()), step
            pause_ms = chance.choice((1, 250, 1000))
            server.advance(f"{pause_ms}ms")
            fake.advance(pause_ms / 1000)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_fake_bans_as_the_server_does(server: Server, rule: Rule) -> None:
    fake = FakeServer()
    with Limiter(server.client(), timeout_ms=60_000) as real:
        pair = (real, fake.limiter())
        item, found = rule.of("42"), list[list[Any]]()
        costs = [item, item.leave(5), item.cost(0), item.cost(99)]
        for one in pair:
            one.check_all(item)
            one.block(rule, "42", "5s")
            decisions: list[Any] = [one.peek_all(cost) for cost in costs]
            decisions += [one.check_all(cost) for cost in costs]
            decisions += [one.charge(rule, "42"), one.refund(rule, "42"), one.check(rule, "42")]
            found.append(decisions)
        assert found[0] == found[1]
        server.advance("5s")
        fake.advance(5)
        assert real.check_all(item) == pair[1].check_all(item)
        for one in pair:
            one.block(rule, "42", "5s")
            one.forget(rule, "42")
        assert real.check_all(item) == pair[1].check_all(item)


def test_what_the_fake_does_not_compute_is_scripted_in_order() -> None:
    server = FakeServer()
    limiter, jobs = server.limiter(), lease("jobs", 4, "30s")
    server.script([1, 4, 3, 0, 30_000], 1, Unavailable("no reply"), "OK")
    with limiter.lease(jobs, "42", "a") as held:
        # What the fake computes uses no reply of the script.
        assert limiter.check(RULES[0], "42").remaining == 5
    assert (held.decision.remaining, held.released) == (3, True)
    month = quota("month", 100, "month")
    assert limiter.check(month, "42").source == "error"
    with pytest.raises(CommandRejected, match="no decision"):
        limiter.check(month, "42")
    several = [RULES[0].of("42"), month.of("42").reserve(5)]
    for call in (lambda: limiter.check(month, "42"), lambda: limiter.check_all(*several, id="a")):
        with pytest.raises(CommandRejected, match=r"compute RL\.\w+: queue a reply.*lab serve"):
            call()
