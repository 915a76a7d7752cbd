"""Runs the test cases that all clients share."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import redis_throttle_client as rtc
from redis_throttle_client import Decision, Denied, InvalidArgument, Item, Rule
from redis_throttle_client._calls.fallback import strictest
from redis_throttle_client._calls.steps import item_of
from redis_throttle_client._rules.decision import retry_ms
from redis_throttle_client._rules.durations import duration_text, duration_us
from redis_throttle_client._rules.errors import ProtocolError, is_rejection
from redis_throttle_client._rules.headers import retry_after_s
from redis_throttle_client._rules.keys import Keys
from redis_throttle_client._rules.options import Options
from redis_throttle_client._web.address import ClientAddress
from redis_throttle_client._web.http import Request, problem
from redis_throttle_client._wire import replies, words
from redis_throttle_client._wire.words import Keyed

CASES: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[2] / "cases.json").read_text()
)
LANGUAGES = ("python", "node", "rust", "go", "java")
# The actions of a timeline's steps: see clients/TIMELINES.md.
ACTIONS = (
    "check", "peek", "refund", "charge", "forget", "block", "check_all", "peek_all", "check_each",
    "wait", "lease", "release", "admit", "settle", "finish", "join", "cancel", "disconnect",
    "ready", "close", "pause",
)  # fmt: skip
CALL_FIELDS = {*ACTIONS, "id", "server", "servers", "start", "times", "expect"}
EXPECTED = {
    "allowed", "limit", "remaining", "granted", "retry_after_ms", "reset_after_ms", "never",
    "banned", "would_allow", "would_retry_after_ms", "rule", "rows", "deciding", "source",
    "degraded", "reason", "after_ms", "raises", "outcomes", "sent", "dials", "generation", "held",
    "counters", "returns",
}  # fmt: skip
REPLIES = ("silent", "lost", "close", "refuse")
INVALID = {"error": "invalid"}
PROTOCOL = {"error": "protocol"}


def cases(section: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("given", "expect"),
        [pytest.param(case["input"], case["expect"], id=case["name"]) for case in CASES[section]],
    )


def build_rule(given: dict[str, Any]) -> Rule:
    fields = dict(given)
    if "default" in fields:
        fields["default"] = build_rule(fields["default"])
    rule: Rule = getattr(rtc, fields.pop("kind"))(fields.pop("name"), **fields)
    return rule


def item_as_given(item: Item, given: dict[str, Any]) -> Item:
    """Returns an item with the options of a case."""
    if "cost" in given:
        item = item.cost(given["cost"])
    if "leave" in given:
        item = item.leave(given["leave"])
    if "reserve" in given:
        item = item.reserve(given["reserve"], *([given["ttl"]] if "ttl" in given else []))
    return item


def timelines_of(language: str) -> list[dict[str, Any]]:
    """Returns the timelines that a language runs: all that do not leave it out."""
    return [one for one in CASES["timelines"] if language in one.get("languages", LANGUAGES)]


def test_every_section_of_the_shared_cases_is_run() -> None:
    run = Path(__file__).read_text()
    others = [name for name in CASES if f'@cases("{name}")' not in run]
    # These groups have tests of their own.
    assert others == ["responses", "events", "timelines"]


def is_reply(reply: Any) -> bool:
    """Returns True if the server of a timeline may reply so."""
    if isinstance(reply, dict):
        return set(reply) in ({"error"}, {"delay_ms", "reply"}, {"dial_ms"})
    if isinstance(reply, list):
        return all(isinstance(number, int | list) for number in reply)
    # A text in capital letters or with a digit is a reply, for example of a version.
    return isinstance(reply, int) or reply in REPLIES or reply == "OK" or "." in reply


def faults_of_a_call(call: dict[str, Any], fields: set[str]) -> list[str]:
    """Returns what the schema of the timelines forbids in a step or in one of its calls."""
    found = sorted(set(call) - fields)
    found += sorted(set(call.get("expect", {})) - EXPECTED)
    if len([name for name in (*ACTIONS, "calls") if name in call]) > 1:
        found.append("two actions")
    if {"server", "servers"} <= set(call):
        found.append("server and servers")
    scripted = [call["server"]] if "server" in call else call.get("servers", [])
    return found + [f"reply {reply}" for reply in scripted if not is_reply(reply)]


@pytest.mark.parametrize(
    "timeline", [pytest.param(one, id=one["name"]) for one in CASES["timelines"]]
)
def test_a_timeline_has_the_fields_of_the_schema(timeline: dict[str, Any]) -> None:
    assert {"name", "rules", "steps"} <= set(timeline)
    assert set(timeline) <= {"name", "languages", "options", "nodes", "rules", "steps"}
    languages = timeline.get("languages", ["python"])
    assert languages
    assert set(languages) < set(LANGUAGES)
    steps = timeline["steps"]
    assert all("at" in step for step in steps)
    assert [step["at"] for step in steps] == sorted(step["at"] for step in steps)
    assert any(step.get("expect") for step in steps)
    for step in steps:
        assert faults_of_a_call(step, CALL_FIELDS | {"at", "calls", "nodes"}) == []
        for call in step.get("calls", ()):
            assert faults_of_a_call(call, CALL_FIELDS) == []


def test_the_pages_name_every_field_of_the_timelines() -> None:
    # SPEC.md has the fields of a decision.
    pages = [Path(__file__).parents[2] / name for name in ("TIMELINES.md", "SPEC.md")]
    text = "".join(page.read_text() for page in pages)
    named = {*CALL_FIELDS, *EXPECTED, *REPLIES, "at", "calls", "languages", "nodes", "options",
             "steps"}  # fmt: skip
    assert [name for name in sorted(named) if f"`{name}`" not in text] == []


def test_a_timeline_is_left_out_only_by_its_languages() -> None:
    names = [timeline["name"] for timeline in CASES["timelines"]]
    assert len(names) == len(set(names)) >= 40
    left_out = [one["name"] for one in CASES["timelines"] if one not in timelines_of("python")]
    assert left_out == [
        one["name"]
        for one in CASES["timelines"]
        if "languages" in one and "python" not in one["languages"]
    ]
    runner = Path(__file__).with_name("test_timelines.py").read_text()
    assert not any(word in runner for word in ("mark.skip", "pytest.skip", "xfail"))


@cases("defaults")
def test_options_have_the_shared_defaults(given: dict[str, Any], expect: dict[str, Any]) -> None:
    options = asdict(Options.of(**given))
    if given:
        assert {name: options[name] for name in expect} == expect
    else:
        assert {name: options[name] for name in options if name != "clock"} == expect


@cases("invalid_options")
def test_invalid_options_name_their_options_and_values(
    given: dict[str, Any], expect: list[str]
) -> None:
    with pytest.raises(InvalidArgument) as raised:
        Options.of(**given)
    for name in expect:
        assert name in str(raised.value)


@cases("durations")
def test_durations_follow_the_shared_cases(given: Any, expect: Any) -> None:
    if expect == INVALID:
        with pytest.raises(InvalidArgument):
            duration_us(given, "period")
    else:
        assert duration_text(duration_us(given, "period")) == expect


@cases("rates")
def test_rates_follow_the_shared_cases(given: str, expect: Any) -> None:
    if expect == INVALID:
        with pytest.raises(InvalidArgument, match=r"^rate: "):
            rtc.rate(given)
    else:
        rate = rtc.rate(given)
        assert {"rate": rate.rate, "period": duration_text(rate.period_us)} == expect


@cases("key_parts")
def test_keys_of_several_headers_follow_the_shared_cases(given: list[Any], expect: Any) -> None:
    names = [f"x-{at}" for at in range(len(given))]
    values = {name: [value] for name, value in zip(names, given, strict=True) if value is not None}
    if expect == INVALID:
        with pytest.raises(InvalidArgument, match=r"^headers: "):
            rtc.key_of(*names)
    else:
        request = Request("GET", "/", None, None, lambda name: values.get(name, []))
        assert rtc.key_of(*names)(request) == expect


@cases("calls")
def test_calls_follow_the_shared_cases(given: dict[str, Any], expect: Any) -> None:
    if expect == INVALID:
        with pytest.raises(InvalidArgument):
            arguments(given)
    else:
        assert list(arguments(given)) == expect


def arguments(given: dict[str, Any]) -> tuple[str, ...]:
    rule = build_rule(given["rule"])
    key = Keys().key(rule.name, given["subject"])
    item = item_of(rule, given["subject"], given.get("cost", 1), given.get("leave"))
    match given["method"]:
        case "check":
            return words.check(item, key, partial=given.get("partial", False))
        case "block":
            return words.block(key, given["duration"])
        case "forget":
            return words.forget(key)
        case "lease":
            return words.lease(item, key, given["id"])
        case "renew":
            return words.renew(rule, key, given["id"])
        case "release":
            return words.release(key, given["id"])
        case verb:
            return words.named(verb.upper(), item, key)


@cases("calls_all")
def test_calls_of_several_rules_follow_the_shared_cases(given: dict[str, Any], expect: Any) -> None:
    def build() -> tuple[str, ...]:
        items = []
        for call in given["calls"]:
            item = item_as_given(build_rule(call["rule"]).of(call["subject"]), call)
            key = Keys().key(item.rule.name, item.subject, given.get("tag"))
            items.append(Keyed(item, key))
        peek = given.get("method") == "peek_all"
        return words.check_all(items, peek=peek, id=given.get("id"))

    if expect == INVALID:
        with pytest.raises(InvalidArgument):
            build()
    else:
        assert list(build()) == expect


@cases("invalid_rules")
def test_an_invalid_rule_names_its_argument(given: dict[str, Any], expect: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{expect}: "):
        build_rule(given)


@cases("keys")
def test_keys_follow_the_shared_cases(given: dict[str, Any], expect: Any) -> None:
    options = {n: given[n] for n in ("prefix", "hash_tag", "hmac_secret") if n in given}
    if options.get("hash_tag") == "none":
        del options["hash_tag"]
    if expect == INVALID:
        with pytest.raises(InvalidArgument):
            Keys(**options).key(given["rule"], given["subject"], given.get("tag"))
    else:
        assert Keys(**options).key(given["rule"], given["subject"], given.get("tag")) == expect


def fields_of(decision: Decision, expect: dict[str, Any]) -> dict[str, Any]:
    """Returns the expected fields."""
    return {name: getattr(decision, name) for name in expect}


@cases("replies")
def test_replies_follow_the_shared_cases(given: dict[str, Any], expect: dict[str, Any]) -> None:
    rule = build_rule(given["rule"])

    def read() -> Decision:
        item = item_of(rule, "42", given.get("cost", 1), given.get("leave"))
        return replies.decision(item, given["reply"], partial=given.get("partial", False))

    if expect == PROTOCOL:
        with pytest.raises(ProtocolError):
            read()
    else:
        assert fields_of(read(), expect) == expect


@cases("replies_all")
def test_replies_of_several_rules_follow_the_shared_cases(
    given: dict[str, Any], expect: dict[str, Any]
) -> None:
    items = [Keyed(build_rule(rule).of("42"), "rl:42") for rule in given["rules"]]
    if expect == PROTOCOL:
        with pytest.raises(ProtocolError):
            replies.decision_all(items, given["reply"])
    else:
        decision = replies.decision_all(items, given["reply"])
        assert fields_of(decision, expect["decision"]) == expect["decision"]
        rows = zip(decision.rows, expect["rows"], strict=True)
        assert [fields_of(row, wanted) for row, wanted in rows] == expect["rows"]


@cases("retry_after")
def test_retry_after_follows_the_shared_cases(given: int, expect: str | None) -> None:
    if expect is None:
        assert "Retry-After" not in Decision(False, 1, 1, retry_ms(given), 0, "api").headers()
    else:
        assert str(retry_after_s(given)) == expect


def decided(given: dict[str, Any]) -> Decision | None:
    if given.get("no_subject"):
        return None
    rules = [build_rule(rule) for rule in given["rules"]]
    if given.get("source") == "error":
        retry = retry_ms(given.get("retry_after_ms", 0))
        return Decision(given["allowed"], 0, 0, retry, 0, rules[0].name, "error", True)
    if len(rules) > 1:
        items = [Keyed(rule.of("42"), "rl:42") for rule in rules]
        return replies.decision_all(items, given["reply"])
    return replies.decision(rules[0].of("42").cost(given.get("cost", 1)), given["reply"])


@cases("headers")
def test_headers_follow_the_shared_cases(given: dict[str, Any], expect: dict[str, str]) -> None:
    decision = decided(given)
    assert decision is not None
    styles = given.get("styles", ["draft-11"])
    assert decision.headers(styles, now_ms=given.get("now_ms")) == expect


@cases("problems")
def test_problems_follow_the_shared_cases(given: dict[str, Any], expect: dict[str, Any]) -> None:
    decision = decided(given)
    body = problem(decision)
    assert {"status": body["status"], "body": body} == expect
    if decision is not None:
        denied = Denied(decision)
        fields = {"Cache-Control": "no-store", **decision.headers()}
        assert (denied.status, denied.headers) == (expect["status"], fields)


@cases("addresses")
def test_addresses_follow_the_shared_cases(given: dict[str, Any], expect: Any) -> None:
    if expect == INVALID:
        with pytest.raises(InvalidArgument, match=r"^trusted_proxies: "):
            ClientAddress(given["trusted"])
    else:
        assert ClientAddress(given["trusted"]).find(given["peer"], given["forwarded"]) == expect


@cases("failure")
def test_the_strictest_on_error_decides(given: list[Any], expect: str) -> None:
    assert strictest(given) == expect


@pytest.mark.parametrize("driver", ["redis", "valkey"])
@cases("errors")
def test_errors_follow_the_shared_cases(given: str, expect: str, driver: str) -> None:
    parsers = pytest.importorskip(f"{driver}._parsers.resp2")
    error = parsers._RESP2Parser(4096).parse_error(given)
    assert ("rejected" if is_rejection(error) else "unavailable") == expect
