"""A connection to a node, and the command that it carries."""

from __future__ import annotations

from typing import TypeVar

from ._steps import Call

L = TypeVar("L", bound="Link")
# Instants within this time are the same.
SAME_S = 0.0005
NEVER = float("inf")


class Link:
    """A connection, and the command that it carries: one at a time."""

    def __init__(self) -> None:
        self.generation = 0
        self.heard = -NEVER
        self.has_answered = False
        # The call that has the connection, before and after it has sent a command.
        self.holder: Call | None = None
        # The call whose command is not answered, and when that was sent.
        self.call: Call | None = None
        self.sent = self.ends = self.ends_at = 0.0
        # False while the thread of the call waits for the interpreter before it sends.
        self.is_sent = True
        # When the node first answered, on another connection, a command that was sent later.
        self.overtaken = NEVER
        # The error with which the call ended before its reply.
        self.error: Exception | None = None

    @property
    def drains(self) -> bool:
        """True if the caller has gone."""
        return self.call is not None and self.call.drains
