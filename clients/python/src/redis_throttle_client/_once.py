"""What is logged once, so that requests cannot fill the log."""

from __future__ import annotations

# The functions of which a failure is logged. Later ones may be made for each request.
MOST_FUNCTIONS = 100


class Once:
    """Remembers texts and functions that were logged."""

    def __init__(self) -> None:
        self._seen: list[object] = []

    def is_new(self, thing: object, most: int | None = None) -> bool:
        """Returns True once for a thing, and never if there are already ``most`` others."""
        if most is not None and len(self._seen) >= most:
            return False
        if any(one is thing for one in self._seen):
            return False
        self._seen.append(thing)
        return True
