"""The rules of a limiter.

A rule is created once, at startup, and validated there: an argument that the server would refuse
raises an :class:`InvalidArgument` whose text begins with the argument's name. Durations are text
with a unit (``"500ms"``, ``"1h"``), a number of seconds or a ``timedelta``. A rate such as
``"10/minute"`` stands in place of ``rate`` and ``period``, or of ``limit`` and ``window``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from .durations import DAY_US, SECOND_US, Duration, duration_text, duration_us
from .errors import InvalidArgument
from .keys import subject_text
from .outcome import Count, checked_count
from .rate import Rate, checked_units, units_and_period

OnError = Literal["allow", "deny", "local"]

MAX_COST = 10**12
MAX_PREFETCH = 10_000
_MIN_SLOTS, _MAX_SLOTS = 16, 65_536
_MAX_REFILL_US = 36_525 * DAY_US
_MAX_PER_SECOND = 10**9
_PERCENT = re.compile(r"[0-9]{1,3}%", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9._:/-]{1,64}", re.ASCII)
_WORD = re.compile(r"[!-~]{1,128}", re.ASCII)
_QUOTA_DAYS = {"day": 1, "week": 7, "month": None, "quarter": None, "year": None}


def checked_cost(cost: object, name: str = "cost") -> int:
    """Validates the cost of a call, 0 to 10^12. ``name`` is that of the argument."""
    return checked_units(cost, name, MAX_COST, 0)


def checked_leave(leave: object) -> str:
    """Validates the units that must remain, 0 to 10^12 or 0% to 100%. Returns them as text."""
    if isinstance(leave, str):
        if _PERCENT.fullmatch(leave) and int(leave[:-1]) <= 100:
            return leave
    elif isinstance(leave, int) and not isinstance(leave, bool) and 0 <= leave <= MAX_COST:
        return str(leave)
    raise InvalidArgument(f"leave: expected an integer from 0 to {MAX_COST}, or text such as '20%'")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. Create it with :func:`gcra`, :func:`fixed` or another function of this module.

    ``words`` is the rule as the server reads it, without the key. ``window_us`` is the rule's
    window, or the time to refill its bucket, if it has one. ``count`` selects the requests that
    count under the rule; middleware refunds the others.
    """

    kind: str
    name: str
    words: tuple[str, ...]
    options: tuple[str, ...] = ()
    window_us: int | None = None
    limit: int | None = None
    period_us: int = 0
    rate: int = 0
    on_error: OnError | None = None
    local_share: float = 1.0
    prefetch: int | None = None
    default: Rule | None = field(default=None, repr=False)
    count: Count = "all"

    @property
    def takes_cost(self) -> bool:
        """True if a call may take more than one unit."""
        return self.kind not in ("backoff", "lease")

    @property
    def takes_prefetch(self) -> bool:
        """True if permits may be prefetched. In a leaky bucket each call has its own wait."""
        return self.kind not in ("backoff", "lease", "leaky_bucket", "policy")

    def of(self, subject: str | int) -> Item:
        """Returns the item of a subject, for a call of several rules. Its cost is 1.

        A subject is text, or a whole number from 0 to 2^53 - 1.
        """
        return Item(self, subject if isinstance(subject, str) else subject_text(subject))

    @property
    def keeps_locally(self) -> bool:
        """True if this process can enforce the rule by itself, under ``on_error="local"``."""
        rule = self.default or self
        return rule.period_us > 0 and rule.kind != "lease"


def limit_of(rule: Rule) -> int:
    """Returns the limit, or that of the default of a policy; 0 if there is none."""
    return (rule.default or rule).limit or 0


