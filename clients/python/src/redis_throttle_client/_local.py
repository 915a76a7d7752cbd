"""The algorithms in this process: the fallback ``on_error="local"``, and the public fake.

Exact for GCRA, the two buckets, the fixed window and the log; the sliding window is kept as a log
here, which is never more lenient. Instants are microseconds.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from math import ceil, floor

from ._decision import Decision, Source
from ._rules import Rule


@dataclass(slots=True)
class _State:
    at: int = 0
    used: int = 0
    log: deque[tuple[int, int]] = field(default_factory=deque)


@dataclass(frozen=True, slots=True)
class Limits:
    """The numbers of a rule that is kept here, whole or a share of it."""

    kind: str
    capacity: int
    rate: float
    period_us: int

    @classmethod
    def of(cls, rule: Rule, share: float = 1.0) -> Limits:
        """The share rounded down, to one unit at least."""
        rule = rule.default or rule
        capacity = max(1, floor((rule.limit or 1) * share))
        return cls(rule.kind, capacity, rule.rate * share, rule.period_us)


class LocalLimiter:
    """Keeps the state of at most ``size`` keys, the least recently used forgotten first."""

    def __init__(self, size: int = 10_000) -> None:
        self._size = size
        self._states: OrderedDict[str, _State] = OrderedDict()

    def forget(self, key: str) -> bool:
        """The key starts anew; whether it was there."""
        return self._states.pop(key, None) is not None

    def decide(
        self, limits: Limits, key: str, cost: int, now_us: int, *,
        peek: bool = False, partial: bool = False, force: bool = False,
    ) -> tuple[int, int, int, int, int]:  # fmt: skip
        """The five integers of a reply. ``force`` takes (a negative cost: gives) in any case."""
        state = self._states.get(key) or _State()
        windowed = limits.kind in ("fixed", "sliding", "sliding_log", "quota")
        if limits.kind == "fixed" or limits.kind == "quota":
            if now_us >= state.at + limits.period_us or now_us < state.at:
                state = _State()
        elif windowed:
            while state.log and state.log[0][0] + limits.period_us <= now_us:
                state.used -= state.log.popleft()[1]
        used = state.used if windowed else self._owed(limits, state, now_us)
        left = max(0, floor(limits.capacity - used))
        granted = min(cost, left) if partial else cost if cost <= left else 0
        took = cost if force else granted
        if took and not peek:
            self._take(limits, state, took, now_us)
            self._store(key, state)
            used = state.used if windowed else self._owed(limits, state, now_us)
            left = max(0, floor(limits.capacity - used))
        elif peek:
            left = left - granted
        allowed = granted if partial else int(granted == cost)
        if force:
            allowed = int(used <= limits.capacity)
        need = 1 if partial else cost
        retry_us = 0
        if not allowed and not force:
            retry_us = -1 if need > limits.capacity else self._until(limits, state, need, now_us)
        elif allowed and limits.kind == "leaky_bucket" and not force and granted:
            before = used - granted if not peek else used
            retry_us = ceil(max(0.0, before) * limits.period_us / limits.rate)
        reset_us = self._until(limits, state, limits.capacity, now_us)
        return (
            allowed, limits.capacity, left,
            -1 if retry_us < 0 else -(-retry_us // 1000), -(-reset_us // 1000),
        )  # fmt: skip

    def _store(self, key: str, state: _State) -> None:
        self._states[key] = state
        self._states.move_to_end(key)
        while len(self._states) > self._size:
            self._states.popitem(last=False)

    @staticmethod
    def _owed(limits: Limits, state: _State, now_us: int) -> float:
        """Units in use of a bucket: the instant when it is full again, times the rate."""
        return max(0, state.at - now_us) * limits.rate / limits.period_us

    @staticmethod
    def _take(limits: Limits, state: _State, cost: int, now_us: int) -> None:
        if limits.kind in ("fixed", "quota"):
            state.at = state.at or now_us
            state.used = max(0, state.used + cost)
        elif limits.kind in ("sliding", "sliding_log"):
            state.used += cost
            if cost > 0:
                state.log.append((now_us, cost))
            while cost < 0 and state.log:
                at, newest = state.log.pop()
                cost += newest
                if cost > 0:
                    state.log.append((at, cost))
            state.used = sum(units for _, units in state.log)
        else:
            state.at = max(now_us, state.at) + ceil(cost * limits.period_us / limits.rate)

    def _until(self, limits: Limits, state: _State, cost: int, now_us: int) -> int:
        """Microseconds until ``cost`` units are there."""
        if limits.kind in ("fixed", "quota"):
            return max(0, state.at + limits.period_us - now_us) if state.used else 0
        if limits.kind in ("sliding", "sliding_log"):
            used = state.used
            for at, units in state.log:
                if used + cost <= limits.capacity:
                    break
                used -= units
                until = at + limits.period_us - now_us
                if used + cost <= limits.capacity:
                    return until
            return 0
        room_us = floor((limits.capacity - cost) * limits.period_us / limits.rate)
        return max(0, state.at - now_us - room_us)


def local_decision(
    limiter: LocalLimiter, rule: Rule, key: str, cost: int, now_us: int, *, peek: bool = False
) -> Decision:
    """What this process' share of the rule says."""
    limits = Limits.of(rule, rule.local_share)
    source: Source = "local"
    if cost > limits.capacity and cost <= ((rule.default or rule).limit or 0):
        # The whole rule would take it, the share never can: later, and not never.
        return Decision(False, limits.capacity, 0, 1000, 1000, rule.name, source, True, False, 1000)
    allowed, limit, remaining, retry, reset = limiter.decide(limits, key, cost, now_us, peek=peek)
    return Decision(
        allowed > 0, limit, remaining, retry, reset, rule.name, source, True,
        allowed > 0, retry, allowed, rule.window_us,
    )  # fmt: skip
