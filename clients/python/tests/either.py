"""Limiters for threads and for asyncio under the methods of the former, over any driver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import isawaitable
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio

from redis_throttle_client import AsyncLimiter, Limiter

PACKAGES: dict[str, Any] = {"redis": redis, "valkey": valkey}
kinds = pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])


class _Ended:
    """An object of asyncio whose awaitables have ended when a method returns."""

    def __init__(self, of: Any, run: Callable[[Any], Any]) -> None:
        self._of, self._wait = of, run

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        return (
            (lambda *args, **options: self._came(found(*args, **options)))
            if callable(found)
            else found
        )

    def _came(self, came: Any) -> Any:
        if hasattr(came, "__aenter__"):
            return _Ended(came, self._wait)
        return self._wait(came) if isawaitable(came) else came

    def __enter__(self) -> Any:
        return _Ended(self._wait(self._of.__aenter__()), self._wait)

    def __exit__(self, *exc: object) -> None:
        self._wait(self._of.__aexit__(*exc))


def client_of(kind: Any, driver: str, suffix: str = "", **options: Any) -> Any:
    """Returns a client of a driver, for a kind of limiter. ``suffix`` is ``Cluster`` for one."""
    package = PACKAGES[driver].asyncio if kind is AsyncLimiter else PACKAGES[driver]
    return getattr(package, f"{driver.capitalize()}{suffix}")(**options)


@contextmanager
def limiter_over(client: Any, kind: Any, **options: Any) -> Iterator[Any]:
    """Returns a limiter with as much time as the slowest machine needs. Closes the client too."""
    options = {"timeout_ms": 60_000} | options
    if kind is Limiter:
        with Limiter(client, **options) as limiter:
            yield limiter
        client.close()
        return
    with asyncio.Runner() as runner:

        def run(work: Any) -> Any:
            async def awaiting() -> Any:
                return await work

            return runner.run(awaiting())

        with _Ended(AsyncLimiter(client, **options), run) as limiter:
            yield limiter
        # Before redis-py 5.0.1 the method had its old name.
        run(getattr(client, "aclose", client.close)())
