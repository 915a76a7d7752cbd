"""Durations, as a program gives them and as the server reads them."""

from __future__ import annotations

import re
from datetime import timedelta

from .errors import InvalidArgument

Duration = str | int | float | timedelta

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
_UNITS_US = {"ms": 1000, "s": SECOND_US, "m": 60 * SECOND_US, "h": 3600 * SECOND_US}
_UNITS_US |= {"": SECOND_US, "d": DAY_US}
_DURATION = re.compile(r"([0-9]{1,20})(?:\.([0-9]{1,6}))?(ms|s|m|h|d|)", re.ASCII)


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
        us = round(value * SECOND_US)
        # A float close to a whole number of microseconds counts as that number. Others are
        # rejected.
        if abs(value * SECOND_US - us) > 0.01:
            raise bad
    else:
        raise bad
    if not 1000 <= us <= 366 * DAY_US:
        raise bad
    return us


def duration_text(us: int) -> str:
    """Returns a duration as the server reads it: in whole seconds if possible, otherwise in ms."""
    if us % SECOND_US == 0:
        return str(us // SECOND_US)
    whole, decimals = divmod(us, 1000)
    return f"{whole}.{decimals:03}".rstrip("0").rstrip(".") + "ms"
