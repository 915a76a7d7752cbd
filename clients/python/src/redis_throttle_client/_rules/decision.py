"""Decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .errors import Reason, ThrottleError
from .headers import HeaderStyle, fields, retry_after_s
from .problem import QUOTA_EXCEEDED, plain

Source = Literal["server", "local", "error"]
# The retry time of a call that is never allowed: the largest integer of every language.
FOREVER_MS = 2**53 - 1


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision; true in a condition if it allows the call.

    ``limit`` is the limit of the rule or policy, ``remaining`` the units left, rounded down.
    ``retry_after_ms`` of a denial is the time until the same call is allowed. If it never is, it is
    2^53 - 1, and ``never`` is true. For an allowed call it is 0, except in a leaky bucket, where it
    is the time to wait before acting. ``reset_after_ms`` is the time until the full allowance is
    available, rounded up.
    ``source`` is ``server``; ``local`` if this process decided, by a cached denial, a prefetched
    permit or ``on_error="local"``; or ``error`` if the server did not decide and ``on_error``
    allowed or denied. ``degraded`` is true if ``on_error`` decided in place of the server;
    ``reason`` then says why.
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
        return fields(self, styles, now_ms)

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
