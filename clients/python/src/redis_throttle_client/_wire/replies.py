"""Reads the replies of the server into decisions. Does no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from .._rules.decision import FOREVER_MS, Decision, retry_ms
from .._rules.errors import ProtocolError
from .._rules.rule import Item, limit_of
from .words import Keyed


def _integers(reply: object, length: int) -> list[int]:
    if not isinstance(reply, list) or len(reply) != length:
        raise ProtocolError("the reply is no decision")
    # A generator takes several times as long.
    for number in reply:
        if type(number) is not int:
            raise ProtocolError("the reply is no decision")
    return reply


def decision(item: Item, reply: object, *, partial: bool = False) -> Decision:
    """Reads a decision: five integers, or seven under a policy.

    Without the module a policy is its default, of five integers.
    """
    rule, units = item.rule, item.units
    is_default = rule.default is not None and isinstance(reply, list) and len(reply) == 5
    if rule.kind == "policy" and not is_default:
        granted, limit, remaining, retry, reset, would, would_retry = _integers(reply, 7)
    else:
        granted, limit, remaining, retry, reset = _integers(reply, 5)
        would, would_retry = granted, retry
    if not 0 <= granted <= (units if partial else 1) or remaining < 0 or retry < -1:
        raise ProtocolError("the reply is no decision")
    is_banned = retry < 0 and not granted and _is_ban(item, limit, partial=partial)
    return Decision(
        granted > 0, limit, remaining, retry if retry >= 0 else FOREVER_MS, reset, rule.name,
        "server", False, would > 0, would_retry if would_retry >= 0 else FOREVER_MS,
        granted if partial else granted * units, rule.window_us, (), 0, None, is_banned,
    )  # fmt: skip


def _is_ban(item: Item, limit: int, *, partial: bool) -> bool:
    """Returns True if a call that is never allowed is not too large."""
    units = 1 if partial else item.units
    return not limit or units + units_to_leave(item.leaves, limit) <= limit


def units_to_leave(leave: str | None, capacity: int, share: float = 1.0) -> int:
    """Returns the units that must remain; a percentage of the capacity is rounded down."""
    if leave is None:
        return 0
    if leave.endswith("%"):
        return capacity * int(leave[:-1]) // 100
    return ceil(int(leave) * share)


def decision_all(items: Sequence[Keyed], reply: object) -> Decision:
    """Reads the decision on several rules. It has a row for each."""
    if not isinstance(reply, list) or len(reply) != 6 + len(items):
        raise ProtocolError("the reply is no decision")
    granted, _, _, retry, _, at = _integers(reply[:6], 6)
    if not 1 <= at <= len(items) or granted not in (0, 1):
        raise ProtocolError("the reply is no decision")
    rows = [decision(item, row) for (item, _), row in zip(items, reply[6:], strict=True)]
    if not granted:
        # A denied call takes nothing, also from the rules that would allow it.
        rows = [replace(row, granted=0) for row in rows]
    retry = retry_ms(retry)
    deciding = rows[at - 1]
    return replace(
        deciding, allowed=granted == 1, retry_after_ms=retry,
        would_allow=all(row.would_allow for row in rows),
        would_retry_after_ms=retry if not granted else deciding.would_retry_after_ms,
        rows=tuple(rows), deciding=at - 1,
    )  # fmt: skip


def too_many(items: Sequence[Keyed]) -> Decision:
    """Returns the denial of a call whose key remembers too many reservations."""
    at = next(at for at, (item, _) in enumerate(items) if item.ttl_us is not None)
    rows = [
        Decision(True, limit_of(item.rule), 0, 0, 0, item.rule.name, window_us=item.rule.window_us)
        for item, _ in items
    ]
    ms = -(-(items[at].item.ttl_us or 0) // 1000)
    rows[at] = replace(
        rows[at], allowed=False, retry_after_ms=ms, reset_after_ms=ms, would_allow=False,
        would_retry_after_ms=ms,
    )  # fmt: skip
    return replace(rows[at], rows=tuple(rows), deciding=at)


def settled(item: Item, reply: object) -> Decision:
    """Reads the reply of a charge, refund, commit or cancellation: five integers."""
    granted, limit, remaining, retry, reset = _integers(reply, 5)
    return Decision(
        granted > 0, limit, remaining, retry_ms(retry), reset, item.rule.name, "server", False,
        granted > 0, retry_ms(retry), item.units if granted > 0 else 0, item.rule.window_us,
    )  # fmt: skip


def held(reply: object) -> bool:
    """Reads the reply of a renewal or a release: 1, or 0 if the lease has expired."""
    if type(reply) is not int or reply not in (0, 1):
        raise ProtocolError("the reply is neither 0 nor 1")
    return reply == 1
