"""Storages for the library ``limits``, and so for Flask-Limiter and slowapi.

Importing this module registers the storage ``redis-throttle://`` (``redis-throttles://`` with TLS,
``redis-throttle+unix://``; ``async+`` before each for ``limits.aio``) and the strategy ``gcra``:

    import redis_throttle_client.limits
    Limiter(get_remote_address, storage_uri="redis-throttle://localhost:7777", strategy="gcra")

"10 per minute" is then a burst of 10 that refills at 10 per minute. A denial takes nothing. The
strategies of ``limits`` work as with its own storages: ``fixed-window`` counts denied calls too,
``moving-window`` is the server's sliding log, and ``sliding-window-counter`` its sliding window,
whose windows are multiples of their length since the Unix epoch. With ``on_error="raise"``, the
default here, the framework handles an unavailable server. The other values work as in a limiter,
for every strategy; ``local`` counts in this process.

The frameworks read a limit at the first request. :func:`checked` checks it at setup. A limit that
the server cannot enforce, such as ``5 per 2 years``, denies every call, and is logged once.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from limits import RateLimitItem, aio, parse_many
from limits.storage import (
    MemoryStorage,
    MovingWindowSupport,
    SlidingWindowCounterSupport,
    Storage,
)
from limits.storage.base import TimestampedSlidingWindow
from limits.strategies import STRATEGIES, MovingWindowRateLimiter, RateLimiter
from limits.util import WindowStats

from ._calls.steps import READY_S
from ._limiter import Limiter
from ._limiter_async import AsyncLimiter
from ._net.url import EXPECTED, client_of
from ._rules.errors import InvalidArgument, ThrottleError
from ._rules.rule import OnError
from ._web.windows import RULES, Windows, key_of_parts

__all__ = [
    "AsyncGCRARateLimiter",
    "AsyncThrottleStorage",
    "GCRARateLimiter",
    "ThrottleStorage",
    "checked",
]

_EXPECTED = (
    "uri: expected redis-throttle://[user:password@]host[:port][/db], redis-throttles:// or "
    "redis-throttle+unix:///path"
)
L = TypeVar("L", Limiter, AsyncLimiter)
Given = TypeVar("Given", str, RateLimitItem)


def checked(limits: Given, strategy: str = "gcra") -> Given:
    """Returns the limits. Raises InvalidArgument if the storages cannot enforce one of them.

    The windows of ``moving-window`` and of the other strategies last 366 days at most:

        Limiter(get_remote_address, default_limits=[checked("5 per 2 days")], ...)
    """
    if strategy not in RULES:
        raise InvalidArgument(f"strategy: expected one of {', '.join(RULES)}")
    try:
        items = [limits] if isinstance(limits, RateLimitItem) else parse_many(limits)
    except ValueError as error:
        raise InvalidArgument(f"limits: {error}") from None
    for item in items:
        try:
            RULES[strategy](item.amount, item.get_expiry(), "deny")
        except InvalidArgument as error:
            raise InvalidArgument(f"limits: {item}: {error}") from None
    return limits


class _Counts:
    """The methods of both storages. Those for asyncio return an awaitable of the same."""

    limiter: Any
    _client: Any
    _windows: Windows

    @property
    def storage(self) -> Any:
        """The client of the driver, or the limiter that was given."""
        return self._client or self.limiter

    @property
    def base_exceptions(self) -> type[Exception]:
        """The base class of the errors that the storage raises."""
        return ThrottleError

    def incr(self, key: str, expiry: int, amount: int = 1) -> Any:
        """Counts in a fixed window, and returns the count."""
        return self.limiter._run(self._windows.incr(key, expiry, amount))

    def get(self, key: str) -> Any:
        """Returns the count of the current fixed window."""
        return self.limiter._run(self._windows.get(key))

    def get_expiry(self, key: str) -> Any:
        """Returns the Unix time at which the fixed window ends."""
        return self.limiter._run(self._windows.get_expiry(key))

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> Any:
        """Takes units of a moving window. Returns True if they were left."""
        steps = self._windows.take("moving-window", key, limit, expiry, amount)
        return self.limiter._run(steps)

    def get_moving_window(self, key: str, limit: int, expiry: int) -> Any:
        """Returns the Unix time of the oldest unit that counts, and the number of units."""
        return self.limiter._run(self._windows.get_moving_window(key, limit, expiry))

    def acquire_sliding_window_entry(
        self, key: str, limit: int, expiry: int, amount: int = 1
    ) -> Any:
        """Takes units of a sliding window. Returns True if they were left."""
        steps = self._windows.take("sliding-window-counter", key, limit, expiry, amount)
        return self.limiter._run(steps)

    def get_sliding_window(self, key: str, expiry: int) -> Any:
        """Returns the counts of the previous and of the current window, each with its seconds left.

        Their weighted sum is the server's. The counts are computed from it and from times in
        milliseconds: with hundreds of units in a window of a few seconds, or when little of the
        previous window is left, they may be off.
        """
        return self.limiter._run(self._windows.get_sliding(key, expiry))

    def clear_sliding_window(self, key: str, expiry: int) -> Any:
        """Resets the key under ``sliding-window-counter``."""
        return self.limiter._run(self._windows.clear_sliding(key))

    def reset(self) -> Any:
        """Resets all keys, and returns their number. For tests: it scans all keys of the server."""
        return self.limiter._run(self._windows.reset())

    def clear(self, key: str) -> Any:
        """Resets the key under all strategies."""
        return self.limiter._run(self._windows.clear(key))


class ThrottleStorage(
    _Counts, Storage, MovingWindowSupport, SlidingWindowCounterSupport, TimestampedSlidingWindow
):
    """A storage whose counts are on the server.

    The options are ``client``, a client of redis-py or valkey-py to use instead of the URI;
    ``limiter``, a complete :class:`Limiter`; ``on_error``; and those of a limiter.
    """

    STORAGE_SCHEME = ["redis-throttle", "redis-throttles", "redis-throttle+unix"]  # noqa: RUF012
    limiter: Limiter

    def __init__(
        self, uri: str | None = None, wrap_exceptions: bool = False, *, client: Any = None,
        limiter: Limiter | None = None, on_error: OnError | Literal["raise"] = "raise",
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(uri, wrap_exceptions)
        self.limiter, self._client = _limiter_of(Limiter, uri, client, limiter, options)
        self._windows = Windows(self.limiter, on_error)

    def check(self) -> bool:
        """Returns True if the server replies through a back end."""
        try:
            self.limiter.ready()
        except ThrottleError:
            return False
        return True


class AsyncThrottleStorage(
    _Counts,
    aio.storage.Storage,
    aio.storage.MovingWindowSupport,
    aio.storage.SlidingWindowCounterSupport,
    TimestampedSlidingWindow,
):
    """The same as :class:`ThrottleStorage`, for ``limits.aio``.

    ``client`` is one of asyncio, and ``limiter`` an :class:`AsyncLimiter`.
    """

    STORAGE_SCHEME = [  # noqa: RUF012
        f"async+{scheme}" for scheme in ThrottleStorage.STORAGE_SCHEME
    ]
    limiter: AsyncLimiter

    def __init__(
        self, uri: str | None = None, wrap_exceptions: bool = False, *, client: Any = None,
        limiter: AsyncLimiter | None = None, on_error: OnError | Literal["raise"] = "raise",
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(uri, wrap_exceptions)
        self.limiter, self._client = _limiter_of(AsyncLimiter, uri, client, limiter, options)
        self._windows = Windows(self.limiter, on_error)

    async def check(self) -> bool:
        """The same as :meth:`ThrottleStorage.check`."""
        try:
            await self.limiter.ready()
        except ThrottleError:
            return False
        return True


class GCRARateLimiter(RateLimiter):
    """The strategy ``gcra``: a burst, then an even rate. A denied call takes nothing."""

    storage: ThrottleStorage

    def __init__(self, storage: Any) -> None:
        if not isinstance(storage, ThrottleStorage):
            raise NotImplementedError("the strategy gcra needs the storage redis-throttle")
        super().__init__(storage)

    def hit(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        """Takes ``cost``. Returns True if the call was allowed."""
        key, expiry = key_of_parts(item, identifiers), item.get_expiry()
        steps = self.storage._windows.take("gcra", key, item.amount, expiry, cost)
        return self.storage.limiter._run(steps)

    def test(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        """Returns True if ``cost`` would be allowed."""
        steps = self.storage._windows.test(item, key_of_parts(item, identifiers), cost)
        return self.storage.limiter._run(steps)

    def get_window_stats(self, item: RateLimitItem, *identifiers: str) -> WindowStats:
        """Returns the units left, and the time of the reset or, if none is left, of the retry."""
        steps = self.storage._windows.stats(item, key_of_parts(item, identifiers))
        return self.storage.limiter._run(steps)

    def clear(self, item: RateLimitItem, *identifiers: str) -> None:
        """Resets the key of the limit and the identifiers."""
        self.storage.clear(key_of_parts(item, identifiers))


class AsyncGCRARateLimiter(aio.strategies.RateLimiter):
    """The same as :class:`GCRARateLimiter`, for ``limits.aio``."""

    storage: AsyncThrottleStorage

    def __init__(self, storage: Any) -> None:
        if not isinstance(storage, AsyncThrottleStorage):
            raise NotImplementedError("the strategy gcra needs the storage async+redis-throttle")
        super().__init__(storage)

    async def hit(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        """The same as :meth:`GCRARateLimiter.hit`."""
        key, expiry = key_of_parts(item, identifiers), item.get_expiry()
        steps = self.storage._windows.take("gcra", key, item.amount, expiry, cost)
        return await self.storage.limiter._run(steps)

    async def test(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        """The same as :meth:`GCRARateLimiter.test`."""
        steps = self.storage._windows.test(item, key_of_parts(item, identifiers), cost)
        return await self.storage.limiter._run(steps)

    async def get_window_stats(self, item: RateLimitItem, *identifiers: str) -> WindowStats:
        """The same as :meth:`GCRARateLimiter.get_window_stats`."""
        steps = self.storage._windows.stats(item, key_of_parts(item, identifiers))
        return await self.storage.limiter._run(steps)

    async def clear(self, item: RateLimitItem, *identifiers: str) -> None:
        """The same as :meth:`GCRARateLimiter.clear`."""
        await self.storage.clear(key_of_parts(item, identifiers))


def _limiter_of(
    kind: type[L], uri: str | None, client: Any, limiter: L | None, options: dict[str, Any]
) -> tuple[L, Any]:  # fmt: skip
    """Returns the given limiter and None, or one with a client for the URI, and that."""
    if limiter is None:
        if client is None:
            if uri is None:
                raise InvalidArgument("uri: expected a URI, client or limiter")
            client = _client_of(uri)
        created = kind(client, **options)
        # The framework meets the error of a first call, in a process that starts on a busy host.
        created._calls.sender.dial_s = max(READY_S, created._calls.timeout_s)
        return created, client
    if options or client is not None:
        given = ["client"] * (client is not None) + sorted(options)
        raise InvalidArgument(f"limiter: it has its own {', '.join(given)}")
    if not isinstance(limiter, kind):
        raise InvalidArgument(f"limiter: expected a {kind.__name__}")
    return limiter, None


def _client_of(uri: str) -> Any:
    """Returns a client of the driver that is installed."""
    scheme, _, rest = uri.partition("://")
    kind = scheme.removeprefix("async+")
    server = {"redis-throttle": "redis", "redis-throttles": "rediss"}.get(kind, "unix")
    url = f"{server}://{rest}"
    try:
        return client_of(url, cluster=False, is_async=kind != scheme, dial_s=READY_S)
    except InvalidArgument as error:
        text = str(error)
        message = _EXPECTED if text == EXPECTED else f"uri: {text.removeprefix('url: ')}"
        raise InvalidArgument(message) from None


def _gcra(storage: Any) -> RateLimiter:
    """Returns the strategy. In memory, to which a framework may fall back, it is a log."""
    in_memory = isinstance(storage, MemoryStorage)
    return MovingWindowRateLimiter(storage) if in_memory else GCRARateLimiter(storage)


def _async_gcra(storage: Any) -> aio.strategies.RateLimiter:
    if isinstance(storage, aio.storage.MemoryStorage):
        return aio.strategies.MovingWindowRateLimiter(storage)
    return AsyncGCRARateLimiter(storage)


STRATEGIES["gcra"] = _gcra  # type: ignore[assignment]
aio.strategies.STRATEGIES["gcra"] = _async_gcra  # type: ignore[assignment]
