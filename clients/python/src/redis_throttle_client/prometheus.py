"""Metrics of limiters, with the package ``prometheus_client``.

metrics(limiter, registry)
"""

from __future__ import annotations

import threading
import weakref

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from ._limiter import Limiter
from ._limiter_async import AsyncLimiter
from ._net.fork import forgets
from ._rules.decision import Decision
from ._rules.event import DecisionEvent

__all__ = ["metrics"]

_RULES_MAX = 100
_OTHER = "(other)"
_SECONDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
)  # fmt: skip
_RATIOS = (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1)


def metrics(limiter: Limiter | AsyncLimiter, registry: CollectorRegistry = REGISTRY) -> None:
    """Adds the limiter to the metrics of the registry, which it registers at the first call.

    Counts checks and leases; charges, refunds and peeks only if the server rejects them. Of several
    rules in one call, that of the deciding rule is counted. The names of at most 100 rules are
    reported, the others together as ``(other)``; keys and subjects never. Works in the multiprocess
    mode of ``prometheus_client`` too.
    """
    with _lock:
        found = _of.get(registry)
        if found is None:
            found = _of[registry] = _Metrics(registry)
        found.add(limiter)


class _Metrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._checks = Counter(
            "redis_throttle_checks_total", "Checks and leases, and rejected calls.",
            ["rule", "outcome", "source"], registry=registry,
        )  # fmt: skip
        self._degraded = Counter(
            "redis_throttle_degraded_total", "Checks that on_error decided without the server.",
            ["rule", "on_error", "reason"], registry=registry,
        )  # fmt: skip
        self._latency = Histogram(
            "redis_throttle_latency_seconds", "Time that a check took in the application.",
            ["source"], registry=registry, buckets=_SECONDS,
        )  # fmt: skip
        self._ratio = Histogram(
            "redis_throttle_remaining_ratio", "Units left of the limit after a server's decision.",
            ["rule"], registry=registry, buckets=_RATIOS,
        )  # fmt: skip
        # Set at each event: in the multiprocess mode nothing is called at a scrape.
        self._open = Gauge(
            "redis_throttle_breaker_open", "Circuit breakers open at the last decision.",
            registry=registry, multiprocess_mode="livesum",
        )  # fmt: skip
        self._limiters: tuple[weakref.ref[Limiter | AsyncLimiter], ...] = ()
        self._rules: set[str] = set()
        forgets(self)

    def begin(self) -> None:
        """Creates the lock. In the child of a fork, a thread of the parent may have the old one."""
        self._lock = threading.Lock()

    def add(self, limiter: Limiter | AsyncLimiter) -> None:
        known = [ref for ref in self._limiters if ref() is not None]
        if all(ref() is not limiter for ref in known):
            self._limiters = (*known, weakref.ref(limiter))
            limiter.on_decision(self.report)

    def report(self, event: DecisionEvent) -> None:
        self._open.set(sum(limiter.open_breakers for ref in self._limiters if (limiter := ref())))
        rule, decision = self._label(event.rule.name), event.decision
        if event.kind == "rejected":
            self._checks.labels(rule, "rejected", "server").inc()
        # An end of an admission that failed has no decision.
        elif event.kind in ("check", "lease") and decision is not None:
            self._decided(rule, decision, event.latency_ms / 1000)

    def _decided(self, rule: str, decision: Decision, latency_s: float) -> None:
        outcome = "allowed" if decision.allowed else "banned" if decision.banned else "denied"
        self._checks.labels(rule, outcome, decision.source).inc()
        self._latency.labels(decision.source).observe(latency_s)
        if decision.degraded:
            on_error = "allow" if decision.allowed else "deny"
            if decision.source == "local":
                on_error = "local"
            self._degraded.labels(rule, on_error, decision.reason or "").inc()
        for row in decision.rows or (decision,):
            if row.source == "server" and row.limit > 0:
                self._ratio.labels(self._label(row.rule)).observe(row.remaining / row.limit)

    def _label(self, rule: str) -> str:
        """Returns the name of the rule, or that of the others if enough rules have been seen."""
        if rule in self._rules:
            return rule
        with self._lock:
            if len(self._rules) >= _RULES_MAX:
                return _OTHER
            self._rules.add(rule)
        return rule


_of: weakref.WeakKeyDictionary[CollectorRegistry, _Metrics] = weakref.WeakKeyDictionary()
_lock = threading.Lock()
