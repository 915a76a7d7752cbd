"""Forks: the child forgets what belongs to its parent."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forgetting(Protocol):
    """An object whose state belongs to one process."""

    def begin(self) -> None:
        """Resets the state, at creation and in the child of a fork."""


_everyone: weakref.WeakSet[Forgetting] = weakref.WeakSet()


def forgets(one: Forgetting) -> None:
    """Calls ``one.begin()`` now, and in each forked child."""
    one.begin()
    _everyone.add(one)


def _begin_in_child() -> None:
    for one in list(_everyone):
        one.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)
