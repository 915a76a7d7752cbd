"""The text of the library: of the functions, and of the script."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files


@cache
def library() -> str:
    """Returns the function library, ``functions/redis_throttle.lua`` in the repository."""
    return (files(__package__) / "redis_throttle.lua").read_text(encoding="utf-8")


@cache
def script() -> str:
    """Returns the library as a script, ``functions/redis_throttle_script.lua``."""
    return (files(__package__) / "redis_throttle_script.lua").read_text(encoding="utf-8")


@cache
def script_sha() -> str:
    """Returns the hash by which a server knows the script."""
    return hashlib.sha1(script().encode(), usedforsecurity=False).hexdigest()


def version(text: object) -> tuple[int, ...]:
    """Returns a version as a tuple of numbers, which can be compared."""
    text = text.decode() if isinstance(text, bytes) else str(text)
    return tuple(int(number) for number in re.findall(r"[0-9]+", text)[:3])


@cache
def bundled_version() -> tuple[int, ...]:
    """Returns the version of the library in this package."""
    found = re.search(r"^local VERSION = '([^']+)'", library(), re.MULTILINE)
    return version(found[1] if found else "")
