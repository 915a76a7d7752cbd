"""The end of a request, by which ``count`` of a rule decides whether the request counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import isawaitable, iscoroutinefunction
from typing import Literal

from .errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a request, at the head of its response.

    ``status`` is the HTTP status. It is None if there is no response: the application raised
    ``error``, or ended without one. A request whose client leaves before the head has no outcome:
    it counts.
    """

    status: int | None
    error: BaseException | None = None

    @property
    def failed(self) -> bool:
        """True without a response, and for a status of 400 or more."""
        return self.status is None or self.status >= 400


Count = Literal["all", "failures"] | Callable[[Outcome], bool]
"""The requests that count: all, those that failed, or those for which a function returns true."""


def checked_count(count: object) -> Count:
    """Validates ``count`` of a rule."""
    if count == "all":
        return "all"
    if count == "failures":
        return "failures"
    if callable(count) and not iscoroutinefunction(count):
        return count
    raise InvalidArgument("count: expected 'all', 'failures' or a sync function of an Outcome")


def counts(count: Count, outcome: Outcome) -> bool:
    """Returns True if a request with this outcome counts."""
    if outcome.error is not None and not isinstance(outcome.error, Exception):
        # It was ended from outside, as by the cancellation of its task.
        return True
    if callable(count):
        result: object = count(outcome)
        if isawaitable(result):
            getattr(result, "close", lambda: None)()
            raise InvalidArgument("count: expected a sync function of an Outcome")
        return bool(result)
    return count == "all" or outcome.failed
