"""The body of a request to a WSGI application, which its client may cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

# These bypass the counted reads, so that an early end can no longer be noticed.
_UNCOUNTED = frozenset({"detach", "read1", "readinto1", "seek"})
# A longer length is not one that a server accepts, and Python refuses to read a very long number.
_DIGITS = 20


class BodyInput:
    """Wraps a body, and notes if its client cuts it.

    A cut shows as a failed read, or as fewer bytes than ``length`` says.
    """

    def __init__(self, body: Any, length: str | None) -> None:
        self._body = body
        is_known = length is not None and length.isdecimal() and len(length) < _DIGITS
        self._left = int(length) if length and is_known else 0
        self._failed = self._ended_early = False

    @property
    def is_cut(self) -> bool:
        """True if the application has met the cut."""
        return self._failed or self._ended_early

    def read(self, *size: int) -> bytes:
        """Reads the body or a part of it."""
        return self._noted(self._body.read, size, lambda data: False)

    def readinto(self, buffer: Any) -> int:
        """Reads a part of the body into a buffer, as Werkzeug does if the body has this method."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readline(self, *size: int) -> bytes:
        """Reads a line or a part of it."""
        return self._noted(self._body.readline, size, lambda line: line.endswith(b"\n"))

    def readlines(self, *hint: int) -> list[bytes]:
        """Reads all lines, as the specification permits."""
        return list(self)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._body, name)
        return partial(self._uncounted, found) if name in _UNCOUNTED else found

    def _uncounted(self, act: Callable[..., Any], *args: Any) -> Any:
        self._left = 0
        return self._tried(act, args)

    def _tried(self, act: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        try:
            return act(*args)
        except OSError:
            self._failed = True
            raise

    def _noted(
        self, read: Callable[..., bytes], size: tuple[int, ...], is_whole: Callable[[bytes], bool]
    ) -> bytes:  # fmt: skip
        data: bytes = self._tried(read, size)
        self._left -= len(data)
        wanted = size[0] if size else None
        if wanted != 0:
            is_full = wanted is not None and 0 < wanted <= len(data)
            self._ended_early = self._left > 0 and not is_full and not is_whole(data)
        return data
