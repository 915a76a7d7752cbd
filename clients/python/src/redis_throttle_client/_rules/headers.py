"""The HTTP fields of a decision: ``RateLimit``, its older forms, and ``Retry-After``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal

from .errors import InvalidArgument

HeaderStyle = Literal["draft-11", "draft-6", "x-ratelimit"]
STYLES = ("draft-11", "draft-6", "x-ratelimit")
# A Decision, whose file imports this one.
_Decision = Any


def fields(
    decision: _Decision, styles: Sequence[HeaderStyle], now_ms: int | None
) -> dict[str, str]:
    """Returns the fields in these styles. ``now_ms`` is Unix time, for ``x-ratelimit``."""
    found: dict[str, str] = {}
    if decision.source != "error":
        for style in styles:
            found |= _in_style(decision, style, now_ms)
    if not decision.allowed and not decision.never:
        found["Retry-After"] = str(retry_after_s(decision.retry_after_ms))
    return found


def _in_style(decision: _Decision, style: str, now_ms: int | None) -> dict[str, str]:
    if style == "draft-11":
        rows = [row for row in decision.rows or (decision,) if row.source != "error"]
        return {
            "RateLimit-Policy": ", ".join(map(_policy_item, rows)),
            "RateLimit": ", ".join(
                f'"{row.rule}";r={row.remaining};t={_t(decision, row)}' for row in rows
            ),
        }
    if style == "draft-6":
        prefix, reset = "RateLimit", _t(decision, decision)
    elif style == "x-ratelimit":
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        after_ms = decision.reset_after_ms
        if not decision.allowed and not decision.never:
            after_ms = decision.retry_after_ms
        prefix, reset = "X-RateLimit", _ceil_s(now_ms + after_ms)
    else:
        raise InvalidArgument(f"headers: expected some of {', '.join(STYLES)}")
    return {
        f"{prefix}-Limit": str(decision.limit),
        f"{prefix}-Remaining": str(decision.remaining),
        f"{prefix}-Reset": str(reset),
    }


def _t(decision: _Decision, row: _Decision) -> int:
    """Returns the seconds until the row's retry if it denies, else its reset; at most
    Retry-After.
    """
    reset = _ceil_s(row.reset_after_ms)
    if not row.allowed and not row.never:
        reset = retry_after_s(row.retry_after_ms)
    if not decision.allowed and not decision.never:
        return min(reset, retry_after_s(decision.retry_after_ms))
    return reset


def _policy_item(row: _Decision) -> str:
    item = f'"{row.rule}";q={row.limit}'
    if row.window_us is not None and row.window_us >= 1_000_000:
        item += f";w={-(-row.window_us // 1_000_000)}"
    return item


def _ceil_s(ms: int) -> int:
    return -(-ms // 1000)


def retry_after_s(ms: int) -> int:
    """Returns ``Retry-After`` in seconds, rounded up and at least 1: an early retry is denied."""
    return max(1, _ceil_s(ms))
