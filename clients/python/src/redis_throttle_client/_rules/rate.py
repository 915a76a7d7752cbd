"""Units per period, as numbers or as text such as ``10/minute``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .durations import Duration, duration_us
from .errors import InvalidArgument

_RATE = re.compile(r"([0-9]{1,20})(?: ?/ ?| per )([^\n]+)")
_WORDS = re.compile(r"(?:([0-9]{1,20}) ?)?(seconds?|sec|minutes?|min|hours?|hr|days?|[smhd])")
MAX_UNITS = 10**12


@dataclass(frozen=True, slots=True)
class Rate:
    """A number of units per period, as :func:`rate` returns it."""

    rate: int
    period_us: int


def rate(text: str) -> Rate:
    """Reads a rate such as ``"10/minute"``, ``"5 per 2 hours"`` or ``"20/90s"``.

    It stands in a rule in place of a rate and its period, or of a limit and its window, as does its
    text alone. The units are an integer from 1 to 10^12. The period is from 1 ms to 366 days: a
    second (``sec``, ``s``), minute (``min``, ``m``), hour (``hr``, ``h``) or day (``d``), or
    several, or a duration such as ``1.5h`` or ``250ms``. A :func:`quota` counts months and years.

    >>> rate("5 per 2 hours")
    Rate(rate=5, period_us=7200000000)
    """
    return parsed_rate(text, "rate")


def parsed_rate(text: object, name: str) -> Rate:
    """The same as :func:`rate`. ``name`` is that of the argument."""
    match = _RATE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InvalidArgument(f"{name}: expected text such as '10/minute' or '5 per 2 hours'")
    if not 1 <= int(match[1]) <= MAX_UNITS:
        raise InvalidArgument(f"{name}: expected from 1 to {MAX_UNITS} units per period")
    return Rate(int(match[1]), _period_us(match[2], name))


def _period_us(text: str, name: str) -> int:
    if "month" in text or "year" in text:
        raise InvalidArgument(f"{name}: expected at most 366 days; a quota counts months and years")
    words = _WORDS.fullmatch(text)
    if words is not None:
        # The words of a unit begin with its letter.
        text = (words[1] or "1") + words[2][0]
    try:
        # A number without a unit would be seconds.
        return duration_us(text if text[-1].isalpha() else "", name)
    except InvalidArgument:
        raise InvalidArgument(
            f"{name}: expected a period from 1 ms to 366 days, such as 'minute', '2 hours' or '90s'"
        ) from None


def checked_units(value: object, name: str, most: int = MAX_UNITS, least: int = 1) -> int:
    """Validates a number of units. ``name`` is that of the argument."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidArgument(f"{name}: expected an integer from {least} to {most}")
    return value


def units_and_period(
    amount: object, amount_name: str, period: Duration | None, period_name: str
) -> tuple[int, int]:  # fmt: skip
    """Returns the units and the period of a rule in microseconds. A rate stands for both."""
    if isinstance(amount, str):
        amount = parsed_rate(amount, amount_name)
    if isinstance(amount, Rate):
        if period is not None:
            raise InvalidArgument(f"{period_name}: expected none, because the rate has one")
        return amount.rate, amount.period_us
    units = checked_units(amount, amount_name)
    if period is None:
        raise InvalidArgument(f"{period_name}: expected a duration, or a rate such as '10/minute'")
    return units, duration_us(period, period_name)
