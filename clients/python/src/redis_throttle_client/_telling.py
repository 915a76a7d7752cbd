"""Counts the decisions of a limiter, and calls its hook."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ._decision import Decision
from ._errors import CommandRejected, ThrottleError
from ._options import Counters, DecisionEvent, DecisionKind, Options
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
        self._counts = dict.fromkeys(Counters.__slots__, 0)

    def counters(self) -> Counters:
        """Returns the counts so far."""
        with self._lock:
            return Counters(**self._counts)

    def count(self, name: str) -> None:
        """Adds one to a counter."""
        with self._lock:
            self._counts[name] += 1

    def decided(
        self, kind: DecisionKind, decision: Decision, rule: Rule, subject: str, began: float
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
        self, kind: DecisionKind, decision: Decision, rule: Rule, subject: str, began: float
    ) -> Decision:
        """Tells the decision to the hook. Calls that take nothing are not counted."""
        self.tell(kind, decision, rule, subject, began)
        return decision

    def unsettled(
        self, kind: DecisionKind, rule: Rule, subject: str, began: float, error: ThrottleError
    ) -> None:  # fmt: skip
        """Counts an end of an admission that failed, and tells it to the hook."""
        self.count("unsettled")
        # The hook was told of a rejected call already.
        if not isinstance(error, CommandRejected):
            self.tell(kind, None, rule, subject, began, error)

    def rejections(self, rule: Rule, subject: str, began: float) -> _Rejections:
        """Returns a context that tells the hook of a call that the server refuses in it."""
        return _Rejections(self, rule, subject, began)

    def tell(
        self, kind: DecisionKind, decision: Decision | None, rule: Rule, subject: str, began: float,
        error: ThrottleError | None = None,
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


class _Rejections:
    # Made for each call: a generator with contextlib takes five times as long.
    __slots__ = ("_began", "_rule", "_subject", "_teller")

    def __init__(self, teller: Teller, rule: Rule, subject: str, began: float) -> None:
        self._teller, self._rule, self._subject, self._began = teller, rule, subject, began

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, CommandRejected):
            self._teller.tell("rejected", None, self._rule, self._subject, self._began, error)
