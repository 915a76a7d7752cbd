"""The steps for which a call waits: see :mod:`._calls`."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from ._protocol import Args

T = TypeVar("T")


@dataclass(slots=True)
class Send:
    """Sends a call once to the node, and waits for the reply."""

    node: Any
    args: Args
    timeout_s: float


@dataclass(slots=True)
class Sleep:
    """Waits for a number of seconds."""

    seconds: float


@dataclass(slots=True)
class Turn:
    """Waits for the lock of a key. The outcome is the lock, or None if it was not free in time."""

    key: object
    timeout_s: float


@dataclass(slots=True)
class Start:
    """Runs steps whose end several callers wait for, even if the first caller gives up."""

    steps: Steps[None]
    ended: Any


@dataclass(slots=True)
class Wait:
    """Waits for the end of started steps.

    If not ``is_timed``, the started steps end by themselves within ``timeout_s``.
    """

    ended: Any
    timeout_s: float
    is_timed: bool = False


Step = Send | Sleep | Turn | Start | Wait
Steps = Generator[Step, Any, T]
