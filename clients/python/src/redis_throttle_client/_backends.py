"""Who answers: the module, the library of functions, or the same library as a script.

A limiter remembers one choice. A call that was refused before it ran is answered by choosing
anew, and is then repeated once; what may have run is not repeated.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Generator
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args

from ._errors import InvalidArgument, Unavailable, is_mistake
from ._protocol import Args, as_function, as_script, probe
from ._steps import Send

Backend = Literal["module", "functions", "script"]
BackendOption = Literal["auto", "module", "functions", "script"]
_Steps = Generator[Send, Any, Any]
# Somebody may load a library between our question and our answer to it; he does so once.
_MOST_LOADS = 3


def checked_backend(wanted: object) -> None:
    """Refuses what is no back end."""
    if wanted not in get_args(BackendOption):
        raise InvalidArgument("backend: expected 'auto', 'module', 'functions' or 'script'")


@cache
def library() -> str:
    """The library of functions, ``functions/redis_throttle.lua`` of the repository."""
    return (files(__package__) / "redis_throttle.lua").read_text(encoding="utf-8")


@cache
def script() -> str:
    """The library as a script, ``functions/redis_throttle_script.lua``."""
    return (files(__package__) / "redis_throttle_script.lua").read_text(encoding="utf-8")


@cache
def script_sha() -> str:
    """The name of the script on a server."""
    return hashlib.sha1(script().encode(), usedforsecurity=False).hexdigest()


def version(text: object) -> tuple[int, ...]:
    """A version as numbers, the higher the newer."""
    text = text.decode() if isinstance(text, bytes) else str(text)
    return tuple(int(number) for number in re.findall(r"[0-9]+", text)[:3])


@cache
def bundled_version() -> tuple[int, ...]:
    """The version of the library that comes with this package."""
    found = re.search(r"^local VERSION = '([^']+)'", library(), re.MULTILINE)
    return version(found[1] if found else "")


def unexecuted(error: Exception, sent: Args) -> bool:
    """Whether an error reply proves that the call did not run: its command is not there."""
    text, command = str(error).removeprefix("ERR "), sent[0]
    if command.startswith("EVAL"):
        named = any(base.__name__ == "NoScriptError" for base in type(error).__mro__)
        return named or text.startswith("NOSCRIPT")
    if command.startswith("FCALL") and text == "Function not found":
        return True
    if not command.startswith(("RL.", "FCALL")):
        return False
    # Redis 6 and older put the name between other marks.
    return text.startswith((f"unknown command '{command}'", f"unknown command `{command}`"))


class Choice:
    """The back end of a limiter: what is wanted, and what was found."""

    def __init__(self, wanted: BackendOption, clock: Callable[[], float]) -> None:
        self._wanted, self._clock = wanted, clock
        # Functions of an older version answer too, so these are looked at before the first call.
        self.found: Backend | None = (
            "module" if wanted == "auto" else None if wanted == "functions" else wanted
        )

    def written(self, args: Args, by: Backend) -> Args:
        """A call as this back end takes it."""
        if by == "module" or not args[0].startswith("RL."):
            return args
        return as_function(args) if by == "functions" else as_script(args, "EVALSHA", script_sha())

    def again(
        self, node: Any, args: Args, tried: Backend, error: Exception, deadline: float
    ) -> _Steps:
        """The reply to a call that did not run, sent once more; or its error."""
        if self._wanted == "module":
            raise error
        # In a cluster the call may have been led elsewhere.
        node = getattr(error, "answered_by", node)
        if self.found == tried:
            yield from self.find(node, args, deadline, tried)
        if self.found == "script":
            sent = as_script(args, "EVAL", script())
        else:
            sent = self.written(args, self.found or tried)
        return (yield self._send(node, sent, deadline))

    def find(self, node: Any, args: Args, deadline: float, tried: Backend | None = None) -> _Steps:
        """Chooses by what the server has; the library is loaded where it may be."""
        found: Backend = "script"
        if self._wanted == "functions":
            yield from self._load(node, deadline)
            found = "functions"
        elif self._wanted == "auto":
            if tried != "module" and (yield from self._has_module(node, args, deadline)):
                found = "module"
            elif (yield from self._takes_library(node, deadline)):
                found = "functions"
        self.found = found
        return found

    def _send(self, node: Any, args: Args, deadline: float) -> Send:
        left_s = deadline - self._clock()
        if left_s <= 0:
            raise Unavailable("no answer in time")
        return Send(node, args, left_s)

    def _has_module(self, node: Any, args: Args, deadline: float) -> _Steps:
        """Whether the module answers; that it may not be asked this is an answer too."""
        asked = probe(args[1])
        try:
            yield self._send(node, asked, deadline)
        except Exception as error:
            if not is_mistake(error):
                raise
            return not unexecuted(error, asked)
        return True

    def _takes_library(self, node: Any, deadline: float) -> _Steps:
        try:
            yield from self._load(node, deadline)
        except Exception as error:
            if not is_mistake(error):
                raise
            return False
        return True

    def _load(self, node: Any, deadline: float) -> _Steps:
        """Our library, unless this one or a newer one is there: a newer serves older callers."""
        for left in reversed(range(_MOST_LOADS)):
            there = yield from self._version(node, deadline)
            if there is not None and there >= bundled_version():
                return
            # Without REPLACE where there was none: so nobody's newer one is overwritten.
            replace = () if there is None else ("REPLACE",)
            try:
                yield self._send(node, ("FUNCTION", "LOAD", *replace, library()), deadline)
            except Exception as error:
                if not left or "already exists" not in str(error):
                    raise
            else:
                return

    def _version(self, node: Any, deadline: float) -> _Steps:
        asked = ("FCALL", "rl_version", "0")
        try:
            return version((yield self._send(node, asked, deadline)))
        except Exception as error:
            if str(error).removeprefix("ERR ") == "Function not found":
                return None
            raise
