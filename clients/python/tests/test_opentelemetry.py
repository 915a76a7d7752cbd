"""Tests the attributes of spans, with the SDK of OpenTelemetry."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from redis_throttle_client import fixed, gcra
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


@pytest.mark.anyio
async def test_the_span_of_the_task_gets_the_decision() -> None:
    server, spans = FakeServer(), Spans()
    async with server.async_limiter() as limiter:
        limiter.on_decision(set_span_attributes)
        with spans.span("request 0"):
            await limiter.check(API, "alice")
    assert spans.attributes()[0]["redis_throttle.remaining"] == 5
