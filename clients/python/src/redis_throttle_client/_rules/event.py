"""Events, which hooks get, and counters. No field of an event has a key or a subject."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .decision import Decision
from .errors import ProtocolError, ThrottleError, Unavailable
from .rule import Rule

DecisionKind = Literal[
    "check", "peek", "charge", "refund", "lease", "commit", "cancel", "rejected"
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class DecisionEvent:
    """One call, as it is passed to ``on_decision``.

    ``kind`` is the method; ``charge``, ``refund``, ``commit`` or ``cancel`` for the end of an
    admission; or ``rejected`` for a call that the server refused. Of a rejected call, and of an end
    that failed, ``decision`` is None and ``error`` is set; the failed end of a lease is a
    ``lease``. ``rule`` is the rule that decided. ``key_hash`` is a keyed hash of the subject.
    ``degraded`` is true if ``on_error`` decided.
    """

    kind: DecisionKind
    decision: Decision | None
    rule: Rule
    key_hash: str
    latency_ms: float
    degraded: bool = False
    error: ThrottleError | None = None


OnDecision = Callable[[DecisionEvent], None]
"""Called after each decision, charge, refund, end of an admission and rejected call."""


@dataclass(frozen=True, slots=True)
class Counters:
    """The counts of a limiter since it was created.

    ``degraded`` and ``local`` count some of these decisions again: those that ``on_error`` made,
    and those made without a call, by a cached denial or a prefetched permit. ``rejected`` counts
    the calls that the server refused, and ``unsettled`` the ends of admissions that failed. They
    are not decisions.
    """

    allowed: int = 0
    denied: int = 0
    degraded: int = 0
    local: int = 0
    rejected: int = 0
    unsettled: int = 0


Field = bool | int | str | list[str]

# Drivers remove the first word of these replies.
_WORDS = {"NoPermissionError": "NOPERM", "AuthenticationError": "WRONGPASS"}


def fields_of(event: DecisionEvent) -> dict[str, Field]:
    """Returns the fields by name, in the order of the other clients."""
    decision = event.decision
    fields: dict[str, Field] = {
        "kind": event.kind, "rule": event.rule.name, "key_hash": event.key_hash,
    }  # fmt: skip
    if decision is not None:
        fields |= {
            "allowed": decision.allowed, "source": decision.source, "limit": decision.limit,
            "remaining": decision.remaining, "retry_after_ms": decision.retry_after_ms,
            "degraded": decision.degraded,
        }  # fmt: skip
        if decision.reason is not None:
            fields["reason"] = decision.reason
        if decision.rows:
            fields["rules"] = [row.rule for row in decision.rows]
    if isinstance(event.error, Unavailable):
        fields |= {"error": "unavailable", "reason": event.error.reason}
    elif event.error is not None:
        fields["error"] = _word(event.error)
    return fields


def _word(error: ThrottleError) -> str:
    """Returns the first word of the error reply. The text may repeat the key."""
    if isinstance(error, ProtocolError):
        return "PROTOCOL"
    word = re.match(r"[A-Z][A-Z0-9_]+(?= |$)", str(error))
    return word[0] if word else _WORDS.get(type(error.__cause__).__name__, "ERR")
