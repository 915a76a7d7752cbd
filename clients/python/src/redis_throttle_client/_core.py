"""What the sync and the asyncio limiter share: everything but the waiting."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ._decision import Decision
from ._errors import CommandRejected, InvalidArgument, ThrottleError, Unavailable, is_mistake
from ._keys import Keys
from ._local import LocalLimiter, local_decision
from ._policy import DenialCache, Gate, Grants, strictest
from ._rules import Rule, checked_cost

log = logging.getLogger("redis_throttle_client")

Subject = str
Call = tuple[Rule, Subject] | tuple[Rule, Subject, int]
OnDecision = Callable[[Decision, Rule, str, float], None]
"""Called after each decision with it, the rule, a hash of the subject and the latency in ms."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a limiter, checked.

    ``timeout_ms`` holds for the whole call: connecting, sending and the reply. ``prefetch`` is
    how many permits one call takes in advance for calls of cost 1, under rules that can.
    ``denial_cache`` is how many denials are remembered, 0 for none.
    """

    timeout_ms: int = 100
    max_in_flight: int = 256
    breaker_failures: int = 5
    breaker_pause_ms: int = 1000
    denial_cache: int = 0
    prefetch: int = 1
    prefix: str = "rl"
    hash_tag: Literal["none", "subject"] = "none"
    hmac_secret: bytes | str | None = None
    on_decision: OnDecision | None = None
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        least = {
            "timeout_ms": 1, "max_in_flight": 1, "breaker_failures": 1,
            "breaker_pause_ms": 1, "denial_cache": 0, "prefetch": 1,
        }  # fmt: skip
        for name, bound in least.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < bound:
                raise InvalidArgument(f"{name}: expected an integer of at least {bound}")


class Core:
    """Keys, caches, the gate, and what becomes of an error."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.keys = Keys(
            prefix=options.prefix, hash_tag=options.hash_tag, hmac_secret=options.hmac_secret
        )
        self._gates: dict[object, Gate] = {}
        self.denials = DenialCache(options.denial_cache)
        self.grants = Grants()
        self.local = LocalLimiter()
        self._local_turn = threading.Lock()
        self.clock = options.clock
        self.timeout_s = options.timeout_ms / 1000

    def gate(self, node: object) -> Gate:
        """The gate of a node: one that is away does not shut the others."""
        gate = self._gates.get(node)
        if gate is None:
            options = self.options
            gate = self._gates.setdefault(
                node,
                Gate(
                    options.max_in_flight,
                    options.breaker_failures,
                    options.breaker_pause_ms / 1000,
                ),
            )
        return gate

    def calls(self, calls: Sequence[Call], tag: str | None) -> list[tuple[Rule, str, int]]:
        """Rule, key and cost of each call."""
        made = []
        for call in calls:
            rule, subject, cost = call if len(call) == 3 else (*call, 1)
            made.append((rule, self.keys.key(rule.name, subject, tag), checked_cost(cost)))
        return made

    def prefetches(self, rule: Rule, cost: int) -> bool:
        """Whether a call is served from permits that are fetched in advance."""
        return self.options.prefetch > 1 and cost == 1 and rule.takes_partial

    def told(self, decision: Decision, rule: Rule, subject: str, began: float) -> Decision:
        """Hands the decision to the hook. A hook that fails changes no decision."""
        hook = self.options.on_decision
        if hook is not None:
            try:
                latency_ms = (self.clock() - began) * 1000
                hook(decision, rule, self.keys.subject_hash(subject), latency_ms)
            except Exception:
                log.exception("on_decision failed")
        return decision

    def fallback(self, calls: Sequence[tuple[Rule, str, int]], *, peek: bool = False) -> Decision:
        """What the rules say when there is no answer: the strictest decides."""
        chosen = strictest(rule.on_error for rule, _, _ in calls)
        first = next(rule for rule, _, _ in calls if rule.on_error == chosen)
        if chosen == "allow":
            return Decision(True, 0, 0, 0, 0, first.name, "error", True)
        if chosen == "deny":
            retry_ms = self.options.breaker_pause_ms
            return Decision(False, 0, 0, retry_ms, 0, first.name, "error", True, False, retry_ms)
        now_us = int(self.clock() * 1_000_000)
        with self._local_turn:
            rows = tuple(
                local_decision(self.local, rule, key, cost, now_us, peek=peek)
                for rule, key, cost in calls
                if rule.on_error == "local"
            )
        deciding = max(
            rows,
            key=lambda row: (not row.allowed, row.never, row.retry_after_ms, -row.remaining),
        )
        return replace(deciding, rows=rows) if len(calls) > 1 else deciding

    @staticmethod
    def judged(error: Exception) -> ThrottleError:
        """A driver's error as one of ours, with the driver's as the cause to set."""
        if isinstance(error, ThrottleError):
            return error
        if is_mistake(error):
            hint = ""
            if "unknown command" in str(error):
                hint = ": is the module loaded on this server?"
            return CommandRejected(f"{error}{hint}")
        return Unavailable(f"no answer: {error or type(error).__name__}")


def wait_ms(decision: Decision, spent_ms: float, max_wait_ms: int) -> int | None:
    """How long a waiting caller sleeps next; None when it is over."""
    if decision.source == "error" or decision.never or (decision and not decision.retry_after_ms):
        return None
    if spent_ms + decision.retry_after_ms > max_wait_ms:
        return None
    return decision.retry_after_ms


def each(rows: Sequence[Decision]) -> Decision:
    """The decision of calls made one after the other: the last denies, or all allow."""
    deciding = rows[-1] if not rows[-1].allowed else min(rows, key=lambda row: row.remaining)
    return replace(deciding, rows=tuple(rows))
