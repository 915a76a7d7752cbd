"""The rules of a limiter.

A rule is created once, at startup, and validated there: an argument that the server would refuse
raises an :class:`InvalidArgument` whose text begins with the argument's name. Durations are text
with a unit (``"500ms"``, ``"1h"``), a number of seconds or a ``timedelta``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from ._errors import InvalidArgument
from ._outcome import Count, checked_count

OnError = Literal["allow", "deny", "local"]
Duration = str | int | float | timedelta

MAX_UNITS = 10**12
MAX_COST = 10**12
MAX_PREFETCH = 10_000
_MIN_SLOTS, _MAX_SLOTS = 16, 65_536
_SECOND_US = 1_000_000
_DAY_US = 86_400 * _SECOND_US
_MAX_REFILL_US = 36_525 * _DAY_US
_MAX_PER_SECOND = 10**9
_UNITS_US = {"ms": 1000, "s": _SECOND_US, "m": 60 * _SECOND_US, "h": 3600 * _SECOND_US}
_UNITS_US |= {"": _SECOND_US, "d": _DAY_US}
_DURATION = re.compile(r"([0-9]+)(?:\.([0-9]{1,6}))?(ms|s|m|h|d|)", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9._:/-]{1,64}", re.ASCII)
_WORD = re.compile(r"[!-~]{1,128}", re.ASCII)
_QUOTA_DAYS = {"day": 1, "week": 7, "month": None, "quarter": None, "year": None}


def duration_us(value: Duration, name: str) -> int:
    """Returns a duration from 1 ms to 366 days in whole microseconds."""
    bad = InvalidArgument(
        f"{name}: expected a duration from 1ms to 366d, such as 60, 0.5, '500ms' or '1h'"
    )
    if isinstance(value, timedelta):
        us = value // timedelta(microseconds=1)
    elif isinstance(value, str):
        match = _DURATION.fullmatch(value)
        if match is None:
            raise bad
        whole, decimals, unit = match.groups()
        decimals = decimals or ""
        us, rest = divmod(int(whole + decimals) * _UNITS_US[unit], 10 ** len(decimals))
        if rest:
            raise bad
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 < value <= 366 * 86_400:
            raise bad
        us = round(value * _SECOND_US)
        # A float close to a whole number of microseconds counts as that number. Others are
        # rejected.
        if abs(value * _SECOND_US - us) > 0.01:
            raise bad
    else:
        raise bad
    if not 1000 <= us <= 366 * _DAY_US:
        raise bad
    return us


def duration_text(us: int) -> str:
    """Returns a duration as the server reads it: in whole seconds if possible, otherwise in ms."""
    if us % _SECOND_US == 0:
        return str(us // _SECOND_US)
    whole, decimals = divmod(us, 1000)
    return f"{whole}.{decimals:03}".rstrip("0").rstrip(".") + "ms"


def _units(value: object, name: str, most: int = MAX_UNITS, least: int = 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidArgument(f"{name}: expected an integer from {least} to {most}")
    return value


def checked_cost(cost: object) -> int:
    """Validates the cost of a call, 0 to 10^12."""
    return _units(cost, "cost", MAX_COST, 0)


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
    def takes_partial(self) -> bool:
        """True if permits may be prefetched. In a leaky bucket each call has its own wait."""
        return self.kind not in ("backoff", "lease", "leaky_bucket", "policy")

    @property
    def keeps_locally(self) -> bool:
        """True if this process can enforce the rule by itself, under ``on_error="local"``."""
        rule = self.default or self
        return rule.period_us > 0 and rule.kind != "lease"


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
    return _units(permits, "prefetch", MAX_PREFETCH)


def _failure(
    on_error: object, share: object, *, local: bool
) -> tuple[OnError | None, float]:  # fmt: skip
    checked = None if on_error is None else checked_on_error(on_error, local=local)
    if not isinstance(share, int | float) or isinstance(share, bool) or not 0 < share <= 1:
        raise InvalidArgument("local_share: expected a number above 0, at most 1")
    return checked, float(share)


def _rate_rule(
    kind: str, capacity_name: str, name: str, capacity: int, rate: int, period: Duration,
    on_error: OnError | None, local_share: float, count: Count, prefetch: int | None = None,
) -> Rule:  # fmt: skip
    failure, share = _failure(on_error, local_share, local=True)
    name = _named(name)
    _units(capacity, capacity_name)
    _units(rate, "rate")
    us = duration_us(period, "period")
    if rate * _SECOND_US > _MAX_PER_SECOND * us:
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
    name: str, burst: int, rate: int, period: Duration, *,
    on_error: OnError | None = None, local_share: float = 1.0, prefetch: int | None = None,
    count: Count = "all",
) -> Rule:  # fmt: skip
    """Creates a rule of ``burst`` at once, then ``rate`` per ``period``. The default choice."""
    return _rate_rule(
        "gcra", "burst", name, burst, rate, period, on_error, local_share, count, prefetch
    )


def token_bucket(
    name: str, capacity: int, rate: int, period: Duration, *,
    on_error: OnError | None = None, local_share: float = 1.0, prefetch: int | None = None,
    count: Count = "all",
) -> Rule:  # fmt: skip
    """Creates a rule that allows the same as :func:`gcra`, for limits that change at run time."""
    return _rate_rule(
        "token_bucket", "capacity", name, capacity, rate, period, on_error, local_share, count,
        prefetch,
    )  # fmt: skip


def leaky_bucket(
    name: str, capacity: int, rate: int, period: Duration, *,
    on_error: OnError | None = None, local_share: float = 1.0,
    count: Count = "all",
) -> Rule:  # fmt: skip
    """Creates a queue: ``retry_after_ms`` of an allowed call is the time to wait before it acts."""
    return _rate_rule(
        "leaky_bucket", "capacity", name, capacity, rate, period, on_error, local_share, count
    )


def _window_rule(
    kind: str, name: str, limit: int, window: Duration, options: tuple[str, ...],
    on_error: OnError | None, local_share: float, count: Count, prefetch: int | None = None,
) -> Rule:  # fmt: skip
    failure, share = _failure(on_error, local_share, local=True)
    name = _named(name)
    _units(limit, "limit")
    us = duration_us(window, "window")
    words = (kind.replace("_", "").upper(), str(limit), duration_text(us))
    ahead = None if prefetch is None else checked_prefetch(prefetch)
    return Rule(
        kind, name, words, options, us, limit, us, limit, failure, share, ahead,
        count=checked_count(count),
    )  # fmt: skip


def fixed(
    name: str, limit: int, window: Duration, *, aligned: bool = False,
    on_error: OnError | None = None, local_share: float = 1.0, prefetch: int | None = None,
    count: Count = "all",
) -> Rule:  # fmt: skip
    """Creates a rule of ``limit`` per window, from the first call or ``aligned`` with the clock."""
    options = ("ALIGNED",) if aligned else ()
    return _window_rule(
        "fixed", name, limit, window, options, on_error, local_share, count, prefetch
    )


def sliding(
    name: str, limit: int, window: Duration, *,
    on_error: OnError | None = None, local_share: float = 1.0, prefetch: int | None = None,
    count: Count = "all",
) -> Rule:  # fmt: skip
    """Creates a rule of about ``limit`` in any window, estimated from two counters."""
    return _window_rule("sliding", name, limit, window, (), on_error, local_share, count, prefetch)


def sliding_log(
    name: str, limit: int, window: Duration, *, slots: int | None = None,
    on_error: OnError | None = None, local_share: float = 1.0, prefetch: int | None = None,
    count: Count = "all",
) -> Rule:  # fmt: skip
    """Creates a rule that never allows more than ``limit`` in any window.

    If the limit is above ``slots``, 16 to 65,536, the server rounds the time of a call up to a
    multiple of ``window / slots``. The default is the server's.
    """
    options: tuple[str, ...] = ()
    if slots is not None:
        options = ("SLOTS", str(_units(slots, "slots", _MAX_SLOTS, _MIN_SLOTS)))
    return _window_rule(
        "sliding_log", name, limit, window, options, on_error, local_share, count, prefetch
    )


def backoff(
    name: str, attempts: int, base: Duration, max: Duration, forget: Duration, *,
    on_error: OnError | None = None, count: Count = "all",
) -> Rule:  # fmt: skip
    """Allows ``attempts`` without delay, then delays that double from ``base`` to ``max``.

    With ``count="failures"`` it limits failed logins.
    """
    failure, _ = _failure(on_error, 1.0, local=False)
    name = _named(name)
    _units(attempts, "attempts", 10**6)
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
    name: str, limit: int, unit: Literal["day", "week", "month", "quarter", "year"], *,
    zone: str | None = None, start: int | None = None,
    on_error: OnError | None = None, prefetch: int | None = None, count: Count = "all",
) -> Rule:  # fmt: skip
    """Creates an allowance per calendar ``unit`` of a time zone."""
    failure, _ = _failure(on_error, 1.0, local=False)
    name = _named(name)
    _units(limit, "limit")
    if unit not in _QUOTA_DAYS:
        raise InvalidArgument("unit: expected day, week, month, quarter or year")
    options: tuple[str, ...] = ()
    if zone is not None:
        if _WORD.fullmatch(zone) is None:
            raise InvalidArgument("zone: expected a name such as Europe/Berlin")
        options += ("ZONE", zone)
    if start is not None:
        options += ("START", str(_units(start, "start", 31)))
    days = _QUOTA_DAYS[unit]
    window_us = None if days is None else days * _DAY_US
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
    """
    failure, _ = _failure(on_error, 1.0, local=False)
    if count != "all":
        raise InvalidArgument("count: expected 'all' for a lease")
    name = _named(name)
    _units(limit, "limit", 10**6)
    us = duration_us(ttl, "ttl")
    words = ("LEASE", str(limit), duration_text(us))
    return Rule("lease", name, words, limit=limit, period_us=us, on_error=failure)


def policy(
    name: str, *, default: Rule | None = None, variants: Sequence[str] = (),
    on_error: OnError | None = None, local_share: float = 1.0, count: Count = "all",
) -> Rule:  # fmt: skip
    """Creates a rule for the policy that the server stores as ``name``, or else for ``default``."""
    if default is not None and default.kind in ("lease", "policy"):
        raise InvalidArgument("default: expected a rule that is neither lease nor policy")
    local = default is not None and default.keeps_locally
    failure, share = _failure(on_error, local_share, local=local)
    name = _named(name)
    if isinstance(variants, str) or len(variants) > 2:
        raise InvalidArgument("variants: expected at most two names")
    options: tuple[str, ...] = ()
    for variant in variants:
        if _NAME.fullmatch(variant) is None:
            raise InvalidArgument("variants: expected 1 to 64 of A-Z a-z 0-9 . _ : / -")
        options += ("FOR", variant)
    if default is not None:
        options += ("DEFAULT", *default.words, *default.options)
    return Rule(
        "policy", name, ("USE", name), options, limit=None,
        on_error=failure, local_share=share, default=default,
        count=checked_count(count),
    )  # fmt: skip
