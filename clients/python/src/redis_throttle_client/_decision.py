"""Decisions, and the HTTP fields made from them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ._errors import InvalidArgument, Reason, ThrottleError
from ._problem import QUOTA_EXCEEDED, plain

Source = Literal["server", "local", "error"]
HeaderStyle = Literal["draft-11", "draft-6", "x-ratelimit"]
# The retry time of a call that is never allowed: the largest integer of every language.
FOREVER_MS = 2**53 - 1
STYLES = ("draft-11", "draft-6", "x-ratelimit")


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision; true in a condition if it allows the call.

    ``limit`` is the limit of the rule or policy, ``remaining`` the units left, rounded down.
    ``retry_after_ms`` of a denial is the time until the same call is allowed. If it never is, it is
    2^53 - 1, and ``never`` is true. For an allowed call it is 0, except in a leaky bucket, where it
    is the time to wait before acting. ``reset_after_ms`` is the time until the full allowance is
    available, rounded up.
    ``source`` is ``server``; ``local`` if this process decided, by a cached denial, a prefetched
    permit or ``on_error="local"``; or ``error`` if there was no answer and ``on_error`` allowed or
    denied. ``degraded`` is true if the server gave no answer and ``on_error`` decided; ``reason``
    then says why.
    ``would_allow`` and ``would_retry_after_ms`` differ from ``allowed`` and ``retry_after_ms`` only
    under a policy in shadow mode. ``rows`` has the decision of each rule if the call has several;
    ``deciding`` is the index, from 0, of the rule that decided. ``banned`` is true if the call is
    never allowed although its cost is within the limit.
    """

    allowed: bool
    limit: int
    remaining: int
    retry_after_ms: int
    reset_after_ms: int
    rule: str
    source: Source = "server"
    degraded: bool = False
    would_allow: bool = True
    would_retry_after_ms: int = 0
    granted: int = 0
    window_us: int | None = None
    rows: tuple[Decision, ...] = ()
    deciding: int = 0
    reason: Reason | None = None
    banned: bool = False

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def never(self) -> bool:
        """True if a retry never helps: the cost is above the limit, or the caller is banned."""
        return not self.allowed and self.retry_after_ms >= FOREVER_MS

    def headers(
        self, styles: Sequence[HeaderStyle] = ("draft-11",), *, now_ms: int | None = None
    ) -> dict[str, str]:
        """Returns the HTTP fields. ``now_ms`` is Unix time, for ``x-ratelimit``."""
        fields: dict[str, str] = {}
        if self.source != "error":
            for style in styles:
                fields |= self._fields(style, now_ms)
        if not self.allowed and not self.never:
            fields["Retry-After"] = str(retry_after_s(self.retry_after_ms))
        return fields

    def problem(self) -> dict[str, Any]:
        """Returns the problem (RFC 9457) of a denial: the body to send as
        ``application/problem+json``.

        Its ``status`` is 429; 403 for a ban; 413 if the cost is above the limit; 503 if
        ``on_error`` denied. It names rules, never a key or a subject.
        """
        if self.source == "error":
            return plain(503, "The rate limiter is not available.")
        if self.banned:
            return plain(403, "This caller is blocked.")
        if self.never:
            return plain(413, "This request costs more than its limit allows at once.")
        seconds = retry_after_s(self.retry_after_ms)
        body = plain(429, f"Come back in {seconds} second{'' if seconds == 1 else 's'}.")
        body["type"] = QUOTA_EXCEEDED
        body["violated-policies"] = [row.rule for row in self.rows or (self,) if not row.allowed]
        return body

    def _fields(self, style: str, now_ms: int | None) -> dict[str, str]:
        if style == "draft-11":
            rows = [row for row in self.rows or (self,) if row.source != "error"]
            return {
                "RateLimit-Policy": ", ".join(map(_policy_item, rows)),
                "RateLimit": ", ".join(
                    f'"{row.rule}";r={row.remaining};t={self._t(row)}' for row in rows
                ),
            }
        if style == "draft-6":
            prefix, reset = "RateLimit", self._t(self)
        elif style == "x-ratelimit":
            now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
            after_ms = self.reset_after_ms
            if not self.allowed and not self.never:
                after_ms = self.retry_after_ms
            prefix, reset = "X-RateLimit", _ceil_s(now_ms + after_ms)
        else:
            raise InvalidArgument(f"headers: expected some of {', '.join(STYLES)}")
        return {
            f"{prefix}-Limit": str(self.limit),
            f"{prefix}-Remaining": str(self.remaining),
            f"{prefix}-Reset": str(reset),
        }

    def _t(self, row: Decision) -> int:
        """Returns the seconds until the row's retry if it denies, else its reset; at most
        Retry-After.
        """
        reset = _ceil_s(row.reset_after_ms)
        if not row.allowed and not row.never:
            reset = retry_after_s(row.retry_after_ms)
        if not self.allowed and not self.never:
            return min(reset, retry_after_s(self.retry_after_ms))
        return reset


def _policy_item(row: Decision) -> str:
    item = f'"{row.rule}";q={row.limit}'
    if row.window_us is not None and row.window_us >= 1_000_000:
        item += f";w={-(-row.window_us // 1_000_000)}"
    return item


def _ceil_s(ms: int) -> int:
    return -(-ms // 1000)


def retry_after_s(ms: int) -> int:
    """Returns ``Retry-After`` in seconds, rounded up and at least 1: an early retry is denied."""
    return max(1, _ceil_s(ms))


def retry_ms(ms: int) -> int:
    """Returns a retry time of the server; 2^53 - 1 for its -1, which is never."""
    return FOREVER_MS if ms < 0 else ms


class Denied(ThrottleError):
    """A lease or an admission was denied. ``decision.retry_after_ms`` says when to retry."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(f"denied by the rule {decision.rule!r}")
        self.decision = decision

    @property
    def status(self) -> int:
        """The HTTP status of the denial: 429, 403, 413 or 503, as in :meth:`Decision.problem`."""
        status: int = self.decision.problem()["status"]
        return status

    @property
    def headers(self) -> dict[str, str]:
        """The HTTP fields of the denial: ``Cache-Control`` and :meth:`Decision.headers`."""
        return {"Cache-Control": "no-store", **self.decision.headers()}
