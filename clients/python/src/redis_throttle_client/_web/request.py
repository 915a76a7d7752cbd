"""The limits of a web request: the options of a middleware, and the items of a request."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from inspect import isawaitable, iscoroutinefunction
from json import JSONDecodeError
from typing import Any, TypeVar

from .._limiter import Limiter
from .._limiter_async import AsyncLimiter
from .._rules.decision import Decision
from .._rules.errors import InvalidArgument
from .._rules.headers import STYLES, HeaderStyle
from .._rules.keys import is_subject, subject_text
from .._rules.options import checked_function, refuse_unknown
from .._rules.rule import Item, Rule, checked_cost, checked_on_error
from .._wire.words import MOST_RULES
from .address import BLANK, ClientAddress
from .counting import MOST_FUNCTIONS, Once, RequestItems
from .http import TOKEN, MiddlewareOptions, OnDenied, Request, Response, denial

log = logging.getLogger("redis_throttle_client")
T = TypeVar("T")
# The functions of applications, and the texts, that a warning was logged of.
_warned = Once()
# The beginning of a subject that is the name of a peer. No address has it.
_PEER = "peer:"
_NO_PROXIES = ClientAddress()
_FORWARDED = (
    "X-Forwarded-For arrived, but no proxy is trusted: all clients behind a proxy share one limit. "
    "Set trusted_proxies to the networks of the proxies, or to [] if there are none"
)

Pending = Generator[Any, Any, T]
"""Yields values that may be awaitable, and returns a result."""


@dataclass(frozen=True)
class Plan:
    """The validated options of a middleware.

    The functions take the request of the framework. A rule without a key of its own has None.
    ``knows_proxies`` is true if ``trusted_proxies`` was set, also to none.
    """

    rules: tuple[tuple[Rule | Callable[..., Any], Callable[..., Any] | None], ...]
    address: ClientAddress
    knows_proxies: bool
    key: Callable[..., Any] | None
    skip: Callable[..., Any] | None
    cost: int | Callable[..., Any]
    on_denied: OnDenied | None
    styles: tuple[HeaderStyle, ...]
    anonymous: Rule | None
    tag: Callable[..., Any] | None
    degraded_header: str | None

    @classmethod
    def of(
        cls, limiter: Limiter | AsyncLimiter, rules: Any, *,
        key: Callable[..., Any] | None = None, skip: Callable[..., Any] | None = None,
        cost: int | Callable[..., Any] = 1, on_denied: OnDenied | None = None,
        headers: Sequence[HeaderStyle] = ("draft-11",),
        trusted_proxies: Sequence[str] | None = None, anonymous: Rule | None = None,
        tag: Callable[..., Any] | None = None, degraded_header: str | None = None,
        **unknown: object,
    ) -> Plan:  # fmt: skip
        """Validates the options and adds the defaults."""
        refuse_unknown(unknown, (*MiddlewareOptions.__annotations__, "rules", "limiter"))
        for name, given in {"key": key, "skip": skip, "on_denied": on_denied, "tag": tag}.items():
            if given is not None:
                checked_function(given, name)
        if not callable(cost):
            checked_cost(cost)
        if anonymous is not None and not isinstance(anonymous, Rule):
            raise InvalidArgument("anonymous: expected a rule")
        pairs = _pairs(rules)
        fixed = [rule for rule, _ in pairs if isinstance(rule, Rule)]
        is_list = isinstance(headers, Iterable) and not isinstance(headers, str)
        if not is_list or not all(style in STYLES for style in headers):
            raise InvalidArgument(f"headers: expected some of {', '.join(STYLES)}")
        names = [rule.name for rule in fixed]
        if len(set(names)) != len(names):
            raise InvalidArgument("rules: a name stands there twice")
        has_cost = len(fixed) < len(pairs) or any(rule.takes_cost for rule in fixed)
        if cost != 1 and not has_cost:
            raise InvalidArgument("cost: none of the rules takes one")
        if degraded_header is not None and not (
            isinstance(degraded_header, str) and TOKEN.fullmatch(degraded_header)
        ):
            raise InvalidArgument("degraded_header: expected the name of a header")
        for rule in fixed if anonymous is None else [*fixed, anonymous]:
            if rule.on_error is None:
                checked_on_error(limiter._calls.options.on_error, local=rule.keeps_locally)
        if isinstance(limiter, Limiter):
            refuse_async(rules=[part for pair in pairs for part in pair])
            refuse_async(key=[key], cost=[cost], skip=[skip], tag=[tag])
        return cls(
            pairs, ClientAddress(() if trusted_proxies is None else trusted_proxies),
            trusted_proxies is not None, key, skip, cost, on_denied, tuple(headers), anonymous, tag,
            degraded_header,
        )  # fmt: skip

    def items(
        self, request: Any, address: str | None, forwarded: Sequence[str]
    ) -> Pending[RequestItems | None]:
        """Returns the items of a request, or none if none of the rules applies.

        Returns None if a subject is missing and ``anonymous`` does not replace it, or if no call
        can have the tag or the cost. ``address`` is that of :meth:`client`, and ``forwarded`` as
        there. Yields what the functions return, which the caller may have to await.
        """
        if self.skip is not None and (yield self.skip(request)):
            return RequestItems(())
        found: list[tuple[Rule, str]] = []
        for given, own_key in self.rules:
            rule = given if isinstance(given, Rule) else (yield given(request))
            if rule is None:
                continue
            if not isinstance(rule, Rule):
                raise InvalidArgument("rules: expected a function that returns a rule or None")
            key = own_key or self.key
            subject = address if key is None else (yield from _text(key, request))
            if not subject:
                if self.anonymous is None or not address:
                    return None
                self.note(address, forwarded)
                found = [(self.anonymous, address)]
                break
            if key is None:
                self.note(subject, forwarded)
            found.append((rule, subject))
        if not found:
            return RequestItems(())
        cost = (yield self.cost(request)) if callable(self.cost) else self.cost
        tag = None if self.tag is None else (yield from _text(self.tag, request, "tag"))
        if tag == "" or not self._takes(cost, [rule for rule, _ in found]):
            return None
        return RequestItems([_item(rule, subject, cost) for rule, subject in found], tag)

    def _takes(self, cost: Any, rules: Sequence[Rule]) -> bool:
        """Returns False if the cost, which may come from a body, is one that no call can have."""
        try:
            checked_cost(cost)
        except InvalidArgument as error:
            if callable(self.cost) and any(rule.takes_cost for rule in rules):
                _warn_once(self.cost, "cost", f"returned no cost: 400 ({error})")
                return False
        return True

    def client(self, peer: str | None, forwarded: Sequence[str]) -> str | None:
        """Returns the client's address, or ``peer:`` for all peers that have none.

        Such a peer is a Unix socket, or the ``testclient`` of Starlette. Its name is no part of the
        subject, because a client may choose it. Returns None for invalid values of
        X-Forwarded-For, ``forwarded``, from a trusted proxy.
        """
        found = self.address.find(peer, forwarded)
        if found is not None or _NO_PROXIES.find(peer, ()) is not None:
            return found
        is_named = ",".join(forwarded).strip(BLANK) != ""
        if not peer and self.address.trusts_unix and is_named:
            return None
        return _PEER

    def note(self, address: str, forwarded: Sequence[str]) -> None:
        """Warns once if the address that is a subject may be that of many clients."""
        if forwarded and not self.knows_proxies and _warned.is_new(_FORWARDED):
            log.warning(_FORWARDED)
        if address == _PEER and _warned.is_new(_PEER):
            log.warning(
                "a peer has no address, so the requests of all such peers share one key: behind a "
                'proxy on a Unix socket set trusted_proxies=["unix"], otherwise set key'
            )

    def denial(self, request: Request, decision: Decision | None) -> Response:
        """Returns the response to a denial, which ``on_denied`` may replace."""
        response = denial(decision, self.styles)
        if self.on_denied is None or decision is None:
            return response
        return self.on_denied(request, decision, response)


def _item(rule: Rule, subject: str, cost: int) -> Item:
    return rule.of(subject).cost(cost) if rule.takes_cost else rule.of(subject)


def _pairs(
    rules: Any,
) -> tuple[tuple[Rule | Callable[..., Any], Callable[..., Any] | None], ...]:
    """Returns each rule with its own key function, or None."""
    alone = isinstance(rules, Rule) or callable(rules)
    if not alone and not isinstance(rules, Iterable):
        raise InvalidArgument("rules: expected a rule, a function that returns one, or a list")
    given = [rules] if alone else list(rules)
    pairs = tuple(one if isinstance(one, tuple) else (one, None) for one in given)
    if not 1 <= len(pairs) <= MOST_RULES:
        raise InvalidArgument(f"rules: expected 1 to {MOST_RULES}")
    for pair in pairs:
        if len(pair) != 2 or not (isinstance(pair[0], Rule) or callable(pair[0])):
            raise InvalidArgument("rules: expected rules, or functions that return one")
        if pair[1] is not None and not callable(pair[1]):
            raise InvalidArgument("key: expected a function")
    return pairs


def refuse_async(**functions: Sequence[object]) -> None:
    """Raises if one of the functions, by the names of their options, is async."""
    for name, given in functions.items():
        for one in given:
            call = getattr(one, "__call__", None)  # noqa: B004
            if iscoroutinefunction(one) or iscoroutinefunction(call):
                raise InvalidArgument(f"{name}: expected a function that is not async")


def _text(
    function: Callable[..., Any], request: Any, name: str = "key"
) -> Pending[str | None]:  # fmt: skip
    """Returns the text, or the number as text. Returns None if the function finds none or fails
    because nothing is there, and an empty text for what has no key, such as an array in a body.

    Other errors, such as a response of the framework that is raised, are the application's.
    """
    try:
        found: object = yield function(request)
    except (LookupError, JSONDecodeError, UnicodeDecodeError, RecursionError):
        return None
    except (AttributeError, TypeError):
        # As by `None.lower()` for a missing header, or by a bug.
        _warn_once(function, name, "failed, so its requests have no subject", exc_info=True)
        return None
    if found is None or found == "":
        return None
    if is_subject(found):
        return subject_text(found)
    _warn_once(function, name, f"returned a {type(found).__name__}, which is no subject: 400")
    return ""


def _warn_once(
    function: Callable[..., Any], name: str, text: str, *, exc_info: bool = False
) -> None:  # fmt: skip
    """Warns once of each of the first functions, not for each request."""
    # A throttle of Django REST framework is created for each request, and so are its methods.
    function = getattr(function, "__func__", function)
    if _warned.is_new(function, MOST_FUNCTIONS):
        named = function if hasattr(function, "__qualname__") else type(function)
        log.warning(
            f"the {name} function %s.%s {text}", named.__module__, named.__qualname__,
            exc_info=exc_info,
        )  # fmt: skip


def resolved(pending: Pending[T]) -> T:
    """Returns the result. Raises if a function turns out to be async."""
    try:
        value = next(pending)
        while True:
            if isawaitable(value):
                pending.close()
                getattr(value, "close", lambda: None)()
                raise InvalidArgument("rules: an async function needs the middleware for ASGI")
            value = pending.send(value)
    except StopIteration as end:
        result: T = end.value
        return result


async def resolved_async(pending: Pending[T]) -> T:
    """Returns the result."""
    try:
        value = next(pending)
        while True:
            try:
                came = await value if isawaitable(value) else value
            except Exception as error:
                value = pending.throw(error)
            else:
                value = pending.send(came)
    except StopIteration as end:
        result: T = end.value
        return result
