"""Limits of Django REST framework views, as a throttle class.

    class ApiThrottle(RateLimitThrottle):
        limiter = limiter
        rules = gcra("api", 10, 10, "1m")

Needs the extra ``rest-framework``. The decision is
``request.META["redis_throttle_client.decision"]``.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import getattr_static, signature
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar

from rest_framework.exceptions import APIException, Throttled
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle

from ._limiter import Limiter
from ._rules.decision import Decision, Denied
from ._rules.errors import InvalidArgument
from ._rules.headers import HeaderStyle, retry_after_s
from ._rules.options import checked_function, suggestion
from ._rules.outcome import Outcome
from ._rules.rate import Rate, parsed_rate
from ._rules.rule import Rule, checked_cost, sliding_log
from ._web.body_input import BodyInput
from ._web.counting import Decided, refund, take
from ._web.http import DECISION, LISTS, problem
from ._web.request import Plan, refuse_async, resolved

if TYPE_CHECKING:
    # The views import the classes of the setting DEFAULT_THROTTLE_CLASSES, and so this module.
    from rest_framework.views import APIView

__all__ = [
    "KeyFunction",
    "RateLimitError",
    "RateLimitThrottle",
    "RuleFunction",
    "RulesArgument",
    "ScopedRateLimitThrottle",
]

KeyFunction = Callable[[Request], str | int | None]
RuleFunction = Callable[[Request], Rule | None]
"""Returns the rule of a request, or None to leave this rule out."""

RulesArgument = (
    Rule | RuleFunction | Sequence[Rule | RuleFunction | tuple[Rule | RuleFunction, KeyFunction]]
)
# A rate of the framework, which reads only the first letter of its unit. It would count the
# requests of a month in each minute.
_RATE = re.compile(r"(-?[0-9]{1,15})/(?!mo)([smhd])[a-z]*")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


_OPTIONS = (
    "limiter", "rules", "rate", "scope", "anonymous", "trusted_proxies", "headers", "key", "cost",
    "skip", "tag",
)  # fmt: skip
# What other throttles and the middlewares have, and what to use here.
_INSTEAD = {
    "get_cache_key": "override the method key",
    "get_ident": "override the method key",
    "key_func": "override the method key",
    "get_rate": "set rate",
    "parse_rate": "set rate",
    "NUM_PROXIES": "set trusted_proxies",
    "num_proxies": "set trusted_proxies",
    "cache": "the limiter has its own server",
    "cache_format": "keys begin with the prefix of the limiter",
    "timer": "the server has the time",
    "throttle_success": "override allow_request",
    "throttle_failure": "override allow_request",
    "on_denied": "set the framework's EXCEPTION_HANDLER",
    "degraded_header": "the view has request.META['redis_throttle_client.decision'].degraded",
}


def _check_members(cls: type[RateLimitThrottle]) -> None:
    """Raises InvalidArgument for members that would be ignored, and for what cannot be called."""
    for base in cls.__mro__:
        if base.__module__ == __name__ or base in (BaseThrottle, object):
            continue
        for name in vars(base):
            if name in _INSTEAD:
                raise InvalidArgument(f"{name}: not used by this throttle; {_INSTEAD[name]}")
            hint = "" if name in _OPTIONS or name[0] == "_" else suggestion(name, _OPTIONS, 0.8)
            if hint:
                raise InvalidArgument(f"{name}: there is no such option{hint}")
    for name in ("key", "cost", "skip", "tag"):
        given = getattr(cls, name)
        if name == "cost" and not callable(given):
            checked_cost(given)
        elif given is not None:
            checked_function(given, name)
        if isinstance(getattr_static(cls, name), FunctionType):
            try:
                signature(given).bind(None, None)
            except TypeError:
                raise InvalidArgument(f"{name}: expected a method of self and request") from None


class RateLimitError(APIException):
    """Denies a request: 403 for a ban, 413 for a cost above the limit, 503 without the server,
    400 without a subject.

    ``decision`` is the denial, None without a subject.
    """

    def __init__(self, decision: Decision | None) -> None:
        body = problem(decision)
        self.status_code = body["status"]
        super().__init__(body["detail"], "rate_limit")
        self.decision = decision


class RateLimitThrottle(BaseThrottle):
    """Checks all its rules in one call. Use a subclass with a ``limiter`` and ``rules``.

    In place of ``rules``, a class may have a ``rate`` such as ``"3/min"`` or ``"5 per 2 hours"``,
    or a ``scope``, whose rate is in the framework's setting DEFAULT_THROTTLE_RATES. As in the
    framework, that number of requests is allowed in any such period, and None is no limit. The rule
    has the name of the scope, or else of the class.

    The framework calls every throttle, also after a denial. So the rules of a view belong in one
    class. A denial is the framework's ``Throttled``, 429, also a :class:`Denied` of the view. The
    methods :meth:`key`, :meth:`cost`, :meth:`skip` and :meth:`tag` may be overridden; ``rules`` may
    contain functions of the request. Leases are refused, because a throttle does not learn of the
    end of a response.
    """

    limiter: ClassVar[Limiter]
    rules: ClassVar[RulesArgument]
    rate: ClassVar[str | Rate | None]
    scope: ClassVar[str | None] = None
    THROTTLE_RATES: ClassVar[Mapping[str, Any]] = api_settings.DEFAULT_THROTTLE_RATES
    anonymous: ClassVar[Rule | None] = None
    trusted_proxies: ClassVar[Sequence[str] | None] = None
    headers: ClassVar[Sequence[HeaderStyle]] = ("draft-11",)
    _missing: ClassVar[str] = (
        "rules: expected a subclass of RateLimitThrottle that has them, a rate or a scope"
    )
    # The plan of a class is its own, and its type is internal.
    _plan: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _check_members(cls)
        rules = cls._rules()
        if rules is None:
            return
        if not isinstance(getattr(cls, "limiter", None), Limiter):
            raise InvalidArgument("limiter: expected a Limiter")
        refuse_async(key=[cls.key], cost=[cls.cost], skip=[cls.skip], tag=[cls.tag])
        cls._plan = cls._planned(rules)
        for rule, _ in cls._plan.rules:
            _refuse_lease(rule)

    @classmethod
    def _rules(cls) -> RulesArgument | None:
        """Returns the rules of the class, None for a base class."""
        has_rate = hasattr(cls, "rate")
        if hasattr(cls, "rules"):
            if has_rate or cls.scope is not None:
                raise InvalidArgument("rules: the class has a rate or a scope too")
            return cls.rules
        if has_rate:
            return _rule_of(cls.scope or cls.__name__, cls.rate)
        return None if cls.scope is None else cls._rule_of_scope(cls.scope)

    @classmethod
    def _rule_of_scope(cls, scope: str) -> Rule | RuleFunction:
        if scope not in cls.THROTTLE_RATES:
            raise InvalidArgument(f"scope: DEFAULT_THROTTLE_RATES has no rate for {scope!r}")
        return _rule_of(scope, cls.THROTTLE_RATES[scope])

    @classmethod
    def _planned(cls, rules: RulesArgument) -> Plan:
        return Plan.of(
            cls.limiter, rules, anonymous=cls.anonymous, headers=cls.headers,
            trusted_proxies=cls.trusted_proxies,
        )  # fmt: skip

    def __init__(self) -> None:
        if not hasattr(self, "_plan"):
            raise InvalidArgument(self._missing)
        self._retry_after_s: int | None = None

    def key(self, request: Request) -> str | int | None:
        """Returns the subject of a request.

        By default it is ``user:`` and the primary key of the user, or the client's address if the
        user is not authenticated.
        """
        user = request.user
        if user and user.is_authenticated:
            return f"user:{user.pk}"
        address, forwarded = self._address(request)
        if address is not None:
            plan: Plan = self._plan
            plan.note(address, forwarded)
        return address

    def _address(self, request: Request) -> tuple[str | None, list[str]]:
        """Returns the client's address and the values of X-Forwarded-For."""
        value = request.META.get("HTTP_X_FORWARDED_FOR")
        forwarded = [] if value is None else [value]
        plan: Plan = self._plan
        return plan.client(request.META.get("REMOTE_ADDR") or None, forwarded), forwarded

    def cost(self, request: Request) -> int:
        """Returns the cost of a request: by default 1."""
        return 1

    def skip(self, request: Request) -> bool:
        """Returns True for a request that is not limited: by default for none."""
        return False

    def tag(self, request: Request) -> str | None:
        """Returns the hash tag of the keys, which a cluster needs for several rules."""
        return None

    def _plan_of(self, view: APIView) -> Plan | None:
        """Returns the plan of a view, None if it has no limit."""
        plan: Plan = self._plan
        return plan

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Returns False for a denial. Raises :class:`RateLimitError` for 400, 403, 413 and 503."""
        plan = self._plan_of(view)
        if plan is None:
            return True
        plan = replace(plan, key=self.key, cost=self.cost, skip=self.skip, tag=self.tag)
        requested = resolved(plan.items(request, *self._address(request)))
        if requested is None:
            raise RateLimitError(None)
        _respond_to_denied(view, plan.styles)
        request.META.setdefault(DECISION, None)
        if not requested.items:
            return True
        for item in requested.items:
            _refuse_lease(item.rule)
        taken, _ = take(self.limiter, requested)
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


class ScopedRateLimitThrottle(RateLimitThrottle):
    """Limits each view that has a ``throttle_scope`` to the rate of that scope.

    Use a subclass with a ``limiter``, in the framework's setting DEFAULT_THROTTLE_CLASSES or of a
    view. The rates are in the framework's setting
    DEFAULT_THROTTLE_RATES. Views without a scope have no limit.
    """

    scope_attr: ClassVar[str] = "throttle_scope"
    _missing: ClassVar[str] = (
        "limiter: expected a subclass of ScopedRateLimitThrottle that has a limiter"
    )
    _plans: ClassVar[dict[str, Any]]

    @classmethod
    def _rules(cls) -> RulesArgument | None:
        if not hasattr(cls, "limiter"):
            return None
        if hasattr(cls, "rules") or hasattr(cls, "rate") or cls.scope is not None:
            raise InvalidArgument("rules: expected none, because each view has its scope")
        cls._plans = {}
        return lambda request: None

    def _plan_of(self, view: APIView) -> Plan | None:
        scope = getattr(view, self.scope_attr, None)
        if not scope:
            return None
        plan: Plan | None = self._plans.get(scope)
        if plan is None:
            plan = self._plans[scope] = self._planned(self._rule_of_scope(scope))
        return plan


def _rule_of(name: str, rate: str | Rate | None) -> Rule | RuleFunction:
    """Returns the rule of a rate, or a function for rates that need no call."""
    if rate is None:
        return lambda request: None
    if isinstance(rate, Rate):
        return sliding_log(name, rate)
    match = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    if match is None:
        return sliding_log(name, parsed_rate(rate, "rate"))
    requests, seconds = int(match[1]), _UNITS_S[match[2]]
    if requests > 0:
        return sliding_log(name, requests, seconds)

    def closed(request: Request) -> Rule | None:
        raise Throttled(seconds)

    return closed


def _refuse_lease(rule: object) -> None:
    if isinstance(rule, Rule) and rule.kind == "lease":
        raise InvalidArgument("rules: a lease needs the middleware for WSGI")


def _respond_to_denied(view: APIView, styles: Sequence[HeaderStyle]) -> None:
    """Makes the view respond to a denied lease or admission as to a denial of the throttle."""
    # A test may pass an object that only has what it needs.
    handle = getattr(view, "handle_exception", None)
    if handle is None:
        return

    def handled(exc: Exception) -> Response:
        if isinstance(exc, Denied):
            decision = exc.decision
            _add_headers(view, decision, styles)
            is_final = decision.never or decision.source == "error"
            retry_s = retry_after_s(decision.retry_after_ms)
            exc = RateLimitError(decision) if is_final else Throttled(retry_s)
        response: Response = handle(exc)
        return response

    view.handle_exception = handled  # type: ignore[method-assign]


def _add_headers(view: APIView, decision: Decision, styles: Sequence[HeaderStyle]) -> None:
    """Adds the fields to every response of the view, also to that of an exception."""
    fields = decision.headers(styles)
    if not decision.allowed:
        fields["Cache-Control"] = "no-store"
    # The default headers may be those of the class.
    view.headers = dict(view.headers)
    for name, value in fields.items():
        if name.lower() in LISTS and name in view.headers:
            view.headers[name] += f", {value}"
        elif name == "Retry-After":
            # Another throttle may have denied the request too. A view's own value may be a date.
            other = str(view.headers.get(name))
            view.headers[name] = max(value, other, key=int) if other.isdecimal() else value
        else:
            view.headers.setdefault(name, value)


def _refund_at_end(limiter: Limiter, taken: Decided, request: Request, view: APIView) -> None:
    """Refunds what does not count, when the view has its response or raises.

    A request whose body its client cut counts, as one whose client has left.
    """
    if taken.requested.counts_all:
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
