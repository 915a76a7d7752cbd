"""The options of a limiter, with their defaults."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import iscoroutinefunction
from typing import Literal, TypedDict, Unpack, get_args

from .errors import InvalidArgument
from .event import OnDecision
from .rule import OnError, checked_on_error, checked_prefetch

Backend = Literal["module", "functions", "script"]
BackendOption = Literal["auto", "module", "functions", "script"]
# The time of a dial, unless ``timeout_ms`` is longer.
MOST_DIAL_S = 1.0
_MOST_MS = 3_600_000
_MOST = 1_000_000
# The options that are times, and the least values of those that are counts.
_TIMES = ("timeout_ms", "silence_ms", "breaker_pause_ms", "denial_cache_max_ms")
_COUNTS = {
    "max_in_flight": 1, "max_waiting": 0, "known_denials": 0, "breaker_failures": 1,
    "denial_cache": 0,
}  # fmt: skip


def checked_backend(wanted: object) -> None:
    """Raises InvalidArgument for an unknown back end."""
    if wanted not in get_args(BackendOption):
        raise InvalidArgument("backend: expected 'auto', 'module', 'functions' or 'script'")


def checked_function(given: object, name: str) -> None:
    """Raises InvalidArgument for an option that cannot be called."""
    if not callable(given):
        raise InvalidArgument(f"{name}: expected a function")


def checked_hook(hook: object) -> None:
    """Raises InvalidArgument for a hook that cannot be called, or that is async."""
    checked_function(hook, "on_decision")
    if iscoroutinefunction(hook):
        raise InvalidArgument("on_decision: expected a function that is not async")


def refuse_unknown(given: Iterable[str], known: Iterable[str]) -> None:
    """Raises InvalidArgument if a name is not one of the known options."""
    for name in given:
        if name not in known:
            raise InvalidArgument(f"{name}: there is no such option{suggestion(name, known)}")


def suggestion(name: str, known: Iterable[str], least: float = 0.6) -> str:
    """Returns the end of an error's text, with the known option whose name is closest.

    Returns an empty text if none is similar. ``least`` is the similarity from 0 to 1 that counts.
    """
    close = get_close_matches(name, list(known), 1, least)
    return f"; did you mean {close[0]}?" if close else ""


class LimiterOptions(TypedDict, total=False):
    """The options of both limiters. Their defaults are in :class:`Options`."""

    timeout_ms: int
    silence_ms: int
    on_error: OnError
    max_in_flight: int
    max_waiting: int
    known_denials: int
    breaker_failures: int
    breaker_pause_ms: int
    denial_cache: int
    denial_cache_max_ms: int
    prefetch: int
    backend: BackendOption
    prefix: str
    hash_tag: Literal["subject"] | None
    hmac_secret: bytes | str | None
    on_decision: OnDecision | None
    log_errors: bool
    clock: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Options:
    """The validated options of a limiter.

    ``timeout_ms`` is the most that a call waits in all. ``silence_ms`` is the longest silence of a
    node; by default it is ``timeout_ms`` if that is set, else 100. At most
    ``max_in_flight`` commands are in flight to a node, and ``max_waiting`` calls wait in line.
    ``known_denials`` is the number of keys whose last denial is remembered. ``on_error`` and
    ``prefetch`` are for rules that do not set their own. ``prefetch`` is the number of permits that
    one call fetches in advance, for calls of cost 1 under rules that allow it, 1 to 10,000.
    ``denial_cache`` is the maximum number of cached denials, 0 for none; each is kept until its
    retry time, at most ``denial_cache_max_ms``. ``backend`` selects the module, or the library as
    functions or as a script; ``auto`` takes the first of these that works. ``log_errors`` logs the
    decisions that are made without the server.
    """

    timeout_ms: int = 1000
    silence_ms: int = 100
    on_error: OnError = "allow"
    max_in_flight: int = 256
    max_waiting: int = 16384
    known_denials: int = 10_000
    breaker_failures: int = 5
    breaker_pause_ms: int = 1000
    denial_cache: int = 0
    denial_cache_max_ms: int = 1000
    prefetch: int = 1
    backend: BackendOption = "auto"
    prefix: str = "rl"
    hash_tag: Literal["subject"] | None = None
    hmac_secret: bytes | str | None = None
    on_decision: OnDecision | None = None
    log_errors: bool = True
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def of(cls, **given: Unpack[LimiterOptions]) -> Options:
        """Validates the options and adds the defaults."""
        refuse_unknown(given, cls.__slots__)
        if "timeout_ms" in given:
            given.setdefault("silence_ms", given["timeout_ms"])
        return cls(**given)

    def __post_init__(self) -> None:
        for name in _TIMES:
            self._check(name, 1, _MOST_MS)
        for name, least in _COUNTS.items():
            self._check(name, least, _MOST)
        if self.silence_ms > self.timeout_ms:
            raise InvalidArgument(
                f"silence_ms: expected at most timeout_ms, {self.timeout_ms}, not {self.silence_ms}"
            )
        checked_on_error(self.on_error)
        checked_prefetch(self.prefetch)
        checked_backend(self.backend)
        if self.on_decision is not None:
            checked_hook(self.on_decision)
        if not isinstance(self.log_errors, bool):
            raise InvalidArgument("log_errors: expected True or False")
        checked_function(self.clock, "clock")

    def _check(self, name: str, least: int, most: int) -> None:
        value = getattr(self, name)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise InvalidArgument(f"{name}: expected an integer from {least} to {most}")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The times and numbers that the options of a limiter set for each node."""

    timeout_s: float
    silence_s: float
    pause_s: float
    max_in_flight: int
    max_waiting: int

    @classmethod
    def of(cls, options: Options) -> Bounds:
        """Returns those of the options."""
        return cls(
            options.timeout_ms / 1000, options.silence_ms / 1000, options.breaker_pause_ms / 1000,
            options.max_in_flight, options.max_waiting,
        )  # fmt: skip

    @property
    def tick_s(self) -> float:
        """The longest time between two looks at the calls that wait."""
        return self.silence_s / 4

    @property
    def dial_s(self) -> float:
        """The time of a dial."""
        return max(MOST_DIAL_S, self.timeout_s)
