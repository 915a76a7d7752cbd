"""The calls of the storages for ``limits``: steps, the same for threads and for asyncio."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import sys
import time
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Literal, TypeVar

from limits import RateLimitItem
from limits.limits import GRANULARITIES
from limits.storage import MemoryStorage
from limits.util import WindowStats

from .._limiter import Limiter
from .._limiter_async import AsyncLimiter
from .._net.cluster import AsyncClusterTransport, ClusterTransport
from .._rules.decision import Decision
from .._rules.errors import InvalidArgument, Reason, Unavailable
from .._rules.rate import MAX_UNITS
from .._rules.rule import OnError, Rule, checked_cost, fixed, gcra, sliding, sliding_log
from .._wire.call import Steps

# The counts of a sliding window: the previous one and its seconds left, the current one and its.
Sliding = tuple[int, float, int, float]
# The name of the rule of each strategy: fixed-window, gcra, moving-window, sliding-window-counter.
NAMES = ("counts", "limits", "moving", "sliding")
_LONGEST = "366d"
_SLOTS = 65_536
# `limits` compares the weighted count without rounding. The server rounds it up, to a part of a
# unit.
_PARTS = 1000
_MOST_SLIDING = MAX_UNITS // _PARTS - 1
# A count above each limit.
_ABOVE_ALL = sys.maxsize
_MOST_LOGGED = 100
log = logging.getLogger("redis_throttle_client")
T = TypeVar("T", int, float)


class Windows:
    """The counts of one storage, which are on the server."""

    def __init__(
        self, limiter: Limiter | AsyncLimiter, on_error: OnError | Literal["raise"]
    ) -> None:
        if on_error not in ("raise", "allow", "deny", "local"):
            raise InvalidArgument("on_error: expected 'raise', 'allow', 'deny' or 'local'")
        self._calls = limiter._calls
        self._is_cluster = isinstance(limiter._transport, ClusterTransport | AsyncClusterTransport)
        self._on_error = on_error
        self._of_rules: OnError = "deny" if on_error == "raise" else on_error
        self._logged: set[str] = set()

    @cached_property
    def _local(self) -> MemoryStorage:
        """The counts of ``fixed-window`` without the server, if this process keeps the limit."""
        return MemoryStorage()

    def _key(self, rule: str, key: str) -> str:
        return self._calls.keys.key(rule, _subject(key))

    def _rule(self, strategy: str, key: str, limit: int, expiry: int) -> Rule | None:
        """Returns the rule of a limit; None if the server has no such rule, so the limit denies.

        The frameworks read a limit at its first request. They may ignore an error there, so that
        no request is limited. Such a limit is logged once.
        """
        try:
            return RULES[strategy](limit, expiry, self._of_rules)
        except InvalidArgument as error:
            named = str(_limit_of(key) or f"{limit} per {expiry} s")
            most = _MOST_SLIDING if strategy == "sliding-window-counter" else MAX_UNITS
            self._log_once(
                f"the limit {named} denies every call, because {strategy} cannot enforce it: write "
                f"at most {most} per at most 366 days; checked() finds such limits at setup",
                error,
            )
            return None

    def _fits(self, cost: int, limit: int) -> bool:
        """Returns False for a cost above the limit, and for one that no call can have.

        A client may choose the cost, and the framework ignore an error.
        """
        try:
            return checked_cost(min(cost, MAX_UNITS)) == cost <= limit
        except (InvalidArgument, TypeError) as error:
            self._log_once("calls with a cost that no call can have are denied", error)
            return False

    def _log_once(self, text: str, error: Exception) -> None:
        if text not in self._logged and len(self._logged) < _MOST_LOGGED:
            self._logged.add(text)
            log.error("%s (%s)", text, error)

    def _decided(self, decision: Decision) -> Decision:
        """Returns the decision. Raises if there is none and the framework handles such calls."""
        if decision.source == "error" and self._on_error == "raise":
            raise Unavailable(f"no reply from the server for the rule {decision.rule}")
        return decision

    def _peek(self, rule: Rule, key: str, cost: int) -> Steps[Decision]:
        item = rule.of(_subject(key)).cost(cost)
        return self._decided((yield from self._calls.peek(item, None)))

    # -- fixed-window -----------------------------------------------------------------------------

    def incr(self, key: str, expiry: int, amount: int) -> Steps[int]:
        """Counts in a fixed window, and returns the count."""
        rule = self._rule("fixed-window", key, MAX_UNITS, expiry)
        if rule is None or not self._fits(amount, MAX_UNITS):
            return _ABOVE_ALL
        try:
            counted = yield from self._calls.settle("charge", rule, _subject(key), amount, None)
        except Unavailable as error:
            local = self._local.incr
            return self._without(
                error, error.reason, 0, MAX_UNITS + 1, lambda: local(key, expiry, amount)
            )
        return MAX_UNITS - counted.remaining

    def get(self, key: str) -> Steps[int]:
        """Returns the count of the current fixed window."""
        if self._refused_s(key) is not None:
            return _ABOVE_ALL
        decision = yield from self._peek(
            fixed("counts", MAX_UNITS, _LONGEST, on_error="deny"), key, 0
        )
        if decision.degraded:
            reason, local = decision.reason, self._local.get
            return self._without(None, reason, 0, MAX_UNITS + 1, lambda: local(key))
        return MAX_UNITS - decision.remaining

    def get_expiry(self, key: str) -> Steps[float]:
        """Returns the Unix time at which the fixed window ends, when its key expires."""
        name = self._key("counts", key)
        now_s, refused_s = time.time(), self._refused_s(key)
        if refused_s is not None:
            return now_s + refused_s
        try:
            left_ms = yield from self._calls.send(("PTTL", name))
        except Unavailable as error:
            retry_s = self._calls.options.breaker_pause_ms / 1000
            local = self._local.get_expiry
            return self._without(error, error.reason, now_s, now_s + retry_s, lambda: local(key))
        return now_s + (max(0, left_ms) / 1000 if isinstance(left_ms, int) else 0)

    def _refused_s(self, key: str) -> int | None:
        """Returns the seconds of the fixed window in a key if the server has no such window."""
        limit = _limit_of(key)
        expiry = limit.get_expiry() if limit else 1
        return None if self._rule("fixed-window", key, MAX_UNITS, expiry) else expiry

    def _without(
        self, error: Unavailable | None, reason: Reason | None, allowed: T, denied: T,
        local: Callable[[], T],
    ) -> T:  # fmt: skip
        """Returns the count or the time by which ``fixed-window`` follows ``on_error``."""
        if self._on_error == "raise" and error is not None:
            raise error
        # A herd is counted in this process, although single calls would be allowed.
        if self._on_error == "local" or (self._on_error == "allow" and reason == "overloaded"):
            return local()
        return allowed if self._on_error == "allow" else denied

    # -- moving-window ----------------------------------------------------------------------------

    def get_moving_window(self, key: str, limit: int, expiry: int) -> Steps[tuple[float, int]]:
        """Returns the Unix time of the oldest unit that counts, and the number of units."""
        rule = self._rule("moving-window", key, limit, expiry)
        if rule is None:
            return time.time(), limit
        found = yield from self._peek(rule, key, 1)
        count = max(1, limit) - found.remaining - found.allowed
        if found.source == "error":
            count = 0 if found.allowed else limit
        elif count and found.allowed:
            # One unit more than are left is allowed when the oldest unit expires.
            found = yield from self._peek(rule, key, found.remaining + 2)
        start_s = time.time()
        if count:
            start_s += found.retry_after_ms / 1000 - expiry
        return start_s, count

    # -- sliding-window-counter -------------------------------------------------------------------

    def get_sliding(self, key: str, expiry: int) -> Steps[Sliding]:
        """Returns the counts of the previous and of the current window."""
        item = _limit_of(key)
        limit = item.amount if item else 1
        if self._rule("sliding-window-counter", key, limit, expiry) is None:
            return 0, 0.0, _ABOVE_ALL, float(expiry)
        rule = sliding("sliding", MAX_UNITS, expiry, on_error=self._of_rules)
        found = yield from self._peek(rule, key, 0)
        if found.source == "error":
            return 0, 0.0, 0 if found.allowed else MAX_UNITS, found.retry_after_ms / 1000
        parts, lasts_ms = MAX_UNITS - found.remaining, found.reset_after_ms
        if not parts:
            return 0, 0.0, 0, 0.0
        if found.source == "local":
            # The local window is a log.
            return 0, 0.0, -(-parts // _PARTS), _unrounded_s(lasts_ms)
        if lasts_ms <= expiry * 1000:
            return *_previous(parts, lasts_ms, expiry), 0, 0.0
        # RL.INSPECT returns both counts, but only the module has it.
        half = yield from self._peek(rule, key, MAX_UNITS - parts // 2)
        current = _current(parts, lasts_ms, half.retry_after_ms, expiry)
        left_ms = lasts_ms - expiry * 1000
        previous = _previous(parts - current * _PARTS, left_ms, expiry)
        return *previous, current, _unrounded_s(lasts_ms)

    def clear_sliding(self, key: str) -> Steps[None]:
        """Resets the key under ``sliding-window-counter``."""
        yield from self._calls.forget_key(self._key("sliding", key))

    # -- gcra -------------------------------------------------------------------------------------

    def test(self, item: RateLimitItem, key: str, cost: int) -> Steps[bool]:
        """Returns True if ``cost`` would be allowed."""
        rule = self._rule("gcra", key, item.amount, item.get_expiry())
        if rule is None or not self._fits(cost, item.amount):
            return False
        return (yield from self._peek(rule, key, cost)).allowed

    def stats(self, item: RateLimitItem, key: str) -> Steps[WindowStats]:
        """Returns the units left, and the time of the reset or, if none is left, of the retry."""
        rule = self._rule("gcra", key, item.amount, item.get_expiry())
        if rule is None or not item.amount:
            # No time helps. The other strategies return the end of a window too.
            return WindowStats(time.time() + item.get_expiry(), 0)
        status = yield from self._peek(rule, key, 1)
        after_ms = status.reset_after_ms if status.allowed else status.retry_after_ms
        status = yield from self._peek(rule, key, 0)
        return WindowStats(time.time() + after_ms / 1000, status.remaining)

    # -- all strategies ---------------------------------------------------------------------------

    def take(
        self, strategy: str, key: str, limit: int, expiry: int, cost: int
    ) -> Steps[bool]:  # fmt: skip
        """Takes units. Returns True if the call was allowed; a denied one takes nothing."""
        rule = self._rule(strategy, key, limit, expiry)
        if rule is None or not self._fits(cost, limit):
            return False
        parts = _PARTS if strategy == "sliding-window-counter" else 1
        item = rule.of(_subject(key)).cost(cost * parts)
        return self._decided((yield from self._calls.check(item, None))).allowed

    def reset(self) -> Steps[int]:
        """Resets all keys, and returns their number."""
        if self._is_cluster:
            raise NotImplementedError("reset: a cluster has no list of all keys")
        prefix = self._calls.options.prefix
        escaped = re.sub(r"([*?\[\]\\^-])", r"\\\1", prefix + ":" if prefix else "")
        count = 0
        for rule in NAMES:
            cursor = b"0"
            while True:
                args = ("SCAN", cursor.decode(), "MATCH", f"{escaped}{rule}:*", "COUNT", "1000")
                cursor, keys = yield from self._calls.send(args)
                for key in keys:
                    # A key that is not text belongs to another program.
                    with contextlib.suppress(UnicodeDecodeError):
                        count += yield from self._calls.forget_key(key.decode())
                if cursor == b"0":
                    break
        return count

    def clear(self, key: str) -> Steps[None]:
        """Resets the key under all strategies."""
        self._local.clear(key)
        for rule in NAMES:
            yield from self._calls.forget_key(self._key(rule, key))


# The limit 0 denies every call before one is sent, so its rule decides nothing.


def _counts_rule(limit: int, expiry: int, on_error: OnError) -> Rule:
    return fixed("counts", max(1, limit), expiry, on_error=on_error)


def _log_rule(limit: int, expiry: int, on_error: OnError) -> Rule:
    return sliding_log("moving", max(1, limit), expiry, slots=_SLOTS, on_error=on_error)


def _sliding_rule(limit: int, expiry: int, on_error: OnError) -> Rule:
    if limit > _MOST_SLIDING:
        raise InvalidArgument(f"limit: expected at most {_MOST_SLIDING} in a sliding window")
    # A unit is available as soon as less than the whole of it is used.
    parts = limit * _PARTS + _PARTS - 1
    return sliding("sliding", parts, expiry, on_error=on_error)


def _gcra_rule(limit: int, expiry: int, on_error: OnError) -> Rule:
    limit = max(1, limit)
    return gcra("limits", limit, limit, expiry, on_error=on_error)


RULES: dict[str, Callable[[int, int, OnError], Rule]] = {
    "fixed-window": _counts_rule,
    "gcra": _gcra_rule,
    "moving-window": _log_rule,
    "sliding-window-counter": _sliding_rule,
}
"""Returns the rule of a limit and its seconds under each strategy."""


def key_of_parts(item: RateLimitItem, parts: Iterable[object]) -> str:
    """Returns the key of a limit and its identifiers.

    ``limits`` joins them by ``/`` as they are, so that ``a/b`` and ``c`` would share the key of
    ``a`` and ``b/c``.
    """
    texts = [one.decode() if isinstance(one, bytes) else str(one) for one in parts]
    return item.key_for(*[one.replace("%", "%25").replace("/", "%2F") for one in texts])


def _limit_of(key: str) -> RateLimitItem | None:
    """Returns the limit that a key of ``limits`` ends with, as in ``LIMITER/alice/5/2/year``."""
    amount, multiples, unit = ["", "", *key.rsplit("/", 3)][-3:]
    kind = GRANULARITIES.get(unit)
    if kind is None or not re.fullmatch(r"-?[0-9]{1,20}/[0-9]{1,20}", f"{amount}/{multiples}"):
        return None
    return kind(int(amount), int(multiples))


def _subject(key: str) -> str:
    """Returns a key as a subject. Lone surrogates, which a JSON body can contain, are hashed."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return "half:" + hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
    return key


