"""The body of a request to a WSGI application, which its client may cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

# Other ways to read, after which the number of bytes that are left is not known.
_UNCOUNTED = frozenset({"detach", "read1", "readinto", "readinto1", "seek"})


class BodyInput:
    """Passes a body on, and notes that its client cut it.

    Then a read fails, or ends before as many bytes have come as ``length`` says.
    """

    def __init__(self, body: Any, length: str | None) -> None:
        self._body = body
        self._left = int(length) if length and length.isdecimal() else 0
        self._failed = self._ended_early = False

    @property
    def is_cut(self) -> bool:
        """True if the application has met the cut."""
        return self._failed or self._ended_early

    def read(self, *size: int) -> bytes:
        """Reads the body or a part of it."""
        return self._noted(self._body.read, size, lambda data: False)

    def readline(self, *size: int) -> bytes:
        """Reads a line or a part of it."""
        return self._noted(self._body.readline, size, lambda line: line.endswith(b"\n"))

    def readlines(self, *hint: int) -> list[bytes]:
        """Reads all lines, as the specification permits."""
        return list(self)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")

    def __getattr__(self, name: str) -> Any:
        if name in _UNCOUNTED:
            self._left = 0
        return getattr(self._body, name)

    def _noted(
        self, read: Callable[..., bytes], size: tuple[int, ...], is_whole: Callable[[bytes], bool]
    ) -> bytes:  # fmt: skip
        try:
            data = read(*size)
        except OSError:
            self._failed = True
            raise
        self._left -= len(data)
        wanted = size[0] if size else None
        if wanted != 0:
            is_full = wanted is not None and 0 < wanted <= len(data)
            self._ended_early = self._left > 0 and not is_full and not is_whole(data)
        return data
