"""Runs the shared events of cases.json: what hooks, the log, spans, counters and metrics get."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from redis_throttle_client import DecisionEvent, json_log
from redis_throttle_client._rules.event import fields_of
from redis_throttle_client.opentelemetry import set_span_attributes
from redis_throttle_client.prometheus import metrics

from .scripted import Clock
from .test_cases import CASES
from .test_opentelemetry import Spans
from .test_timelines import CLOCKED, SyncRunner


class EventRunner(SyncRunner):
    """Runs a timeline of one instant, and compares what was reported at its end."""

    def __init__(self, case: dict[str, Any], clock: Clock) -> None:
        steps = [{**step, "at": 0} for step in case["steps"]]
        super().__init__({**case, "steps": steps}, "redis", clock)
        self._expect, self._events = case["expect"], list[DecisionEvent]()
        self._log, self._registry, self._spans = io.StringIO(), CollectorRegistry(), Spans()
        for hook in (self._events.append, json_log(self._log), self._spanned):
            self._limiter.on_decision(hook)
        # The second call changes nothing.
        for _ in range(2):
            metrics(self._limiter, self._registry)

    def _spanned(self, event: DecisionEvent) -> None:
        with self._spans.span(f"request {len(self._events) - 1}"):
            set_span_attributes(event)

    def _check_end(self) -> None:
        super()._check_end()
        wanted = self._expect["events"]
        assert [without_hash(fields_of(event)) for event in self._events] == wanted
        assert {event.latency_ms for event in self._events} == {0.0}
        assert "alice" not in self._log.getvalue()
        logged = [json.loads(line) for line in self._log.getvalue().splitlines()]
        assert all(isinstance(line.pop("time_ms"), int) for line in logged)
        assert all(line.pop("latency_ms") == 0.0 for line in logged)
        assert [without_hash(line) for line in logged] == [
            wanted[at] for at in self._expect["logged"]
        ]
        self._check_spans(wanted)
        for name, count in self._expect["counters"].items():
            assert getattr(self._limiter.counters, name) == count, name
        found, wanted = samples(self._registry), list(map(tuple, self._expect["metrics"]))
        assert [one for one in found if one not in wanted] == []
        assert [one for one in wanted if one not in found] == []

    def _check_spans(self, wanted: list[dict[str, Any]]) -> None:
        for sent, fields in zip(self._spans.attributes(), wanted, strict=True):
            found = {name.removeprefix("redis_throttle."): value for name, value in sent.items()}
            if fields["kind"] not in ("check", "lease", "rejected"):
                assert found == {}
                continue
            lists = {name: tuple(one) for name, one in fields.items() if isinstance(one, list)}
            assert without_hash(found) == fields | lists


def without_hash(fields: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields without the keyed hash of the subject."""
    assert len(fields["key_hash"]) == 16
    return {name: value for name, value in fields.items() if name != "key_hash"}


def samples(registry: CollectorRegistry) -> list[tuple[str, dict[str, str], float]]:
    """Returns the samples other than 0, of histograms the count and the sum."""
    return [
        (one.name.removeprefix("redis_throttle_"), one.labels, one.value)
        for metric in registry.collect() for one in metric.samples
        if one.value and not one.name.endswith(("_bucket", "_created"))
    ]  # fmt: skip


@pytest.mark.parametrize("case", [pytest.param(one, id=one["name"]) for one in CASES["events"]])
def test_events_follow_the_shared_cases(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    for module in CLOCKED:
        monkeypatch.setattr(f"redis_throttle_client._net.{module}.time", clock)
    EventRunner(case, clock).run()