def _unrounded_s(ms: int) -> float:
    """Returns the expected value of a time, in seconds, that the server rounded up to ``ms``."""
    return max(0.0, (ms - 0.5) / 1000)


def _current(parts: int, lasts_ms: int, half_ms: int, expiry: int) -> int:
    """Returns the count of the current window. Both windows together count as ``parts``.

    ``lasts_ms`` is the time until nothing counts, ``half_ms`` the time until half of the parts
    count. The previous count fades until the current window ends. The current one then fades in the
    next window.
    """
    window_ms, half = expiry * 1000, parts // 2
    ends_ms = lasts_ms - window_ms
    if half_ms > ends_ms:
        current = half * window_ms / max(1, lasts_ms - half_ms)
    else:
        current = parts - (parts - half) * ends_ms / max(1, half_ms)
    return min(max(1, round(current / _PARTS)), parts // _PARTS)


def _previous(parts: int, left_ms: int, expiry: int) -> tuple[int, float]:
    """Returns the count of the previous window, of which ``parts`` are left, and its seconds left.

    The seconds are such that ``limits`` computes exactly these parts.
    """
    if parts <= 0:
        return 0, 0.0
    count = max(1, round(parts * expiry / max(1, left_ms)))
    return count, (parts + 0.5) / _PARTS * expiry / count
