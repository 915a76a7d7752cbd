"""The fields of an event in logs and traces. None of them has a key or a subject."""

from __future__ import annotations

import re

from ._errors import ProtocolError, ThrottleError, Unavailable
from ._options import DecisionEvent

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
