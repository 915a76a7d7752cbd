"""Compares the fake server with a real one: the same calls at the same instants."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import pytest

from redis_throttle_client import (
    CommandRejected,
    Decision,
    Item,
    Limiter,
    Rule,
    fixed,
    gcra,
    leaky_bucket,
    lease,
    sliding_log,
    token_bucket,
)
from redis_throttle_client._wire import words
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
    jobs = lease("jobs", 2, "3s")
    with Limiter(server.client(), timeout_ms=60_000) as real:
        pair = (real, fake.limiter())
        for step in range(60):
            holder = str(step % 5)
            items = [rule.of("42").cost(chance.randrange(3)) for rule in RULES] + [jobs.of("42")]
            leave = chance.choice(LEAVES)
            if leave is not None:
                at = chance.randrange(len(items))
                items[at] = items[at].leave(leave)
            verb = chance.choice(["check_all"] * 3 + ["peek_all"])
            told: list[Decision] = [getattr(one, verb)(*items, id=holder) for one in pair]
            assert told[0].rows == told[1].rows, step
            assert replace(told[0], rows=()) == replace(told[1], rows=()), step
            pause_ms = chance.choice((1, 250, 1000))
            server.advance(f"{pause_ms}ms")
            fake.advance(pause_ms / 1000)


def test_the_fake_keeps_reservations_as_the_server_does(shared_server: Server) -> None:
    fake, chance = FakeServer(), random.Random(11)
    window, key = fixed("window", 10, "10s"), "rl:window:42"
    plain, other = window.of("42"), gcra("other", 40, 40, "60s").of("42")
    with Limiter(shared_server.client(), timeout_ms=60_000) as real:
        pair = (real, fake.limiter())
        for step in range(400):
            id, units = str(chance.randrange(6)), chance.choice((0, 1, 2, 3, 7, 11))  # noqa: A001
            ttl = chance.choice(("700ms", "3s", "20s"))
            reserved = plain.reserve(units, ttl)
            if chance.random() < 0.2:
                reserved = reserved.leave(chance.choice((1, "20%")))
            args = chance.choice([
                words.reserve(reserved, key, id), words.reserve(reserved, key, id),
                words.commit(plain, key, id, units), words.cancel(plain, key, id),
                words.check(plain.cost(units), key),
                words.check(plain.cost(max(1, units)).leave(1), key, partial=True),
                words.named("CHARGE", plain.cost(units), key),
                words.named("REFUND", plain.cost(units), key),
                words.named("PEEK", plain.cost(units), key),
                words.check_all([words.Keyed(reserved, key), keyed(other)], id=id),
                words.check_all([words.Keyed(reserved, key), keyed(other)], id=id, peek=True),
            ])  # fmt: skip
            told = [replied(one, args) for one in pair]
            assert told[0] == told[1], (step, args)
            pause_ms = chance.choice((1, 250, 1000, 4000))
            shared_server.advance(f"{pause_ms}ms")
            fake.advance(pause_ms / 1000)


def keyed(item: Item) -> words.Keyed:
    return words.Keyed(item, f"rl:{item.rule.name}:{item.subject}")


def replied(limiter: Limiter, args: tuple[str, ...]) -> Any:
    """Returns the reply to a call, or the text of the error."""
    try:
        return limiter._ask(args)
    except CommandRejected as error:
        return re.sub("^(ERR )?(rule [0-9]+: )?", "", str(error))


@pytest.mark.parametrize("rule", [*RULES, lease("jobs", 2, "3s")], ids=lambda rule: rule.name)
def test_the_fake_bans_as_the_server_does(server: Server, rule: Rule) -> None:
    fake = FakeServer()
    with Limiter(server.client(), timeout_ms=60_000) as real:
        pair = (real, fake.limiter())
        item, found = rule.of("42"), list[list[Any]]()
        costs = [item, item.leave(5)] + ([item.cost(0), item.cost(99)] if rule.takes_cost else [])
        for one in pair:
            one.check_all(item, id="a")
            one.block(rule, "42", "5s")
            told: list[Any] = [one.peek_all(cost, id="a") for cost in costs]
            told += [one.check_all(cost, id="b") for cost in costs]
            if rule.takes_cost:
                told += [one.charge(rule, "42"), one.refund(rule, "42"), one.check(rule, "42")]
            found.append(told)
        assert found[0] == found[1]
        server.advance("5s")
        fake.advance(5)
        assert real.check_all(item, id="c") == pair[1].check_all(item, id="c")
        for one in pair:
            one.block(rule, "42", "5s")
            one.forget(rule, "42")
        assert real.check_all(item, id="d") == pair[1].check_all(item, id="d")
