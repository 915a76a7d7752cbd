"""A fake server in this process, for the tests of an application, with a clock to advance.

    server = FakeServer()
    limiter = server.limiter()            # or server.async_limiter()
    limiter.check(rule, "42")
    server.advance(6)
    server.fail("timeout")                # or "OOM ...", "WRONGTYPE ..."; server.recover()
    server.script([1, 4, 3, 0, 30_000])   # the reply to a lease

It computes rules of rates and windows (a sliding window as a log) and bans, as a limiter does with
``on_error="local"``. A test scripts the replies to leases, reservations, quotas, backoffs and
policies, or runs ``redis-throttle-lab serve``, which decides as the module does, without a Redis.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import Any

from ._calls.local import Limits, LocalLimiter
from ._limiter import Limiter
from ._limiter_async import AsyncLimiter
from ._rules.durations import duration_us
from ._rules.errors import PASSING, CommandRejected, InvalidArgument, Unavailable
from ._wire.call import Call
from ._wire.replies import units_to_leave

__all__ = ["FakeServer"]

_REPLY = list[Any]
_KINDS = {
    "GCRA": "gcra", "TOKENBUCKET": "token_bucket", "LEAKYBUCKET": "leaky_bucket",
    "FIXED": "fixed", "SLIDING": "sliding", "SLIDINGLOG": "sliding_log",
}  # fmt: skip


class FakeServer:
    """Stores state as a server does. ``calls`` has the arguments of every call received."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []
        self._now_us = 1_000_000_000
        self._states = LocalLimiter(1_000_000)
        self._bans: dict[str, int] = {}
        self._failure: Exception | None = None
        self._scripted: deque[Any] = deque()

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
        """Gives no reply from now on (``timeout``), or replies to each call with this error."""
        if not isinstance(reply, str):
            raise InvalidArgument("reply: expected 'timeout' or the text of an error reply")
        if reply == "timeout":
            self._failure = Unavailable("no reply in time", "timeout")
        elif reply.split(" ", 1)[0] in PASSING:
            self._failure = Unavailable(reply, "server")
        else:
            self._failure = CommandRejected(reply)

    def recover(self) -> None:
        """Ends :meth:`fail`."""
        self._failure = None

    def script(self, *replies: Any) -> None:
        """Queues the replies to the next commands that this server does not compute, in order.

        A reply is a list of integers, an integer, a text, or an exception to raise.
        """
        self._scripted += replies

    def limiter(self, **options: Any) -> Limiter:
        """Returns a limiter that calls this server."""
        options = {"clock": self.now, "sleep": self.advance} | options
        return Limiter(_Transport(self), **options)

    def async_limiter(self, **options: Any) -> AsyncLimiter:
        """Returns a limiter for asyncio that calls this server."""
        options = {"clock": self.now, "sleep": self._sleep} | options
        return AsyncLimiter(_Transport(self, waits=True), **options)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        self.advance(seconds)

    def reply(self, args: tuple[str, ...]) -> Any:
        """Returns the server's reply to a call."""
        self.calls.append(args)
        if self._failure is not None:
            raise self._failure
        command, key, *words = args
        verb = command.removeprefix("RL.")
        if command == "DEL":
            return int(self._forget(key))
        if verb == "BLOCK":
            self._forget(key)
            self._bans[key] = self._now_us + duration_us(words[0], "duration")
            return "OK"
        several = verb in ("ALL", "PEEKALL")
        rows = [row.split(" ") for row in args[2::2]] if several else [words]
        if not several and verb not in ("PEEK", "REFUND", "CHARGE"):
            rows = [[verb, *words]]
        if any(row[:1] == [] or row[0] not in _KINDS for row in rows):
            return self._next_scripted(command)
        if several:
            return self._all(list(zip(args[1::2], rows, strict=True)), peek=verb == "PEEKALL")
        sign = {"REFUND": -1, "CHARGE": 1}.get(verb, 0)
        return self._rule(key, rows[0], peek=verb == "PEEK", sign=sign)

    def _next_scripted(self, command: str) -> Any:
        if not self._scripted:
            raise CommandRejected(
                f"ERR the fake server does not compute {command}: queue a reply with script(), or "
                "run redis-throttle-lab serve, which decides all rules"
            )
        reply = self._scripted.popleft()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _forget(self, key: str) -> bool:
        """Deletes a key. Returns True if it was there."""
        banned = self._bans.pop(key, 0) > self._now_us
        return self._states.forget(key) | banned

    def _all(self, pairs: list[tuple[str, list[str]]], *, peek: bool) -> _REPLY:
        rows = [self._rule(key, words, peek=True) for key, words in pairs]
        denied = [at for at, row in enumerate(rows) if not row[0]]
        if denied:
            at = max(denied, key=lambda at: (rows[at][3] < 0, rows[at][3]))
            for row, (key, words) in zip(rows, pairs, strict=True):
                if row[0]:
                    status = self._rule(key, words, peek=True, cost=0)
                    row[2:5] = [status[2], 0, status[4]]
        else:
            if not peek:
                rows = [self._rule(key, words) for key, words in pairs]
            at = min(range(len(rows)), key=lambda at: _calls_left(rows[at], pairs[at][1]))
        # In an allowed call, the wait is the longest one of its leaky buckets.
        retry = rows[at][3] if denied else max(row[3] for row in rows)
        return [*rows[at][:3], retry, rows[at][4], at + 1, *rows]

    def _rule(
        self, key: str, words: list[str], *, peek: bool = False, sign: int = 0,
        cost: int | None = None,
    ) -> _REPLY:  # fmt: skip
        limits, now_us = _limits(words), self._now_us
        cost = int(_value(words, "COST") or 1) if cost is None else cost
        leave = units_to_leave(_value(words, "LEAVE"), limits.capacity)
        left_us = self._bans.get(key, 0) - now_us
        if left_us > 0:
            left_ms, fits = -(-left_us // 1000), cost + leave <= limits.capacity
            return [0, limits.capacity, 0, left_ms if fits else -1, left_ms]
        if sign:
            return list(self._states.settle(limits, key, sign * cost, now_us))
        return list(self._states.decide(
            limits, key, cost, now_us, peek=peek, partial="PARTIAL" in words, leave=leave
        ))  # fmt: skip


def _value(words: list[str], name: str) -> str | None:
    """Returns the word after a name; None if the name is not there."""
    return words[words.index(name) + 1] if name in words else None


def _calls_left(row: _REPLY, words: list[str]) -> tuple[float, int]:
    """Returns the sort key of a row: the rule with the fewest calls left decides."""
    cost = int(_value(words, "COST") or 1)
    return row[2] // cost if cost else math.inf, row[2]


def _limits(words: list[str]) -> Limits:
    rate = int(words[2]) if words[0] in ("GCRA", "TOKENBUCKET", "LEAKYBUCKET") else 0
    period = duration_us(words[3] if rate else words[2], "period")
    return Limits.scaled(_KINDS[words[0]], int(words[1]), rate, period)


class _Transport:
    """The way to the fake server, which ``waits`` in asyncio."""

    def __init__(self, server: FakeServer, *, waits: bool = False) -> None:
        self._server, self._waits = server, waits

    def node(self, key: str) -> None:
        return None

    def call(self, node: None, args: tuple[str, ...], call: Call) -> Any:
        return self._later(args) if self._waits else self._server.reply(args)

    async def _later(self, args: tuple[str, ...]) -> Any:
        await asyncio.sleep(0)
        return self._server.reply(args)

    def close(self) -> Any:
        return asyncio.sleep(0) if self._waits else None
