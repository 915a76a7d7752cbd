"""A key function of header fields, for every middleware of this package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._rules.errors import InvalidArgument
from .http import TOKEN, Request


@dataclass(frozen=True, slots=True)
class HeaderKey:
    """A key function, as :func:`key_of` returns it.

    It is not a plain function. So as an attribute of a class, for example of a throttle of Django
    REST framework, it is called without the instance.
    """

    names: tuple[str, ...]

    def __call__(self, request: Any) -> str | None:
        """Returns the subject of a request, None if a header is missing, empty or repeated."""
        parts = []
        for name in self.names:
            value = _value(request, name)
            if not value:
                return None
            parts.append(value.replace("%", "%25").replace("|", "%7C"))
        return "|".join(parts)


def key_of(*headers: str) -> HeaderKey:
    """Returns a key function that joins the values of these header fields by ``|``.

    In each value ``%`` becomes ``%25`` and ``|`` becomes ``%7C``, so no two callers share a key. A
    request that lacks one of the fields, or has an empty or a repeated one, has no subject. Trust
    only fields that the client cannot choose, such as those that a gateway sets. It is for
    ``key``, ``tag`` and the rules' own keys of every middleware, and for ``key`` of a throttle:

        RateLimitMiddleware(app, limiter=limiter, rules=rule, key=key_of("X-Tenant", "X-Api-Key"))
    """
    if not headers:
        raise InvalidArgument("headers: expected at least 1 name")
    for name in headers:
        if not isinstance(name, str) or TOKEN.fullmatch(name) is None:
            raise InvalidArgument("headers: expected names of header fields")
    return HeaderKey(headers)


def _value(request: Any, name: str) -> str | None:
    """Returns the value of a field that occurs once."""
    if isinstance(request, Request):
        return request.header(name)
    fields = request.headers
    # Starlette keeps repeated fields apart; Django joins them.
    get_all = getattr(fields, "getlist", None)
    values = [fields.get(name)] if get_all is None else get_all(name)
    return values[0] if len(values) == 1 else None
