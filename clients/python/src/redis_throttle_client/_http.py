"""The code that both middlewares share: the subjects, the cost and the answer."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from ._address import ClientAddress
from ._decision import STYLES, Decision, HeaderStyle
from ._errors import InvalidArgument
from ._rules import Rule

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"


@dataclass(frozen=True)
class Request:
    """A request, as it is passed to the functions that configure a middleware.

    ``raw`` is the ASGI scope or the WSGI environ.
    """

    method: str
    path: str
    raw: Any = field(repr=False)
    client_address: str | None
    _headers: Callable[[str], list[str]] = field(repr=False)

    def headers(self, name: str) -> list[str]:
        """Returns all values of a header, in order."""
        return self._headers(name.lower())

    def header(self, name: str) -> str | None:
        """Returns the value of a header that occurs exactly once; otherwise None."""
        values = self.headers(name)
        return values[0] if len(values) == 1 else None


Subject = str | None
KeyFunction = Callable[[Request], Subject | Awaitable[Subject]]
SkipFunction = Callable[[Request], bool | Awaitable[bool]]
CostFunction = Callable[[Request], int | Awaitable[int]]


@dataclass(frozen=True)
class Response:
    """A complete response, as a on_denied returns it."""

    status: int
    headers: Mapping[str, str]
    body: bytes


OnDenied = Callable[[Request, Decision, Response], Response]
"""Returns the response to a denial. Its last argument is the default response."""

_TITLES = {
    400: "Bad Request", 413: "Content Too Large", 429: "Too Many Requests",
    503: "Service Unavailable",
}  # fmt: skip


def problem(decision: Decision | None) -> dict[str, Any]:
    """Returns the problem (RFC 9457) for a denial or, for None, for a request without a subject."""
    if decision is None:
        return _plain(400, "The request does not say who it is from.")
    if decision.source == "error":
        return _plain(503, "The rate limiter is not available.")
    if decision.never:
        return _plain(413, "This request costs more than its limit allows at once.")
    seconds = int(decision.headers(())["Retry-After"])
    rows = decision.rows or (decision,)
    body = _plain(429, f"Come back in {seconds} second{'' if seconds == 1 else 's'}.")
    body["type"] = _QUOTA_EXCEEDED
    body["violated-policies"] = [row.rule for row in rows if not row.allowed]
    return body


def _plain(status: int, detail: str) -> dict[str, Any]:
    return {"type": "about:blank", "title": _TITLES[status], "status": status, "detail": detail}


def denial(decision: Decision | None, styles: Sequence[HeaderStyle]) -> Response:
    """Returns the default response to a denial or, for None, to a request without a subject."""
    body = problem(decision)
    fields = {} if decision is None else decision.headers(styles)
    data = json.dumps(body, separators=(",", ":")).encode()
    fields = {
        "Content-Type": "application/problem+json", "Cache-Control": "no-store",
        "Content-Length": str(len(data)), **fields,
    }  # fmt: skip
    return Response(body["status"], fields, data)


def _address_of(request: Request) -> str | None:
    return request.client_address


class MiddlewareOptions(TypedDict, total=False):
    """The options of both middlewares. Their defaults are in :meth:`Plan.of`."""

    key: KeyFunction | None
    skip: SkipFunction | None
    cost: int | CostFunction
    on_denied: OnDenied | None
    headers: Sequence[HeaderStyle]
    trusted_proxies: Sequence[str]
    anonymous: Rule | None
    tag: KeyFunction | None
    degraded_header: str | None


@dataclass(frozen=True)
class Plan:
    """The validated options of a middleware."""

    rules: tuple[tuple[Rule, KeyFunction], ...]
    address: ClientAddress
    skip: SkipFunction | None
    cost: int | CostFunction
    on_denied: OnDenied | None
    styles: tuple[HeaderStyle, ...]
    anonymous: Rule | None
    tag: KeyFunction | None
    degraded_header: str | None

    @classmethod
    def of(
        cls, rules: RulesArgument, *, key: KeyFunction | None = None,
        skip: SkipFunction | None = None, cost: int | CostFunction = 1,
        on_denied: OnDenied | None = None, headers: Sequence[HeaderStyle] = ("draft-11",),
        trusted_proxies: Sequence[str] = (), anonymous: Rule | None = None,
        tag: KeyFunction | None = None, degraded_header: str | None = None,
    ) -> Plan:  # fmt: skip
        """Validates the options and adds the defaults."""
        default = key or _address_of
        given = [rules] if isinstance(rules, Rule) else list(rules)
        made = tuple((rule, default) if isinstance(rule, Rule) else rule for rule in given)
        if not 1 <= len(made) <= 16:
            raise InvalidArgument("rules: expected 1 to 16")
        if isinstance(headers, str) or not set(headers) <= set(STYLES):
            raise InvalidArgument(f"headers: expected some of {', '.join(STYLES)}")
        names = [rule.name for rule, _ in made]
        if len(set(names)) != len(names):
            raise InvalidArgument("rules: a name stands there twice")
        if cost != 1 and not any(rule.takes_cost for rule, _ in made):
            raise InvalidArgument("cost: none of the rules takes one")
        if degraded_header is not None and not _TOKEN.fullmatch(degraded_header):
            raise InvalidArgument("degraded_header: expected the name of a header")
        return cls(
            made, ClientAddress(trusted_proxies), skip, cost, on_denied, tuple(headers),
            anonymous, tag, degraded_header,
        )  # fmt: skip

    def calls(
        self, subjects: Sequence[Subject], cost: int, address: str | None
    ) -> list[tuple[Rule, str, int]] | None:
        """Returns the calls; None if a subject is missing and ``anonymous`` does not replace it."""
        if all(subjects):
            return [
                (rule, subject, cost if rule.takes_cost else 1)
                for (rule, _), subject in zip(self.rules, subjects, strict=True)
                if subject
            ]
        if self.anonymous is None or not address:
            return None
        return [(self.anonymous, address, cost if self.anonymous.takes_cost else 1)]

    def denial(self, request: Request, decision: Decision | None) -> Response:
        """Returns the response to a denial, which a on_denied may replace."""
        answer = denial(decision, self.styles)
        if self.on_denied is None or decision is None:
            return answer
        return self.on_denied(request, decision, answer)


RulesArgument = Rule | Sequence[Rule | tuple[Rule, KeyFunction]]

# The header fields that are lists. A limiter appends its values to those of another limiter.
LISTS = frozenset({"ratelimit", "ratelimit-policy"})


def added(present: set[str], fields: Mapping[str, str]) -> list[tuple[str, str]]:
    """Returns the fields to add. A field that is not a list is added only if it is not present."""
    return [
        (name, value)
        for name, value in fields.items()
        if name.lower() in LISTS or name.lower() not in present
    ]
