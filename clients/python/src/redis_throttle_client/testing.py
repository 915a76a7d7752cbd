"""A fake server in this process, for the tests of an application, with a clock to advance.

    server = FakeServer()
    limiter = server.limiter()            # or server.async_limiter()
    limiter.check(rule, "42")
    server.advance(6)
    server.fail("timeout")                # or "OOM ...", "WRONGTYPE ..."; server.recover()

For rules of rates and windows (a sliding window as a log), for leases, reservations and bans it
decides as the module does. A quota is 30 days; a backoff has its attempts without delay and then
always waits ``max``. To test more of these two, use a real server with a frozen clock.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

from ._calls.local import Limits, LocalLimiter
from ._limiter import Limiter
from ._limiter_async import AsyncLimiter
from ._reservations import Reservations
from ._rules.durations import duration_us
from ._rules.errors import PASSING, CommandRejected, InvalidArgument, Unavailable
from ._wire.call import Call
from ._wire.replies import units_to_leave
from ._wire.words import default_of

__all__ = ["FakeServer"]

_REPLY = list[Any]
_MONTH_US = 30 * 86_400 * 1_000_000


class FakeServer:
    """Stores state as a server does. ``calls`` has the arguments of every call received."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []
        self._now_us = 1_000_000_000
        self._states = LocalLimiter(1_000_000)
        self._reserved = Reservations(self._states)
        self._leases: dict[str, dict[str, int]] = {}
        self._bans: dict[str, int] = {}
        self._failure: Exception | None = None

    def now(self) -> float:
        """Returns the time of the clock, in seconds. The limiters of this server use it."""
        return self._now_us / 1_000_000

    def advance(self, seconds: float) -> None:
        """Advances the clock."""
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or not math.isfinite(seconds):
            raise InvalidArgument("seconds: expected a number")
        self._now_us += round(seconds * 1_000_000)

    def fail(self, reply: str = "timeout") -> None:
        """Gives no answer from now on (``timeout``), or answers each call with this error reply."""
        if not isinstance(reply, str):
            raise InvalidArgument("reply: expected 'timeout' or the text of an error reply")
        if reply == "timeout":
            self._failure = Unavailable("no answer in time", "timeout")
        elif reply.split(" ", 1)[0] in PASSING:
            self._failure = Unavailable(reply, "server")
        else:
            self._failure = CommandRejected(reply)

    def recover(self) -> None:
        """Ends :meth:`fail`."""
        self._failure = None

    def limiter(self, **options: Any) -> Limiter:
        """Returns a limiter that calls this server."""
        options = {"clock": self.now, "sleep": self.advance} | options
        return Limiter(_Transport(self), **options)

    def async_limiter(self, **options: Any) -> AsyncLimiter:
        """Returns a limiter for asyncio that calls this server."""
        options = {"clock": self.now, "sleep": self._sleep} | options
        return AsyncLimiter(_AsyncTransport(self), **options)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        self.advance(seconds)

    def reply(self, args: tuple[str, ...]) -> Any:
        """Returns the server's reply to a call."""
        self.calls.append(args)
        if self._failure is not None:
            raise self._failure
        command, key, *words = args
        match command:
            case "DEL":
                return int(self._forget(key))
            case _ if not command.startswith("RL."):
                raise CommandRejected(f"ERR unknown command '{command}'")
            case "RL.BLOCK":
                self._forget(key)
                self._bans[key] = self._now_us + duration_us(words[0], "duration")
                return "OK"
            case "RL.RENEW":
                return self._renew(key, words[0], words[1])
            case "RL.COMMIT" | "RL.CANCEL":
                return self._end(command, key, words[0], words[1:])
            case "RL.RELEASE":
                return int(self._holders(key).pop(words[0], None) is not None)
            case "RL.ALL" | "RL.PEEKALL":
                return self._all([key, *words], peek=command == "RL.PEEKALL")
            case "RL.PEEK":
                return self._rule(key, words, peek=True)
            case "RL.REFUND" | "RL.CHARGE":
                return self._rule(key, words, sign=-1 if command == "RL.REFUND" else 1)[:5]
            case _:
                return self._rule(key, [command.removeprefix("RL."), *words])

    def _forget(self, key: str) -> bool:
        """Deletes a key. Returns True if it was there."""
        banned = self._bans.pop(key, 0) > self._now_us
        leased = self._leases.pop(key, None) is not None
        return self._reserved.forget(key) | self._states.forget(key) | leased | banned

    def _all(self, pairs: list[str], *, peek: bool) -> _REPLY:
        asked = [(pairs[at], pairs[at + 1].split(" ")) for at in range(0, len(pairs), 2)]
        rows = [self._rule(key, words, peek=True) for key, words in asked]
        denied = [at for at, row in enumerate(rows) if not row[0]]
        if denied:
            at = max(denied, key=lambda at: (rows[at][3] < 0, rows[at][3]))
            for row, (key, words) in zip(rows, asked, strict=True):
                if row[0]:
                    row[2:5] = self._standing(key, words)
        else:
            if not peek:
                rows = [self._rule(key, words) for key, words in asked]
            at = min(range(len(rows)), key=lambda at: _calls_left(rows[at], asked[at][1]))
        # In an allowed call, the wait is the longest one of its leaky buckets.
        retry = rows[at][3] if denied else max(row[3] for row in rows)
        return [*rows[at][:3], retry, rows[at][4], at + 1, *rows]

    def _standing(self, key: str, words: list[str]) -> _REPLY:
        """Returns reply fields 3 to 5 of a rule that allows a call that another rule denies."""
        if words[0].upper() != "LEASE":
            rule = words[3:] if words[0].upper() == "RESERVE" else words
            status = self._rule(key, _without_cost(rule), peek=True)
            return [status[2], 0, status[4]]
        ends = self._holders(key).values()
        left_us = max(ends, default=self._now_us) - self._now_us
        return [max(0, int(words[2]) - len(ends)), 0, -(-left_us // 1000)]

    def _rule(self, key: str, words: list[str], *, peek: bool = False, sign: int = 0) -> _REPLY:
        kind, held = words[0].upper(), list[str]()
        if kind == "RESERVE":
            held, words = words[1:3], words[3:]
            kind = words[0].upper()
        if kind == "LEASE":
            return self._lease(key, words, peek=peek)
        if kind == "USE":
            rule = [*(["RESERVE", *held] if held else []), *_default(words)]
            row = self._rule(key, rule, peek=peek, sign=sign)
            return [*row, row[0], row[3]]
        cost, partial, limits, now_us = (
            _cost(words),
            "PARTIAL" in words,
            _limits(words),
            self._now_us,
        )
        leave = _leave(words, limits.capacity)
        if self._bans.get(key, 0) > now_us:
            return self._banned(key, cost + leave, limits.capacity)
        if held:
            id, ttl_us = held[0], duration_us(held[1], "ttl")  # noqa: A001
            return list(self._reserved.reserve(
                limits, key, id, ttl_us, cost, now_us, peek=peek, leave=leave
            ))  # fmt: skip
        states = self._reserved if self._reserved.has(key, now_us) else self._states
        if sign:
            return list(states.settle(limits, key, sign * cost, now_us))
        reply = states.decide(limits, key, cost, now_us, peek=peek, partial=partial, leave=leave)
        return list(reply)

    def _banned(self, key: str, wanted: int, limit: int) -> _REPLY:
        left = -(-(self._bans[key] - self._now_us) // 1000)
        return [0, limit, 0, left if wanted <= limit else -1, left]

    def _end(self, command: str, key: str, id: str, words: list[str]) -> _REPLY:
        words = _default(words) if words[0] == "USE" else words
        limits, now_us = _limits(words), self._now_us
        cost = _cost(words) if "COST" in words else None
        if self._bans.get(key, 0) > now_us:
            return self._banned(key, cost or 0, limits.capacity)
        if command == "RL.CANCEL":
            return list(self._reserved.cancel(limits, key, id, now_us))
        return list(self._reserved.commit(limits, key, id, cost, now_us))

    def _holders(self, key: str) -> dict[str, int]:
        holders = self._leases.setdefault(key, {})
        for id in [id for id, until in holders.items() if until <= self._now_us]:  # noqa: A001
            del holders[id]
        return holders

    def _lease(self, key: str, words: list[str], *, peek: bool) -> _REPLY:
        id, limit, ttl_us = words[1], int(words[2]), duration_us(words[3], "ttl")  # noqa: A001
        leave = _leave(words, limit)
        if self._bans.get(key, 0) > self._now_us:
            return self._banned(key, 1 + leave, limit)
        holders = self._holders(key)
        others = len([name for name in holders if name != id])
        # A renewal need not leave permits.
        allowed = id in holders or others + leave < limit
        if allowed and not peek:
            holders[id] = self._now_us + ttl_us
        left = max(0, limit - others - int(allowed))
        ends = sorted(holders.values()) or [self._now_us + ttl_us]
        retry = 0
        if not allowed:
            never = leave >= limit
            retry = -1000 if never else ends[max(0, len(ends) - limit + leave)] - self._now_us
        return [int(allowed), limit, left, -(-retry // 1000), -(-(ends[-1] - self._now_us) // 1000)]

    def _renew(self, key: str, id: str, ttl: str) -> int:
        holders = self._holders(key)
        if id not in holders:
            return 0
        holders[id] = self._now_us + duration_us(ttl, "ttl")
        return 1


def _cost(words: list[str]) -> int:
    return int(words[words.index("COST") + 1]) if "COST" in words else 1


def _leave(words: list[str], limit: int) -> int:
    return units_to_leave(words[words.index("LEAVE") + 1] if "LEAVE" in words else None, limit)


def _default(words: list[str]) -> list[str]:
    """Returns the default rule of a policy, with the options of the call."""
    if "DEFAULT" not in words:
        raise CommandRejected("NOPOLICY no such policy")
    return list(default_of(words[1:]))


def _calls_left(row: _REPLY, words: list[str]) -> tuple[float, int]:
    """Returns the sort key of a row: the rule with the fewest calls left decides."""
    cost = _cost(words)
    return (row[2] // cost if cost else math.inf, row[2])


def _without_cost(words: list[str]) -> list[str]:
    if "COST" not in words:
        return [*words, "COST", "0"]
    at = words.index("COST") + 1
    return [*words[:at], "0", *words[at + 1 :]]


_KINDS = {
    "GCRA": "gcra", "TOKENBUCKET": "token_bucket", "LEAKYBUCKET": "leaky_bucket",
    "FIXED": "fixed", "SLIDING": "sliding", "SLIDINGLOG": "sliding_log",
}  # fmt: skip


def _limits(words: list[str]) -> Limits:
    kind = words[0].upper()
    if kind == "QUOTA":
        return Limits.made("fixed", int(words[1]), 0, _MONTH_US)
    if kind == "BACKOFF":
        return Limits.made("fixed", int(words[1]), 0, duration_us(words[3], "max"))
    if kind not in _KINDS:
        raise CommandRejected(f"ERR unknown command 'RL.{kind}'")
    rate = int(words[2]) if kind in ("GCRA", "TOKENBUCKET", "LEAKYBUCKET") else 0
    period = duration_us(words[3] if rate else words[2], "period")
    return Limits.made(_KINDS[kind], int(words[1]), rate, period)


class _Transport:
    def __init__(self, server: FakeServer) -> None:
        self._server = server

    def node(self, key: str) -> None:
        return None

    def call(self, node: None, args: tuple[str, ...], call: Call) -> Any:
        return self._server.reply(args)

    def close(self) -> None:
        pass


class _AsyncTransport:
    def __init__(self, server: FakeServer) -> None:
        self._server = server

    def node(self, key: str) -> None:
        return None

    async def call(self, node: None, args: tuple[str, ...], call: Call) -> Any:
        await asyncio.sleep(0)
        return self._server.reply(args)

    async def close(self) -> None:
        pass
