"""Finds the back end of a server: the module, the function library, or the library as a script.

A limiter remembers its choice. A call that was refused before it ran starts a new search, and is
then sent again. A call that may have run is not sent again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from .._rules.errors import counted, is_rejection, types_of
from .._rules.options import Backend, BackendOption
from .call import Call, Send, Turn
from .library import bundled_version, library, script, script_sha, version
from .words import Args, as_function, as_script, key_of, probe, without_policies

_Steps = Generator[Send | Turn, Any, Any]
# The maximum number of attempts to load the library. An attempt fails if another client loads a
# library between this client's FCALL and its LOAD.
_MOST_LOADS = 3
_MOST_REPEATS = 2


def unexecuted(error: Exception, sent: Args) -> bool:
    """Returns True if an error reply proves that the call did not run."""
    text, command = str(error).removeprefix("ERR "), sent[0]
    if command.startswith("EVAL"):
        return "NoScriptError" in types_of(error) or text.startswith("NOSCRIPT")
    if command.startswith("FCALL") and text == "Function not found":
        return True
    if not command.startswith(("RL.", "FCALL")):
        return False
    # Redis 6 and older put another quote before the name.
    return text.startswith((f"unknown command '{command}'", f"unknown command `{command}`"))


def _is_lost(error: BaseException) -> bool:
    """Returns True if the connection was lost. The next call may then reach another server."""
    is_disconnected = "ConnectionError" in types_of(error) or isinstance(error, ConnectionError)
    return is_disconnected and not is_rejection(error) and "max number of clients" not in str(error)


def _late() -> Exception:
    return counted("the search for the back end took too long", "overloaded")


class Found(NamedTuple):
    """A back end and the number of searches so far. If ``is_guess`` is true, the next search starts
    with this back end.
    """

    by: Backend | None
    searches: int
    is_guess: bool = False


class Choice:
    """The back end that a limiter was configured to use, and the one that it found."""

    def __init__(
        self, wanted: BackendOption, clock: Callable[[], float], find_node: Callable[[str], Any]
    ) -> None:
        self._wanted, self._clock, self._find_node = wanted, clock, find_node
        # An older library would reply too, so ``functions`` starts with a search, which checks the
        # version.
        first: Backend | None = (
            "module" if wanted == "auto" else None if wanted == "functions" else wanted
        )
        self.found = Found(first, 0, is_guess=True)
        # The number of the last search on each node.
        self._searched: dict[Any, int] = {}

    def written(self, args: Args, by: Backend | None) -> Args:
        """Returns the call in the form that this back end expects."""
        if by == "module" or by is None or not args[0].startswith("RL."):
            return args
        args = without_policies(args)
        return as_function(args) if by == "functions" else as_script(args, "EVALSHA", script_sha())

    def again(self, node: Any, args: Args, tried: Found, error: Exception, call: Call) -> _Steps:
        """Sends again a call that did not run. Returns its reply or raises its error."""
        if self._wanted == "module":
            raise error
        left = _MOST_REPEATS
        while True:
            left -= 1
            # In a cluster the call may have been redirected.
            node = getattr(error, "replied_by", node)
            tried = yield from self.find(node, args, tried, call)
            sent = self.written(args, tried.by)
            try:
                if call.left_s <= 0:
                    raise _late()
                return (yield Send(node, sent, call))
            except Exception as next_error:
                # A back end that another call found may be gone again. Raise if it stays missing.
                if not left or not unexecuted(next_error, sent):
                    raise
                error = next_error

    def lost(self, error: BaseException) -> None:
        """After a lost connection, lets the next call try the module, which may now be loaded."""
        if self._wanted == "auto" and self.found.by != "module" and _is_lost(error):
            self.found = Found("module", self.found.searches, is_guess=True)

    def find(self, node: Any, args: Args, tried: Found, call: Call) -> _Steps:
        """Finds the back end of a node. One search serves all calls that wait for it."""
        began = self._clock()
        turn = yield Turn(("back end", node), max(0.0, call.left_s))
        if turn is None:
            raise _late()
        call.left_s -= self._clock() - began
        try:
            found = self.found
            if found.is_guess or self._searched.get(node, 0) <= tried.searches:
                by = yield from self._search(node, args, tried.by, call)
                self.found = found = Found(by, self.found.searches + 1)
                self._searched[node] = found.searches
            return found
        finally:
            turn.release()

    def _search(self, node: Any, args: Args, tried: Backend | None, call: Call) -> _Steps:
        """Returns the back end of a node. Loads the library if the server allows it."""
        if self._wanted == "functions":
            yield from self._load(node, args, call)
            return "functions"
        if self._wanted == "auto":
            if tried in ("functions", "script") and (yield from self._has_module(node, args, call)):
                return "module"
            # If this search does not end in time, the next one continues from here.
            self.found = Found(None, self.found.searches, is_guess=True)
            if (yield from self._takes_library(node, args, call)):
                return "functions"
            self.found = Found("script", self.found.searches, is_guess=True)
        yield from self._load_script(node, args, tried, call)
        return "script"

    def _query(self, node: Any, args: Args, call: Call) -> _Steps:
        """Sends a command of the search, in the time of the call."""
        if call.left_s <= 0:
            raise _late()
        query = Call(call.left_s)
        query.is_probe, query.is_kept, query.is_patient, query.dial_s = (
            call.is_probe, call.is_kept, call.is_patient, call.dial_s,
        )  # fmt: skip
        try:
            return (yield Send(node, args, query))
        finally:
            call.left_s = query.left_s

    def _has_module(self, node: Any, args: Args, call: Call) -> _Steps:
        """Returns True if the server has the module, even if it refuses the call."""
        query = probe(args[1])
        try:
            yield from self._query(node, query, call)
        except Exception as error:
            if not is_rejection(error) or "AuthenticationError" in types_of(error):
                raise
            return not unexecuted(error, query)
        return True

    def _takes_library(self, node: Any, args: Args, call: Call) -> _Steps:
        try:
            yield from self._load(node, args, call)
        except Exception as error:
            # A server refuses the script to an unauthenticated client too. A replica accepts it,
            # for reading.
            refused = is_rejection(error) and "AuthenticationError" not in types_of(error)
            if not refused and "ReadOnlyError" not in types_of(error):
                raise
            return False
        return True

    def _load(self, node: Any, args: Args, call: Call) -> _Steps:
        """Loads the library, unless the server has the same or a newer one."""
        for left in reversed(range(_MOST_LOADS)):
            there = yield from self._version(node, args, call)
            if there is not None and there >= bundled_version():
                return
            # Use REPLACE only over an older version, so that no newer library is overwritten.
            replace = () if there is None else ("REPLACE",)
            # The cluster's map is known by now. The load itself has no key to route it.
            to = self._find_node(key_of(args)) if node is None else node
            try:
                yield from self._query(to, ("FUNCTION", "LOAD", *replace, library()), call)
            except Exception as error:
                taken = re.match(r"(ERR )?Library '.*' already exists", str(error))
                if not left or not taken:
                    raise
            else:
                return

    def _load_script(self, node: Any, args: Args, tried: Backend | None, call: Call) -> _Steps:
        """Loads the script by running it, which needs no permission beyond running it."""
        rest = ("1", key_of(args), "VERSION") if node is None else ("0", "VERSION")
        if tried != "script":
            # Send EVALSHA first, because a server refuses it to an unauthenticated client. For a
            # text as long as the script, the server would close that client's connection.
            try:
                yield from self._query(node, ("EVALSHA", script_sha(), *rest), call)
            except Exception as error:
                if not unexecuted(error, ("EVALSHA",)):
                    raise
            else:
                return
        yield from self._query(node, ("EVAL", script(), *rest), call)

    def _version(self, node: Any, args: Args, call: Call) -> _Steps:
        key = key_of(args)
        query = ("FCALL", "rl_version", *(("0",) if node is not None else ("1", key)))
        try:
            return version((yield from self._query(node, query, call)))
        except Exception as error:
            if str(error).removeprefix("ERR ") == "Function not found":
                return None
            raise
