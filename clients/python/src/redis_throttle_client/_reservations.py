"""Reservations in this process, for the fake server. Instants are in microseconds."""

from __future__ import annotations

from dataclasses import dataclass

from ._calls.local import Limits, LocalLimiter, Row
from ._rules.errors import CommandRejected

MOST_IDS = 1024
_MINUTE_US = 60_000_000


@dataclass(slots=True)
class _Reservation:
    """Units that are held until an instant, or an id that is remembered until then."""

    units: int
    until: int
    ttl_us: int
    is_open: bool = True


class Reservations:
    """The reservations on the fixed windows of a limiter. They count as used until they end."""

    def __init__(self, states: LocalLimiter) -> None:
        self._states = states
        self._ids: dict[str, dict[str, _Reservation]] = {}

    def forget(self, key: str) -> bool:
        """Forgets a key. Returns True if it had a reservation."""
        return bool(self._ids.pop(key, None))

    def has(self, key: str, now_us: int) -> bool:
        """Returns True if the key remembers an id."""
        return bool(self._known(key, now_us))

    def _known(self, key: str, now_us: int) -> dict[str, _Reservation]:
        known = self._ids.get(key, {})
        left = {name: one for name, one in known.items() if one.until > now_us}
        if left:
            self._ids[key] = left
        else:
            self._ids.pop(key, None)
        return left

    def decide(
        self, limits: Limits, key: str, cost: int, now_us: int, *,
        peek: bool = False, partial: bool = False, leave: int = 0,
    ) -> Row:  # fmt: skip
        """Returns the reply to a check of a window with reservations."""
        window = self._window(limits, key, now_us)
        left = window.left
        if partial:
            cost = min(cost, max(1, left - leave))
        wanted = cost + leave
        if wanted and wanted > left:
            return window.row(0, window.until(wanted))
        if cost and not peek:
            self._states.settle(limits, key, cost, now_us)
        return window.plus(cost).row(cost if partial else 1, 0)

    def settle(self, limits: Limits, key: str, cost: int, now_us: int) -> Row:
        """Returns the reply to a charge, or to a refund if the cost is negative."""
        self._states.settle(limits, key, cost, now_us)
        return self._settled(limits, key, now_us)

    def _settled(self, limits: Limits, key: str, now_us: int, known: bool | None = None) -> Row:
        window = self._window(limits, key, now_us)
        retry_us = window.until(0)
        return window.row(int(not retry_us if known is None else known), retry_us)

    def reserve(
        self, limits: Limits, key: str, id: str, ttl_us: int, cost: int, now_us: int, *,
        peek: bool = False, leave: int = 0,
    ) -> Row:  # fmt: skip
        """Reserves units, or replaces an open reservation. Returns the reply."""
        known = self._known(key, now_us)
        own = known.get(id)
        if own is not None and not own.is_open:
            raise CommandRejected("ERR invalid id: already committed, use a new id for each job")
        if own is None and len(known) >= MOST_IDS:
            raise CommandRejected(
                "ERR too many reservations: a key remembers at most 1024 ids at a time"
            )
        others = self._window(limits, key, now_us, without=id)
        if cost + leave > others.left:
            return self._window(limits, key, now_us).row(0, others.until(cost + leave))
        made = _Reservation(cost, now_us + ttl_us, ttl_us)
        if not peek:
            self._ids.setdefault(key, {})[id] = made
        others.held.append(made)
        return others.row(1, 0)

    def commit(self, limits: Limits, key: str, id: str, cost: int | None, now_us: int) -> Row:
        """Uses the units of a reservation, or ``cost``. Returns the reply."""
        own = self._known(key, now_us).get(id)
        if own is not None and own.is_open:
            units = own.units if cost is None else cost
            if units:
                self._states.settle(limits, key, units, now_us)
            own.is_open = False
            own.until = max(own.until, now_us + min(own.ttl_us, _MINUTE_US))
        return self._settled(limits, key, now_us, own is not None)

    def cancel(self, limits: Limits, key: str, id: str, now_us: int) -> Row:
        """Ends a reservation. Returns the reply."""
        own = self._known(key, now_us).get(id)
        was_open = own is not None and own.is_open
        if was_open:
            del self._ids[key][id]
        return self._settled(limits, key, now_us, was_open)

    def _window(self, limits: Limits, key: str, now_us: int, without: str = "") -> _Window:
        used, end = self._states.window(limits, key, now_us)
        known = self._known(key, now_us)
        held = [one for name, one in known.items() if one.is_open and name != without]
        return _Window(limits, now_us, used, end, held)


@dataclass(slots=True)
class _Window:
    """A window: its used units, its end, and the open reservations."""

    limits: Limits
    now: int
    used: int
    end: int
    held: list[_Reservation]

    @property
    def left(self) -> int:
        """The units that are neither used nor reserved."""
        return max(0, self.limits.capacity - self.used - sum(one.units for one in self.held))

    def plus(self, units: int) -> _Window:
        """Returns the window after more units were used, which may open it."""
        end = self.end if self.used or not units else self.now + self.limits.period_us
        return _Window(self.limits, self.now, self.used + units, end, self.held)

    def until(self, wanted: int) -> int:
        """Returns the time until ``wanted`` units are free; -1000 if they never are."""
        for at in sorted({self.now, self.end, *(one.until for one in self.held)}):
            used = self.used if at < self.end else 0
            held = sum(one.units for one in self.held if one.until > at)
            if at >= self.now and wanted + used + held <= self.limits.capacity:
                return at - self.now
        return -1000

    def row(self, granted: int, retry_us: int) -> Row:
        """Returns the five integers of a reply."""
        ends = [self.end] if self.used else []
        ends += [one.until for one in self.held if one.units]
        reset_us = max([self.now, *ends]) - self.now
        retry_ms, reset_ms = -(-retry_us // 1000), -(-reset_us // 1000)
        return granted, self.limits.capacity, self.left, retry_ms, reset_ms
