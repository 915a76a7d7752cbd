"""Tests the lines of ``json_log``."""

from __future__ import annotations

import io
import json
import signal
from typing import Any

import pytest

from redis_throttle_client import (
    CommandRejected,
    InvalidArgument,
    Limiter,
    fixed,
    gcra,
    json_log,
    sliding,
)
from redis_throttle_client.testing import FakeServer

from .conftest import Server
from .test_promise_counted_once import in_child

API, EXPORTS = gcra("api", 6, 10, "60s"), fixed("exports", 1, "60s")


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """Returns the lines since the last call."""
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    stream.seek(0)
    stream.truncate()
    assert all(isinstance(line.pop("time_ms"), int) for line in found)
    assert all(len(line.pop("key_hash")) == 16 for line in found)
    return found


def test_lines_above_the_bound_per_second_are_dropped_and_counted(server: FakeServer) -> None:
    stream = io.StringIO()
    log = json_log(stream, lines_per_second=2, audit=["audited"], clock=server.now)
    limiter = server.limiter(on_decision=log)
    audited = sliding("audited", 100, "60s")

    def logged() -> list[tuple[str, int]]:
        return [(line["rule"], line.get("dropped", 0)) for line in lines(stream)]

    limiter.check(EXPORTS, "x")
    for _ in range(5):
        limiter.check(EXPORTS, "x")
    assert logged() == [("exports", 0)] * 2
    limiter.check(audited, "x")
    limiter.check(audited, "x")
    assert logged() == [("audited", 3), ("audited", 0)]
    server.advance(0.999)
    limiter.check(EXPORTS, "x")
    assert logged() == []
    server.advance(0.001)
    limiter.check(EXPORTS, "x")
    limiter.check(EXPORTS, "x")
    limiter.check(EXPORTS, "x")
    assert logged() == [("exports", 1), ("exports", 0)]


def test_every_event_of_an_audited_rule_is_logged(server: FakeServer) -> None:
    stream = io.StringIO()
    limiter = server.limiter(on_decision=json_log(stream, audit=["api"], lines_per_second=1))
    limiter.check(API, "x")
    limiter.check_all(EXPORTS.of("x"), API.of("x"))
    limiter.peek(API, "x")
    limiter.charge(API, "x")
    limiter.refund(API, "x")
    limiter.check(gcra("other", 6, 10, "60s"), "x")
    logged = [(line["kind"], line["rule"]) for line in lines(stream)]
    of_api = [(kind, "api") for kind in ("peek", "charge", "refund")]
    assert logged == [("check", "api"), ("check", "exports"), *of_api]


def rejected(client: Any, stream: io.StringIO) -> str:
    """Sends a call that the server refuses, and returns the error in the log and its text."""
    with Limiter(
        client, on_decision=json_log(stream), backend="module", timeout_ms=60_000
    ) as limiter:
        with pytest.raises(CommandRejected) as error:
            limiter.check(API, "alice")
        assert "alice" not in stream.getvalue()
        (line,) = lines(stream)
        assert (line["kind"], line["rule"], "allowed" in line) == ("rejected", "api", False)
        return f"{line['error']}: {error.value}"


def test_the_error_is_one_word_because_the_text_of_a_server_may_repeat_the_key() -> None:
    server, stream = Server(backend="functions"), io.StringIO()
    try:
        text = rejected(server.client(), stream)
        assert text.startswith("ERR: unknown command")
        assert "alice" in text
    finally:
        server.close()


def test_the_error_has_the_word_that_the_driver_removes(shared_server: Server) -> None:
    stream = io.StringIO()
    shared_server.command("SET", "rl:api:alice", "no state")
    assert rejected(shared_server.client(), stream).startswith("WRONGTYPE: WRONGTYPE ")
    shared_server.command("ACL", "SETUSER", "pinger", "on", ">p", "~*", "-@all", "+ping")
    pinger = shared_server.client(username="pinger", password="p")
    assert rejected(pinger, stream).startswith("NOPERM: ")
    shared_server.command("ACL", "DELUSER", "pinger")


def test_the_word_of_the_error_is_escaped(server: FakeServer) -> None:
    stream = io.StringIO()
    limiter = server.limiter(on_decision=json_log(stream))
    for reply in ("WRONGTYPE of another kind", '"BAD\n'):
        server.fail(reply)
        with pytest.raises(CommandRejected):
            limiter.check(API, "x")
    assert [line["error"] for line in lines(stream)] == ["WRONGTYPE", "ERR"]


def test_a_child_that_is_forked_while_a_line_is_written_can_log(server: FakeServer) -> None:
    stream = io.StringIO()
    log: Any = json_log(stream, audit=["api"])
    limiter = server.limiter(on_decision=log)

    def logged_in_child() -> str:
        signal.alarm(10)
        limiter.check(API, "x")
        return lines(stream)[0]["rule"]  # type: ignore[no-any-return]

    with log._lock:
        assert in_child(logged_in_child) == "api"


@pytest.mark.parametrize(
    "options",
    [{"audit": "api"}, {"audit": 5}, {"lines_per_second": 0}, {"lines_per_second": True},
     {"lines_per_second": "9"}, {"stream": "log.json"}],
)  # fmt: skip
def test_a_wrong_argument_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=f"^{next(iter(options))}: "):
        json_log(**{"stream": io.StringIO()} | options)
