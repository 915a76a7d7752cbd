"""Tests the attributes of spans, with the SDK of OpenTelemetry."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from redis_throttle_client import CommandRejected, fixed, gcra
from redis_throttle_client.opentelemetry import set_span_attributes
from redis_throttle_client.testing import FakeServer

API, EXPORTS = gcra("api", 6, 10, "60s"), fixed("exports", 1, "60s")


class Spans:
    """Creates spans with a provider of its own, and returns their attributes."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.span = provider.get_tracer("test").start_as_current_span

    def attributes(self) -> list[dict[str, Any]]:
        spans = self._exporter.get_finished_spans()
        assert all(span.name == f"request {at}" for at, span in enumerate(spans))
        return [dict(span.attributes or {}) for span in spans]


def test_the_current_span_gets_the_decision_without_the_subject() -> None:
    server, spans = FakeServer(), Spans()
    limiter = server.limiter(on_decision=set_span_attributes)
    with spans.span("request 0"):
        limiter.check(EXPORTS, "alice")
        limiter.peek(API, "alice")
        limiter.charge(API, "alice")
    with spans.span("request 1"):
        limiter.check_all(API.of("alice"), EXPORTS.of("alice"))
    server.fail()
    with spans.span("request 2"):
        limiter.check(API, "alice")
    server.fail("WRONGTYPE of alice")
    with spans.span("request 3"), pytest.raises(CommandRejected):
        limiter.check(API, "alice")
    server.recover()
    limiter.check(API, "alice")

    told = spans.attributes()
    assert "alice" not in str(told)
    hashes = {attributes.pop("redis_throttle.key_hash") for attributes in told}
    assert len(hashes) == 1
    allowed = {
        "kind": "check", "rule": "exports", "allowed": True, "source": "server", "limit": 1,
        "remaining": 0, "retry_after_ms": 0, "degraded": False,
    }  # fmt: skip
    denied = {"allowed": False, "retry_after_ms": 60_000, "rules": ("api", "exports")}
    degraded = {
        "rule": "api", "limit": 6, "source": "error", "degraded": True, "reason": "timeout",
    }  # fmt: skip
    rejected = {"kind": "rejected", "rule": "api", "error": "WRONGTYPE"}
    expected: list[dict[str, Any]] = [allowed, allowed | denied, allowed | degraded, rejected]
    assert told == [
        {f"redis_throttle.{name}": value for name, value in fields.items()} for fields in expected
    ]


@pytest.mark.anyio
async def test_the_span_of_the_task_gets_the_decision() -> None:
    server, spans = FakeServer(), Spans()
    async with server.async_limiter() as limiter:
        limiter.on_decision(set_span_attributes)
        with spans.span("request 0"):
            await limiter.check(API, "alice")
    assert spans.attributes()[0]["redis_throttle.remaining"] == 5
