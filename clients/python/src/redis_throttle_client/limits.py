"""A storage for the library ``limits``, and so for Flask-Limiter and slowapi.

Importing this module registers the storage ``redis-throttle://`` (``redis-throttles://`` with TLS,
``redis-throttle+unix://``) and the strategy ``gcra``:

    import redis_throttle_client.limits
    Limiter(get_remote_address, storage_uri="redis-throttle://localhost:7777", strategy="gcra")

"10 per minute" is then a burst of 10 that refills at 10 a minute. A denial takes nothing.
``fixed-window`` works as with every storage, and counts denied calls too. The moving window and the
sliding window are rejected when the limiter is created. With ``on_error="raise"``, the default
here, the framework handles an unavailable server. The other values work as in a limiter, for both
strategies; ``local`` counts the windows of ``fixed-window`` in this process.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import re
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal, TypeVar

from limits import RateLimitItem
from limits.storage import MemoryStorage, Storage
from limits.strategies import STRATEGIES, RateLimiter
from limits.util import WindowStats

from ._decision import Decision
from ._errors import InvalidArgument, ThrottleError, Unavailable
from ._limiter import Limiter
from ._rules import MAX_UNITS, OnError, Rule, fixed, gcra

__all__ = ["GCRARateLimiter", "ThrottleStorage"]

_LONGEST = "366d"
_NAMES = ("counts", "limits")
T = TypeVar("T", int, float)


class ThrottleStorage(Storage):
    """A storage whose counts are on the server.

    The options are ``client``, a client of redis-py or valkey-py to use instead of the URI;
    ``limiter``, a complete :class:`Limiter`; ``on_error``; and those of a limiter.
    """

    STORAGE_SCHEME = ["redis-throttle", "redis-throttles", "redis-throttle+unix"]  # noqa: RUF012

    def __init__(
        self, uri: str | None = None, wrap_exceptions: bool = False, *, client: Any = None,
        limiter: Limiter | None = None, on_error: OnError | Literal["raise"] = "raise",
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(uri, wrap_exceptions)
        if on_error not in ("raise", "allow", "deny", "local"):
            raise InvalidArgument("on_error: expected 'raise', 'allow', 'deny' or 'local'")
        self.on_error = on_error
        if limiter is None:
            if client is None:
                if uri is None:
                    raise InvalidArgument("uri: expected a URI, client or limiter")
                client = _client_of(uri)
            limiter = Limiter(client, **options)
        elif options or client is not None:
            given = ["client"] * (client is not None) + sorted(options)
            raise InvalidArgument(f"limiter: it has its own {', '.join(given)}")
        self.limiter = limiter

    @property
    def base_exceptions(self) -> type[Exception]:
        """The base class of the errors that the storage raises."""
        return ThrottleError

    def gcra(self, item: RateLimitItem) -> Rule:
        """Returns the rule that enforces an item of the library ``limits``."""
        on_error: OnError = "deny" if self.on_error == "raise" else self.on_error
        return gcra("limits", item.amount, item.amount, item.get_expiry(), on_error=on_error)

    def answered(self, decision: Decision) -> Decision:
        """Returns the decision. Raises if it is degraded and the framework handles such calls."""
        if decision.degraded and self.on_error == "raise":
            raise Unavailable(f"no answer from the server for the rule {decision.rule}")
        return decision

    @cached_property
    def _local(self) -> MemoryStorage:
        """The counts of ``on_error="local"``."""
        return MemoryStorage()

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Counts in a fixed window, and returns the count."""
        try:
            counted = self.limiter.charge(fixed("counts", MAX_UNITS, expiry), key, amount)
        except Unavailable as error:
            local = self._local.incr
            return self._without(error, 0, MAX_UNITS + 1, lambda: local(key, expiry, amount))
        return MAX_UNITS - counted.remaining

    def get(self, key: str) -> int:
        """Returns the count of the current window."""
        rule = fixed("counts", MAX_UNITS, _LONGEST, on_error="deny")
        decision = self.answered(self.limiter.peek(rule, key, 0))
        if decision.degraded:
            return self._without(None, 0, MAX_UNITS + 1, lambda: self._local.get(key))
        return MAX_UNITS - decision.remaining

    def get_expiry(self, key: str) -> float:
        """Returns the Unix time at which the window ends, when its key expires."""
        name = self.limiter._calls.keys.key("counts", key)
        now_s = time.time()
        try:
            left_ms = self.limiter._ask(("PTTL", name))
        except Unavailable as error:
            retry_s = self.limiter._calls.options.breaker_pause_ms / 1000
            local = self._local.get_expiry
            return self._without(error, now_s, now_s + retry_s, lambda: local(key))
        return now_s + (max(0, left_ms) / 1000 if isinstance(left_ms, int) else 0)

    def _without(
        self, error: Unavailable | None, allowed: T, denied: T, local: Callable[[], T]
    ) -> T:  # fmt: skip
        """Returns the count or the time by which ``fixed-window`` follows ``on_error``."""
        if self.on_error == "raise" and error is not None:
            raise error
        if self.on_error == "local":
            return local()
        return allowed if self.on_error == "allow" else denied

    def check(self) -> bool:
        """Returns True if the server answers through a back end."""
        try:
            self.limiter.ready()
        except ThrottleError:
            return False
        return True

    def reset(self) -> int | None:
        """Resets all keys, and returns their number. For tests: it scans all keys of the server."""
        if self.limiter._transport.node("") is not None:
            raise NotImplementedError("reset: a cluster has no list of all keys")
        prefix = self.limiter._calls.options.prefix
        escaped = re.sub(r"([*?\[\]\\^-])", r"\\\1", prefix + ":" if prefix else "")
        count = 0
        for rule in _NAMES:
            cursor = b"0"
            while True:
                args = ("SCAN", cursor.decode(), "MATCH", f"{escaped}{rule}:*", "COUNT", "1000")
                cursor, keys = self.limiter._ask(args)
                for key in keys:
                    # A key that is not text belongs to another program.
                    with contextlib.suppress(UnicodeDecodeError):
                        count += self._forget(key.decode())
                if cursor == b"0":
                    break
        return count

    def clear(self, key: str) -> None:
        """Resets the key under both strategies, `fixed-window` and `gcra`."""
        if self.on_error == "local":
            self._local.clear(key)
        for rule in _NAMES:
            self._forget(self.limiter._calls.keys.key(rule, key))

    def _forget(self, key: str) -> int:
        return self.limiter._run(self.limiter._calls.forget_key(key))