@dataclass(frozen=True, slots=True)
class Item:
    """One rule and one subject in a call of several rules. :meth:`Rule.of` creates it.

    ``units`` is the number of units to take or to reserve. ``leaves`` is the number or percentage
    of units that must remain. ``ttl_us`` is the life of a reservation; None for other items.
    """

    rule: Rule
    subject: str
    units: int = 1
    leaves: str | None = None
    ttl_us: int | None = None

    @property
    def is_held(self) -> bool:
        """True if the item is a lease or a reservation, which has a holder."""
        return self.ttl_us is not None or self.rule.kind == "lease"

    def cost(self, units: int) -> Item:
        """Returns the item with this cost, 0 to 10^12. Leases and backoffs have no cost."""
        checked_cost(units)
        if not self.rule.takes_cost and units != 1:
            raise InvalidArgument(f"cost: expected 1 for the {self.rule.kind} {self.rule.name}")
        if self.ttl_us is not None:
            raise InvalidArgument("cost: the units of a reservation are those of reserve()")
        return replace(self, units=units)

    def leave(self, units: int | str) -> Item:
        """Returns the item that is allowed only if this number or share (``"20%"``) remains.

        Not for backoffs.
        """
        if self.rule.kind == "backoff":
            raise InvalidArgument(f"leave: not for the backoff {self.rule.name}")
        return replace(self, leaves=checked_leave(units))

    def reserve(self, units: int, ttl: Duration = 30) -> Item:
        """Returns the item that reserves units, 0 to 10^12, instead of taking them.

        Only for fixed windows, quotas and policies. The reservation expires after ``ttl`` unless
        it is renewed or ended.
        """
        if self.rule.kind not in ("fixed", "quota", "policy"):
            raise InvalidArgument(
                f"reserve: expected a fixed window, a quota or a policy, not {self.rule.name}"
            )
        if self.units != 1:
            raise InvalidArgument("reserve: the item has a cost already")
        return replace(self, units=checked_cost(units), ttl_us=duration_us(ttl, "ttl"))


def checked_rule(rule: object) -> Rule:
    """Validates the rule of a call."""
    if isinstance(rule, Rule):
        return rule
    raise InvalidArgument(f"rule: expected a rule, such as gcra(...), not {type(rule).__name__}")


def _named(name: object) -> str:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidArgument("name: expected 1 to 64 of A-Z a-z 0-9 . _ : / -")
    return name


def checked_on_error(on_error: object, *, local: bool = True) -> OnError:
    """Validates ``on_error``. ``local`` is true if this process can enforce the rule."""
    if on_error not in ("allow", "deny", "local"):
        raise InvalidArgument("on_error: expected 'allow', 'deny' or 'local'")
    if on_error == "local" and not local:
        raise InvalidArgument("on_error: nothing local stands for this rule: 'allow' or 'deny'")
    return on_error


def checked_prefetch(permits: object) -> int:
    """Validates the number of permits that one call may fetch."""
    return checked_units(permits, "prefetch", MAX_PREFETCH)


def _failure(
    on_error: object, share: object, *, local: bool
) -> tuple[OnError | None, float]:  # fmt: skip
    checked = None if on_error is None else checked_on_error(on_error, local=local)
    if not isinstance(share, int | float) or isinstance(share, bool) or not 0 < share <= 1:
        raise InvalidArgument("local_share: expected a number above 0, at most 1")
    return checked, float(share)


