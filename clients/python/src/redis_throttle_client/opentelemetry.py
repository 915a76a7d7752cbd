"""Attributes of the current OpenTelemetry span, with the package ``opentelemetry-api``.

limiter.on_decision(set_span_attributes)
"""

from __future__ import annotations

from opentelemetry import trace

from ._rules.event import DecisionEvent, fields_of

__all__ = ["set_span_attributes"]


def set_span_attributes(event: DecisionEvent) -> None:
    """Sets ``redis_throttle.rule``, ``.allowed``, ``.source`` and the others on the current span.

    A hook for ``on_decision``, for checks, leases and rejected calls. After several in one span the
    attributes are those of the last one. No attribute has a key or a subject.
    """
    if event.kind not in ("check", "lease", "rejected"):
        return
    span = trace.get_current_span()
    if span.is_recording():
        fields = fields_of(event).items()
        span.set_attributes({f"redis_throttle.{name}": value for name, value in fields})