class GCRARateLimiter(RateLimiter):
    """The strategy ``gcra``: a burst, then an even rate. A denied call takes nothing."""

    storage: ThrottleStorage

    def __init__(self, storage: Any) -> None:
        if not isinstance(storage, ThrottleStorage):
            raise NotImplementedError("the strategy gcra needs the storage redis-throttle")
        super().__init__(storage)

    def hit(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        """Takes ``cost``. Returns True if the call was allowed."""
        key, rule = item.key_for(*identifiers), self.storage.gcra(item)
        return self.storage.answered(self.storage.limiter.check(rule, key, cost)).allowed

    def test(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        """Returns True if ``cost`` would be allowed."""
        return self._peek(item, identifiers, cost).allowed

    def get_window_stats(self, item: RateLimitItem, *identifiers: str) -> WindowStats:
        """Returns the units left, and the time of the reset or, if none is left, of the retry."""
        status = self._peek(item, identifiers, 1)
        after_ms = status.reset_after_ms if status.allowed else status.retry_after_ms
        status = self._peek(item, identifiers, 0)
        return WindowStats(time.time() + after_ms / 1000, status.remaining)

    def _peek(self, item: RateLimitItem, identifiers: tuple[str, ...], cost: int) -> Decision:
        key, rule = item.key_for(*identifiers), self.storage.gcra(item)
        return self.storage.answered(self.storage.limiter.peek(rule, key, cost))


def _client_of(uri: str) -> Any:
    """Returns a client of the driver that is installed."""
    if importlib.util.find_spec("redis") is None and importlib.util.find_spec("valkey"):
        return importlib.import_module("valkey").Valkey.from_url(_server_uri(uri))
    return importlib.import_module("redis").Redis.from_url(_server_uri(uri))


def _server_uri(uri: str) -> str:
    scheme, _, rest = uri.partition("://")
    servers = {"redis-throttle": "redis", "redis-throttles": "rediss"}
    return f"{servers.get(scheme, 'unix')}://{rest}"


STRATEGIES["gcra"] = GCRARateLimiter  # type: ignore[assignment]
