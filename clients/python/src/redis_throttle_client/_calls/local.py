"""The algorithms in this process, for ``on_error="local"`` and for the fake server.

GCRA, the two buckets, the fixed window and the log are exact. The sliding window is computed as a
log, which never allows more. A log of more than 1,000 units has counters, one for each thousandth
of its window, whose units expire with the last of them. Instants are in microseconds. All numbers
are integers, rounded so that the limit is never exceeded.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil, floor

from .._rules.decision import Decision, Source, retry_ms
from .._rules.errors import Reason
from .._rules.rule import Item, Rule, limit_of
from .._wire.replies import units_to_leave

Row = tuple[int, int, int, int, int]
"""The integers of a reply: allowed, limit, remaining, and the times until retry and reset in ms."""


@dataclass(slots=True)
class _State:
    """The state of a bucket: its level at an instant, in parts of a unit; of a window: its start
    and usage; of a log: what was taken and when. ``free_at`` is the instant at which an exhausted
    key has a unit again.
    """

    at: int = 0
    used: int = 0
    log: deque[tuple[int, int]] = field(default_factory=deque)
    free_at: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """The numbers of a rule. A bucket's unit has ``unit`` parts, of which ``drain`` leave in a
    microsecond; the other kinds have a window of ``period_us``.
    """

    kind: str
    capacity: int
    unit: int
    drain: int
    period_us: int

    @classmethod
    def scaled(
        cls, kind: str, capacity: int, rate: int, period_us: int, share: float = 1.0
    ) -> Limits:
        """Scales a rule to ``share``. A share below one unit is one unit in a longer time."""
        wanted = capacity * share
        capacity = max(1, floor(wanted))
        if kind not in _BUCKETS:
            window_us = period_us if wanted >= 1 else ceil(period_us / wanted)
            return cls(kind, capacity, 0, 0, window_us)
        # For GCRA the unit is the emission interval, a whole number of ns.
        unit, drain = (-(-period_us * 1000 // rate), 1000) if kind == "gcra" else (period_us, rate)
        return cls(kind, capacity, unit if share == 1 else ceil(unit / share), drain, period_us)

    @classmethod
    @lru_cache(maxsize=1000)
    def of(cls, rule: Rule, share: float = 1.0) -> Limits:
        """Returns the numbers of a rule, scaled to ``share``."""
        rule = rule.default or rule
        return cls.scaled(rule.kind, rule.limit or 1, rule.rate, rule.period_us, share)


# The maximum number of entries in a log.
_MOST_ENTRIES = 1000
_BUCKETS = ("gcra", "token_bucket", "leaky_bucket")


class LocalLimiter:
    """Stores the state of at most ``size`` keys. The least recently used key is dropped first."""

    def __init__(self, size: int = 10_000) -> None:
        self._size = size
        self._states: OrderedDict[str, _State] = OrderedDict()
        # The keys without units left, which are dropped last: dropping one resets its limit.
        self._exhausted: OrderedDict[str, _State] = OrderedDict()

    def forget(self, key: str) -> bool:
        """Resets the key. Returns True if it was stored."""
        found = self._states.pop(key, None), self._exhausted.pop(key, None)
        return found != (None, None)

    def decide(
        self, limits: Limits, key: str, cost: int, now_us: int, *,
        peek: bool = False, partial: bool = False, leave: int = 0,
    ) -> Row:  # fmt: skip
        """Returns the reply to a check, which must leave ``leave`` units.

        With ``partial``, grants as many units as are left.
        """
        state = self._current(limits, key, now_us)
        left = self._left(limits, state)
        if partial:
            # If no units are left, the reply has the time until one unit is free.
            cost = min(cost, max(1, left - leave))
        wanted = cost + leave
        allowed = wanted == 0 or wanted <= left
        retry_us = 0
        if not allowed:
            never = wanted > limits.capacity
            retry_us = -1000 if never else self._until(limits, state, wanted, now_us)
        elif limits.kind == "leaky_bucket":
            retry_us = -(-state.used // limits.drain)
        granted = (cost if partial else 1) if allowed else 0
        if not allowed or not cost:
            return self._row(limits, state, now_us, granted, retry_us)
        if peek:
            # The row needs only the newest entry of a log, which these units become.
            state = _State(state.at, state.used, deque())
        self._take(limits, state, cost, now_us)
        if not peek:
            self._store(limits, key, state, now_us)
        return self._row(limits, state, now_us, granted, retry_us)

    def fill_by(self, limits: Limits, key: str, full_us: int, now_us: int) -> None:
        """Begins a key: a bucket is full again at the instant ``full_us``, or later if it has used
        more here. A window goes on. So no denial gives a key a second allowance.
        """
        if limits.kind not in _BUCKETS:
            return
        used = max(0, full_us - now_us) * limits.drain
        if self._current(limits, key, now_us).used >= used:
            return
        state = _State(now_us, min(used, limits.capacity * limits.unit))
        self._store(limits, key, state, now_us)

    def window(self, limits: Limits, key: str, now_us: int) -> tuple[int, int]:
        """Returns the used units of a fixed window, and its end."""
        state = self._current(limits, key, now_us)
        return state.used, state.at + limits.period_us

    def settle(self, limits: Limits, key: str, cost: int, now_us: int) -> Row:
        """Returns the reply to a charge, or to a refund if the cost is negative."""
        state = self._current(limits, key, now_us)
        if cost < 0:
            self._give(limits, state, -cost)
        else:
            self._take(limits, state, cost, now_us)
        if state.used:
            self._store(limits, key, state, now_us)
        else:
            self.forget(key)
            state = self._current(limits, key, now_us)
        retry_us = self._until(limits, state, 0, now_us)
        return self._row(limits, state, now_us, int(retry_us == 0), retry_us)

    def _row(self, limits: Limits, state: _State, now_us: int, granted: int, retry_us: int) -> Row:
        reset_us = self._until_reset(limits, state, now_us)
        left = self._left(limits, state)
        return (granted, limits.capacity, left, -(-retry_us // 1000), -(-reset_us // 1000))

    def _store(self, limits: Limits, key: str, state: _State, now_us: int) -> None:
        """Stores a state. If there are too many, drops one, if possible with units left."""
        if self._left(limits, state):
            if self._states.get(key) is not state:
                self._exhausted.pop(key, None)
                self._states[key] = state
            self._states.move_to_end(key)
        else:
            self.forget(key)
            state.free_at = now_us + self._until(limits, state, 1, now_us)
            self._exhausted[key] = state
        while len(self._states) + len(self._exhausted) > self._size:
            oldest = next(iter(self._exhausted.values()), None)
            has_units = oldest is not None and oldest.free_at <= now_us
            # If most keys have no units, one of these goes: else no other key would be kept.
            is_crowded = len(self._exhausted) > self._size // 2
            from_exhausted = has_units or is_crowded or not self._states
            states = self._exhausted if from_exhausted else self._states
            states.popitem(last=False)

    def _current(self, limits: Limits, key: str, now_us: int) -> _State:
        """Returns the state without the usage that has expired or drained."""
        state = self._states.get(key) or self._exhausted.get(key) or _State(now_us)
        if limits.kind in _BUCKETS:
            drained = max(0, now_us - state.at) * limits.drain
            state.used, state.at = max(0, state.used - drained), max(now_us, state.at)
        elif limits.kind == "fixed":
            if not state.at <= now_us < state.at + limits.period_us:
                state = _State(now_us)
        else:
            while state.log and state.log[0][0] + limits.period_us <= now_us:
                state.used -= state.log.popleft()[1]
        return state

    @staticmethod
    def _left(limits: Limits, state: _State) -> int:
        if limits.kind in _BUCKETS:
            return max(0, limits.capacity * limits.unit - state.used) // limits.unit
        return max(0, limits.capacity - state.used)

    @staticmethod
    def _take(limits: Limits, state: _State, cost: int, now_us: int) -> None:
        if limits.kind in _BUCKETS:
            state.used += cost * limits.unit
            return
        state.used += cost
        if limits.kind == "fixed" or not cost:
            return
        width_us = 1 if limits.capacity <= _MOST_ENTRIES else -(-limits.period_us // _MOST_ENTRIES)
        if state.log and state.log[-1][0] // width_us == now_us // width_us:
            # The units expire together, with the newest of them.
            cost += state.log.pop()[1]
        state.log.append((now_us, cost))

    @staticmethod
    def _give(limits: Limits, state: _State, cost: int) -> None:
        """Gives units back, the newest first, and never more than were taken."""
        if limits.kind in _BUCKETS:
            state.used = max(0, state.used - cost * limits.unit)
            return
        left = min(cost, state.used)
        state.used -= left
        while left and state.log:
            at, newest = state.log.pop()
            if newest > left:
                state.log.append((at, newest - left))
            left = max(0, left - newest)

    @classmethod
    def _until_reset(cls, limits: Limits, state: _State, now_us: int) -> int:
        """Returns the microseconds until all units are free."""
        if limits.kind in _BUCKETS or limits.kind == "fixed":
            return cls._until(limits, state, limits.capacity, now_us)
        return state.log[-1][0] + limits.period_us - now_us if state.log else 0

    @staticmethod
    def _until(limits: Limits, state: _State, cost: int, now_us: int) -> int:
        """Returns the microseconds until ``cost`` units are free."""
        if limits.kind in _BUCKETS:
            excess = state.used - (limits.capacity - cost) * limits.unit
            return max(0, -(-excess // limits.drain))
        excess = state.used + cost - limits.capacity
        if limits.kind == "fixed":
            return state.at + limits.period_us - now_us if excess > 0 else 0
        until_us = 0
        for at, units in state.log:
            if excess <= 0:
                break
            excess -= units
            until_us = at + limits.period_us - now_us
        return until_us


def local_decision(
    limiter: LocalLimiter, item: Item, key: str, now_us: int, reason: Reason, share: float, *,
    peek: bool = False, partial: bool = False,
) -> Decision:  # fmt: skip
    """Decides a call by a share of the rule's limits."""
    rule, cost = item.rule, item.units
    limits = Limits.of(rule, share)
    leave = units_to_leave(item.leaves, limits.capacity, share)
    source: Source = "local"
    if not partial and limits.capacity < cost + leave <= limit_of(rule):
        # The whole rule would allow this cost, but the local share never does: deny with a retry
        # time.
        return Decision(
            False, limits.capacity, 0, 1000, 1000, rule.name, source, True, False, 1000,
            reason=reason,
        )  # fmt: skip
    granted, limit, remaining, retry, reset = limiter.decide(
        limits, key, cost, now_us, peek=peek, partial=partial, leave=leave
    )
    return Decision(
        granted > 0, limit, remaining, retry_ms(retry), reset, rule.name, source, True,
        granted > 0, retry_ms(retry), granted if partial else granted * cost, rule.window_us,
        reason=reason,
    )  # fmt: skip
