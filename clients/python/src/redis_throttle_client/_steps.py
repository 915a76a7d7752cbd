"""What a call waits for: see :mod:`._calls`."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from ._protocol import Args

T = TypeVar("T")


@dataclass(slots=True)
class Send:
    """Send this once to the node, and wait for the reply."""

    node: Any
    args: Args
    timeout_s: float


@dataclass(slots=True)
class Sleep:
    """Wait so long."""

    seconds: float


@dataclass(slots=True)
class Turn:
    """Wait for the lock of a key, which is sent; None when it did not come in time."""

    key: object
    timeout_s: float


@dataclass(slots=True)
class Start:
    """Do this for all who wait for its end, whatever becomes of the one who began it."""

    steps: Steps[None]
    ended: Any


@dataclass(slots=True)
class Wait:
    """Wait for the end of what was started, which takes no longer than a call."""

    ended: Any
    timeout_s: float


Step = Send | Sleep | Turn | Start | Wait
Steps = Generator[Step, Any, T]
