"""Counts the decisions of a limiter, and calls its hook."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

from ._decision import Decision
from ._errors import CommandRejected
from ._options import Counters, DecisionEvent, EventKind, Options
from ._rules import Rule

log = logging.getLogger("redis_throttle_client")


class Teller:
    """The counters of a limiter, and its ``on_decision``."""

    def __init__(self, options: Options, key_hash: Callable[[str], str]) -> None:
        self._hook, self._clock, self._key_hash = options.on_decision, options.clock, key_hash
        self.begin()

    def begin(self) -> None:
        """Resets the counters, also in the child of a fork."""
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(("allowed", "denied", "degraded", "local", "rejected"), 0)

    def counters(self) -> Counters:
        """Returns the counts so far."""
        with self._lock:
            return Counters(**self._counts)

    def count(self, name: str) -> None:
        """Adds one to a counter."""
        with self._lock:
            self._counts[name] += 1

    def decided(
        self, kind: EventKind, decision: Decision, rule: Rule, subject: str, began: float
    ) -> Decision:
        """Counts the decision and tells it to the hook."""
        with self._lock:
            self._counts["allowed" if decision.allowed else "denied"] += 1
            if decision.degraded:
                self._counts["degraded"] += 1
            elif decision.source == "local":
                self._counts["local"] += 1
        return self.told(kind, decision, rule, subject, began)

    def told(
        self, kind: EventKind, decision: Decision, rule: Rule, subject: str, began: float
    ) -> Decision:
        """Tells the decision to the hook. Calls that take nothing are not counted."""
        self._tell(kind, decision, rule, subject, began)
        return decision

    @contextlib.contextmanager
    def rejections(self, rule: Rule, subject: str, began: float) -> Iterator[None]:
        """Tells the hook of a call that the server refuses in the block."""
        try:
            yield
        except CommandRejected as error:
            self._tell("rejected", None, rule, subject, began, error)
            raise

    def _tell(
        self, kind: EventKind, decision: Decision | None, rule: Rule, subject: str, began: float,
        error: CommandRejected | None = None,
    ) -> None:  # fmt: skip
        """Calls the hook. A failing hook does not change the decision."""
        hook = self._hook
        if hook is None:
            return
        try:
            latency_ms = (self._clock() - began) * 1000
            degraded = decision is not None and decision.degraded
            hashed = self._key_hash(subject)
            hook(DecisionEvent(kind, decision, rule, hashed, latency_ms, degraded, error))
        except Exception:
            log.exception("on_decision failed for the rule %s", rule.name)
