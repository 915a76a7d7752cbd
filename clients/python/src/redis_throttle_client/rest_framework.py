"""Limits of Django REST framework views, as a throttle class.

    class ApiThrottle(RateLimitThrottle):
        limiter = limiter
        rules = gcra("api", 10, 10, "1m")

Needs the extra ``rest-framework``. The decision is
``request.META["redis_throttle_client.decision"]``.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from ._address import ClientAddress
from ._body_input import BodyInput
from ._counting import Decided, refund, take
from ._decision import Decision, HeaderStyle, retry_after_s
from ._errors import InvalidArgument
from ._http import DECISION, LISTS, problem
from ._limiter import Limiter
from ._outcome import Outcome
from ._plan import Plan, refuse_async, resolved
from ._rules import Rule

__all__ = [
    "KeyFunction",
    "RateLimitError",
    "RateLimitThrottle",
    "RuleFunction",
    "RulesArgument",
]

KeyFunction = Callable[[Request], str | int | None]
RuleFunction = Callable[[Request], Rule | None]
"""Returns the rule of a request, or None to leave this rule out."""

RulesArgument = (
    Rule | RuleFunction | Sequence[Rule | RuleFunction | tuple[Rule | RuleFunction, KeyFunction]]
)


class RateLimitError(APIException):
    """Denies a request: 403 for a ban, 413 for a cost above the limit, 503 without an answer, 400
    without a subject.

    ``decision`` is the denial, None without a subject.
    """

    def __init__(self, decision: Decision | None) -> None:
        told = problem(decision)
        self.status_code = told["status"]
        super().__init__(told["detail"], "rate_limit")
        self.decision = decision


class RateLimitThrottle(BaseThrottle):
    """Checks all its rules in one call. Use a subclass with a ``limiter`` and ``rules``.

    The framework asks every throttle, also after a denial. So the rules of a view belong in one
    class. A denial is the framework's ``Throttled``, 429. The methods :meth:`key`, :meth:`cost`,
    :meth:`skip` and :meth:`tag` may be overridden; ``rules`` may contain functions of the request.
    Leases are refused, because a throttle does not learn of the end of a response.
    """

    limiter: ClassVar[Limiter]
    rules: ClassVar[RulesArgument]
    anonymous: ClassVar[Rule | None] = None
    trusted_proxies: ClassVar[Sequence[str]] = ()
    headers: ClassVar[Sequence[HeaderStyle]] = ("draft-11",)
    # The plan of a class is its own, and its type is internal.
    _plan: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not hasattr(cls, "rules"):
            return
        if not isinstance(getattr(cls, "limiter", None), Limiter):
            raise InvalidArgument("limiter: expected a Limiter")
        refuse_async(key=[cls.key], cost=[cls.cost], skip=[cls.skip], tag=[cls.tag])
        cls._plan = Plan.of(
            cls.limiter, cls.rules, anonymous=cls.anonymous, headers=cls.headers,
            trusted_proxies=cls.trusted_proxies,
        )  # fmt: skip
        for rule, _ in cls._plan.rules:
            _refuse_lease(rule)

    def __init__(self) -> None:
        if not hasattr(self, "_plan"):
            raise InvalidArgument("rules: expected a subclass of RateLimitThrottle that has them")
        self._plan_of_self = replace(
            self._plan, key=self.key, cost=self.cost, skip=self.skip, tag=self.tag
        )
        self._retry_after_s: int | None = None

    def key(self, request: Request) -> str | int | None:
        """Returns the subject of a request: by default the client's address."""
        forwarded = request.META.get("HTTP_X_FORWARDED_FOR")
        peer = request.META.get("REMOTE_ADDR") or None
        address: ClientAddress = self._plan.address
        return address.find(peer, [] if forwarded is None else [forwarded])

    def cost(self, request: Request) -> int:
        """Returns the cost of a request: by default 1."""
        return 1

    def skip(self, request: Request) -> bool:
        """Returns True for a request that is not limited: by default for none."""
        return False

    def tag(self, request: Request) -> str | None:
        """Returns the hash tag of the keys, which a cluster needs for several rules."""
        return None

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Returns False for a denial. Raises :class:`RateLimitError` for 400, 403, 413 and 503."""
        address = RateLimitThrottle.key(self, request)
        asked = resolved(self._plan_of_self.items(request, address))
        if asked is None:
            raise RateLimitError(None)
        request.META.setdefault(DECISION, None)
        if not asked.items:
            return True
        for item in asked.items:
            _refuse_lease(item.rule)
        taken, _ = take(self.limiter, asked)
        return self._apply(taken, request, view)

    def _apply(self, taken: Decided, request: Request, view: APIView) -> bool:
        decision = taken.decision
        request.META[DECISION] = decision
        _add_headers(view, decision, self._plan.styles)
        if decision.allowed:
            _refund_at_end(self.limiter, taken, request, view)
            return True
        if decision.never or decision.source == "error":
            raise RateLimitError(decision)
        self._retry_after_s = retry_after_s(decision.retry_after_ms)
        return False

    def wait(self) -> float | None:
        """Returns the seconds until a retry, after a denial."""
        return self._retry_after_s


def _refuse_lease(rule: object) -> None:
    if isinstance(rule, Rule) and rule.kind == "lease":
        raise InvalidArgument("rules: a lease needs the middleware for WSGI")


def _add_headers(view: APIView, decision: Decision, styles: Sequence[HeaderStyle]) -> None:
    """Adds the fields to every response of the view, also to that of an exception."""
    fields = decision.headers(styles)
    if not decision.allowed:
        fields["Cache-Control"] = "no-store"
    for name, value in fields.items():
        if name.lower() in LISTS and name in view.headers:
            view.headers[name] += f", {value}"
        else:
            view.headers.setdefault(name, value)


def _refund_at_end(limiter: Limiter, taken: Decided, request: Request, view: APIView) -> None:
    """Refunds what does not count, when the view has its response or raises.

    A request whose body its client cut counts, as one whose client has left.
    """
    if taken.asked.counts_all:
        return
    body = _watched_body(request)
    finalize, handle = view.finalize_response, view.handle_exception

    def end(outcome: Outcome) -> None:
        if not body.is_cut:
            refund(limiter, taken, outcome)

    def finalized(*args: Any, **options: Any) -> Response:
        response = finalize(*args, **options)
        end(Outcome(response.status_code))
        return response

    def handled(exc: Exception) -> Response:
        try:
            return handle(exc)
        except Exception as raised:
            end(Outcome(None, raised))
            raise

    # The framework has no other hook that a throttle can reach.
    view.finalize_response = finalized  # type: ignore[method-assign]
    view.handle_exception = handled  # type: ignore[method-assign]


def _watched_body(request: Request) -> BodyInput:
    """Notes from now on that the client has cut the body. Django ignores a body that is too short.

    If a middleware of the application has read it before, that is known already.
    """
    inner: Any = request._request
    length = inner.META.get("CONTENT_LENGTH")
    was_read = getattr(inner, "_read_started", False)
    if was_read and hasattr(inner, "_body"):
        body = BodyInput(io.BytesIO(inner._body), length)
        body.read()
        return body
    # How much a middleware has read without keeping it is not known.
    body = BodyInput(getattr(inner, "_stream", None), None if was_read else length)
    inner._stream = body
    return body
