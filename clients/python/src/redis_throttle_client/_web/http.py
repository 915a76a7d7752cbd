"""The request and the responses that the middlewares share."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from .._rules.decision import Decision
from .._rules.headers import HeaderStyle
from .._rules.problem import plain
from .._rules.rule import Rule

# The name of the decision in a WSGI environ.
DECISION = "redis_throttle_client.decision"
# The name of a header field.
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True)
class Request:
    """A request, as it is passed to the functions that configure a middleware.

    ``raw`` is the ASGI scope or the WSGI environ. ``client_address`` is the client's address, or
    ``peer:`` for a peer without one, as over a Unix socket. It is None if a trusted proxy names no
    valid address.
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


Subject = str | int | None
KeyFunction = Callable[[Request], Subject | Awaitable[Subject]]
SkipFunction = Callable[[Request], bool | Awaitable[bool]]
CostFunction = Callable[[Request], int | Awaitable[int]]
RuleFunction = Callable[[Request], Rule | Awaitable[Rule | None] | None]
"""Returns the rule of a request, or None to leave this rule out."""

RulesArgument = (
    Rule | RuleFunction | Sequence[Rule | RuleFunction | tuple[Rule | RuleFunction, KeyFunction]]
)


@dataclass(frozen=True)
class Response:
    """A complete response, as a on_denied returns it."""

    status: int
    headers: Mapping[str, str]
    body: bytes


OnDenied = Callable[[Request, Decision, Response], Response]
"""Returns the response to a denial. Its last argument is the default response."""


def problem(decision: Decision | None) -> dict[str, Any]:
    """Returns the problem for a denial or, for None, for a request without a subject."""
    if decision is None:
        return plain(400, "The request does not say who it is from.")
    return decision.problem()


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


class MiddlewareOptions(TypedDict, total=False):
    """The options of both middlewares. Their defaults are in :meth:`Plan.of`."""

    key: KeyFunction | None
    skip: SkipFunction | None
    cost: int | CostFunction
    on_denied: OnDenied | None
    headers: Sequence[HeaderStyle]
    trusted_proxies: Sequence[str] | None
    anonymous: Rule | None
    tag: KeyFunction | None
    degraded_header: str | None


# The header fields that are lists. A limiter appends its values to those of another limiter.
LISTS = frozenset({"ratelimit", "ratelimit-policy"})


def added(present: set[str], fields: Mapping[str, str]) -> list[tuple[str, str]]:
    """Returns the fields to add. A field that is not a list is added only if it is not present."""
    return [
        (name, value)
        for name, value in fields.items()
        if name.lower() in LISTS or name.lower() not in present
    ]
