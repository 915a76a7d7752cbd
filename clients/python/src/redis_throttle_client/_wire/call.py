"""A call, and the steps for which it waits: see :mod:`.._calls.steps`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from .words import Args

T = TypeVar("T")


class Call:
    """The time that a call has left to wait, and what happens to its command.

    ``left_s`` is in run time. It does not shrink while the call waits for the first dial to a node.
    """

    # The instant of the clock at which it ends in any case, set by the transport.
    ends_at = 0.0
    # Returns the known denial of the call, if there is one. Called under pressure.
    known: Callable[[], Any] | None = None
    # Reads the reply. The transport calls it once, before another call takes the connection.
    read: Callable[[Any], Any] | None = None
    result: Any = None
    node: Any = None
    # Takes the outcome of a command whose caller has gone: the result of ``read``, or an error.
    late: Callable[[Call, Any], None] | None = None
    # Gives back what the command took, after such an outcome.
    then: Callable[[Any], None] | None = None
    # True for the call that probes a node whose breaker is open.
    is_probe = False
    # True for the renewal or the end of a hold, which has a slot of its own.
    is_kept = False
    # True for a call that a silent node ends only when its time is over.
    is_patient = False
    # True if the server may have run the command, although there is no reply.
    may_have_run = True
    # True for a command whose effect is given back if its caller goes.
    gives_back = False
    # True if the caller has gone, and the reply is still awaited.
    drains = False
    # True from then on.
    was_left = False
    # The time that a dial has which begins for this call, if that is longer than others have.
    dial_s = 0.0

    def __init__(self, left_s: float) -> None:
        self.left_s = left_s


@dataclass(slots=True)
class Send:
    """Sends a command of a call once to the node, and waits for the reply."""

    node: Any
    args: Args
    call: Call


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
