"""Counts the decisions of a limiter, and calls its hooks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from .._rules.decision import Decision
from .._rules.errors import CommandRejected, ThrottleError
from .._rules.event import Counters, DecisionEvent, DecisionKind, OnDecision
from .._rules.options import Options, checked_hook
from .._rules.rule import Rule

log = logging.getLogger("redis_throttle_client")
_LOG = "redis-throttle: %d calls decided without the server: %s"
_LOG_PAUSE_S = 1.0


class Events:
    """The counters of a limiter, and its ``on_decision`` hooks."""

    def __init__(self, options: Options, key_hash: Callable[[str | int], str]) -> None:
        self._clock, self._key_hash = options.clock, key_hash
        self._logs = options.log_errors
        self._hooks: tuple[OnDecision, ...] = ()
        self.begin()
        if options.on_decision is not None:
            self.add(options.on_decision)

    def begin(self) -> None:
        """Resets the counters, also in the child of a fork."""
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(Counters.__slots__, 0)
        # For each reason, when decisions without the server were logged, and their number since.
        self._logged: dict[str, tuple[float, int]] = {}

    def add(self, hook: OnDecision) -> None:
        """Adds a hook. A call that is being reported keeps the hooks that it has."""
        checked_hook(hook)
        with self._lock:
            self._hooks += (hook,)

    def counters(self) -> Counters:
        """Returns the counts so far."""
        with self._lock:
            return Counters(**self._counts)

    def count(self, name: str) -> None:
        """Adds one to a counter."""
        with self._lock:
            self._counts[name] += 1

    def decided(
        self, kind: DecisionKind, decision: Decision, rule: Rule, subject: str | int, began: float
    ) -> Decision:
        """Counts the decision and reports it to the hooks."""
        with self._lock:
            self._counts["allowed" if decision.allowed else "denied"] += 1
            if decision.degraded:
                self._counts["degraded"] += 1
            elif decision.source == "local":
                self._counts["local"] += 1
        return self.reported(kind, decision, rule, subject, began)

    def _log(self, reason: str) -> None:
        """Logs decisions without the server: at most one line per second and reason."""
        now = self._clock()
        with self._lock:
            at, count = self._logged.get(reason, (float("-inf"), 0))
            is_due = now - at >= _LOG_PAUSE_S
            self._logged[reason] = (now, 0) if is_due else (at, count + 1)
        if is_due:
            log.warning(_LOG, count + 1, reason)

    def close(self) -> None:
        """Logs the decisions that are not logged yet."""
        with self._lock:
            logged, self._logged = self._logged, {}
        for reason, (_, count) in logged.items():
            if count:
                log.warning(_LOG, count, reason)

    def reported(
        self, kind: DecisionKind, decision: Decision, rule: Rule, subject: str | int, began: float
    ) -> Decision:
        """Reports the decision to the hooks. Calls that take nothing are not counted."""
        if decision.degraded and self._logs:
            self._log(decision.reason or "")
        if self._hooks:
            self.report(kind, decision, rule, subject, began)
        return decision

    def unsettled(
        self, kind: DecisionKind, rule: Rule, subject: str | int, began: float, error: ThrottleError
    ) -> None:  # fmt: skip
        """Counts an end of an admission that failed, and reports it to the hooks."""
        self.count("unsettled")
        # A rejected call was reported to the hooks already.
        if not isinstance(error, CommandRejected):
            self.report(kind, None, rule, subject, began, error)

    def rejections(self, rule: Rule, subject: str | int, began: float) -> _Rejections:
        """Returns a context that reports a call that the server refuses in it to the hooks."""
        return _Rejections(self, rule, subject, began)

    def report(
        self, kind: DecisionKind, decision: Decision | None, rule: Rule, subject: str | int,
        began: float, error: ThrottleError | None = None,
    ) -> None:  # fmt: skip
        """Calls the hooks. A failing hook changes neither the decision nor another hook."""
        hooks = self._hooks
        if not hooks:
            return
        latency_ms = (self._clock() - began) * 1000
        degraded = decision is not None and decision.degraded
        hashed = self._key_hash(subject)
        event = DecisionEvent(kind, decision, rule, hashed, latency_ms, degraded, error)
        for hook in hooks:
            try:
                hook(event)
            except Exception:
                log.exception("on_decision failed for the rule %s", rule.name)


class _Rejections:
    # Created for each call: a generator with contextlib takes five times as long.
    __slots__ = ("_began", "_events", "_rule", "_subject")

    def __init__(self, events: Events, rule: Rule, subject: str | int, began: float) -> None:
        self._events, self._rule, self._subject, self._began = events, rule, subject, began

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, CommandRejected):
            self._events.report("rejected", None, self._rule, self._subject, self._began, error)