def _rate_rule(
    kind: str, capacity_name: str, name: str, capacity: int, rate: int | str | Rate,
    period: Duration | None,
    on_error: OnError | None, local_share: float, count: Count, prefetch: int | None = None,
) -> Rule:  # fmt: skip
    failure, share = _failure(on_error, local_share, local=True)
    name = _named(name)
    checked_units(capacity, capacity_name)
    rate, us = units_and_period(rate, "rate", period, "period")
    if rate * SECOND_US > _MAX_PER_SECOND * us:
        raise InvalidArgument(f"rate: expected at most {_MAX_PER_SECOND} per second")
    if capacity * us > _MAX_REFILL_US * rate:
        raise InvalidArgument(f"{capacity_name}: expected at most 36525 days to refill from empty")
    words = (kind.replace("_", "").upper(), str(capacity), str(rate), duration_text(us))
    refill_us = -(-capacity * us // rate)
    ahead = None if prefetch is None else checked_prefetch(prefetch)
    return Rule(
        kind, name, words, (), refill_us, capacity, us, rate, failure, share, ahead,
        count=checked_count(count),
    )  # fmt: skip


def gcra(
    name: str, burst: int, rate: int | str | Rate, period: Duration | None = None, *,
    on_error: OnError | None = None, local_share: float = 1.0, prefetch: int | None = None,
    count: Count = "all",
) -> Rule:  # fmt: skip
    """Creates a rule of ``burst`` at once, then ``rate`` per ``period``. The default choice.

    >>> limiter.check(gcra("api", burst=10, rate="10/minute"), "42").remaining
    9
    """
    return _rate_rule(
        "gcra", "burst", name, burst, rate, period, on_error, local_share, count, prefetch
    )


def token_bucket(
    name: str, capacity: int, rate: int | str | Rate, period: Duration | None = None, *,
    on_error: OnError | None = None, local_share: float = 1.0, prefetch: int | None = None,
    count: Count = "all",
) -> Rule:  # fmt: skip
    """Creates a rule that allows the same as :func:`gcra`, for limits that change at run time.

    >>> limiter.check(token_bucket("tokens", 9000, "9000/minute"), "42", cost=500).remaining
    8500
    """
    return _rate_rule(
        "token_bucket", "capacity", name, capacity, rate, period, on_error, local_share, count,
        prefetch,
    )  # fmt: skip


def leaky_bucket(
    name: str, capacity: int, rate: int | str | Rate, period: Duration | None = None, *,
    on_error: OnError | None = None, local_share: float = 1.0,
    count: Count = "all",
) -> Rule:  # fmt: skip
    """Creates a queue: ``retry_after_ms`` of an allowed call is the time to wait before it acts.

    >>> pace = leaky_bucket("pace", capacity=5, rate="2/second")
    >>> [limiter.check(pace, "42").retry_after_ms for _ in range(3)]
    [0, 500, 1000]
    """
    return _rate_rule(
        "leaky_bucket", "capacity", name, capacity, rate, period, on_error, local_share, count
    )


def _window_rule(
    kind: str, name: str, limit: int | str | Rate, window: Duration | None,
    options: tuple[str, ...],
    on_error: OnError | None, local_share: float, count: Count, prefetch: int | None = None,
) -> Rule:  # fmt: skip
    failure, share = _failure(on_error, local_share, local=True)
    name = _named(name)
    limit, us = units_and_period(limit, "limit", window, "window")
    words = (kind.replace("_", "").upper(), str(limit), duration_text(us))
    ahead = None if prefetch is None else checked_prefetch(prefetch)
    return Rule(
        kind, name, words, options, us, limit, us, limit, failure, share, ahead,
        count=checked_count(count),
    )  # fmt: skip


def fixed(
    name: str, limit: int | str | Rate, window: Duration | None = None, *, aligned: bool = False,
    on_error: OnError | None = None, local_share: float = 1.0, prefetch: int | None = None,
    count: Count = "all",
) -> Rule:  # fmt: skip
    """Creates a rule of ``limit`` per window, from the first call or ``aligned`` with the clock.

    >>> limiter.check(fixed("exports", 5, "1h"), "42").reset_after_ms
    3600000
    """
    if not isinstance(aligned, bool):
        raise InvalidArgument("aligned: expected True or False")
    options = ("ALIGNED",) if aligned else ()
    return _window_rule(
        "fixed", name, limit, window, options, on_error, local_share, count, prefetch
    )


def sliding(
    name: str, limit: int | str | Rate, window: Duration | None = None, *,
    on_error: OnError | None = None, local_share: float = 1.0, prefetch: int | None = None,
    count: Count = "all",
) -> Rule:  # fmt: skip
    """Creates a rule of about ``limit`` in any window, estimated from two counters.

    >>> limiter.check(sliding("posts", "100/hour"), "42").remaining
    99
    """
    return _window_rule("sliding", name, limit, window, (), on_error, local_share, count, prefetch)


def sliding_log(
    name: str, limit: int | str | Rate, window: Duration | None = None, *, slots: int | None = None,
    on_error: OnError | None = None, local_share: float = 1.0, prefetch: int | None = None,
    count: Count = "all",
) -> Rule:  # fmt: skip
    """Creates a rule that never allows more than ``limit`` in any window.

    If the limit is above ``slots``, 16 to 65,536, the server rounds the time of a call up to a
    multiple of ``window / slots``. The default is the server's.

    >>> codes = sliding_log("codes", 3, "10m")
    >>> [limiter.check(codes, "42").allowed for _ in range(4)]
    [True, True, True, False]
    """
    options: tuple[str, ...] = ()
    if slots is not None:
        options = ("SLOTS", str(checked_units(slots, "slots", _MAX_SLOTS, _MIN_SLOTS)))
    return _window_rule(
        "sliding_log", name, limit, window, options, on_error, local_share, count, prefetch
    )


def backoff(
    name: str, attempts: int, base: Duration, max: Duration, forget: Duration, *,
    on_error: OnError | None = None, count: Count = "all",
) -> Rule:  # fmt: skip
    """Allows ``attempts`` without delay, then delays that double from ``base`` to ``max``.

    With ``count="failures"`` it limits failed logins.

    >>> login = backoff("login", attempts=2, base="1s", max="15m", forget="1d")
    >>> [limiter.check(login, "42").retry_after_ms for _ in range(3)]
    [0, 0, 1000]
    """
    failure, _ = _failure(on_error, 1.0, local=False)
    name = _named(name)
    checked_units(attempts, "attempts", 10**6)
    base_us, max_us = duration_us(base, "base"), duration_us(max, "max")
    forget_us = duration_us(forget, "forget")
    if base_us > max_us:
        raise InvalidArgument("base: expected at most max")
    if forget_us <= max_us:
        raise InvalidArgument("forget: expected more than max")
    words = ("BACKOFF", str(attempts), *map(duration_text, (base_us, max_us, forget_us)))
    return Rule(
        "backoff", name, words, limit=attempts, on_error=failure, count=checked_count(count)
    )


def quota(
    name: str, limit: int,
    unit: Literal["day", "week", "month", "quarter", "year"] | None = None, *,
    zone: str | None = None, start: int | None = None,
    on_error: OnError | None = None, prefetch: int | None = None, count: Count = "all",
) -> Rule:  # fmt: skip
    """Creates an allowance per calendar ``unit`` of a time zone, which is required.

    >>> limiter.check(quota("tokens", 100_000, "month"), "42", cost=500).remaining
    99500
    """
    failure, _ = _failure(on_error, 1.0, local=False)
    name = _named(name)
    if isinstance(limit, str | Rate):
        raise InvalidArgument("limit: expected an integer, with the unit after it: 1000, 'month'")
    checked_units(limit, "limit")
    if not isinstance(unit, str) or unit not in _QUOTA_DAYS:
        raise InvalidArgument("unit: expected day, week, month, quarter or year")
    options: tuple[str, ...] = ()
    if zone is not None:
        if not isinstance(zone, str) or _WORD.fullmatch(zone) is None:
            raise InvalidArgument("zone: expected a name such as Europe/Berlin")
        options += ("ZONE", zone)
    if start is not None:
        options += ("START", str(checked_units(start, "start", 31)))
    days = _QUOTA_DAYS[unit]
    window_us = None if days is None else days * DAY_US
    words = ("QUOTA", str(limit), unit)
    ahead = None if prefetch is None else checked_prefetch(prefetch)
    return Rule(
        "quota", name, words, options, window_us, limit, on_error=failure, prefetch=ahead,
        count=checked_count(count),
    )  # fmt: skip


def lease(
    name: str, limit: int, ttl: Duration, *,
    on_error: OnError | None = None, count: Literal["all"] = "all",
) -> Rule:  # fmt: skip
    """Creates a rule of at most ``limit`` holders at once. A permit expires after ``ttl``.

    A permit is released at the end of its request, so ``count`` may only be ``"all"``.

    >>> with limiter.lease(lease("jobs", 4, ttl="30s"), "42") as held:
    ...     held.decision.remaining
    3
    """
    failure, _ = _failure(on_error, 1.0, local=False)
    if count != "all":
        raise InvalidArgument("count: expected 'all' for a lease")
    name = _named(name)
    checked_units(limit, "limit", 10**6)
    us = duration_us(ttl, "ttl")
    words = ("LEASE", str(limit), duration_text(us))
    return Rule("lease", name, words, limit=limit, period_us=us, on_error=failure)


def policy(
    name: str, *, default: Rule | None = None, variants: Sequence[str] = (),
    on_error: OnError | None = None, local_share: float = 1.0, count: Count = "all",
) -> Rule:  # fmt: skip
    """Creates a rule for the policy that the server stores as ``name``, or else for ``default``.

    >>> default = gcra("api", burst=10, rate="10/minute")
    >>> limiter.check(policy("search", default=default), "42").remaining
    9
    """
    if default is not None and (
        not isinstance(default, Rule) or default.kind in ("lease", "policy")
    ):
        raise InvalidArgument("default: expected a rule that is neither lease nor policy")
    local = default is not None and default.keeps_locally
    failure, share = _failure(on_error, local_share, local=local)
    name = _named(name)
    if not isinstance(variants, Sequence) or isinstance(variants, str) or len(variants) > 2:
        raise InvalidArgument("variants: expected a list of at most two names")
    options: tuple[str, ...] = ()
    for variant in variants:
        if not isinstance(variant, str) or _NAME.fullmatch(variant) is None:
            raise InvalidArgument("variants: expected 1 to 64 of A-Z a-z 0-9 . _ : / -")
        options += ("FOR", variant)
    if default is not None:
        options += ("DEFAULT", *default.words, *default.options)
    return Rule(
        "policy", name, ("USE", name), options, limit=None,
        on_error=failure, local_share=share, default=default,
        count=checked_count(count),
    )  # fmt: skip
