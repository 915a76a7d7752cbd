"""Decides, by ``on_error``, the calls that the server did not decide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from .._rules.decision import Decision
from .._rules.errors import Reason
from .._rules.rule import Item, OnError, Rule, limit_of
from .._wire.words import Keyed
from .local import LocalLimiter, local_decision

_STRICTNESS: tuple[OnError, ...] = ("allow", "local", "deny")


def strictest(on_errors: Iterable[OnError]) -> OnError:
    """Returns the strictest ``on_error``, which decides a call of several rules."""
    return max(on_errors, key=_STRICTNESS.index)


def decide_without_server(
    items: Sequence[Keyed], on_errors: Sequence[OnError], reason: Reason, retry_ms: int,
    local_of: Callable[[int], tuple[LocalLimiter, float]], now_us: int, *,
    peek: bool = False, partial: bool = False,
) -> Decision:  # fmt: skip
    """Decides by the strictest ``on_error``. ``retry_ms`` is the retry time of a denial.

    ``local_of`` returns the local limiter of an item, and the share of the limit. The decision of
    several rules has a row for each.
    """

    def row(at: int, peek: bool, status: bool = False) -> Decision:
        item, key = items[at]
        if on_errors[at] != "local":
            return _without_state(item.rule, on_errors[at] == "allow", reason, retry_ms)
        if status:
            item = Item(item.rule, item.subject, 0)
        local, share = local_of(at)
        return local_decision(local, item, key, now_us, reason, share, peek=peek, partial=partial)

    if len(items) == 1:
        return row(0, peek)

    # Peek first: a denied call must take from no rule.
    rows = [row(at, True) for at in range(len(items))]
    if not all(one.allowed for one in rows):
        rows = [row(at, True, True) if one.allowed else one for at, one in enumerate(rows)]
    elif not peek:
        rows = [row(at, False) for at in range(len(items))]
    chosen = strictest(on_errors)
    bound = [at for at, on_error in enumerate(on_errors) if on_error == chosen]
    at = max(bound, key=lambda at: severity(rows[at]))
    return replace(rows[at], rows=tuple(rows), deciding=at)


def _without_state(rule: Rule, allowed: bool, reason: Reason, retry_ms: int) -> Decision:
    """Returns the decision of ``on_error``. Its limit is the rule's, if the rule has one."""
    retry_ms = 0 if allowed else retry_ms
    return Decision(
        allowed, limit_of(rule), 0, retry_ms, 0, rule.name, "error", True, allowed, retry_ms,
        reason=reason,
    )  # fmt: skip


def severity(row: Decision) -> tuple[bool, bool, int, int]:
    """Returns the order of the rows of a decision. The highest one decides."""
    return not row.allowed, row.never, row.retry_after_ms, -row.remaining
