"""The bodies of the responses that a limiter sends: problems (RFC 9457)."""

from __future__ import annotations

from typing import Any

TITLES = {
    400: "Bad Request", 403: "Forbidden", 413: "Content Too Large", 429: "Too Many Requests",
    503: "Service Unavailable",
}  # fmt: skip
QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"


def plain(status: int, detail: str) -> dict[str, Any]:
    """Returns a problem of no kind but its status."""
    return {"type": "about:blank", "title": TITLES[status], "status": status, "detail": detail}
